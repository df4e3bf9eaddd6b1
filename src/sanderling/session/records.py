"""
The records of a session's log (`doc/formats.md`). `codec.py` encodes them as lines.

Adding a field keeps the version. A change that old readers would misinterpret raises it.
"""

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from sanderling import __version__
from sanderling.protocol.events import ChildState, FilesRestored
from sanderling.protocol.messages import (
    CommandRecord,
    Message,
    Prompt,
    StopReason,
    ToolResult,
    Usage,
)

# Also raised where an older Sanderling would ignore what must hold: `access` and `worktree` of the header.
LOG_VERSION = 7
READABLE_VERSIONS = (6, LOG_VERSION)

_SESSION_ID = r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}"


def is_session_id(text: str) -> bool:
    """Return whether `text` is a valid session id: a file name that is valid on every system."""
    return bool(re.fullmatch(_SESSION_ID, text))


def new_session_id() -> str:
    """Return the current time plus random digits, since a script may start many sessions in one second."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"  # noqa: DTZ005 - the user's local time


def now() -> datetime:
    return datetime.now(UTC)


StateKey = Literal[
    "shell",
    "todo",
    "title",
    "model",
    "effort",
    "mode",
    "role",
    "waiting",
    "told",
    "grants",
    "agent",
    "proposed",
]


class Header(msgspec.Struct, tag="session", frozen=True):
    """
    `forked_from` is the id of the session that the first records come from; `face` is the frontend, unless it was an editor.

    `parent` is the id of the session that started this one for a part of its task. `access` is "ro" if nothing that runs in the session may
    ever write to the project.

    `worktree` is the name of the worktree of `project` in which the session works, if it does not work in the project itself.
    """

    version: int
    session_id: str
    project: str
    sanderling: str = __version__
    at: datetime = msgspec.field(default_factory=now)
    forked_from: str | msgspec.UnsetType = msgspec.UNSET
    face: str | msgspec.UnsetType = msgspec.UNSET
    parent: str | msgspec.UnsetType = msgspec.UNSET
    access: Literal["ro"] | msgspec.UnsetType = msgspec.UNSET
    worktree: str | msgspec.UnsetType = msgspec.UNSET


class LoggedPrompt(msgspec.Struct, tag="prompt", frozen=True):
    """A prompt, logged before the first record that refers to it by `number`."""

    number: int
    prompt: Prompt
    at: datetime = msgspec.field(default_factory=now)


class LoggedMessage(msgspec.Struct, frozen=True):
    """`prompt` is the prompt that the message was made from, if any; `steered` are prompts sent during a turn."""

    message: Message
    prompt: Prompt | None = None
    at: datetime = msgspec.field(default_factory=now)
    steered: tuple[Prompt, ...] = ()


class LoggedCommand(msgspec.Struct, tag="command", frozen=True):
    """A user's command. The next prompt includes it."""

    record: CommandRecord
    at: datetime = msgspec.field(default_factory=now)


class LoggedToolStart(msgspec.Struct, tag="tool_started", frozen=True):
    """A tool starts to run and may have effects from here on. A call without this record was not run."""

    tool_use_id: str
    at: datetime = msgspec.field(default_factory=now)


class LoggedState(msgspec.Struct, tag="state", frozen=True):
    """The state of a part of the session, to be restored on resume. The last record of a `key` counts."""

    key: StateKey
    value: Any
    at: datetime = msgspec.field(default_factory=now)


class LoggedPartial(msgspec.Struct, tag="partial", frozen=True):
    """A piece of an answer that is still streaming. The answer's message replaces all pieces before it."""

    block: Literal["text", "thinking"]
    text: str
    at: datetime = msgspec.field(default_factory=now)


class LoggedTurnEnd(msgspec.Struct, tag="turn_ended", frozen=True, omit_defaults=True):
    stop_reason: StopReason
    error: str = ""
    at: datetime = msgspec.field(default_factory=now)


class LoggedRestart(msgspec.Struct, tag="restarted", frozen=True):
    """The answer was cut off and starts again: the pieces before this record are void."""

    at: datetime = msgspec.field(default_factory=now)


