"""
A session: one conversation, in memory and on disk.

The log is append-only JSON lines (`doc/sanderling.txt`, section sanderling-session-log, describes it): a header, then one
record per fact, written as it happens, so that a killed host loses at most the record it was writing (of an answer that streams,
the conversation writes a piece each quarter of a second). A turn without its `turn_ended` was interrupted; reading the log back
says so and keeps what the model had said.

One process at a time has a log open: it holds the lock on the file. Others can take the file away all the same, or cut it: who
resets Neovim removes its state, for instance. The next record finds that out, and the log is written anew.
"""

import fcntl
import os
import re
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
import msgspec
from anyio import to_thread

from sanderling.errors import SessionError
from sanderling.protocol.messages import (
    CommandRecord,
    ContentBlock,
    Message,
    Prompt,
    StopReason,
    TextBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.history import Ran, continued, with_results, without_thoughts
from sanderling.session.ledger import Ledger
from sanderling.session.records import (
    LOG_VERSION,
    READABLE_VERSIONS,
    Header,
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUndo,
    LoggedUsage,
    Record,
    StateKey,
    begins_page,
    decoded,
    encode,
    is_session_id,
)

MAX_TITLE_CHARS = 60
CHUNK_BYTES = 1 << 16
LOCK_WAIT_S, LOCK_POLL_S = 0.3, 0.01
IN_THE_LOG_ALONE = (LoggedPartial, LoggedRestart, LoggedToolEnd, LoggedTurnEnd)
"""The records of what a session does not know itself."""
MAX_UNDOS = 4  # each keeps what the model was shown before a compaction
_MARKDOWN = re.compile(r"^[#>*\-\s`]+|[`*]+")


class SessionInUseError(SessionError):
    """Another process has the session open."""


class _Compaction(NamedTuple):
    """What was before it, and how long the history was after it."""

    history: list[Message]
    usage: Usage
    length: int


class Session:
    """The history that the model is shown, and its log."""

    def __init__(self, session_id: str, project: str, path: Path, face: str = "") -> None:
        self.id = session_id
        self._face = face or msgspec.UNSET
        self.project = project
        self.path = path
        self.history: list[Message] = []
        self.prompts: list[Prompt] = []
        self._asked: list[tuple[Message, Prompt]] = []  # what stands in the history for a prompt
        self.tool_use_ids: set[str] = set()
        self.ledger = Ledger()
        self.last_usage = Usage()  # of one request, or what a compaction has left of it
        self.damaged_lines = 0
        self.resumed_bytes = 0  # the log's size when it was opened
        # Of the records in it with which a page of the transcript can begin.
        self.page_offsets = array("Q")
        self._commands: list[CommandRecord] = []
        self._states: dict[StateKey, LoggedState] = {}
        self._ran = Ran()
        self._is_in_turn, self._partial_text = False, ""
        self._compactions: list[_Compaction] = []
        self._write_error = ""
        self._sync_error = ""
        self._fd: int | None = None
        self._has_header = False
        self._unwritten = b""
        self._size = 0  # of the log, as we have written it
        self._written = self._synced = 0  # records
        self._syncing = anyio.Lock()

    @classmethod
    def open(cls, session_dir: Path, session_id: str, project: str, face: str = "") -> "Session":
        """
        Open the session `session_id`, with what its log holds when there is one; `face` is where a new one begins.

        Raises:
            SessionInUseError: another process has it open.
            SessionError: the id is no file name, or the log is not one that this version can read.
        """
        if not is_session_id(session_id):
            raise SessionError(
                f"'{session_id}' is not a session id: letters, digits, '-' and '_' only"
            )
        session = cls(session_id, project, session_dir / f"{session_id}.jsonl", face)
        try:
            session._read_log()
        except BaseException:
            session.close()
            raise
        return session

    @property
    def is_resumed(self) -> bool:
        return self.resumed_bytes > 0

    @property
    def write_error(self) -> str:
        """Why the log lags behind the conversation; empty when it does not."""
        return self._write_error or self._sync_error

    @property
    def title(self) -> str:
        """As the person has named it, else what they asked first."""
        named = self.state("title")
        if isinstance(named, str) and named:
            return named
        return derived_title(self.prompts[0]) if self.prompts else ""

    @property
    def model(self) -> str:
        """Who was asked last; empty if nobody was, or nobody knows."""
        return self.ledger.last_model

    # --- what is said --------------------------------------------------------------------------------------------------

    def append_prompt(self, message: Message, prompt: Prompt) -> None:
        self._append_prompt(message, prompt)
        self._write(LoggedMessage(message, prompt))

    def _append_prompt(self, message: Message, prompt: Prompt) -> None:
        self._append(message)
        self.prompts.append(prompt)
        self._is_in_turn = True
        self._asked += [(each, prompt) for each in self.history[-1:]]

    def append_message(self, message: Message, steered: tuple[Prompt, ...] = ()) -> None:
        self._append(message)
        self.prompts += steered
        self._write(LoggedMessage(message, steered=steered))

    def append_reply(self, message: Message) -> list[ToolUse]:
        """Append what of the model's message the API takes back, if anything; return its tool uses."""
        whole = continued(self.history, message, self._ran)
        if not whole:
            return []
        self.append_message(whole[-1])
        return [block for block in whole[-1].content if isinstance(block, ToolUse)]

    def append_partial(self, block: Literal["text", "thinking"], text: str) -> None:
        self._write(LoggedPartial(block, text))

    def restart_answer(self) -> None:
        """The pieces of the answer so far are superseded."""
        self._write(LoggedRestart())

    def end_turn(self, stop_reason: StopReason, error: str = "") -> None:
        self._is_in_turn = False
        self._write(LoggedTurnEnd(stop_reason, error=error))

    def append_usage(self, model: str, usage: Usage) -> None:
        self._count(model, usage)
        self._write(LoggedUsage(model, usage))

    def _count(self, model: str, usage: Usage) -> None:
        self.ledger.add(model, usage)
        self.last_usage = usage

    def _append(self, message: Message) -> None:
        whole = continued(self.history, message, self._ran)
        self.history += whole
        for block in chain.from_iterable(each.content for each in whole):
            match block:
                case ToolUse(id=tool_use_id):
                    self.tool_use_ids.add(tool_use_id)
                case ToolResult(tool_use_id=tool_use_id):
                    self._ran.forget(tool_use_id)
                case _:
                    pass

    # --- commands and tools --------------------------------------------------------------------------------------------

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

    def append_tool_start(self, tool_use_id: str) -> None:
        self._ran.started.add(tool_use_id)
        self._write(LoggedToolStart(tool_use_id))

    def append_tool_end(self, ended: LoggedToolEnd) -> None:
        self._write(ended)

    def find_tool_use(self, tool_use_id: str) -> tuple[ToolUse | None, ToolResult | None]:
        """
        A tool use and its result, as they were, whatever the model is shown of them by now. Reads the log: call it from a thread.

        Raises:
            SessionError: the log cannot be read.
        """
        use, result = None, None
        for block in self._blocks_about(tool_use_id.encode()):
            match block:
                case ToolUse(id=found) if found == tool_use_id:
                    use = block
                case ToolResult(tool_use_id=found) if found == tool_use_id:
                    result = block
                case _:
                    pass
        return use, result

    def _blocks_about(self, words: bytes) -> Iterator[ContentBlock]:
        """Of the messages in the log that hold `words`."""
        unwritten = self._unwritten
        size = os.fstat(self._fd).st_size if self._fd is not None else 0
        for line in chain(self._lines(0, size), unwritten.splitlines()):
            if words in line and isinstance(record := decoded(line), LoggedMessage):
                yield from record.message.content

    # --- what is known again -------------------------------------------------------------------------------------------

    def keep_state(self, key: StateKey, value: Any) -> None:
        """Keep what is to be known again when the session is resumed, plain data; nothing if that is known."""
        if value != self.state(key):
            self._write_state(LoggedState(key, value))

    def _write_state(self, state: LoggedState) -> None:
        self._states[state.key] = state
        self._write(state)

    def state(self, key: StateKey) -> Any:
        """What was kept last; None if nothing was."""
        return self._states[key].value if key in self._states else None

    def switch_model(self, model: str) -> None:
        """Another model goes on, without the thoughts of the one before: the API refuses them."""
        self._forget_thoughts()
        self._write_state(LoggedState("model", model))

    def _forget_thoughts(self) -> None:
        self.history = without_thoughts(self.history)
        self._compactions = [
            each._replace(history=without_thoughts(each.history)) for each in self._compactions
        ]

    # --- compaction ----------------------------------------------------------------------------------------------------

    def clear_results(self, results: dict[str, str], before_tokens: int, after_tokens: int) -> None:
        """Show the model these texts as the results of these tool uses."""
        record = LoggedClearing(results, before_tokens, after_tokens)
        self._compact(with_results(self.history, results), after_tokens)
        self._write(record)

    def summarize(
        self, history: tuple[Message, ...], summary: str, before_tokens: int, after_tokens: int
    ) -> None:
        """Show the model `history` instead of all that was said."""
        self._compact(list(history), after_tokens)
        self._write(LoggedSummary(history, summary, before_tokens, after_tokens))

    def undo_compaction(self) -> bool:
        """Show the model again what the last compaction took away; False if there was none."""
        is_done = self._undo()
        if is_done:
            self._write(LoggedUndo())
        return is_done

    def _compact(self, history: list[Message], tokens: int) -> None:
        self._compactions.append(_Compaction(self.history, self.last_usage, len(history)))
        del self._compactions[:-MAX_UNDOS]
        self.history, self.last_usage = history, Usage(tokens)

    def _undo(self) -> bool:
        if not self._compactions:
            return False
        before = self._compactions.pop()
        since, self.history = self.history[before.length :], list(before.history)
        self.last_usage = before.usage
        for message in since:
            self._append(message)
        return True

    # --- the disk ------------------------------------------------------------------------------------------------------

    async def synced(self) -> None:
        """Wait until the disk has what was written so far; who waits at the same time waits for one and the same."""
        written = self._written
        async with self._syncing:
            if self._synced < written:
                now = self._written
                await to_thread.run_sync(self.sync, abandon_on_cancel=True)
                self._synced = now

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
        """Give the log free, at once: a thread that waits for the disk would hold the lock for as long as that takes."""
        if self._fd is not None:
            with suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = None

    def _write(self, record: Record) -> None:
        if not self._has_header:
            self._unwritten = self._encoded_header()
            self._has_header = True
        self._unwritten += encode(record) + b"\n"
        self._written += 1
        self.write_again()

    def _encoded_header(self) -> bytes:
        return encode(Header(LOG_VERSION, self.id, self.project, face=self._face)) + b"\n"

    def write_again(self) -> None:
        """Try to write what could not be written before: on a full disk, for instance."""
        try:
            if self._fd is None and self._unwritten:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = self._open_log(os.O_CREAT)
                self._size = os.fstat(self._fd).st_size
            elif self._fd is not None and self._unwritten and not self._is_whole(self._fd):
                self._write_anew(self._fd)
            while self._unwritten and self._fd is not None:
                written = os.write(self._fd, self._unwritten)
                self._unwritten = self._unwritten[written:]
                self._size += written
        except OSError as error:
            self._write_error = f"{error.strerror}: {self.path}"
        except SessionInUseError as error:
            self._write_error = str(error)
        else:
            self._write_error = ""

    def _is_whole(self, fd: int) -> bool:
        """Whether the log is where it was, with all that was written."""
        ours = os.fstat(fd)
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(ours, there) and ours.st_size >= self._size

    def _write_anew(self, fd: int) -> None:
        """
        Write the log once more in its place, with what it held; `fd` stays its descriptor.

        A file that was taken away can still be read. Of one that was cut, the history is in memory. What others have put in its
        place is kept beside it.
        """
        is_cut = os.fstat(fd).st_size < self._size
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        new = self._open_log(os.O_CREAT | os.O_EXCL, path=temporary)
        try:
            for chunk in self._known_records() if is_cut else _chunks(fd):
                _write_all(new, chunk)
            if self.path.exists() and not os.path.samestat(os.fstat(fd), self.path.stat()):
                os.close(self._open_log(0))  # fails if another process has opened what stands there
                self.path.replace(self.path.with_suffix(".replaced"))
            temporary.replace(self.path)
            os.dup2(new, fd, inheritable=False)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(new)
        self._size = os.fstat(fd).st_size
        if is_cut:
            del self.page_offsets[:]  # of what is no more
            lines = self._unwritten.splitlines(keepends=True)
            self._unwritten = b"".join(
                line for line in lines if isinstance(decoded(line), IN_THE_LOG_ALONE)
            )

    def _known_records(self) -> Iterator[bytes]:
        """A log that is read back as the session is now."""
        yield self._encoded_header()
        prompts = {id(message): prompt for message, prompt in self._asked}
        known: list[Record] = list(self._states.values())
        for message in self.history:
            prompt = prompts.get(id(message))
            known += (
                [LoggedTurnEnd("end_turn")] if prompt and message is not self.history[0] else []
            )
            known.append(LoggedMessage(message, prompt))
        known += [] if self._is_in_turn else [LoggedTurnEnd("end_turn")]
        known += [LoggedToolStart(tool_use_id) for tool_use_id in sorted(self._ran.started)]
        known += map(LoggedCommand, self._commands)
        known += [LoggedUsage(model, usage) for model, usage in self.ledger.by_model.items()]
        known.append(LoggedUsage(self.model, Usage()))
        yield from (encode(record) + b"\n" for record in known)

    def _open_log(self, flags: int, wait_s: float = 0.0, *, path: Path | None = None) -> int:
        """`wait_s` is for a lock that is being given up: a killed process keeps it until the last of its threads is gone."""
        fd = os.open(path or self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        is_ours = False
        try:
            is_ours = _lock(fd, wait_s)
        finally:
            if not is_ours:
                os.close(fd)
        if not is_ours:
            raise SessionInUseError(f"another process has the session {self.id} open")
        return fd

    # --- reading back --------------------------------------------------------------------------------------------------

    def _read_log(self) -> None:
        try:
            self._fd = self._open_log(0, LOCK_WAIT_S)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise SessionError(f"cannot read {self.path}: {error.strerror}") from error
        if header := next(self._lines(0, 1), b""):
            self._check_version(header)
        if self._cut_off_torn_record():
            self._replay(self._records())
            self.resumed_bytes = self._size = os.fstat(self._fd).st_size

    def _cut_off_torn_record(self) -> int:
        """Drop the record that was being written when the host died; return what is left of the log, in bytes."""
        assert self._fd is not None
        size = end = os.fstat(self._fd).st_size
        while end:
            start = max(0, end - CHUNK_BYTES)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            end = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
        if end < size:
            try:
                os.ftruncate(self._fd, end)
            except OSError as error:
                raise SessionError(f"cannot repair {self.path}: {error.strerror}") from error
        self.resumed_bytes = end
        return end

    def _records(self) -> Iterator[Record]:
        """All records of the log; a line that is none is counted and left out."""
        offset = 0
        for lnum, line in enumerate(self._lines(0, self.resumed_bytes), 1):
            if lnum == 1:
                yield self._header(line)
            elif record := decoded(line):
                if begins_page(record):
                    self.page_offsets.append(offset)
                yield record
            else:
                self.damaged_lines += 1
            offset += len(line)

    def records(self, start: int, end: int) -> list[Record]:
        """The records between two offsets in the log."""
        return [record for line in self._lines(start, end) if (record := decoded(line))]

    def _lines(self, start: int, end: int) -> Iterator[bytes]:
        if start == end:
            return
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                while file.tell() < end and (line := file.readline()):
                    yield line
        except OSError as error:
            raise SessionError(f"cannot read {self.path}: {error.strerror}") from error

    def _check_version(self, line: bytes) -> None:
        """Nothing is mended in a log that another version has written."""
        if not line.endswith(b"\n"):
            return
        try:
            version = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get("version")
            if version is not None and msgspec.json.decode(version) not in READABLE_VERSIONS:
                raise SessionError(
                    f"{self.path} was written by another version of Sanderling; update Sanderling to read it"
                )
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SessionError(f"{self.path}, line 1, is damaged: {error}") from error

    def _header(self, line: bytes) -> Header:
        header = decoded(line)
        if not isinstance(header, Header):
            raise SessionError(
                f"{self.path} is not a Sanderling session: its first line is no header"
            )
        return header

    def _replay(self, records: Iterator[Record]) -> None:
        for record in records:
            self._replay_said(record)
            self._replay_known(record)
        if self._is_in_turn:
            self._end_interrupted_turn()

    def _replay_said(self, record: Record) -> None:
        match record:
            case LoggedMessage(message=message, prompt=prompt, steered=steered):
                if prompt:
                    self._append_prompt(message, prompt)
                    self._commands = []
                    self.ledger.begin_turn()
                else:
                    self._append(message)
                self.prompts += steered
                self._is_in_turn, self._partial_text = True, ""
            case LoggedCommand(record=command):
                self._commands.append(command)
            case LoggedPartial(block="text", text=text):
                self._partial_text += text
            case LoggedRestart():
                self._partial_text = ""
            case LoggedTurnEnd(usage=usage):
                if usage != Usage():
                    self.ledger.add("", usage)
                self._is_in_turn = False
            case LoggedClearing(results=results, after_tokens=tokens):
                self._compact(with_results(self.history, results), tokens)
            case LoggedSummary(history=history, after_tokens=tokens):
                self._compact(list(history), tokens)
            case LoggedUndo():
                self._undo()
            case _:
                pass

    def _replay_known(self, record: Record) -> None:
        match record:
            case Header(project=project, face=face):
                self._has_header = True
                self.project, self._face = project, face
            case LoggedToolStart(tool_use_id=tool_use_id):
                self._ran.started.add(tool_use_id)
            case LoggedToolEnd(result=ToolResult() as result):
                self._ran.ended[result.tool_use_id] = result
            case LoggedState(key=key):
                self._states[key] = record
                if key == "model":
                    self._forget_thoughts()
            case LoggedUsage(model=model, usage=usage):
                self._count(model, usage)
            case _:
                pass

    def _end_interrupted_turn(self) -> None:
        text, self._partial_text = self._partial_text, ""
        if text.strip():
            self.append_message(Message("assistant", (TextBlock(text),)))
        elif missing := continued(self.history, Message("user", ()), self._ran):
            self.append_message(missing[0])
        self.end_turn("interrupted")


def _chunks(fd: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(fd, CHUNK_BYTES, offset):
        yield chunk
        offset += len(chunk)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _lock(fd: int, wait_s: float) -> bool:
    """Take the lock of a file, if it can be had within `wait_s`."""
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True


def derived_title(prompt: Prompt) -> str:
    """The first line of a prompt that says something, short and without Markdown."""
    lines = (_MARKDOWN.sub("", line).strip() for line in prompt.text.splitlines())
    line = " ".join(next(filter(None, lines), "").split())
    return line if len(line) <= MAX_TITLE_CHARS else f"{line[: MAX_TITLE_CHARS - 1]}…"
