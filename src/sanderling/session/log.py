"""
A session's log: a file of JSON lines, only ever appended to, a header first and then one line per record, as it happens.

A killed host loses at most the record that it was writing: what is torn at the end is cut off when the log is opened again.

One process at a time has a log open: it holds the lock on the file. Others can take the file away all the same, or cut it: who
resets Neovim removes its state, for instance. The next record finds that out, and the log is written anew.
"""

import fcntl
import os
import time
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from sanderling.errors import SessionError
from sanderling.paths import open_plain, write_all
from sanderling.protocol.messages import ContentBlock, ToolResult, ToolUse
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

SUFFIX = ".jsonl"
CHUNK_BYTES = 1 << 16
LOCK_WAIT_S, LOCK_POLL_S = 0.3, 0.01
IN_THE_LOG_ALONE = (LoggedPartial, LoggedRestart, LoggedToolEnd, LoggedTurnEnd)
"""The records of which a session that is written anew from memory has nothing."""


class SessionInUseError(SessionError):
    """Another process has the session open."""


class Log:
    """
    The log of a session that is open; `header` begins it, where it is new.

    `known` gives the records for a log that was cut: those of which the session consists by now.
    """

    def __init__(self, path: Path, header: Header, known: Callable[[], Iterable[Record]]) -> None:
        self.path = path
        self.header = header
        self.damaged_lines = 0
        self.resumed_bytes = 0  # its size when it was opened
        # The offsets of records with which a page of the transcript can begin.
        self.page_offsets = array("Q")
        self._known = known
        self._codec = Codec()
        self._write_error = ""
        self._sync_error = ""
        self._fd: int | None = None
        self._unwritten = b""
        self.size = 0  # in bytes, as we have written it
        self._written = self._synced = 0  # records
        self._syncing = anyio.Lock()

    @property
    def write_error(self) -> str:
        """The reason why the log lags behind the conversation; empty when it does not."""
        return self._write_error or self._sync_error

    # --- reading back --------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[Record]:
        """
        Lock the log, if there is one, and give its records; a line that is none is counted and left out.

        Raises:
            SessionInUseError: another process has the session open.
            SessionError: it cannot be read, or not by this version.
        """
        try:
            self._fd = self._open(0, LOCK_WAIT_S)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise SessionError(f"cannot read {self.path}: {error.strerror}") from error
        first = next(self._lines(0, 1), b"")
        if first.endswith(b"\n"):  # nothing is mended in a log that another version has written
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
        """Drop the record that was being written when the host died; return the size of the rest in bytes."""
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
        """The records between two offsets."""
        lines = self._lines(start, end)
        return [record for line in lines if (record := self._codec.decoded(line))]

    def find_tool_use(self, tool_use_id: str) -> tuple[ToolUse | None, ToolResult | None]:
        """
        A tool use and its result, as they were, whatever the model is shown of them by now. Blocks: call it from a thread.

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
        """The blocks of the messages that hold `words`, also of those that could not be written yet."""
        unwritten = self._unwritten
        size = os.fstat(self._fd).st_size if self._fd is not None else 0
        for line in chain(self._lines(0, size), unwritten.splitlines()):
            if words in line and isinstance(record := self._codec.decoded(line), LoggedMessage):
                yield from record.message.content

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

    # --- writing -------------------------------------------------------------------------------------------------------

    def write(self, record: Record) -> None:
        if not (self.size or self._unwritten):
            self.header = replace(self.header, at=now())
            self._unwritten = self._codec.encoded(self.header)
        self._unwritten += self._codec.encoded(record)
        self._written += 1
        self.write_again()

    def write_again(self) -> None:
        """Try to write what could not be written before: on a full disk, for instance."""
        try:
            if self._fd is None and self._unwritten:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = self._open(os.O_CREAT)
                self.size = os.fstat(self._fd).st_size
            elif self._fd is not None and self._unwritten and not self._is_whole(self._fd):
                self._write_anew(self._fd)
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
        """Say whether the log is where it was, with all that was written."""
        ours = os.fstat(fd)
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(ours, there) and ours.st_size >= self.size

    def _write_anew(self, fd: int) -> None:
        """
        Write the log once more in its place, with what it held; `fd` stays its descriptor.

        A file that was taken away can still be read. Of one that was cut, the history is in memory. What others have put in its
        place is kept beside it.
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
                os.close(self._open(0))  # fails if another process has opened what stands there
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
            del self.page_offsets[:]  # of what is no more
            lines = self._unwritten.splitlines(keepends=True)
            self._unwritten = b"".join(
                line for line in lines if isinstance(self._codec.decoded(line), IN_THE_LOG_ALONE)
            )
            self._codec = codec

    def _known_lines(self, codec: Codec) -> Iterator[bytes]:
        return map(codec.encoded, chain((self.header,), self._known()))

    def _open(self, flags: int, wait_s: float = 0.0, *, path: Path | None = None) -> int:
        """`wait_s` is for a lock that is being given up: a killed process keeps it until the last of its threads is gone."""
        fd = os.open(path or self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        is_ours = False
        try:
            is_ours = _lock(fd, wait_s)
        finally:
            if not is_ours:
                os.close(fd)
        if not is_ours:
            raise SessionInUseError(f"another process has the session {self.path.stem} open")
        return fd

    # --- the disk ------------------------------------------------------------------------------------------------------

    async def synced(self) -> None:
        """Wait until the disk has what was written so far; who waits at the same time waits for one and the same."""
        written = self._written
        async with self._syncing:
            if self._synced < written:
                by_now = self._written
                if self._fd is None:
                    return
                # The thread may outlive this log, and the number of a closed descriptor soon belongs to another file.
                file = FileIO(os.dup(self._fd))
                await to_thread.run_sync(self._sync, file, abandon_on_cancel=True)
                self._synced = by_now

    def _sync(self, file: FileIO) -> None:
        try:
            with file:
                os.fsync(file.fileno())
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


# --- any log -----------------------------------------------------------------------------------------------------------


def log_path(session_dir: Path, session_id: str) -> Path:
    """
    The path of a session's log, which may not be there.

    Raises:
        SessionError: the id is no file name.
    """
    if not is_session_id(session_id):
        raise SessionError(f"'{session_id}' is not a session id: letters, digits, '-' and '_' only")
    return session_dir / f"{session_id}{SUFFIX}"


def output_dir(log: Path) -> Path:
    """The directory for what the commands of a session have put out."""
    return log.with_suffix("")


def changes_dir(log: Path) -> Path:
    """The directory for what the agent has changed in a session."""
    return log.parent.parent / "changes" / log.stem


@contextmanager
def opened(log: Path) -> Generator[BinaryIO]:
    """
    The log, to be read, whoever has it open.

    Raises:
        SessionError: there is none, or it cannot be read.
    """
    try:
        with open_plain(log) as file:
            yield file
    except FileNotFoundError:
        raise SessionError(f"there is no session {log.stem}") from None
    except OSError as error:
        raise SessionError(f"cannot read {log}: {error.strerror}") from error


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a log from its first on, without one at its end that is torn."""
    return (line for line in file if line.endswith(b"\n"))


def records_of(log: Path, file: BinaryIO) -> tuple[Header, Iterator[Record]]:
    """
    The header of a log, and what it holds, without lines that are damaged.

    Raises:
        SessionError: the first line is no header, or one of a version that cannot be read.
    """
    lines = whole_lines(file)
    header, codec = header_of(log, next(lines, b"")), Codec()
    return header, (record for line in lines if (record := codec.decoded(line)))


def header_of(log: Path, line: bytes) -> Header:
    """
    The header that the first line of `log` is.

    Raises:
        SessionError: it is none, or one of a version that cannot be read.
    """
    version: Any = None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        version = msgspec.json.decode(
            msgspec.json.decode(line, type=dict[str, msgspec.Raw])["version"]
        )
    if version is not None and version not in READABLE_VERSIONS:
        raise SessionError(
            f"{log} was written by another version of Sanderling; update Sanderling to read it"
        )
    header = Codec().decoded(line)
    if not isinstance(header, Header):
        raise SessionError(f"{log}, line 1, is damaged: it is no header of a session of Sanderling")
    return header


def _chunks(fd: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(fd, CHUNK_BYTES, offset):
        yield chunk
        offset += len(chunk)


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
