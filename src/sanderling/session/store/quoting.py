"""The last words of another session, for a prompt that mentions it."""

from pathlib import Path

import msgspec

from sanderling.errors import SessionError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import LoggedMessage, LoggedState, LoggedSummary
from sanderling.session.session import derived_title


class LastWords(msgspec.Struct, frozen=True):
    """The title of a session and the last answer in it, below what was said before in short, if that was summarized."""

    title: str
    text: str


def last_words(session_dir: Path, session_id: str) -> LastWords:
    """
    Return the last answer of a session, and its summary.

    Raises:
        SessionError: there is none, its log cannot be read, or nothing was answered in it.
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
        raise SessionError("no answer was given in it")
    before = f"What was said before, in short:\n\n{summary}\n\n" if summary else ""
    return LastWords(named or title, f"{before}{answer}")


def _text(message: Message) -> str:
    if message.role == "user":
        return ""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    return "\n\n".join(filter(str.strip, texts))
