"""Files and directories as the guard keeps them. They are read by path, but written relative to descriptors."""

import errno
import os
import stat
import time
from collections.abc import Iterable
from typing import NamedTuple

from sanderling.paths import closed_after
from sanderling.platforms import files
from sanderling.sandbox.guard.repositories import DIRECTORY as LISTABLE
from sanderling.sandbox.guard.repositories import read_file

MAX_KEPT_BYTES = 1 << 20
"""Larger files are identified by their stamp and cannot be restored."""

READS_AT_A_TIME = 64

DIRECTORY = files.ONLY_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RecordedState(NamedTuple):
    """The recorded state of a path. `stamp` replaces the content of files too large to keep."""

    kind: int
    mode: int
    content: bytes = b""
    names: frozenset[str] = frozenset()
    stamp: tuple[int, int, int] | None = None


Identity = tuple[int, int]


def open_directory(path: str) -> int:
    """
    Open the directory at the absolute `path`, without following links and if possible only to pass through.

    Raises:
        OSError: it is missing, or a component is a link.
    """
    fd = os.open("/", DIRECTORY)
    for part in path.split("/"):
        if part:
            with closed_after(fd):
                below = os.open(part, DIRECTORY, dir_fd=fd)
            fd = below
    return fd


def identity(name: str, parent: int | None = None) -> Identity | None:
    """Return the identity of `name`, a path or a name in `parent`, or None if it is missing."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def identity_of(fd: int) -> Identity:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def snapshot(paths: Iterable[str]) -> dict[str, RecordedState]:
    kept: dict[str, RecordedState] = {}
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path not in kept and (found := look(path)):
            kept[path] = found
            waiting += [f"{path}/{name}" for name in found.names]
    return kept


def look(name: str, parent: int | None = None) -> RecordedState | None:
    """Return the state of `name`, a path or a name in `parent`, or None if it is missing."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind, mode = stat.S_IFMT(found.st_mode), stat.S_IMODE(found.st_mode)
        if kind == stat.S_IFLNK:
            return RecordedState(kind, mode, os.fsencode(os.readlink(name, dir_fd=parent)))
    except OSError:
        return None
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    try:
        if kind == stat.S_IFDIR:
            with closed_after(os.open(name, LISTABLE, dir_fd=parent)) as fd:
                return RecordedState(kind, mode, names=frozenset(os.listdir(fd)))
        if kind == stat.S_IFREG:
            return RecordedState(
                kind, mode, read_file(name, MAX_KEPT_BYTES, follows=False, dir_fd=parent)
            )
    except OSError:
        pass
    return RecordedState(kind, mode, stamp=stamp)


def open_up(parent: int, name: str) -> None:
    """Give the owner all rights on the directory `parent`, and on `name` if that is a directory. Undo what forbids to move it on macOS."""
    files.unlock(parent, ".")
    files.unlock(parent, name)
    files.set_mode(parent, stat.S_IMODE(os.fstat(parent).st_mode) | stat.S_IRWXU)
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        files.change_mode(parent, name, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)


def rename_back(fd: int, parent: int, name: str) -> None:
    """
    Rename the directory behind `fd`, wherever it is now, to `name` in `parent`.

    Raises:
        OSError: it cannot be reached, or was replaced in this moment.
    """
    now_at = files.path_of(fd)
    with closed_after(open_directory(os.path.dirname(now_at))) as source:
        if identity(os.path.basename(now_at), source) != identity_of(fd):
            raise OSError(errno.ESTALE, "it moves")
        os.rename(os.path.basename(now_at), name, src_dir_fd=source, dst_dir_fd=parent)


def put(parent: int, name: str, kept: RecordedState) -> None:
    """Create `name` with the recorded state. Files appear atomically."""
    if kept.stamp:
        raise OSError(errno.EFBIG, "its content is too large to keep")
    if kept.kind == stat.S_IFDIR:
        os.mkdir(name, dir_fd=parent)
        files.change_mode(parent, name, kept.mode)
        return
    fresh = f".{time.time_ns()}"
    if kept.kind == stat.S_IFLNK:
        os.symlink(os.fsdecode(kept.content), fresh, dir_fd=parent)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(fresh, flags, 0o600, dir_fd=parent)
        with os.fdopen(fd, "wb") as file:
            file.write(kept.content)
            os.fchmod(fd, kept.mode)
    os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
