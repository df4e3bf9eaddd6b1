"""inotify(7), which Python does not wrap."""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

IN_ATTRIB, IN_CLOSE_WRITE, IN_MODIFY = 0x4, 0x8, 0x2
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF = 0x400, 0x800
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW = 0x4000, 0x8000, 0x0100_0000, 0x0200_0000
IN_EXCL_UNLINK = 0x0400_0000
EVENT = struct.Struct("iIII")
READ_BYTES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class InotifyEvent(NamedTuple):
    """An event in the directory of `watch`, for `name` in it. Two events with the same `cookie` are a rename."""

    watch: int
    mask: int
    cookie: int
    name: str


def instance() -> int:
    """
    Return a new non-blocking inotify descriptor.

    Raises:
        OSError: no inotify instance is left; ENOSYS: this is not Linux.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def watch(fd: int, path: str, mask: int) -> int:
    """
    Report events in the directory `path` on `fd`; return the watch's number.

    Raises:
        OSError: it cannot be watched; ENOSPC: the kernel has no watch left.
    """
    return _checked(_libc.inotify_add_watch(fd, os.fsencode(path), mask | IN_ONLYDIR))


def forget(fd: int, number: int) -> None:
    _libc.inotify_rm_watch(fd, number)


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def events(fd: int, reads: int) -> Iterator[InotifyEvent]:
    """Yield pending events, from at most `reads` reads."""
    for _ in range(reads):
        try:
            data = os.read(fd, READ_BYTES)
        except OSError:
            return
        position = 0
        while position < len(data):
            number, mask, cookie, length = EVENT.unpack_from(data, position)
            position += EVENT.size + length
            name = os.fsdecode(data[position - length : position].rstrip(b"\0"))
            yield InotifyEvent(number, mask, cookie, name)


def limit(name: str) -> int:
    """Return the smaller limit of this user namespace and of the machine, because both apply. `name`: "instances" or "watches"."""
    limits: list[int] = []
    for place in ("user/max_inotify", "fs/inotify/max_user"):
        with open(f"/proc/sys/{place}_{name}", encoding="ascii") as file:
            limits.append(int(file.read()))
    return min(limits)
