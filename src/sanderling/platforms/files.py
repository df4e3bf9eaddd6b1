"""Files by descriptor: copies that share blocks, exchanged names, paths and modes."""

import ctypes
import errno
import os
import stat
import sys
from contextlib import suppress

ONLY_PATH = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
"""
The flag to open a file or directory that is only passed through. Where O_PATH does not exist, it needs the right to read, and does not wait
for the other end of a pipe that someone has put there.
"""
CHUNK_BYTES = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FICLONE = 0x4004_9409  # of ioctl_ficlone(2): the copy shares the blocks of the original
_AT_FDCWD_LINUX, _RENAME_EXCHANGE = -100, 2  # of renameat2(2)
_AT_FDCWD_DARWIN, _CLONE_NOOWNERCOPY = -2, 2  # of sys/fcntl.h and sys/clonefile.h
_RENAME_SWAP = 2  # of sys/stdio.h
_ACL_TYPE_EXTENDED = 0x100  # of sys/acl.h
_COPYFILE_ACL, _COPYFILE_XATTR = 1, 4  # of copyfile.h
_F_GETPATH, _MAXPATHLEN = 50, 1024  # of sys/fcntl.h and sys/param.h


def copy_new(original: int, name: str, directory: int | None = None) -> int:
    """
    Create the file `name` with the content of the open file `original`, sharing its blocks where the file system can. Return it, for writing.

    Raises:
        OSError: the name exists, or the content cannot be copied.
    """
    if sys.platform == "darwin":
        made = _cloned(original, name, directory)
        if made is None:
            made = os.open(name, _NEW, 0o600, dir_fd=directory)
            _filled(made, original)
        return made
    import fcntl

    made = os.open(name, _NEW, 0o600, dir_fd=directory)
    try:
        fcntl.ioctl(made, _FICLONE, original)
    except OSError:  # the file system cannot do that, or not from there
        _filled(made, original)
    return made


def _cloned(original: int, name: str, directory: int | None) -> int | None:
    """Clone with fclonefileat(2); None if the file system cannot do that, or if nobody may read the clone, whose mode is the original's."""
    libc = ctypes.CDLL(None, use_errno=True)
    where = _AT_FDCWD_DARWIN if directory is None else directory
    if libc.fclonefileat(original, where, os.fsencode(name), _CLONE_NOOWNERCOPY):
        if (number := ctypes.get_errno()) == errno.EEXIST:
            raise OSError(number, os.strerror(number), name)
        return None
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        clone = os.open(name, os.O_RDONLY | flags, dir_fd=directory)
    except PermissionError:
        os.unlink(name, dir_fd=directory)
        return None
    try:
        os.fchmod(clone, 0o600)
        return os.open(name, os.O_WRONLY | flags, dir_fd=directory)
    finally:
        os.close(clone)


def _filled(made: int, original: int) -> None:
    """Copy the content, as long as it is now. sendfile(2) writes to files on Linux alone, so it is not used."""
    try:
        position, size = 0, os.fstat(original).st_size
        while chunk := os.pread(original, min(CHUNK_BYTES, size - position), position):
            position += len(chunk)
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(made, rest) :]
    except OSError:
        os.close(made)
        raise


def exchange(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> None:
    """
    Exchange two paths of one file system, at once.

    Raises:
        OSError: one is missing, or the file system cannot do that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    paths = (os.fsencode(one), os.fsencode(other))
    if sys.platform == "darwin":
        failed = libc.renamex_np(*paths, _RENAME_SWAP)
    else:
        here = _AT_FDCWD_LINUX
        failed = libc.renameat2(here, paths[0], here, paths[1], _RENAME_EXCHANGE)
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(other))


def path_of(descriptor: int) -> str:
    """
    Return where an open file or directory is now.

    Raises:
        OSError: it has no path any more.
    """
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(
            fcntl.fcntl(descriptor, _F_GETPATH, bytes(_MAXPATHLEN)).partition(b"\0")[0]
        )
    return os.readlink(f"/proc/self/fd/{descriptor}")


def reached_through(descriptor: int) -> str:
    """
    Return a path that leads to an open directory wherever it is moved, for functions that take no descriptor.

    On macOS it names the file system and the inode (volfs).
    """
    if sys.platform == "darwin":
        found = os.fstat(descriptor)
        return f"/.vol/{found.st_dev}/{found.st_ino}"
    return f"/proc/self/fd/{descriptor}"


def set_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file or directory, even if it was opened with `ONLY_PATH`. A link has none: that fails."""
    if sys.platform == "darwin" or stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, mode)
    else:  # fchmod refuses a descriptor with O_PATH
        os.chmod(f"/proc/self/fd/{descriptor}", mode)


def change_mode(directory: int, name: str, mode: int) -> None:
    """Set the mode of `name` in an open directory. A link has none: that fails, or changes the link's own on macOS."""
    if sys.platform == "darwin":  # a file without any rights could not be opened
        os.chmod(name, mode, dir_fd=directory, follow_symlinks=False)
        return
    made = os.open(name, ONLY_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        set_mode(made, mode)
    finally:
        os.close(made)


def unlock(directory: int, name: str) -> None:
    """
    Let the owner move and change `name` in an open directory again: on macOS, flags (`chflags uchg`) and access lists can forbid that.

    Both can be changed only by path, so the path is that of the inode, at which nothing can be replaced (volfs).

    Raises:
        OSError: it does not exist.
    """
    if sys.platform != "darwin":
        return
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    path = f"/.vol/{found.st_dev}/{found.st_ino}"
    with suppress(OSError):
        os.chflags(
            path,
            found.st_flags & ~(stat.UF_IMMUTABLE | stat.UF_APPEND),
            follow_symlinks=False,
        )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.acl_init.restype = ctypes.c_void_p
    if nobody := libc.acl_init(1):  # an access list without entries
        libc.acl_set_file(os.fsencode(path), _ACL_TYPE_EXTENDED, ctypes.c_void_p(nobody))
        libc.acl_free(ctypes.c_void_p(nobody))


def copy_attributes(original: int, made: int) -> None:
    """
    Give the open file `made` the extended attributes and the access list of `original`, with macOS's fcopyfile(3).

    Raises:
        OSError: one cannot be set.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fcopyfile(original, made, None, _COPYFILE_ACL | _COPYFILE_XATTR):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def memory_file(name: str) -> int:
    """Return an empty file that no path leads to: in memory on Linux, elsewhere an unlinked temporary one."""
    if sys.platform == "linux":
        return os.memfd_create(name, os.MFD_CLOEXEC)
    from tempfile import TemporaryFile  # it takes long to import

    with TemporaryFile() as file:
        return os.dup(file.fileno())
