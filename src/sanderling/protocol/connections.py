"""Connections to sessions that live elsewhere, as the screen shows them."""

from typing import Literal

import msgspec


class ConnectionChanged(msgspec.Struct, tag="connection_changed", frozen=True, omit_defaults=True):
    """
    The connection to `name` is in another state.

    waiting: `why` it has ended, and in how many seconds another one is tried, the `attempt`th. refused: nothing is tried until the
    person has done something. closed: nobody needs it.
    """

    state: Literal["connecting", "connected", "waiting", "refused", "closed"]
    name: str
    why: str = ""
    delay_s: float = 0
    attempt: int = 0
