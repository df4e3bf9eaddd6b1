"""The external agent of a session, as recorded in its log."""

import msgspec
from msgspec import UNSET, UnsetType

from sanderling.session.session import Session


class KeptPosition(msgspec.Struct, frozen=True):
    """The position up to which updates were shown: `life` and `seq`, and the other fields of `acp.ours.Position`."""

    life: str = ""
    seq: int | UnsetType = UNSET
    is_continued: bool | UnsetType = UNSET
    running: str | UnsetType = UNSET


class KeptAgent(msgspec.Struct, frozen=True):
    """
    The agent `name`, with its own id for the session. `of` is our session's id. Unset fields are not in the log.

    `turn` is the prompt whose turn is still running remotely; `whole`: nothing of that turn was shown yet.
    """

    name: str = ""
    session: str = ""
    of: str = ""
    turn: str | UnsetType = UNSET
    whole: bool | UnsetType = UNSET
    seen: KeptPosition | UnsetType = UNSET


def kept_agent(session: Session) -> KeptAgent:
    """Return the agent of `session`; without one, the name is empty. A fork keeps only the name."""
    try:
        kept = msgspec.convert(session.state("agent"), KeptAgent)
    except msgspec.ValidationError:
        return KeptAgent()
    return kept if kept.of == session.id else KeptAgent(kept.name)


def keep_agent(session: Session, kept: KeptAgent) -> None:
    session.keep_state("agent", msgspec.to_builtins(kept))
