"""Our own files: read without waiting for what else may stand in their place, and written whole; and where paths lead."""

import errno
import os
import re
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:  # who opens a sandbox waits for it otherwise
    from pathlib import Path


RANDOM_BYTES = 8


def open_plain(path: "Path") -> BinaryIO:
    """
    Open `path` to read it. /dev/null stands for an empty file, as ever.

    Raises:
        OSError: it cannot be opened, or it is none: a pipe may never answer, and a device never end.
    """
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - Path.open takes no opener
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.stat(os.devnull)):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


@contextmanager
def replacing(path: "Path", *, is_durable: bool = True) -> Generator[BinaryIO]:
    """
    Open a file for its owner alone, which takes the place of `path` at the end of this context: all of it, or what was there stays.

    If it `is_durable`, the disk has it then. Of several writers the last one to end wins, with all of its file: the temporary names
    are random, because a process id does not tell apart the threads of a process, nor processes in two containers.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(RANDOM_BYTES).hex()}")
    try:
        with open(temporary, "xb", opener=_open_private) as file:
            yield file
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if is_durable:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def temporaries_of(path: "Path") -> "list[Path]":
    """The files that `replacing` has begun to write for `path`, also in a process that was killed."""
    begin = f".{path.name}."
    return [
        path.with_name(name)
        for name in os.listdir(path.parent)
        if name.startswith(begin) and _is_random(name[len(begin) :])
    ]


def _is_random(end: str) -> bool:
    return len(end) == 2 * RANDOM_BYTES and not end.strip("0123456789abcdef")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write_all(fd: int, data: bytes) -> None:
    """Write `data`: one call may write a part of it, on a disk that is about to be full, for instance."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def stamp_of(path: "Path") -> tuple[int, ...] | None:
    """A stamp, another one when the file has changed; () where there is none, None where nothing is known of it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def real_path(path: str) -> str:
    """
    `path` with links followed, as far as they can be read: /proc/1/root cannot, and realpath would raise.

    What can be no path (a NUL in it) leads nowhere.
    """
    try:
        return os.path.realpath(path)
    except OSError as error:  # the link that cannot be read: it must not count as where it lies
        return os.path.normpath(error.filename or path)
    except ValueError:
        return os.path.normpath(path)


def normal_path(path: str) -> str:
    """`path` normalised as text. Two slashes at its beginning, which `normpath` keeps, are one here."""
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def state_directory(root: str, project: str) -> str:
    """The directory below `root` that belongs to `project`: a part to recognise, and a part that is its own."""
    import hashlib  # OpenSSL, of which the supervisor needs nothing

    real = os.path.realpath(project)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(real))[:40]
    return f"{root}/{name}-{digest}"


def is_within(path: str, directory: str) -> bool:
    """Say whether `path` is `directory` or lies below it; both are absolute and normal."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_in_any(path: str, directories: Iterable[str]) -> bool:
    """Say whether `path` is one of `directories` or lies below one; all are absolute and normal."""
    return any(is_within(path, directory) for directory in directories)
