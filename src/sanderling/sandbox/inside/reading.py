"""Reading for the file worker: files of any size, in parts or whole, and directories."""

import errno
import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

CHUNK_BYTES = 1 << 20
TICK_NS = 10_000_000
"""Two changes within one tick of the kernel's coarse clock (100 Hz at the slowest) can leave the same times."""
MAX_LOOKS = 10
"""At a file that changes all the time. Its stamp then means little, but nor will it be the same when it is written."""
MAX_ENTRIES = 100_000
"""The most entries of a directory that are listed."""
SEEK_S, COUNT_S = 3.0, 0.02
"""The time in which the first line of a page is looked for, and that in which the lines after the page are counted."""
OPENED = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A FIFO is not waited for, a terminal not taken over."""


class Stamp(NamedTuple):
    """The identity of a file, and of its state. Two equal stamps mean equal content."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    nlink: int


def read(path: str, offset: int, limit: int) -> tuple[bytes, int]:
    """At most `limit` bytes from `offset`, and the file's size. Nothing but a regular file is read, and nothing waited for."""
    with _opened(path) as descriptor:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return take(descriptor, limit), os.fstat(descriptor).st_size


def load(path: str, limit: int, head: int) -> tuple[bytes, bool, tuple[int, ...]]:
    """Return all of a file, or if it is longer than `limit` its first `head` bytes; whether that is all; its stamp."""
    for is_last_try in (*[False] * MAX_LOOKS, True):
        with _opened(path) as descriptor:
            before = stamp_of(os.fstat(descriptor))
            data = take(descriptor, head if before.size > limit else limit + 1)
            after = stamp_of(os.fstat(descriptor))
        is_whole = before.size <= limit and len(data) <= limit  # in /proc sizes are 0
        is_sure = before == after and not is_fresh(after)
        if is_sure or not is_whole or is_last_try:  # nobody takes a part for the whole
            return (data if is_whole else data[:head]), is_whole, tuple(after)
        time.sleep(TICK_NS / 1e9)
    raise AssertionError


def is_fresh(stamp: Stamp) -> bool:
    """Say whether a file was changed so lately that one more change could leave the same stamp."""
    return 0 <= time.time_ns() - max(stamp.mtime_ns, stamp.ctime_ns) < TICK_NS


def lines(
    path: str, first: int, count: int, line_bytes: int, page_bytes: int
) -> tuple[list[tuple[bytes, int]], int, bool]:
    """
    `count` lines from number `first`, as many as `page_bytes` hold: of each up to `line_bytes`, and how long it is.

    With them how many lines were counted, and whether those are all: the file may be larger than there is time for.
    """
    with _opened(path) as descriptor:
        chunks = _chunks(descriptor)
        passed, chunk, is_end = _seek(chunks, first)
        if chunk is None:
            return [], passed, is_end
        lines, chunk = _page(chunks, chunk, count, line_bytes, page_bytes)
        rest, is_end = (0, False) if chunk is None else _count(chunks, chunk)
        return lines, passed + len(lines) + rest, is_end


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def _seek(chunks: Iterator[bytes], first: int) -> tuple[int, bytes | None, bool]:
    """
    Return how many lines were passed, and the chunk that begins with line `first`.

    None if it was not reached, because the file has ended (the third is true), or because it took too long.
    """
    passed, last, deadline = 0, b"\n", time.monotonic() + SEEK_S
    for chunk in chunks:
        missing = first - 1 - passed
        if (found := chunk.count(b"\n")) >= missing:
            return first - 1, chunk.split(b"\n", missing)[-1], True
        passed, last = passed + found, chunk
        if time.monotonic() > deadline:
            return passed, None, False
    return passed + (not last.endswith(b"\n")), None, True


def _page(
    chunks: Iterator[bytes], chunk: bytes, count: int, line_bytes: int, page_bytes: int
) -> tuple[list[tuple[bytes, int]], bytes | None]:
    """The lines of a page, and what follows it of the last chunk; None if its last line is too long to see the end of."""
    lines: list[tuple[bytes, int]] = []
    kept, length, start, taken = b"", 0, 0, 0
    deadline = time.monotonic() + SEEK_S
    while len(lines) < count and taken < page_bytes:
        end = chunk.find(b"\n", start)
        piece_end = len(chunk) if end < 0 else end
        kept += chunk[start : min(piece_end, start + line_bytes - len(kept))]
        length += piece_end - start
        if end >= 0:
            lines.append((kept, length))
            taken += len(kept)
            kept, length, start = b"", 0, end + 1
            continue
        is_late = time.monotonic() > deadline
        chunk, start = b"" if is_late else next(chunks, b""), 0
        if not chunk:
            if length:
                lines.append((kept, length))
            return lines, None if is_late else b""
    return lines, chunk[start:]


def _count(chunks: Iterator[bytes], chunk: bytes) -> tuple[int, bool]:
    """Count how many lines there are in `chunk` and those that follow, as far as the time suffices, and whether that is all."""
    found, deadline = 0, time.monotonic() + COUNT_S
    while True:
        found += chunk.count(b"\n")
        if time.monotonic() > deadline:
            return found, False
        if not (following := next(chunks, b"")):
            return found + (chunk[-1:] not in (b"", b"\n")), True
        chunk = following


def identify(path: str) -> tuple[int, int, str]:
    """
    Device and inode of a regular file; where there is none, those of the directory that would hold it, and its place there.

    Where that directory is not there either, it is the next one above it that is. It is opened to be read: what hides it hides what
    could be in it.
    """
    try:
        with _opened(path) as descriptor:
            status, place = os.fstat(descriptor), ""
    except FileNotFoundError:
        parent, name = os.path.split(path)
        real = above = os.path.realpath(parent)
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        directory = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status, place = os.fstat(directory), os.path.join(real, name)
        os.close(directory)
    return status.st_dev, status.st_ino, place


def list_directory(path: str) -> list[tuple[str, str]]:
    """The names in a directory, or some of very many, sorted, each with its kind."""
    with os.scandir(path) as entries:
        some = zip(range(MAX_ENTRIES), entries, strict=False)
        return sorted((entry.name, _kind(entry)) for _, entry in some)


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@contextmanager
def _opened(path: str) -> Generator[int]:
    descriptor = os.open(path, os.O_RDONLY | OPENED)
    try:
        require_file(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def require_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, "no file")


def take(descriptor: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    while limit > 0 and (piece := os.read(descriptor, limit)):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
        status.st_nlink,
    )
