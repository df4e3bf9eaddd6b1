"""Sanderling's own files: read without blocking on special files, written atomically; and the resolution of paths."""

import errno
import os
import re
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:  # importing it would delay the start of a sandbox
    from pathlib import Path


RANDOM_BYTES = 8
MAX_LINKS = 40  # in a path, as in Linux
_O_EVTONLY = 0x8000 if sys.platform == "darwin" else 0  # of sys/fcntl.h: needs no right to read
_F_GETPATH, _MAXPATHLEN = 50, 1024  # of sys/fcntl.h and sys/param.h
MAY_BE_SPELLED_OTHERWISE = sys.platform == "darwin"


def own_command() -> str:
    """Return how a shell calls `sanderling`: by its name if that is on PATH, else by its path."""
    import shlex  # importing these would delay the start of a sandbox
    import shutil

    name = "sanderling"
    return name if shutil.which(name) else shlex.quote(f"{sys.prefix}/bin/{name}")


def open_plain(path: "Path") -> BinaryIO:
    """
    Open a regular file to read it. /dev/null counts as an empty one, as usual.

    Raises:
        OSError: it cannot be opened, or is not a regular file: a pipe may never answer, and a device never end.
    """
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - Path.open takes no opener
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.stat(os.devnull)):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


@contextmanager
def replacing(path: "Path", *, is_durable: bool = True) -> Generator[BinaryIO]:
    """
    Open a file that replaces `path` at the end of this context: completely, or after an error not at all. Only its owner can read it.

    With `is_durable` the disk has it then. Of several writers the last one to finish wins, with its complete file. The temporary names
    are random, because a process id does not distinguish the threads of a process, nor processes in two containers.
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
        with closed_after(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)) as directory:
            os.fsync(directory)


def temporaries_of(path: "Path") -> "list[Path]":
    """Return the files that `replacing` has begun to write for `path`, even in a process that was killed."""
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


@contextmanager
def closed_after(fd: int) -> Generator[int]:
    """Close a descriptor at the end of this context."""
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`: one call may write only a part of it, on a disk that is nearly full, for example."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def stamp_of(path: "Path") -> tuple[int, ...] | None:
    """Return a stamp that changes with the file; () if there is no file, None if it cannot be examined."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def real_path(path: str) -> str:
    """
    Return `path` with its links resolved, except unreadable ones: at /proc/1/root, for example, realpath would raise.

    On macOS it is also spelled as on the disk, because `/USERS/me` and `/System/Volumes/Data/Users/me` are `/Users/me` there. An impossible
    path, with a NUL in it, is only normalized.
    """
    try:
        real = os.path.realpath(path)
        return on_disk(real) if MAY_BE_SPELLED_OTHERWISE else real
    except OSError as error:  # the unreadable link: a path through it must not count as lying where its name says
        return os.path.normpath(error.filename or path)
    except ValueError:
        return os.path.normpath(path)


def on_disk(path: str) -> str:
    """
    Return a `path` without links in the spelling of macOS's kernel; what does not exist as given, below what exists.

    A volume may ignore case and Unicode's normal forms, and `/System/Volumes/Data/Users` is `/Users`, which is no link.
    """
    rest = ""
    while path != "/":
        if known := _stored(path):
            return known.rstrip("/") + rest
        path, name = os.path.split(path)
        rest = f"/{name}{rest}"
    return rest or "/"


def _stored(path: str) -> str:
    """Return the path of the file as it is on the disk, or "" if it cannot be opened, as sockets cannot."""
    flags = _O_EVTONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return ""
    try:
        found = os.fstat(descriptor)
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            return ""  # the kernel may answer with another name of the file
        return _path_of(descriptor)
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _path_of(descriptor: int) -> str:
    import fcntl

    found = fcntl.fcntl(descriptor, _F_GETPATH, bytes(_MAXPATHLEN))
    return os.fsdecode(found.partition(b"\0")[0])


def normal_path(path: str) -> str:
    """Normalize `path` as text. Two slashes at its beginning, which `normpath` keeps, become one."""
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def state_directory(root: str, project: str) -> str:
    """Return the directory of `project` below `root`, whose name has a readable part and a unique part."""
    import hashlib  # loads OpenSSL, which the supervisor does not need

    real = os.path.realpath(project)
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(real))[:40]
    return f"{root}/{name}-{digest}"


def is_within(path: str, directory: str) -> bool:
    """Both paths are absolute and normalized."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def path_outside(project: str) -> str:
    """Return PATH without what the project, which is untrusted, could contain."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(
        entry for entry in entries if os.path.isabs(entry) and not leads_through(entry, project)
    )


def leads_through(path: str, directory: str) -> bool:
    """
    Return whether the absolute `path` leads into `directory`, or through a link there to somewhere else.

    Whoever can write in the directory decides what such a path means.
    """
    directory = os.path.realpath(directory)
    place, links = "/", 0
    parts = path.split("/")[::-1]
    while parts and links <= MAX_LINKS:
        place = os.path.normpath(f"{place}/{parts.pop()}")  # not a link, and without one
        if is_within(place, directory):
            return True
        try:
            target = os.readlink(place)
        except OSError:
            continue
        links += 1
        parts += target.split("/")[::-1]
        place = "/" if target.startswith("/") else os.path.dirname(place)
    return False


def is_in_any(path: str, directories: Iterable[str]) -> bool:
    """All paths are absolute and normalized."""
    return any(is_within(path, directory) for directory in directories)
