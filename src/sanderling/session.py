"""
A session: one conversation, in memory and on disk.

The log is append-only JSON lines (`doc/sanderling.txt`, section sanderling-session-log, describes it): a header, then one
record per fact, written as it happens, so that a killed host loses at most the record it was writing (of an answer that streams,
the orchestrator writes a piece each quarter of a second). A turn without its
`turn_ended` was interrupted; reading the log back says so and keeps what the model had said.
"""

import os
import re
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from sanderling import __version__
from sanderling.errors import SessionError
from sanderling.events import Prompt, StopReason
from sanderling.messages import CommandRecord, Message, TextBlock, ToolResult, ToolUse, Usage

LOG_VERSION = 3
READABLE_VERSIONS = (1, 2, 3)  # 2 brought `command`, 3 `tool_started`, `state` and images
UNKNOWN_OUTCOME = (
    "The outcome is unknown: the session was interrupted while this ran. It was not run again."
)
NOT_RUN = "This was not run: the session was interrupted before."
_SESSION_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


def _now() -> datetime:
    return datetime.now(UTC)


StateKey = Literal["shell", "todo"]


class Header(msgspec.Struct, tag="session", frozen=True):
    version: int
    session_id: str
    project: str
    sanderling: str = __version__
    at: datetime = msgspec.field(default_factory=_now)


class LoggedMessage(msgspec.Struct, tag="message", frozen=True, omit_defaults=True):
    """`prompt` is what the person sent, when the message came from one."""

    message: Message
    prompt: Prompt | None = None
    at: datetime = msgspec.field(default_factory=_now)


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
    stop_reason: StopReason
    usage: Usage
    error: str = ""
    at: datetime = msgspec.field(default_factory=_now)