class LoggedToolEnd(msgspec.Struct, tag="tool_ended", frozen=True, omit_defaults=True):
    """
    The end of a tool call, as the screen shows it; the model gets the message that follows.

    `result` is set if that message has to wait for other calls. The first `output_chars` of the result are output that was shown live.
    `changed` are the files that the call of a child session has changed, as shown.
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
    changed: tuple[str, ...] = ()

    def block(self, result_text: str) -> str:
        """Return the text of the call's block, for the result `result_text`: a command's output, followed by the detail."""
        return "\n".join(filter(None, (result_text[: self.output_chars or 0], self.detail)))


class LoggedUsage(msgspec.Struct, tag="usage", frozen=True, omit_defaults=True):
    """
    The tokens of one request. `is_aside`: the request was outside the session's turns, such as an inline edit.

    `child` is the child session that made the request, whose own log has the same tokens again. `missed_tokens` were sent again although
    the API's cache could have had them; `missed_why` says why it had not.
    """

    model: str
    usage: Usage
    at: datetime = msgspec.field(default_factory=now)
    is_aside: bool = False
    missed_tokens: int = 0
    missed_why: str = ""
    child: str = ""


class LoggedChild(msgspec.Struct, tag="child", frozen=True, omit_defaults=True):
    """A tool call starts the child session `id`, before its first request; with a `state`, it has ended so."""

    id: str
    tool_use_id: str
    name: str = ""
    task: str = ""
    state: ChildState | Literal[""] = ""
    at: datetime = msgspec.field(default_factory=now)


class LoggedClearing(msgspec.Struct, tag="cleared", frozen=True):
    """Texts that replace the results of these tool calls from here on."""

    results: dict[str, str]
    before_tokens: int
    after_tokens: int
    at: datetime = msgspec.field(default_factory=now)


class LoggedSummary(msgspec.Struct, tag="summarized", frozen=True):
    """A summary: from here on `history` replaces everything before."""

    history: tuple[Message, ...]
    summary: str
    before_tokens: int
    after_tokens: int
    at: datetime = msgspec.field(default_factory=now)


class LoggedUndo(msgspec.Struct, tag="compaction_undone", frozen=True):
    """Undoes the last `cleared` or `summarized` record that is not undone yet."""

    at: datetime = msgspec.field(default_factory=now)


class LoggedRestored(msgspec.Struct, tag="restored", frozen=True, omit_defaults=True):
    """
    The user undid or redid changes of files. The next prompt informs the model.

    `undoing_id` is the id in the journal of changes. `removed` are the restored files that do not exist any more.
    """

    restored: FilesRestored
    undoing_id: str = ""
    removed: tuple[str, ...] = ()
    at: datetime = msgspec.field(default_factory=now)


class LoggedRewind(msgspec.Struct, tag="rewound", frozen=True):
    """Removes everything from the prompt `prompt_id` on, which begins with `text`, from the history."""

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
    | LoggedChild
    | LoggedClearing
    | LoggedSummary
    | LoggedUndo
    | LoggedRestored
    | LoggedRewind
)
"""Records that are encoded as they are."""
Record = Line | LoggedMessage


def without_left_ends(records: Iterable[Record], *, goes_on: bool = False) -> Iterator[Record]:
    """Yield `records` without "interrupted" ends of turns that continued remotely. `goes_on`: the last turn still does."""
    left: list[Record] = []  # such an end, perhaps, and the records after it
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


class ToolRecords:
    """What `records` say about tool calls, by the calls' ids."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.begun: set[str] = set()
        self.ended: dict[str, LoggedToolEnd] = {}
        self.results: dict[str, ToolResult] = {}
        for record in records:
            match record:
                case LoggedToolStart(tool_use_id=use_id):
                    self.begun.add(use_id)
                case LoggedToolEnd(tool_use_id=use_id):
                    self.ended[use_id] = record
                case LoggedMessage(message=message):
                    results = [each for each in message.content if isinstance(each, ToolResult)]
                    self.results |= {each.tool_use_id: each for each in results}
                case _:
                    pass


def begins_page(record: Record) -> bool:
    """Return whether a page of the transcript can begin with `record`. Results belong to the tool calls before them."""
    match record:
        case LoggedMessage(message=message, prompt=prompt):
            return bool(prompt) or message.role == "assistant"
        case LoggedCommand():
            return True
        case _:
            return False
