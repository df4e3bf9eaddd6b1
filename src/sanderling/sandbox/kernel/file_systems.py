"""statfs(2) with the file system's type, which Python's wrapper omits, and statx(2)."""

import ctypes
import errno
import os
import struct
import sys
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
        0x7366_746E,  # NTFS, in the kernel
        0x3153_464A,  # JFS
        0x5265_4973,  # ReiserFS
        0x3434,  # NILFS2
        0x2405_1905,  # UBIFS
        0x482B,  # HFS+
    )
)
OVERLAY = 0x794C_7630
STATFS_BYTES = 256  # larger than the structure on any architecture
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_STATX_FORCE_SYNC = -100, 0x100, 0x2000
_STATX_BASIC_STATS, _STATX_BTIME = 0x7FF, 0x800
_STATX_BYTES = 256
_STATX = struct.Struct("=16xI8xH2xQQ16x32xqI4xqI4x")
"""nlink; mode; inode, size; then ctime and mtime, each in s and ns, with access and birth time skipped"""
_BIRTH = struct.Struct("=I76xqI")
"""the mask of known fields; the birth time in s and ns"""
_NS = 1_000_000_000

_libc = ctypes.CDLL(None, use_errno=True)


def type_of(path: str) -> int:
    """
    Return the type of the file system at `path`, as in linux/magic.h.

    Raises:
        OSError: it cannot be determined.
    """
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    try:
        failed = _libc.statfs(os.fsencode(path), buffer)
    except AttributeError:  # the C library of another system
        failed = -1
    if failed:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
    return struct.unpack_from("@l", buffer)[0] & 0xFFFF_FFFF


def is_local(path: str) -> bool:
    """
    Return whether every change on the file system of `path` goes through this kernel.

    The list names file systems for which that is known. A list of the others would be incomplete with the next one that is invented:
    FUSE, NFS, SMB, 9p, virtiofs, vboxsf, AFS, Ceph, Lustre, GFS2 and OCFS2 all have another side. So does overlayfs, whose lower layers
    may change underneath.
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


class FileStatus(NamedTuple):
    """The result of statx(2), with field names as in `os.stat_result`."""

    st_nlink: int
    st_mode: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


def fresh_status(path: str) -> FileStatus:
    """
    Return the current status of `path` from the other side of its file system, without following links.

    lstat(2) may answer from a cache: NFS caches attributes for up to 60 s, FUSE for as long as the file system says. A colleague's change
    would then appear late and be taken for the next command's.

    Raises:
        OSError: it is unavailable; ENOSYS: this system lacks the call.
    """
    buffer = _statx(path, _AT_STATX_FORCE_SYNC, _STATX_BASIC_STATS)
    nlink, mode, inode, size, ctime, ctime_ns, mtime, mtime_ns = _STATX.unpack_from(buffer)
    return FileStatus(nlink, mode, inode, size, mtime * _NS + mtime_ns, ctime * _NS + ctime_ns)


def birth_ns(path: str) -> int | None:
    """Return the birth time of `path` without following links, in ns; None if it is unknown."""
    if sys.platform == "darwin":
        try:
            return int(os.lstat(path).st_birthtime * _NS)
        except OSError:
            return None
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
