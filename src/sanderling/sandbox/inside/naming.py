"""
Inspects and changes names from within the sandbox: removes and creates them, and sets modes.

Links are never followed, neither at the end of a path nor on the way. A name is only removed or replaced if it still belongs to the file
that was inspected.
"""

import errno
import os
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

from sanderling.paths import closed_after
from sanderling.platforms.files import ONLY_PATH
from sanderling.sandbox.inside.reading import (
    MAX_LOOKS,
    OPENED,
    TICK_NS,
    is_fresh,
    stamp_of,
    take,
)
from sanderling.sandbox.inside.writing import (
    TEMPORARY,
    listable,
    passed_through,
    set_mode,
)

Kind = Literal["absent", "file", "link", "directory", "fifo", "socket", "other"]
Inspected = tuple[Kind, int, int, bytes | None, str, tuple[int, ...]]


def look(path: str, limit: int) -> Inspected:
    """
    Return the kind, mode and size of `path`, the bytes of a file, the target of a link, and the stamp.

    The bytes are None if there are more than `limit`, or if the file is unreadable. Anything beyond a link counts as absent.
    """
    try:
        with _parent(path) as (directory, name):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            kind: Kind = "other"
            data, target = None, ""
            if stat.S_ISLNK(status.st_mode):
                kind = "link"
                target = os.readlink(name, dir_fd=directory)
            elif stat.S_ISDIR(status.st_mode):
                kind = "directory"
            elif stat.S_ISREG(status.st_mode):
                kind = "file"
                with suppress(PermissionError):
                    data, status = _content(name, directory, limit)
            elif stat.S_ISFIFO(status.st_mode):
                kind = "fifo"
            elif stat.S_ISSOCK(status.st_mode):
                kind = "socket"
    except (FileNotFoundError, NotADirectoryError):
        return "absent", 0, 0, None, "", ()
    mode = 0 if kind == "link" else stat.S_IMODE(status.st_mode)
    return kind, mode, status.st_size, data, target, tuple(stamp_of(status))


def looks(paths: Sequence[str], limit: int, room: int) -> list[Inspected | int]:
    """Look at several paths, until `room` bytes are used up, but at least at one. Errors are returned as their errno."""
    found: list[Inspected | int] = []
    for path in paths:
        try:
            sight = look(path, limit)
        except OSError as error:
            found.append(error.errno or errno.EIO)
        else:
            found.append(sight)
            room -= len(sight[3] or b"")
        if room <= 0:
            break
    return found


def unlink(path: str, expected: tuple[int, ...]) -> None:
    with _parent(path) as (directory, name):
        _require(name, directory, expected)
        os.unlink(name, dir_fd=directory)


def symlink(path: str, target: str, expected: tuple[int, ...]) -> None:
    """Create a link, replacing the `expected` file or link if one is given."""
    with _parent(path, makes_parents=True) as (directory, name):
        if not expected:
            os.symlink(target, name, dir_fd=directory)
            return
        temporary = TEMPORARY + os.urandom(8).hex()
        os.symlink(target, temporary, dir_fd=directory)
        try:
            _require(name, directory, expected)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            os.unlink(temporary, dir_fd=directory)
            raise


def link(
    path: str, twin: str, data: bytes, mode: int, expected: tuple[int, ...]
) -> tuple[int, ...]:
    """
    Make `path` a hard link to the file `twin`, if that has this content and mode. Return the stamp, or () if it does not.

    The link replaces the `expected` file or link, if one is given. Two names of the same file are left as they are.
    """
    with _parent(twin) as (there, twin_name), _parent(path, makes_parents=True) as (here, name):
        try:
            found, status = _content(twin_name, there, len(data))
        except OSError:
            return ()
        if found != data or stat.S_IMODE(status.st_mode) != mode:
            return ()
        if expected and (status.st_dev, status.st_ino) == expected[:2]:
            return ()
        temporary = TEMPORARY + os.urandom(8).hex()
        try:
            os.link(twin_name, temporary, src_dir_fd=there, dst_dir_fd=here, follow_symlinks=False)
        except OSError:  # another file system, or one without hard links
            return ()
        try:
            made = os.stat(temporary, dir_fd=here, follow_symlinks=False)
            if (made.st_dev, made.st_ino) != (status.st_dev, status.st_ino):
                raise OSError(errno.ESTALE, "changed meanwhile")
            if expected:
                _require(name, here, expected)
                os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
            else:
                os.link(temporary, name, src_dir_fd=here, dst_dir_fd=here)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=here)
        return tuple(stamp_of(os.stat(name, dir_fd=here, follow_symlinks=False)))


def mkfifo(path: str, mode: int) -> None:
    with _parent(path, makes_parents=True) as (directory, name):
        os.mkfifo(name, dir_fd=directory)
        flags = ONLY_PATH | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with closed_after(os.open(name, flags, dir_fd=directory)) as made:
            set_mode(made, mode)


def chmod(path: str, mode: int, expected: tuple[int, ...]) -> None:
    with _parent(path) as (directory, name):
        flags = ONLY_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with closed_after(os.open(name, flags, dir_fd=directory)) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISLNK(status.st_mode) or tuple(stamp_of(status)) != expected:
                raise OSError(errno.ESTALE, "changed meanwhile")
            set_mode(descriptor, mode)


def mkdir(path: str, mode: int) -> None:
    """Create a directory and its parents."""
    with _parent(path, makes_parents=True) as (directory, name):
        os.mkdir(name, dir_fd=directory)
        with closed_after(passed_through(name, directory)) as made:
            set_mode(made, mode)


def rmdir(path: str) -> None:
    """Remove a directory. It may contain temporary files that killed writes left."""
    with _parent(path) as (directory, name):
        try:
            os.rmdir(name, dir_fd=directory)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not _is_rid_of_leftovers(name, directory):
                raise
            os.rmdir(name, dir_fd=directory)


def _is_rid_of_leftovers(name: str, above: int) -> bool:
    """Remove temporary files from a directory. Return False, without changes, if it contains anything else."""
    with closed_after(passed_through(name, above)) as directory:
        with closed_after(listable(directory)) as descriptor:
            names = os.listdir(descriptor)
        if not all(each.startswith(TEMPORARY) for each in names):
            return False
        for each in names:
            os.unlink(each, dir_fd=directory)
        return True


@contextmanager
def _parent(path: str, *, makes_parents: bool = False) -> Generator[tuple[int, str]]:
    parent, name = os.path.split(path)
    with closed_after(passed_through(parent, makes_parents=makes_parents)) as directory:
        yield directory, name


def _require(name: str, directory: int, expected: tuple[int, ...]) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if tuple(stamp_of(status)) != expected or stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ESTALE, "changed meanwhile")


def _content(name: str, directory: int, limit: int) -> tuple[bytes | None, os.stat_result]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | OPENED
    with closed_after(os.open(name, flags, dir_fd=directory)) as descriptor:
        data, status = None, os.fstat(descriptor)
        for _ in range(MAX_LOOKS):
            os.lseek(descriptor, 0, os.SEEK_SET)
            data = take(descriptor, limit + 1) if status.st_size <= limit else None
            before, status = status, os.fstat(descriptor)
            if stamp_of(before) == stamp_of(status) and not is_fresh(stamp_of(status)):
                break
            time.sleep(TICK_NS / 1e9)
        return (data if data is not None and len(data) <= limit else None), status
