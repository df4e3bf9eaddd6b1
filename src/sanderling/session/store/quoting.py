"""The last answer of another session, for a prompt that mentions it."""

from pathlib import Path

import msgspec

from sanderling.errors import SessionError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import LoggedMessage, LoggedState, LoggedSummary
from sanderling.session.session import derived_title


class LastWords(msgspec.Struct, frozen=True):
    """The title of a session and its last answer, preceded by its summary if it has one."""

    title: str
    text: str


def last_words(session_dir: Path, session_id: str) -> LastWords:
    """
    Return the last answer of a session, and its summary.

    Raises:
        SessionError: the session does not exist, its log cannot be read, or it has no answer.
    """
    title = named = summary = answer = ""
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        _, records = records_of(log, file)
        for record in records:
            match record:
                case LoggedState(key="title", value=str(named)):
                    pass
                case LoggedSummary(summary=summary):
                    pass
                case LoggedMessage(message=message, prompt=prompt):
                    title = title or (derived_title(prompt) if prompt else "")
                    answer = _text(message) or answer
                case _:
                    pass
    if not answer:
        raise SessionError("it has no answer yet")
    before = f"Summary of what came before:\n\n{summary}\n\n" if summary else ""
    return LastWords(named or title, f"{before}{answer}")


def _text(message: Message) -> str:
    if message.role == "user":
        return ""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    return "\n\n".join(filter(str.strip, texts))
