"""
A session's log: an append-only file of JSON lines, a header and then one line per record, written as it happens.

A killed host loses at most the record that it was writing. A torn record at the end is cut off when the log is opened again.

A log is open in one process at a time, which holds a lock on the file. Others can still delete or truncate the file, such as a user who
resets Neovim's state. The next write notices that and writes the log again.
"""

import fcntl
import os
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from sanderling.errors import SessionError
from sanderling.paths import open_plain, write_all
from sanderling.protocol.messages import ContentBlock, TextBlock, ToolResult, ToolUse
from sanderling.session.codec import Codec
from sanderling.session.records import (
    READABLE_VERSIONS,
    Header,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedToolEnd,
    LoggedTurnEnd,
    Record,
    begins_page,
    is_session_id,
    now,
)
from sanderling.state_file import has_locked

SUFFIX = ".jsonl"
CHUNK_BYTES = 1 << 16
LOCK_WAIT_S = 0.3
IN_THE_LOG_ALONE = (LoggedPartial, LoggedRestart, LoggedToolEnd, LoggedTurnEnd)
"""Records that a log has lost when it is rebuilt from memory."""


class SessionInUseError(SessionError):
    """Another process has the session open."""


class Log:
    """
    The log of an open session; a new log begins with `header`.

    Args:
        known: return the records that make up the session now, to rebuild a log that was truncated.
    """

    def __init__(self, path: Path, header: Header, known: Callable[[], Iterable[Record]]) -> None:
        self.path = path
        self.header = header
        self.damaged_lines = 0
        self.resumed_bytes = 0  # size when it was opened
        # Offsets of records at which a page of the transcript can begin.
        self.page_offsets = array("Q")
        self._known = known
        self._codec = Codec()
        self._write_error = ""
        self._sync_error = ""
        self._fd: int | None = None
        self._unwritten = b""
        self.size = 0  # in bytes, as written by this process
        self._written = self._synced = 0  # records
        self._syncing = anyio.Lock()
        self._closing = Lock()

    @property
    def write_error(self) -> str:
        """Return why the log lags behind the conversation; empty if it does not."""
        return self._write_error or self._sync_error

    def read(self) -> Iterator[Record]:
        """
        Lock the log, if it exists, and yield its records. Damaged lines are counted and skipped.

        Raises:
            SessionInUseError: the session is open in another process.
            SessionError: the log cannot be read, or not by this version.
        """
        try:
            self._fd = self._open(0, LOCK_WAIT_S)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise SessionError(f"cannot read {self.path}: {error.strerror}") from error
        first = next(self._lines(0, 1), b"")
        if first.endswith(b"\n"):  # before any repair: a log of another version must not be changed
            self.header = header_of(self.path, first)
        self.size = self.resumed_bytes = self._cut_off_torn_record(self._fd)
        offset = len(first)
        for line in self._lines(offset, self.resumed_bytes):
            if record := self._codec.decoded(line):
                if begins_page(record):
                    self.page_offsets.append(offset)
                yield record
            else:
                self.damaged_lines += 1
            offset += len(line)

    def _cut_off_torn_record(self, fd: int) -> int:
        """Cut off the record that was being written when the host died; return the remaining size in bytes."""
        size = end = os.fstat(fd).st_size
        while end:
            start = max(0, end - CHUNK_BYTES)
            found = os.pread(fd, end - start, start).rfind(b"\n")
            end = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
        if end < size:
            try:
                os.ftruncate(fd, end)
            except OSError as error:
                raise SessionError(f"cannot repair {self.path}: {error.strerror}") from error
        return end

    def records(self, start: int, end: int) -> list[Record]:
        lines = self._lines(start, end)
        return [record for line in lines if (record := self._codec.decoded(line))]

    def find_tool_use(self, tool_use_id: str) -> tuple[ToolUse | None, ToolResult | None]:
        """
        Return a tool call and its result as they were originally, before any compaction. Blocks: call it from a thread.

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

    def said_before(self, tool_use_ids: AbstractSet[str]) -> dict[str, str]:
        """
        Return the model's last text before each of these tool calls, in its turn. Blocks: call it from a thread.

        An id can be a turn's: of what an external agent changed without our tools, only the turn is known. Its last call counts then.

        Raises:
            SessionError: the log cannot be read.
        """
        text, turn, found = "", "", dict[str, str]()
        for message in self._messages():
            if message.prompt:
                text, turn = "", message.prompt.id
            for block in message.message.content if message.message.role == "assistant" else ():
                match block:
                    case TextBlock(said) if said.strip():
                        text = said.strip()
                    case ToolUse(use_id) if text:
                        found |= dict.fromkeys(tool_use_ids & {use_id, turn}, text)
                    case _:
                        pass
        return found

    def _blocks_about(self, words: bytes) -> Iterator[ContentBlock]:
        """Yield the blocks of the messages that contain `words`."""
        for each in self._messages(words):
            yield from each.message.content

    def _messages(self, words: bytes = b'"type":"message"') -> Iterator[LoggedMessage]:
        """Yield the messages that contain `words`, by default all, including unwritten ones."""
        unwritten = self._unwritten
        size = os.fstat(self._fd).st_size if self._fd is not None else 0
        for line in chain(self._lines(0, size), unwritten.splitlines()):
            if words in line and isinstance(record := self._codec.decoded(line), LoggedMessage):
                yield record

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

    def write(self, record: Record) -> None:
        if not (self.size or self._unwritten):
            self.header = replace(self.header, at=now())
            self._unwritten = self._codec.encoded(self.header)
        self._unwritten += self._codec.encoded(record)
        self._written += 1
        self.write_again()

    def write_again(self) -> None:
        """Write what could not be written before, for instance because the disk was full."""
        try:
            if self._fd is None and self._unwritten:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = self._open(os.O_CREAT)
                self.size = os.fstat(self._fd).st_size
            elif self._fd is not None and self._unwritten and not self._is_whole(self._fd):
                self._rewrite(self._fd)
            while self._unwritten and self._fd is not None:
                written = os.write(self._fd, self._unwritten)
                self._unwritten = self._unwritten[written:]
                self.size += written
        except OSError as error:
            self._write_error = f"{error.strerror}: {self.path}"
        except SessionInUseError as error:
            self._write_error = str(error)
        else:
            self._write_error = ""

    def _is_whole(self, fd: int) -> bool:
        """Return whether the file is still in place, with everything that was written."""
        ours = os.fstat(fd)
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(ours, there) and ours.st_size >= self.size

    def _rewrite(self, fd: int) -> None:
        """
        Write the log again to its path; `fd` remains its descriptor.

        A deleted file can still be read through `fd`; a truncated one is rebuilt from memory. If another file is there now, it is kept
        next to the log.
        """
        is_cut = os.fstat(fd).st_size < self.size
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        new = self._open(os.O_CREAT | os.O_EXCL, path=temporary)
        codec = Codec() if is_cut else self._codec
        try:
            for chunk in self._known_lines(codec) if is_cut else _chunks(fd):
                write_all(new, chunk)
            if self.path.exists() and not os.path.samestat(os.fstat(fd), self.path.stat()):
                os.close(self._open(0))  # fails if another process has that file open
                self.path.replace(self.path.with_suffix(".replaced"))
            temporary.replace(self.path)
            os.dup2(new, fd, inheritable=False)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(new)
        self.size = os.fstat(fd).st_size
        if is_cut:
            del self.page_offsets[:]  # they refer to the old file
            lines = self._unwritten.splitlines(keepends=True)
            self._unwritten = b"".join(
                line for line in lines if isinstance(self._codec.decoded(line), IN_THE_LOG_ALONE)
            )
            self._codec = codec

    def _known_lines(self, codec: Codec) -> Iterator[bytes]:
        return map(codec.encoded, chain((self.header,), self._known()))

    def _open(self, flags: int, wait_s: float = 0.0, *, path: Path | None = None) -> int:
        """Open and lock the log. `wait_s` is for the lock of a killed process, which holds it until its last thread is gone."""
        fd = os.open(path or self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        is_locked = False
        try:
            is_locked = has_locked(fd, wait_s)
        finally:
            if not is_locked:
                os.close(fd)
        if not is_locked:
            raise SessionInUseError(f"another process has the session {self.path.stem} open")
        return fd

    async def synced(self) -> None:
        """Wait until the disk has everything written so far. Concurrent callers share one `fsync`."""
        written = self._written
        async with self._syncing:
            if self._synced < written:
                by_now = self._written
                await to_thread.run_sync(self._sync, abandon_on_cancel=True)
                self._synced = by_now

    def _sync(self) -> None:
        # The thread may outlive this log, and the number of a closed descriptor soon belongs to another file.
        with self._closing:
            if self._fd is None:
                return
            try:
                fd = os.dup(self._fd)
            except OSError:  # there is no descriptor left: whoever closes the log waits
                self._flush(self._fd)
                return
        try:
            self._flush(fd)
        finally:
            os.close(fd)

    def _flush(self, fd: int) -> None:
        try:
            os.fsync(fd)
        except OSError as error:
            self._sync_error = f"{error.strerror}: {self.path}"
        else:
            self._sync_error = ""

    def close(self) -> None:
        """Release the lock at once. Otherwise a thread waiting for the disk would hold it until that is done."""
        with self._closing:
            if self._fd is not None:
                with suppress(OSError):
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
                os.close(self._fd)
                self._fd = None


def log_path(session_dir: Path, session_id: str) -> Path:
    """
    Return the path of a session's log, which may not exist.

    Raises:
        SessionError: the id is not a valid file name.
    """
    if not is_session_id(session_id):
        raise SessionError(f"'{session_id}' is not a session id: letters, digits, '-' and '_' only")
    return session_dir / f"{session_id}{SUFFIX}"


def output_dir(log: Path) -> Path:
    return log.with_suffix("")


def changes_dir(log: Path) -> Path:
    return log.parent.parent / "changes" / log.stem


@contextmanager
def opened(log: Path) -> Generator[BinaryIO]:
    """
    Open a log for reading, even if another process has it open.

    Raises:
        SessionError: the log does not exist or cannot be read.
    """
    try:
        with open_plain(log) as file:
            yield file
    except FileNotFoundError:
        raise SessionError(f"there is no session {log.stem}") from None
    except OSError as error:
        raise SessionError(f"cannot read {log}: {error.strerror}") from error


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a log, without a torn one at the end."""
    return (line for line in file if line.endswith(b"\n"))


def records_of(log: Path, file: BinaryIO) -> tuple[Header, Iterator[Record]]:
    """
    Return a log's header, and its records without damaged lines.

    Raises:
        SessionError: the first line is not a header of a readable version.
    """
    lines = whole_lines(file)
    header, codec = header_of(log, next(lines, b"")), Codec()
    return header, (record for line in lines if (record := codec.decoded(line)))


def header_of(log: Path, line: bytes) -> Header:
    """
    Decode the first line of `log` as its header.

    Raises:
        SessionError: the line is not a header of a readable version.
    """
    version: Any = None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, KeyError, RecursionError):
        version = msgspec.json.decode(
            msgspec.json.decode(line, type=dict[str, msgspec.Raw])["version"]
        )
    if version is not None and version not in READABLE_VERSIONS:
        raise SessionError(
            f"{log} was written by another version of Sanderling; update Sanderling to read it"
        )
    header = Codec().decoded(line)
    if not isinstance(header, Header):
        raise SessionError(f"{log}, line 1, is damaged: not the header of a Sanderling session")
    return header


def _chunks(fd: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(fd, CHUNK_BYTES, offset):
        yield chunk
        offset += len(chunk)