Record = (
    Header
    | LoggedMessage
    | LoggedCommand
    | LoggedToolStart
    | LoggedState
    | LoggedPartial
    | LoggedTurnEnd
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


class Session:
    """The history that the model is shown, and its log."""

    def __init__(self, session_id: str, project: str, path: Path) -> None:
        self.id = session_id
        self.project = project
        self.path = path
        self.history: list[Message] = []
        self.usage = Usage()
        self._commands: list[CommandRecord] = []
        self._states: dict[str, Any] = {}
        self._write_error = ""
        self._sync_error = ""
        self._fd: int | None = None
        self._has_header = False
        self._unwritten = b""

    @classmethod
    def open(cls, session_dir: Path, session_id: str, project: str) -> "Session":
        """
        Open the session `session_id`, with what its log holds when there is one.

        Raises:
            SessionError: the id is no file name, or the log is not one that this version can read.
        """
        if not _SESSION_ID.fullmatch(session_id):
            raise SessionError(
                f"'{session_id}' is not a session id: letters, digits, '-' and '_' only"
            )
        session = cls(session_id, project, session_dir / f"{session_id}.jsonl")
        session._read_log()
        return session

    @property
    def write_error(self) -> str:
        """Why the log lags behind the conversation; empty when it does not."""
        return self._write_error or self._sync_error

    def append_prompt(self, message: Message, prompt: Prompt) -> None:
        self.history.append(message)
        self._write(LoggedMessage(message, prompt))

    def append_command(self, record: CommandRecord) -> None:
        self._commands.append(record)
        self._write(LoggedCommand(record))

    def take_commands(self) -> list[CommandRecord]:
        """The commands that no prompt has told the model of. The caller's next prompt does."""
        taken, self._commands = self._commands, []
        return taken

    def output_path(self, command_id: str) -> Path:
        """Where the output of a command goes that is too long to keep."""
        return self.path.with_suffix("") / f"{command_id}.log"

    def append_message(self, message: Message) -> None:
        self.history.append(message)
        self._write(LoggedMessage(message))

    def append_tool_start(self, tool_use_id: str) -> None:
        self._write(LoggedToolStart(tool_use_id))

    def keep_state(self, key: StateKey, value: Any) -> None:
        """Keep what is to be known again when the session is resumed: plain data."""
        self._states[key] = value
        self._write(LoggedState(key, value))

    def state(self, key: StateKey) -> Any:
        """What was kept last; None if nothing was."""
        return self._states.get(key)

    def append_partial(self, block: Literal["text", "thinking"], text: str) -> None:
        self._write(LoggedPartial(block, text))

    def end_turn(self, stop_reason: StopReason, usage: Usage, error: str = "") -> None:
        self.usage += usage
        self._write(LoggedTurnEnd(stop_reason, usage, error))

    def sync(self) -> None:
        """Wait until the disk has what was written. Blocks: call it from a thread."""
        if self._fd is None:
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._sync_error = f"{error.strerror}: {self.path}"
        else:
            self._sync_error = ""

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, record: Record) -> None:
        if not self._has_header:
            self._unwritten = _encoder.encode(Header(LOG_VERSION, self.id, self.project)) + b"\n"
            self._has_header = True
        self._unwritten += _encoder.encode(record) + b"\n"
        try:
            if self._fd is None:
                self._fd = self._create_log()
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._fd, self._unwritten) :]
        except OSError as error:
            self._write_error = f"{error.strerror}: {self.path}"
        else:
            self._write_error = ""

    def _create_log(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _read_log(self) -> None:
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise SessionError(f"cannot read {self.path}: {error.strerror}") from error
        whole, _, torn = data.rpartition(b"\n")
        records = [self._decode(line, lnum) for lnum, line in enumerate(whole.splitlines(), 1)]
        if torn:  # the record that was being written when the host died
            self._cut_off(torn)
        if not records:
            return  # killed before the first record: as good as new
        header = records[0]
        if not isinstance(header, Header):
            raise SessionError(
                f"{self.path} is not a Sanderling session: its first line is no header"
            )
        self._has_header = True
        self.project = header.project
        self._replay(records)

    def _cut_off(self, torn: bytes) -> None:
        try:
            os.truncate(self.path, self.path.stat().st_size - len(torn))
        except OSError as error:
            raise SessionError(f"cannot mend {self.path}: {error.strerror}") from error

    def _decode(self, line: bytes, lnum: int) -> Record:
        try:
            if lnum == 1:
                self._check_version(line)
            return _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SessionError(f"{self.path}, line {lnum}, is damaged: {error}") from error

    def _check_version(self, line: bytes) -> None:
        version = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get("version")
        if version is not None and msgspec.json.decode(version) not in READABLE_VERSIONS:
            raise SessionError(
                f"{self.path} was written by another version of Sanderling; update Sanderling to read it"
            )

    def _replay(self, records: list[Record]) -> None:
        is_in_turn, partial_text = False, ""
        started: set[str] = set()
        for record in records:
            match record:
                case LoggedMessage(message=message, prompt=prompt):
                    self.history.append(message)
                    if prompt:
                        self._commands = []
                    is_in_turn, partial_text = True, ""
                case LoggedCommand(record=command):
                    self._commands.append(command)
                case LoggedToolStart(tool_use_id=tool_use_id):
                    started.add(tool_use_id)
                case LoggedState(key=key, value=value):
                    self._states[key] = value
                case LoggedPartial(block="text", text=text):
                    partial_text += text
                case LoggedTurnEnd(usage=usage):
                    self.usage += usage
                    is_in_turn = False
                case _:
                    pass
        if is_in_turn:
            if results := missing_results(self.history[-1], started):
                self.append_message(results)
            if partial_text.strip():
                self.append_message(Message("assistant", (TextBlock(partial_text),)))
            self.end_turn("interrupted", Usage())


def missing_results(message: Message, started: Collection[str]) -> Message | None:
    """The results of tool uses that a killed host left without: the API refuses a history that has none for them."""
    results = tuple(
        ToolResult(block.id, UNKNOWN_OUTCOME if block.id in started else NOT_RUN, is_error=True)
        for block in message.content
        if isinstance(block, ToolUse)
    )
    return Message("user", results) if results else None
