"""Files by descriptor: copies that share blocks, exchanged names, paths and modes."""

import ctypes
import errno
import os
import stat
import sys

ONLY_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""The flag to open a file or directory that is only passed through. Where O_PATH does not exist, it needs the right to read."""
CHUNK_BYTES = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FICLONE = 0x4004_9409  # of ioctl_ficlone(2): the copy shares the blocks of the original
_AT_FDCWD_LINUX, _RENAME_EXCHANGE = -100, 2  # of renameat2(2)
_AT_FDCWD_DARWIN, _CLONE_NOOWNERCOPY = -2, 2  # of sys/fcntl.h and sys/clonefile.h
_RENAME_SWAP = 2  # of sys/stdio.h
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

        return os.fsdecode(fcntl.fcntl(descriptor, _F_GETPATH, bytes(_MAXPATHLEN)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def as_stored(path: str) -> str:
    """
    Return a real path as it is on the disk, or "" if there is no such file, or on macOS if it cannot be opened, as sockets cannot.

    Volumes of macOS ignore case and Unicode's normal forms, and show directories of the data volume at two places (firmlinks).
    """
    if sys.platform != "darwin":
        return path if os.path.lexists(path) else ""
    flags = os.O_EVTONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # without a right to read
    try:
        fd = os.open(path, flags)
    except OSError:
        return ""
    try:
        return path_of(fd)
    except OSError:
        return ""
    finally:
        os.close(fd)


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
