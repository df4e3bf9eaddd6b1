"""Reads files of any size, in parts or whole, and directories, for the file worker."""

import errno
import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sanderling.paths import closed_after

CHUNK_BYTES = 1 << 20
TICK_NS = 10_000_000
"""Two changes within one tick of the kernel's coarse clock (100 Hz at the slowest) can get the same time."""
MAX_LOOKS = 10
"""For a file that changes all the time. Its stamp then means little, but it will differ again when the file is written."""
MAX_ENTRIES = 100_000
"""The limit for listing a directory."""
SEEK_S, COUNT_S = 3.0, 0.02
"""Time limits: for finding the first line of a page, and for counting the lines after it."""
OPENED = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""So that opening neither waits for a FIFO nor makes a terminal the controlling one."""


class Stamp(NamedTuple):
    """The identity and state of a file. Equal stamps mean equal content."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    nlink: int


def read(path: str, offset: int, limit: int) -> tuple[bytes, int]:
    """Read at most `limit` bytes from `offset`. Return them and the file's size. Only regular files can be read, without blocking."""
    with _opened(path) as descriptor:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return take(descriptor, limit), os.fstat(descriptor).st_size


def load(path: str, limit: int, head: int) -> tuple[bytes, bool, tuple[int, ...]]:
    """Return a file's content, or its first `head` bytes if it is larger than `limit`; whether that is everything; its stamp."""
    for is_last_try in (*[False] * MAX_LOOKS, True):
        with _opened(path) as descriptor:
            before = stamp_of(os.fstat(descriptor))
            data = take(descriptor, head if before.size > limit else limit + 1)
            after = stamp_of(os.fstat(descriptor))
        is_whole = before.size <= limit and len(data) <= limit  # in /proc, sizes are 0
        is_sure = before == after and not is_fresh(after)
        if is_sure or not is_whole or is_last_try:  # a part need not be consistent
            return (data if is_whole else data[:head]), is_whole, tuple(after)
        time.sleep(TICK_NS / 1e9)
    raise AssertionError


def is_fresh(stamp: Stamp) -> bool:
    """Return whether the file changed so recently that another change could leave the same stamp."""
    return 0 <= time.time_ns() - max(stamp.mtime_ns, stamp.ctime_ns) < TICK_NS


def lines(
    path: str, first: int, count: int, line_bytes: int, page_bytes: int
) -> tuple[list[tuple[bytes, int]], int, bool]:
    """
    Return up to `count` lines from number `first`, at most `page_bytes` in total: up to `line_bytes` of each, and its full length.

    Also return how many lines were counted, and whether that is all of them. Counting stops after a time limit.
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

    The chunk is None if the line was not reached, because the file ended (the third value is True) or the time limit passed.
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
    """Return the lines of a page and the rest of the last chunk; None if the last line is too long to find its end."""
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
    """Count the lines in `chunk` and after it, until a time limit. Return the count, and whether that is all."""
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
    Return device and inode of a regular file, or of the nearest existing directory if it is missing, and then also its path.

    The directory is opened for reading, so that hidden directories hide what might be in them.
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
    """Return the sorted names of a directory, each with its kind. Very large directories are cut off."""
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
    with closed_after(os.open(path, os.O_RDONLY | OPENED)) as descriptor:
        require_file(os.fstat(descriptor))
        yield descriptor


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
