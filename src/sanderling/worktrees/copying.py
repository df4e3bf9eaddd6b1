"""
Copies a tree that commands may change meanwhile.

`cp -a` looked at each entry and then opened it by its path. A command in the project that replaced a directory by a link in between, in
a loop, had the host copy the user's keys into the worktree: in 3 of 15 copies of 100 directories. Here each entry is opened below its
directory's descriptor, and no link is followed.
"""

import os
import stat
from pathlib import PurePath

from sanderling.paths import closed_after
from sanderling.platforms.files import copy_new

MAX_DEPTH = 200
REPLACED = "it was replaced meanwhile"
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def copy(top: str, path: str, target: str) -> None:
    """
    Copy `path`, relative to the resolved directory `top`, to `target`, which must not exist. Pipes, sockets and devices are left out.

    Raises:
        OSError: something cannot be read or written, or was replaced meanwhile; or the tree is too deep.
    """
    directory, name = os.path.split(path)
    steps = PurePath(os.path.relpath(os.path.realpath(f"{top}/{directory}"), top)).parts
    if ".." in steps:
        raise OSError(0, REPLACED)
    above, own_name = os.path.split(target)
    with (
        closed_after(_entered(top, steps)) as source,
        closed_after(os.open(os.path.realpath(above), DIRECTORY)) as there,
    ):
        _copy(source, name, there, own_name, MAX_DEPTH)


def copy_file(path: str, target: str) -> None:
    """
    Copy the file `path`, of which the last step is no link, to `target`, which must not exist.

    Raises:
        OSError: it is not a regular file, or cannot be read or written.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(0, REPLACED)
    _copy_file(path, None, target, None)


def _entered(top: str, steps: tuple[str, ...]) -> int:
    """Return a descriptor of the directory that `steps` lead to, without following a link."""
    fd = os.open(top, DIRECTORY)
    for step in steps:
        with closed_after(fd):
            fd = os.open(step, DIRECTORY, dir_fd=fd)
    return fd


def _copy(source: int, name: str, target: int, own_name: str, depth: int) -> None:
    found = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), own_name, dir_fd=target)
    elif stat.S_ISDIR(found.st_mode):
        if not depth:
            raise OSError(0, "its directories are too deep")
        os.mkdir(own_name, 0o700, dir_fd=target)
        with (
            closed_after(os.open(name, DIRECTORY, dir_fd=source)) as inner,
            closed_after(os.open(own_name, DIRECTORY, dir_fd=target)) as made,
        ):
            for each in os.listdir(inner):
                _copy(inner, each, made, each, depth - 1)
            _finish(made, found)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(name, source, own_name, target)


def _copy_file(name: str, source: int | None, own_name: str, target: int | None) -> None:
    with closed_after(os.open(name, READ, dir_fd=source)) as original:
        found = os.fstat(original)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, REPLACED)
        with closed_after(copy_new(original, own_name, target)) as made:
            _finish(made, found)


def _finish(fd: int, found: os.stat_result) -> None:
    os.fchmod(fd, stat.S_IMODE(found.st_mode) & 0o777)
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
