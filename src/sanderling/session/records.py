"""
The records of a session's log (`doc/sanderling.txt`, section sanderling-session-log); `codec.py` makes lines of them.

A field that is added keeps the version; what old readers would get wrong raises it.
"""

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from sanderling import __version__
from sanderling.protocol.messages import (
    CommandRecord,
    Message,
    Prompt,
    StopReason,
    ToolResult,
    Usage,
)
from sanderling.protocol.restoring import FilesRestored

LOG_VERSION = 6
READABLE_VERSIONS = (4, 5, 6)
"""
The log versions that can be read.

4 had whole prompts where 5 has their numbers, and told in words how a command ended; 5 had no `rewound`, after which the model is
shown less.
"""


_SESSION_ID = r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}"


def is_session_id(text: str) -> bool:
    """Say whether a session can be called `text`: it is the name of a file, on every system."""
    return bool(re.fullmatch(_SESSION_ID, text))


def new_session_id() -> str:
    """The moment, and what tells apart those of the same second, of which a script may start many."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"  # noqa: DTZ005 - the person's own time


def now() -> datetime:
    return datetime.now(UTC)


StateKey = Literal["shell", "todo", "title", "model", "mode", "waiting", "told", "grants", "agent"]


class Header(msgspec.Struct, tag="session", frozen=True):
    """`forked_from` is the id of the session whose first records these are, `face` where it began, if not in an editor."""

    version: int
    session_id: str
    project: str
    sanderling: str = __version__
    at: datetime = msgspec.field(default_factory=now)
    forked_from: str | msgspec.UnsetType = msgspec.UNSET
    face: str | msgspec.UnsetType = msgspec.UNSET


class LoggedPrompt(msgspec.Struct, tag="prompt", frozen=True):
    """A prompt, before the first record that has its `number` in its place."""

    number: int
    prompt: Prompt
    at: datetime = msgspec.field(default_factory=now)


class LoggedMessage(msgspec.Struct, frozen=True):
    """`prompt` is what the person sent, when the message came from one; `steered` is what they said in the middle of a turn."""

    message: Message
    prompt: Prompt | None = None
    at: datetime = msgspec.field(default_factory=now)
    steered: tuple[Prompt, ...] = ()


class LoggedCommand(msgspec.Struct, tag="command", frozen=True):
    """The model is told of it with the next prompt."""

    record: CommandRecord
    at: datetime = msgspec.field(default_factory=now)


class LoggedToolStart(msgspec.Struct, tag="tool_started", frozen=True):
    """A tool begins its work: from here on it may have had effects; a use without this record has not been run."""

    tool_use_id: str
    at: datetime = msgspec.field(default_factory=now)


class LoggedState(msgspec.Struct, tag="state", frozen=True):
    """The state of a part of the session, for when it is resumed; the last of its `key` counts."""

    key: StateKey
    value: Any
    at: datetime = msgspec.field(default_factory=now)


class LoggedPartial(msgspec.Struct, tag="partial", frozen=True):
    """A piece of an answer that is still streaming; the answer's own record supersedes all pieces before it."""

    block: Literal["text", "thinking"]
    text: str
    at: datetime = msgspec.field(default_factory=now)


class LoggedTurnEnd(msgspec.Struct, tag="turn_ended", frozen=True, omit_defaults=True):
    stop_reason: StopReason
    error: str = ""
    at: datetime = msgspec.field(default_factory=now)


class LoggedRestart(msgspec.Struct, tag="restarted", frozen=True):
    """The answer was cut off and begins anew: the pieces before this are superseded."""

    at: datetime = msgspec.field(default_factory=now)


class LoggedToolEnd(msgspec.Struct, tag="tool_ended", frozen=True, omit_defaults=True):
    """
    The end of a tool use as the screen shows it; what the model is told stands in the message that follows.

    `result` is that, too, where the message must wait for other tool uses. Of what writes while it runs, that begins with `output_chars` of output.
    """

    tool_use_id: str
    title: str = ""
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    result: ToolResult | None = None
    at: datetime = msgspec.field(default_factory=now)
    output_chars: int | None = None

    def block(self, told: str) -> str:
        """The text of its block, if the model was `told` that: a command's output, and what stands below it."""
        return "\n".join(filter(None, (told[: self.output_chars or 0], self.detail)))


class LoggedUsage(msgspec.Struct, tag="usage", frozen=True, omit_defaults=True):
    """The tokens that one request has used; one that `is_aside` was about no turn of the session: an edit."""

    model: str
    usage: Usage
    at: datetime = msgspec.field(default_factory=now)
    is_aside: bool = False


class LoggedClearing(msgspec.Struct, tag="cleared", frozen=True):
    """Texts that stand for the results of these tool uses from here on."""

    results: dict[str, str]
    before_tokens: int
    after_tokens: int
    at: datetime = msgspec.field(default_factory=now)


class LoggedSummary(msgspec.Struct, tag="summarized", frozen=True):
    """A summary: from here on `history` stands for all that was said before."""

    history: tuple[Message, ...]
    summary: str
    before_tokens: int
    after_tokens: int
    at: datetime = msgspec.field(default_factory=now)


class LoggedUndo(msgspec.Struct, tag="compaction_undone", frozen=True):
    """The last `cleared` or `summarized` that was not undone yet counts no longer."""

    at: datetime = msgspec.field(default_factory=now)


class LoggedRestored(msgspec.Struct, tag="restored", frozen=True, omit_defaults=True):
    """
    The person has taken back what was changed in files, or has had it made again; the model is told of it with the next prompt.

    `undoing_id` is how the journal of changes calls that.
    """

    restored: FilesRestored
    undoing_id: str = ""
    at: datetime = msgspec.field(default_factory=now)


class LoggedRewind(msgspec.Struct, tag="rewound", frozen=True):
    """All that was said from the prompt `prompt_id` on, which begins with `text`, counts no longer, for the model."""

    prompt_id: str
    text: str
    after_tokens: int
    at: datetime = msgspec.field(default_factory=now)


Line = (
    Header
    | LoggedPrompt
    | LoggedCommand
    | LoggedToolStart
    | LoggedState
    | LoggedPartial
    | LoggedTurnEnd
    | LoggedRestart
    | LoggedToolEnd
    | LoggedUsage
    | LoggedClearing
    | LoggedSummary
    | LoggedUndo
    | LoggedRestored
    | LoggedRewind
)
"""Records that are written as they are."""
Record = Line | LoggedMessage


def without_left_ends(records: Iterable[Record], *, goes_on: bool = False) -> Iterator[Record]:
    """`records` without the ends of turns that have gone on elsewhere when the session was left; `goes_on`: the last one still does."""
    left: list[Record] = []  # such an end, maybe, and what comes after it
    for record in records:
        if left and isinstance(record, LoggedMessage | LoggedTurnEnd):
            is_new = isinstance(record, LoggedMessage) and record.prompt is not None
            yield from left if is_new else left[1:]
            left = []
        if left or (isinstance(record, LoggedTurnEnd) and record.stop_reason == "interrupted"):
            left.append(record)
        else:
            yield record
    yield from left[1:] if goes_on else left


def begins_page(record: Record) -> bool:
    """Say whether a page of the transcript can begin with `record`: results belong to the tool uses before them."""
    match record:
        case LoggedMessage(message=message, prompt=prompt):
            return bool(prompt) or message.role == "assistant"
        case LoggedCommand():
            return True
        case _:
            return False
