"""Connections to remote sessions, as the screen shows them."""

from typing import Literal

import msgspec


class ConnectionChanged(msgspec.Struct, tag="connection_changed", frozen=True, omit_defaults=True):
    """
    The connection to `name` has a new state.

    waiting: it ended because of `why`, and `attempt` number `attempt` starts in `delay_s`. refused: no further attempts until the user
    acts. closed: no longer needed.
    """

    state: Literal["connecting", "connected", "waiting", "refused", "closed"]
    name: str
    why: str = ""
    delay_s: float = 0
    attempt: int = 0
