"""
The file worker: what file tools do, done inside the sandbox.

It is an init without a command: confined as every other, it opens paths in the view's own root. A symbolic link that is swapped
between a check and its use cannot lead it out, for there is no check: the kernel refuses, or the path does not exist.

A file is replaced by renaming a complete one over it, so that whoever reads sees the old bytes or the new ones, and so does who
looks after a crash. Where that would lose something (a hard link, an owner, an attribute), or where only the file may be written
and not its directory, the file is overwritten instead, and gets its old bytes back when that fails.
"""

import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn

from sanderling.sandbox import wire

Answer = tuple[str, Any]
CHUNK_BYTES = 1 << 20
TICK_NS = 10_000_000
"""Two changes within one tick of the kernel's coarse clock (100 Hz at the slowest) can leave the same times."""
MAX_LOOKS = 10
"""At a file that changes all the time. Its stamp then means little, but nor will it be the same when it is written."""
MAX_ENTRIES = 100_000
"""Of a directory."""
SEEK_S, COUNT_S = 3.0, 0.02
"""How long the first line of a page may be looked for, and how long the lines after the page may be counted."""
MAX_OVERWRITTEN_BYTES = 256 << 20
"""What is overwritten is held in memory, to be put back if that fails."""
TEMPORARY = ".sanderling-tmp-"
LEFTOVER_S, MAX_SWEPT_NAMES = 60.0, 2000
OPENED = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A FIFO is not waited for, a terminal not taken over."""
PASSED_THROUGH = getattr(os, "O_PATH", os.O_RDONLY)  # which not every system has
NO_RENAME = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
NO_LINKS = (errno.EACCES, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
OTHERS_ATTRIBUTES = ("security.", "trusted.")  # the kernel's and the administrator's


class Stamp(NamedTuple):
    """Which file it was, and which state of it. Two equal stamps mean equal content."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    nlink: int


def serve(channel: socket.socket) -> NoReturn:
    """Answer requests, each with its number, until the host lets go of `channel`."""
    while (received := wire.receive(channel)) is not None:
        number, *request = received[0]
        wire.send(channel, (number, *answer(*request)))
    os._exit(0)


def answer(operation: str, *arguments: Any) -> Answer:
    """("ok", result), or ("error", errno)."""
    try:
        return "ok", OPERATIONS[operation](*arguments)
    except OSError as error:
        return "error", error.errno or errno.EIO
    except ValueError:  # what cannot be a path
        return "error", errno.EINVAL
    except MemoryError:
        return "error", errno.ENOMEM


# --- reading -----------------------------------------------------------------------------------------------------------


def _read(path: str, offset: int, limit: int) -> tuple[bytes, int]:
    """At most `limit` bytes from `offset`, and the file's size. Nothing but a regular file is read, and nothing waited for."""
    with _opened(path) as descriptor:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return _take(descriptor, limit), os.fstat(descriptor).st_size


def _load(path: str, limit: int, head: int) -> tuple[bytes, bool, tuple[int, ...]]:
    """All of a file, or if it is longer than `limit` its first `head` bytes; whether that is all; its stamp."""
    for is_last_try in (*[False] * MAX_LOOKS, True):
        with _opened(path) as descriptor:
            before = stamp_of(os.fstat(descriptor))
            data = _take(descriptor, head if before.size > limit else limit + 1)
            after = stamp_of(os.fstat(descriptor))
        is_whole = before.size <= limit and len(data) <= limit  # in /proc sizes are 0
        is_sure = before == after and not _is_fresh(after)
        if is_sure or not is_whole or is_last_try:  # nobody takes a part for the whole
            return (data if is_whole else data[:head]), is_whole, tuple(after)
        time.sleep(TICK_NS / 1e9)
    raise AssertionError


def _is_fresh(stamp: Stamp) -> bool:
    """Whether it was changed so lately that one more change could leave the same stamp."""
    return 0 <= time.time_ns() - max(stamp.mtime_ns, stamp.ctime_ns) < TICK_NS


