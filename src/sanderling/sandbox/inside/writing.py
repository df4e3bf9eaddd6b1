"""
Writes files from within the sandbox, and checks whether they could be written.

A file is replaced by renaming a complete new file over it, so readers see the old bytes or the new ones, even after a crash. Renaming
would lose hard links, and owners or attributes that cannot be set. It is also impossible where only the file may be written and not its
directory. In these cases the file is overwritten in place, and gets its old bytes back if that fails.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sanderling.paths import closed_after, write_all
from sanderling.platforms import files
from sanderling.sandbox.inside.reading import OPENED, Stamp, require_file, stamp_of, take
from sanderling.sandbox.kernel.syscalls import number, syscall

MAX_OVERWRITTEN_BYTES = 256 << 20
"""The largest file that is overwritten in place. Its old bytes are kept in memory, to restore them on failure."""
TEMPORARY = ".sanderling-tmp-"
LEFTOVER_S, MAX_SWEPT_NAMES = 60.0, 2000
SET_ID = stat.S_ISUID | stat.S_ISGID
NO_RENAME = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
NO_LINKS = (errno.EACCES, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
OTHERS_ATTRIBUTES = ("security.", "trusted.")  # set by the kernel and the administrator


class _DirectoryEntry(NamedTuple):
    """
    A name in an open directory, which stays the same directory whatever is renamed meanwhile.

    `expected` is the stamp of the file to replace, or empty if no file must exist. With None any file is replaced.
    """

    directory: int
    name: str
    expected: tuple[int, ...] | None

    def status(self) -> os.stat_result | None:
        """Return the current status, or None if the name does not exist. Anything but the expected file raises OSError."""
        try:
            status = os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        if self.expected is not None and self.expected != (
            tuple(stamp_of(status)) if status else ()
        ):
            raise OSError(errno.ESTALE, "changed meanwhile")
        if status:
            require_file(status)
        return status


def write(  # noqa: PLR0917 - the worker passes a request's arguments by position
    path: str,
    data: bytes,
    expected: tuple[int, ...] | None,
    makes_parents: bool,
    mode: int | None = None,
    is_split: bool = False,
) -> tuple[int, ...]:
    """
    Replace the content of `path` by `data`, completely or not at all, and return the new stamp. A symbolic link stays a link.

    With `mode`, which the file gets, links are not followed, and the data is on disk only after `sync`, once for many files. With
    `is_split`, the file's other names keep the old content.

    Raises:
        OSError: ESTALE if the file is not the `expected` one; EPERM if it cannot be split from its other names.
    """
    with _place(path, expected, makes_parents=makes_parents, follows=mode is None) as place:
        old = place.status()
        if mode is None:
            _sweep(place.directory)
        if old is None:
            return tuple(_create(place, data, mode))
        with _opened_to_write(place, old) as descriptor:
            # A second name would keep the old file.
            is_replaced = is_split or old.st_nlink == 1
            stamp = _replace(place, data, descriptor, mode) if is_replaced else None
            if is_split and not stamp:
                raise OSError(errno.EPERM, "its other names would change as well")
            return tuple(stamp or _overwrite(place, data, descriptor, mode))


def check(path: str) -> None:
    """
    Check whether `path` could be written, without changing anything.

    Raises:
        OSError: as writing would.
    """
    real = os.path.realpath(path)
    while not os.path.isdir(parent := os.path.dirname(real)):  # writing would create these
        real = parent
    with _place(real, None, makes_parents=False) as place:
        if old := place.status():
            with _opened_to_write(place, old):
                return
        descriptor, temporary = _open_temporary(place.directory, 0o600)
        os.close(descriptor)
        os.unlink(temporary, dir_fd=place.directory)


@contextmanager
def _place(
    path: str, expected: tuple[int, ...] | None, *, makes_parents: bool, follows: bool = True
) -> Generator[_DirectoryEntry]:
    parent, name = os.path.split(os.path.realpath(path) if follows else path)
    if makes_parents and follows:
        os.makedirs(parent, exist_ok=True)
    # O_PATH needs no right to read: where a single file is granted, its directory is hidden.
    if follows:
        directory = os.open(parent, files.ONLY_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    else:
        directory = passed_through(parent, makes_parents=makes_parents)
    with closed_after(directory):
        yield _DirectoryEntry(directory, name, expected)


def passed_through(path: str, start: int | None = None, *, makes_parents: bool = False) -> int:
    """
    Open the directory `path` with O_PATH, without following a link on the way.

    Raises:
        OSError: ENOTDIR if a component is a link.
    """
    flags = files.ONLY_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    directory = os.open("/", flags) if start is None else os.dup(start)
    for name in filter(None, path.split("/")):
        above = directory
        try:
            directory = _entered(name, flags | os.O_NOFOLLOW, above, is_made=makes_parents)
        finally:
            os.close(above)
    return directory


def listable(directory: int) -> int:
    """Reopen for listing a directory that was opened with O_PATH."""
    return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)


def _entered(name: str, flags: int, above: int, *, is_made: bool) -> int:
    try:
        return os.open(name, flags, dir_fd=above)
    except FileNotFoundError:
        if not is_made:
            raise
        os.mkdir(name, dir_fd=above)
        return os.open(name, flags, dir_fd=above)


@contextmanager
def _opened_to_write(place: _DirectoryEntry, expected: os.stat_result) -> Generator[int]:
    """Open the current file. It is opened for writing even if it will be replaced by renaming: a read-only file must stay."""
    flags = os.O_RDWR | os.O_NOFOLLOW | OPENED
    with closed_after(os.open(place.name, flags, dir_fd=place.directory)) as descriptor:
        if not os.path.samestat(os.fstat(descriptor), expected):
            raise OSError(errno.ESTALE, "changed meanwhile")
        yield descriptor


def _create(place: _DirectoryEntry, data: bytes, mode: int | None) -> Stamp:
    """Create a new file. Without `mode` its mode follows the umask."""
    with _temporary(place.directory, data, 0o666) as (descriptor, temporary):
        _finish(descriptor, mode)
        _name_new(place, temporary)
        if mode is None:
            _sync_directory(place.directory)
        return stamp_of(os.fstat(descriptor))


def _name_new(place: _DirectoryEntry, temporary: str) -> None:
    here = place.directory
    if place.expected is not None:
        try:  # rename would replace a file created meanwhile
            os.link(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)
        except FileExistsError:
            raise OSError(errno.ESTALE, "changed meanwhile") from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            place.status()
        else:
            os.unlink(temporary, dir_fd=here)
            return
    os.rename(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)


def _replace(place: _DirectoryEntry, data: bytes, old: int, mode: int | None) -> Stamp | None:
    """
    Rename a new file over `old`, with the same owner and attributes, and the same mode unless `mode` is given.

    Return None, without changes, if that is impossible.
    """
    here = place.directory
    try:
        with _temporary(place.directory, data, 0o600) as (descriptor, temporary):
            if not _make_alike(descriptor, old):
                return None
            _finish(descriptor, mode)
            place.status()
            os.rename(temporary, place.name, src_dir_fd=here, dst_dir_fd=here)
            if mode is None:
                _sync_directory(place.directory)
            return stamp_of(os.fstat(descriptor))
    except OSError as error:
        if error.errno in NO_RENAME:  # the directory is not writable, or the file is a mount point
            return None
        raise


def _finish(descriptor: int, mode: int | None) -> None:
    if mode is None:
        os.fsync(descriptor)
    else:
        set_mode(descriptor, mode)


def _overwrite(place: _DirectoryEntry, data: bytes, descriptor: int, mode: int | None) -> Stamp:
    """Overwrite the file in place. On failure its old bytes are restored; only a crash in between leaves a mixture."""
    size = os.fstat(descriptor).st_size
    if size > MAX_OVERWRITTEN_BYTES:
        raise OSError(errno.EFBIG, "too large to be overwritten")
    before = take(descriptor, size)
    place.status()
    try:
        _put(descriptor, data)
    except OSError:
        _put(descriptor, before)
        raise
    if mode is not None:
        set_mode(descriptor, mode)
    return stamp_of(os.fstat(descriptor))


def set_mode(descriptor: int, mode: int) -> None:
    """
    Set the mode of an open file or directory, even if it was opened with O_PATH.

    The sandbox refuses the set-ID bits (`kernel/seccomp.py`). Then the other bits are set. A directory may have inherited the set-GID
    bit.
    """
    if stat.S_IMODE(os.fstat(descriptor).st_mode) == mode:
        return
    try:
        files.set_mode(descriptor, mode)
    except PermissionError:
        if not mode & SET_ID:
            raise
        files.set_mode(descriptor, mode & ~SET_ID)


def _put(descriptor: int, data: bytes) -> None:
    if data and sys.platform != "darwin":
        with _where_supported():  # so that a full disk shows before anything is lost
            os.posix_fallocate(descriptor, 0, len(data))
    os.lseek(descriptor, 0, os.SEEK_SET)
    write_all(descriptor, data)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


@contextmanager
def _where_supported() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
            raise


@contextmanager
def _temporary(directory: int, data: bytes, mode: int) -> Generator[tuple[int, str]]:
    """Create a temporary file with `data`, for renaming. It is removed afterwards if it still has this name."""
    descriptor, name = _open_temporary(directory, mode)
    try:
        write_all(descriptor, data)
        yield descriptor, name
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _open_temporary(directory: int, mode: int) -> tuple[int, str]:
    name = TEMPORARY + os.urandom(8).hex()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, mode, dir_fd=directory), name


def _make_alike(new: int, old: int) -> bool:
    """Give `new` the owner, attributes (ACLs included) and mode of `old`. Return False if one cannot be set."""
    wanted, status = os.fstat(old), os.fstat(new)
    try:
        if (wanted.st_uid, wanted.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(new, wanted.st_uid, wanted.st_gid)
        _copy_attributes(new, old)
        os.fchmod(new, stat.S_IMODE(wanted.st_mode))
    except OSError as error:
        if error.errno == errno.EIO:
            raise
        return False
    return True


def _copy_attributes(new: int, old: int) -> None:
    if sys.platform == "darwin":
        files.copy_attributes(old, new)
        return
    wanted, given = _attributes(old), _attributes(new)
    for name in given.keys() - wanted.keys():  # from the directory's default ACL
        os.removexattr(new, name)
    for name, value in wanted.items():
        if given.get(name) != value:
            os.setxattr(new, name, value)


if sys.platform != "darwin":

    def _attributes(descriptor: int) -> dict[str, bytes]:
        try:
            names = os.listxattr(descriptor)
        except OSError:  # the file system has none
            return {}
        ours = (name for name in names if not name.startswith(OTHERS_ATTRIBUTES))
        return {name: os.getxattr(descriptor, name) for name in ours}


def sync(paths: Sequence[str]) -> None:
    """Wait until the files at `paths` are on disk. One syncfs per file system is faster than one fsync for each of 200 files."""
    done = set[int]()
    for directory in {os.path.dirname(path) for path in paths}:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with suppress(OSError), closed_after(os.open(directory, flags)) as descriptor:
            if (device := os.fstat(descriptor).st_dev) not in done:
                done.add(device)
                _sync_file_system(descriptor)


def _sync_file_system(descriptor: int) -> None:
    if number("syncfs"):
        syscall("syncfs", descriptor)
    else:
        os.sync()


def _sync_directory(directory: int) -> None:
    """Flush the directory, so that the new name survives a crash."""
    with (
        suppress(PermissionError),
        closed_after(listable(directory)) as descriptor,
        _where_supported(),
    ):
        os.fsync(descriptor)


def _sweep(directory: int) -> None:
    """Remove temporary files that killed writes left in this directory."""
    oldest = time.time() - LEFTOVER_S
    with (
        suppress(OSError),
        closed_after(listable(directory)) as descriptor,
        os.scandir(descriptor) as entries,
    ):
        for _, entry in zip(range(MAX_SWEPT_NAMES), entries, strict=False):
            if entry.name.startswith(TEMPORARY) and _is_leftover(entry, oldest):
                os.unlink(entry.name, dir_fd=directory)


def _is_leftover(entry: "os.DirEntry[str]", oldest: float) -> bool:
    return (
        not entry.is_dir(follow_symlinks=False)
        and entry.stat(follow_symlinks=False).st_mtime < oldest
    )
