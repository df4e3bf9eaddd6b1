"""
The parts of macOS's libproc(3) and sysctl(3) that list processes, and their structures.

Sources: bsd/sys/proc_info.h (PROC_PIDTBSDINFO, proc_bsdinfo), bsd/sys/proc.h (SZOMB), bsd/sys/sysctl.h (KERN_PROCARGS2) and
bsd/kern/kern_sysctl.c (sysctl_procargsx) of XNU. Only the functions that call libproc need macOS; the structures are parsed on any system.
"""

import ctypes
import os
import struct
from typing import NamedTuple

PROC_PIDTBSDINFO = 3
BSD_INFO = struct.Struct("=II4xIII24x16s32x4xI16xQQ")
"""
proc_bsdinfo, 136 bytes: flags, status; then pid, parent, uid, comm, pgid, and the start in s and µs.

The rest is skipped: the exit status; gid, real and saved ids and a reserved word; the long name and the number of files; job control,
terminal and nice value.
"""
SZOMB = 5
CTL_KERN, KERN_PROCARGS2 = 1, 49
SOL_LOCAL, LOCAL_PEERCRED = 0, 1
XUCRED = struct.Struct("=IIh2x16I")
"""xucred of bsd/sys/ucred.h: version, uid, number of groups, groups."""
XUCRED_VERSION = 0
MAX_ARGUMENT_BYTES = 1 << 20  # kern.argmax


class BsdInfo(NamedTuple):
    pid: int
    parent: int
    group: int
    uid: int
    is_zombie: bool
    started_us: int


def parsed_info(data: bytes) -> BsdInfo:
    """Parse a `proc_bsdinfo`."""
    _, status, pid, parent, uid, _, group, seconds, microseconds = BSD_INFO.unpack(data)
    return BsdInfo(pid, parent, group, uid, status == SZOMB, seconds * 1_000_000 + microseconds)


def parsed_arguments(data: bytes) -> tuple[list[bytes], list[bytes]]:
    """
    Parse the answer to KERN_PROCARGS2: the arguments and the environment of a process.

    It has the number of arguments, the program's path with NULs that align what follows, then the strings. The environment of programs that
    System Integrity Protection restricts is left out by the kernel.
    """
    if len(data) < 4:  # noqa: PLR2004 - an int
        return [], []
    (count,) = struct.unpack_from("=i", data)
    _, _, rest = data[4:].partition(b"\0")
    strings = rest.lstrip(b"\0").split(b"\0")
    arguments, after = strings[:count], strings[count:]
    end = after.index(b"") if b"" in after else len(after)
    return arguments, after[:end]


def parsed_peer(data: bytes) -> int:
    """
    Return the user ID in an `xucred`.

    Raises:
        OSError: it has another version than this code knows.
    """
    version, uid, *_ = XUCRED.unpack(data)
    if version != XUCRED_VERSION:
        raise OSError(0, f"the credentials of the peer have the unknown version {version}")
    return uid


def pids() -> list[int]:
    libproc = ctypes.CDLL(None, use_errno=True)
    room = libproc.proc_listallpids(None, 0) + 64  # more may start meanwhile
    buffer = (ctypes.c_int32 * room)()
    count = libproc.proc_listallpids(buffer, ctypes.sizeof(buffer))
    return [pid for pid in buffer[: max(count, 0)] if pid > 0]


def info(pid: int) -> BsdInfo | None:
    """Return the state of a process, or None if it is gone or another user's."""
    libproc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(BSD_INFO.size)
    got = libproc.proc_pidinfo(
        pid, PROC_PIDTBSDINFO, ctypes.c_uint64(0), buffer, ctypes.c_int(BSD_INFO.size)
    )
    return parsed_info(buffer.raw) if got == BSD_INFO.size else None


def arguments(pid: int) -> tuple[list[bytes], list[bytes]]:
    """
    Return the arguments and the environment of a process.

    Raises:
        OSError: it is gone, or another user's.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    name = (ctypes.c_int * 3)(CTL_KERN, KERN_PROCARGS2, pid)
    buffer = ctypes.create_string_buffer(MAX_ARGUMENT_BYTES)
    size = ctypes.c_size_t(MAX_ARGUMENT_BYTES)
    if libc.sysctl(name, ctypes.c_uint(3), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return parsed_arguments(buffer.raw[: size.value])
