"""statfs(2), which Python wraps without the one field that matters here, which file system a path lies on; and statx(2)."""

import ctypes
import errno
import os
import struct
from typing import NamedTuple

_LOCAL = frozenset(
    (
        0xEF53,  # ext2, ext3, ext4
        0x5846_5342,  # XFS
        0x9123_683E,  # Btrfs
        0x0102_1994,  # tmpfs
        0x8584_58F6,  # ramfs
        0xF2F5_2010,  # F2FS
        0xCA45_1A4E,  # bcachefs
        0x2FC1_2FC1,  # ZFS
        0x4D44,  # FAT
        0x2011_BAB0,  # exFAT
        0x7366_746E,  # NTFS, the kernel's own
        0x3153_464A,  # JFS
        0x5265_4973,  # ReiserFS
        0x3434,  # NILFS2
        0x2405_1905,  # UBIFS
        0x482B,  # HFS+
    )
)
OVERLAY = 0x794C_7630
STATFS_BYTES = 256  # more than any machine's structure has
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_STATX_FORCE_SYNC = -100, 0x100, 0x2000
_STATX_BASIC_STATS, _STATX_BTIME = 0x7FF, 0x800
_STATX_BYTES = 256
_STATX = struct.Struct("=16xI8xH2xQQ16x32xqI4xqI4x")
"""nlink; mode; inode, size; of the times, after those of access and birth, those of change and modification, in s and ns."""
_BIRTH = struct.Struct("=I76xqI")
"""What is known, and the time of birth, in s and ns."""
_NS = 1_000_000_000

_libc = ctypes.CDLL(None, use_errno=True)


def type_of(path: str) -> int:
    """
    Return the number of the file system that `path` lies on (linux/magic.h).

    Raises:
        OSError: nobody can tell.
    """
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    try:
        failed = _libc.statfs(os.fsencode(path), buffer)
    except AttributeError:  # another system's C library
        failed = -1
    if failed:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
    return struct.unpack_from("@l", buffer)[0] & 0xFFFF_FFFF


def is_local(path: str) -> bool:
    """
    Say whether all that happens on the file system of `path` goes through this kernel.

    The names are those of file systems of which that is known, rather than of those of which it is not: FUSE, NFS, SMB, 9p, virtiofs,
    vboxsf, AFS, Ceph, Lustre, GFS2 and OCFS2 have another side, and the next one that is invented will be taken for one of them. So is
    overlayfs, whose lower layers may change beneath it.
    """
    try:
        return type_of(path) in _LOCAL
    except OSError:
        return False


def is_overlay(path: str) -> bool:
    try:
        return type_of(path) == OVERLAY
    except OSError:
        return False


class Status(NamedTuple):
    """The result of statx(2), with the names of `os.stat_result`."""

    st_nlink: int
    st_mode: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


def fresh_status(path: str) -> Status:
    """
    Return the status of `path`, no link followed, as the other side of its file system knows it now.

    lstat(2) may answer from a cache: NFS keeps attributes for up to 60 s, FUSE for as long as the file system likes. What a colleague
    has changed by then would be taken for the work of the command that runs next.

    Raises:
        OSError: it cannot be had; ENOSYS: this system has no such call.
    """
    buffer = _statx(path, _AT_STATX_FORCE_SYNC, _STATX_BASIC_STATS)
    nlink, mode, inode, size, ctime, ctime_ns, mtime, mtime_ns = _STATX.unpack_from(buffer)
    return Status(nlink, mode, inode, size, mtime * _NS + mtime_ns, ctime * _NS + ctime_ns)


def birth_ns(path: str) -> int | None:
    """Return when `path`, no link followed, was made; None where nobody can tell."""
    try:
        known, birth, birth_ns = _BIRTH.unpack_from(_statx(path, 0, _STATX_BTIME))
    except OSError:
        return None
    return birth * _NS + birth_ns if known & _STATX_BTIME else None


def _statx(path: str, flags: int, mask: int) -> ctypes.Array[ctypes.c_char]:
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        failed = _libc.statx(
            _AT_FDCWD, os.fsencode(path), flags | _AT_SYMLINK_NOFOLLOW, mask, buffer
        )
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path) from None
    if failed:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
    return buffer
