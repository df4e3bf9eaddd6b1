"""
The records of a session's log: JSON lines, only ever appended to (`doc/sanderling.txt`, section sanderling-session-log).

A field that is added keeps the version; what old readers would get wrong raises it.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from sanderling import __version__
from sanderling.protocol.messages import (
    CommandRecord,
    Message,
    Prompt,
    StopReason,
    ToolResult,
    Usage,
)
from sanderling.session.history import fit, fit_id
from sanderling.text import printable

LOG_VERSION = 4
READABLE_VERSIONS = (1, 2, 3, 4)
"""2 brought `command`, 3 `tool_started`, `state` and images, 4 what stands in `Record` from `restarted` on."""


_SESSION_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


def is_session_id(text: str) -> bool:
    """Whether a session can be called so: the name of a file, on every system."""
    return bool(_SESSION_ID.fullmatch(text))


def _now() -> datetime:
    return datetime.now(UTC)


StateKey = Literal["shell", "todo", "title", "model", "mode", "waiting", "told", "grants"]


class Header(msgspec.Struct, tag="session", frozen=True):
    """`forked_from` is the id of the session whose first records these are, `face` where it began, if not in an editor."""

    version: int
    session_id: str
    project: str
    sanderling: str = __version__
    at: datetime = msgspec.field(default_factory=_now)
    forked_from: str | msgspec.UnsetType = msgspec.UNSET
    face: str | msgspec.UnsetType = msgspec.UNSET


class LoggedMessage(msgspec.Struct, tag="message", frozen=True, omit_defaults=True):
    """`prompt` is what the person sent, when the message came from one; `steered` is what they said in the middle of a turn."""

    message: Message
    prompt: Prompt | None = None
    at: datetime = msgspec.field(default_factory=_now)
    steered: tuple[Prompt, ...] = ()


class LoggedCommand(msgspec.Struct, tag="command", frozen=True):
    """The model is told of it with the next prompt."""

    record: CommandRecord
    at: datetime = msgspec.field(default_factory=_now)


class LoggedToolStart(msgspec.Struct, tag="tool_started", frozen=True):
    """From here on the tool use may have had effects; one without this record has not been run."""

    tool_use_id: str
    at: datetime = msgspec.field(default_factory=_now)


class LoggedState(msgspec.Struct, tag="state", frozen=True):
    """What a part of the session has to know again when it is resumed; the last of its `key` counts."""

    key: StateKey
    value: Any
    at: datetime = msgspec.field(default_factory=_now)


class LoggedPartial(msgspec.Struct, tag="partial", frozen=True):
    """A piece of an answer that is still streaming; the answer's own record supersedes all pieces before it."""

    block: Literal["text", "thinking"]
    text: str
    at: datetime = msgspec.field(default_factory=_now)


class LoggedTurnEnd(msgspec.Struct, tag="turn_ended", frozen=True, omit_defaults=True):
    """`usage` is the turn's in versions before 4, which had no record of each request."""

    stop_reason: StopReason
    usage: Usage = Usage()
    error: str = ""
    at: datetime = msgspec.field(default_factory=_now)


class LoggedRestart(msgspec.Struct, tag="restarted", frozen=True):
    """The answer was cut off and begins anew: the pieces before this are superseded."""

    at: datetime = msgspec.field(default_factory=_now)


class LoggedToolEnd(msgspec.Struct, tag="tool_ended", frozen=True, omit_defaults=True):
    """
    What the screen shows of a tool use; what the model is told stands in the message that follows.

    `result` is that, too, where the message must wait for other tool uses.
    """

    tool_use_id: str
    title: str = ""
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    result: ToolResult | None = None
    at: datetime = msgspec.field(default_factory=_now)


class LoggedUsage(msgspec.Struct, tag="usage", frozen=True):
    """What one request has used."""

    model: str
    usage: Usage
    at: datetime = msgspec.field(default_factory=_now)


class LoggedClearing(msgspec.Struct, tag="cleared", frozen=True):
    """From here on these texts stand for the results of these tool uses."""

    results: dict[str, str]
    before_tokens: int
    after_tokens: int
    at: datetime = msgspec.field(default_factory=_now)


class LoggedSummary(msgspec.Struct, tag="summarized", frozen=True):
    """From here on `history` stands for all that was said before."""

    history: tuple[Message, ...]
    summary: str
    before_tokens: int
    after_tokens: int
    at: datetime = msgspec.field(default_factory=_now)


class LoggedUndo(msgspec.Struct, tag="compaction_undone", frozen=True):
    """The last `cleared` or `summarized` that was not undone yet counts no longer."""

    at: datetime = msgspec.field(default_factory=_now)


Record = (
    Header
    | LoggedMessage
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
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """`record` in one line. What is no text in any encoding, halves of surrogate pairs, becomes U+FFFD."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False)
        return _encoder.encode(json.loads(printable(text)))


def begins_page(record: Record) -> bool:
    """Whether what is shown from here on needs nothing from before: results belong to the tool uses before them."""
    match record:
        case LoggedMessage(message=message, prompt=prompt):
            return bool(prompt) or message.role == "assistant"
        case LoggedCommand():
            return True
        case _:
            return False


def decoded(line: bytes) -> Record | None:
    """The record in `line`, with ids and names that the API takes: other versions have written down what models make up."""
    try:
        return _fit(_decoder.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _fit(record: Record) -> Record:
    match record:
        case LoggedMessage(message=message):
            fitting = fit(message)
            return record if fitting is message else replace(record, message=fitting)
        case LoggedSummary(history=history):
            return replace(record, history=tuple(map(fit, history)))
        case LoggedToolStart(tool_use_id=use_id) if fit_id(use_id) != use_id:
            return replace(record, tool_use_id=fit_id(use_id))
        case LoggedToolEnd(tool_use_id=use_id, result=result) if fit_id(use_id) != use_id:
            own = fit_id(use_id)
            return replace(
                record, tool_use_id=own, result=result and replace(result, tool_use_id=own)
            )
        case LoggedClearing(results=results) if any(fit_id(use_id) != use_id for use_id in results):
            return replace(
                record, results={fit_id(use_id): text for use_id, text in results.items()}
            )
        case _:
            return record