def _lines(
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
    How many lines were passed, and the chunk that begins with line `first`.

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
    """How many lines there are in `chunk` and those that follow, as far as the time suffices, and whether that is all."""
    found, deadline = 0, time.monotonic() + COUNT_S
    while True:
        found += chunk.count(b"\n")
        if time.monotonic() > deadline:
            return found, False
        if not (following := next(chunks, b"")):
            return found + (chunk[-1:] not in (b"", b"\n")), True
        chunk = following


def _identify(path: str) -> tuple[int, int, str]:
    """
    Device and inode of a regular file; where there is none, those of the directory that would hold it, and its place there.

    The directory is opened to be read: what hides it hides what could be in it.
    """
    try:
        with _opened(path) as descriptor:
            status, place = os.fstat(descriptor), ""
    except FileNotFoundError:
        parent, name = os.path.split(path)
        real = os.path.realpath(parent)
        directory = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        status, place = os.fstat(directory), os.path.join(real, name)
        os.close(directory)
    return status.st_dev, status.st_ino, place


def _list(path: str) -> list[tuple[str, str]]:
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
        _require_file(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _require_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, "no file")


def _take(descriptor: int, limit: int) -> bytes:
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


# --- writing -----------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """
    Where a file is to be written: a name in an open directory, which stays the same whatever is renamed meanwhile.

    `expected` is the stamp of what may be replaced, empty if there must be nothing; None lets replace whatever it is.
    """

    directory: int
    name: str
    expected: tuple[int, ...] | None

    def status(self) -> os.stat_result | None:
        """
        What is there now; None for nothing.

        Raises:
            OSError: it is no file, or (ESTALE) not the one that was expected.
        """
        try:
            status = os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        if self.expected is not None and self.expected != (
            tuple(stamp_of(status)) if status else ()
        ):
            raise OSError(errno.ESTALE, "changed meanwhile")
        if status:
            _require_file(status)
        return status


def _write(
    path: str, data: bytes, expected: tuple[int, ...] | None, makes_parents: bool
) -> tuple[int, ...]:
    """
    Put `data` in the place of what `path` holds, all of it or nothing; a link stays a link. Returns the stamp of what is there now.

    Raises:
        OSError: ESTALE if the file is not the one that was `expected`.
    """
    with _place(path, expected, makes_parents=makes_parents) as place:
        old = place.status()
        _sweep(place.directory)
        if old is None:
            return tuple(_create(place, data))
        with _opened_to_write(place, old) as descriptor:
            # A second name would go on naming the old file.
            stamp = _replace(place, data, descriptor) if old.st_nlink == 1 else None
            return tuple(stamp or _overwrite(place, data, descriptor))


def _check(path: str) -> None:
    """
    Find out whether `path` could be written, and change nothing.

    Raises:
        OSError: as writing would.
    """
    real = os.path.realpath(path)
    while not os.path.isdir(parent := os.path.dirname(real)):  # which would be made
        real = parent
    with _place(real, None, makes_parents=False) as place:
        if old := place.status():
            with _opened_to_write(place, old):
                return
        descriptor, temporary = _open_temporary(place.directory, 0o600)
        os.close(descriptor)
        os.unlink(temporary, dir_fd=place.directory)


@contextmanager
def _place(
    path: str, expected: tuple[int, ...] | None, *, makes_parents: bool
) -> Generator[_Place]:
    parent, name = os.path.split(os.path.realpath(path))
    if makes_parents:
        os.makedirs(parent, exist_ok=True)
    # To go through, not to read: where a single file is granted, its directory is hidden.
    directory = os.open(parent, PASSED_THROUGH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _Place(directory, name, expected)
    finally:
        os.close(directory)


@contextmanager
def _opened_to_write(place: _Place, expected: os.stat_result) -> Generator[int]:
    """The file that stands there. It is opened for writing also where another takes its place: one that is read-only stays."""
    flags = os.O_RDWR | os.O_NOFOLLOW | OPENED
    descriptor = os.open(place.name, flags, dir_fd=place.directory)
    try:
        if not os.path.samestat(os.fstat(descriptor), expected):
            raise OSError(errno.ESTALE, "changed meanwhile")
        yield descriptor
    finally:
        os.close(descriptor)


def _create(place: _Place, data: bytes) -> Stamp:
    """A new file, with the mode that the umask leaves."""
    with _temporary(place.directory, data, 0o666) as (descriptor, temporary):
        os.fsync(descriptor)
        _name_new(place, temporary)
        _sync_directory(place.directory)
        return stamp_of(os.fstat(descriptor))


def _name_new(place: _Place, temporary: str) -> None:
    here = place.directory
    if place.expected is not None:
        try:  # renaming would replace what has come meanwhile
            os.link(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)
        except FileExistsError:
            raise OSError(errno.ESTALE, "changed meanwhile") from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            place.status()
        else:
            os.unlink(temporary, dir_fd=here)
            return
    os.rename(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)


def _replace(place: _Place, data: bytes, old: int) -> Stamp | None:
    """Rename a new file over the `old` one, whose owner, mode and attributes it takes on; None, and nothing done, if it cannot."""
    here = place.directory
    try:
        with _temporary(place.directory, data, 0o600) as (descriptor, temporary):
            if not _make_alike(descriptor, old):
                return None
            os.fsync(descriptor)
            place.status()
            os.rename(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)
            _sync_directory(place.directory)
            return stamp_of(os.fstat(descriptor))
    except OSError as error:
        if error.errno in NO_RENAME:  # the directory is not ours, or the file a mount of its own
            return None
        raise


def _overwrite(place: _Place, data: bytes, descriptor: int) -> Stamp:
    """Write into the file itself. When that fails it gets its bytes back; only a crash within it leaves a mixture."""
    size = os.fstat(descriptor).st_size
    if size > MAX_OVERWRITTEN_BYTES:
        raise OSError(errno.EFBIG, "too large to be overwritten")
    before = _take(descriptor, size)
    place.status()
    try:
        _put(descriptor, data)
    except OSError:
        _put(descriptor, before)
        raise
    return stamp_of(os.fstat(descriptor))


def _put(descriptor: int, data: bytes) -> None:
    if data:
        with _where_supported():  # else a full disk is noticed before anything is lost
            os.posix_fallocate(descriptor, 0, len(data))
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


@contextmanager
def _where_supported() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
            raise


@contextmanager
def _temporary(directory: int, data: bytes, mode: int) -> Generator[tuple[int, str]]:
    """A new file that holds `data`, to be renamed; what is still there in the end is removed."""
    descriptor, name = _open_temporary(directory, mode)
    try:
        _write_all(descriptor, data)
        yield descriptor, name
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _open_temporary(directory: int, mode: int) -> tuple[int, str]:
    name = TEMPORARY + os.urandom(8).hex()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, mode, dir_fd=directory), name


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _make_alike(new: int, old: int) -> bool:
    """Give `new` the owner, attributes (access lists among them) and mode of `old`; False if some of it cannot be had."""
    wanted, status = os.fstat(old), os.fstat(new)
    try:
        if (wanted.st_uid, wanted.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(new, wanted.st_uid, wanted.st_gid)
        _copy_attributes(new, old)
        os.fchmod(new, stat.S_IMODE(wanted.st_mode))
    except OSError as error:
        if error.errno == errno.EIO:
            raise
        return False
    return True


def _copy_attributes(new: int, old: int) -> None:
    if not hasattr(os, "listxattr"):  # not on every system, and the sandbox may be off
        return
    wanted, given = _attributes(old), _attributes(new)
    for name in given.keys() - wanted.keys():  # from its directory's default access list
        os.removexattr(new, name)
    for name, value in wanted.items():
        if given.get(name) != value:
            os.setxattr(new, name, value)


def _attributes(descriptor: int) -> dict[str, bytes]:
    try:
        names = os.listxattr(descriptor)
    except OSError:  # a file system without any
        return {}
    ours = (name for name in names if not name.startswith(OTHERS_ATTRIBUTES))
    return {name: os.getxattr(descriptor, name) for name in ours}


def _sync_directory(directory: int) -> None:
    """So that the new name outlives a crash, too."""
    with suppress(PermissionError), _listable(directory) as descriptor, _where_supported():
        os.fsync(descriptor)


def _sweep(directory: int) -> None:
    """Remove what a write that was killed has left here."""
    oldest = time.time() - LEFTOVER_S
    with suppress(OSError), _listable(directory) as descriptor, os.scandir(descriptor) as entries:
        for _, entry in zip(range(MAX_SWEPT_NAMES), entries, strict=False):
            if entry.name.startswith(TEMPORARY) and _is_leftover(entry, oldest):
                os.unlink(entry.name, dir_fd=directory)


@contextmanager
def _listable(directory: int) -> Generator[int]:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_leftover(entry: "os.DirEntry[str]", oldest: float) -> bool:
    return (
        entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < oldest
    )


OPERATIONS: dict[str, Callable[..., Any]] = {
    "read": _read,
    "load": _load,
    "lines": _lines,
    "identify": _identify,
    "list": _list,
    "check": _check,
    "write": _write,
}
