"""The agent that answers in a session, where that is none of ours, as the log knows it."""

import msgspec
from msgspec import UNSET, UnsetType

from sanderling.session.session import Session


class KeptPosition(msgspec.Struct, frozen=True):
    """The position up to which it was shown (`acp.ours.Position`): `life` and `seq`, and all else that it said of that."""

    life: str = ""
    seq: int | UnsetType = UNSET
    is_continued: bool | UnsetType = UNSET
    running: str | UnsetType = UNSET


class KeptAgent(msgspec.Struct, frozen=True):
    """
    The agent `name`, with its own id for the session, which is `of` one of ours. A field that is unset is not in the log.

    `turn` is the prompt whose turn goes on there; `whole`: nothing of it was shown yet.
    """

    name: str = ""
    session: str = ""
    of: str = ""
    turn: str | UnsetType = UNSET
    whole: bool | UnsetType = UNSET
    seen: KeptPosition | UnsetType = UNSET


def kept_agent(session: Session) -> KeptAgent:
    """The agent of `session`, or one without a name; of the one that this is a fork of, only the name holds here."""
    try:
        kept = msgspec.convert(session.state("agent"), KeptAgent)
    except msgspec.ValidationError:
        return KeptAgent()
    return kept if kept.of == session.id else KeptAgent(kept.name)


def keep_agent(session: Session, kept: KeptAgent) -> None:
    session.keep_state("agent", msgspec.to_builtins(kept))
