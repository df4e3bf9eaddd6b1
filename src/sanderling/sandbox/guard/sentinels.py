"""
Sentinels: `commondir` files that the sandbox creates so that no command can create one.

A bind mount needs an existing file, so the name must be taken before it can be protected. The content `./` changes nothing for git:
clone, fetch, stash, submodule, worktree, gc and pack-refs were tested with it. The file is visible to the user, and so to all sessions,
hence the locks and records below.

A repository without the directory `hooks` gets an empty one, for the same reason and as long.
"""

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from sanderling.paths import closed_after
from sanderling.sandbox.guard.protection import outside, own_repository
from sanderling.sandbox.guard.repositories import DIRECTORY, Survey, git_directories, read_file

SENTINEL = b"./\n"
"""with a slash: after a plain `.`, libgit2 looks for packed refs in the wrong place"""

CLAIM_TRIES, CLAIM_S = 20, 0.2
_HOOKS = "hooks"


class Claim(NamedTuple):
    """
    A session's claim on its sentinels. The descriptors have shared locks, so the claim lasts until the last process closes them.

    `record` is the file in the state directory that lists the sentinels, `directories` are the git directories that need them. Sessions
    of a linked worktree, of a repository around this one, or with another state directory have their own records.
    """

    record: int
    directories: tuple[int, ...]


def place_sentinels(state_dir: str, survey: Survey) -> Claim:
    """
    Create a sentinel in every writable git directory without `commondir`, and missing directories of hooks.

    Return the claim for `remove_sentinels`.

    The record is written first, so that a kill leaves nothing unrecorded. A sentinel without a record, because the user deleted the state
    directory, is adopted.

    Raises:
        OSError: the record cannot be written, and no sentinel was created.
    """
    own = own_repository(survey.project)
    with _only_one(state_dir):
        record = _open_record(state_dir)
        claimed: list[int] = []
        try:
            _remove_if_last(record)
            directories = git_directories(survey, outside(own, survey))
            claimed += [fd for path in directories if (fd := _claimed(path)) is not None]
            wanted = [
                f"{directory}/commondir"
                for directory in directories
                if os.path.isfile(f"{directory}/HEAD") and _is_free(f"{directory}/commondir")
            ]
            hooks = [
                f"{directory}/{_HOOKS}" for directory in directories if _lacks_hooks(directory)
            ]
            _append(record, b"".join(os.fsencode(path) + b"\0" for path in (*wanted, *hooks)))
        except OSError:
            _close(record, *claimed)
            raise
        for path in wanted:
            _place(path)
        for path in hooks:
            with suppress(OSError):  # another user's repository; the guard watches for the name
                os.mkdir(path)
        fcntl.flock(record, fcntl.LOCK_SH)
    return Claim(record, tuple(claimed))


def _lacks_hooks(directory: str) -> bool:
    """Return whether a repository has no directory of hooks. A linked worktree uses the repository's."""
    is_whole = os.path.isfile(f"{directory}/HEAD") and os.path.isdir(f"{directory}/objects")
    return is_whole and not os.path.lexists(f"{directory}/{_HOOKS}")


def _claimed(directory: str) -> int | None:
    """Return a descriptor that claims `directory`, or None if it cannot be opened or locked."""
    try:
        fd = os.open(directory, DIRECTORY)
    except OSError:
        return None
    for _ in range(CLAIM_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another session is removing its sentinel
            time.sleep(CLAIM_S / CLAIM_TRIES)
        except OSError:
            break
        else:
            return fd
    os.close(fd)
    return None


def _close(*descriptors: int) -> None:
    for fd in descriptors:
        os.close(fd)


@contextmanager
def _unclaimed(directory: str) -> Generator[bool]:
    """Yield whether no session needs the sentinel there. No session can start to need it meanwhile."""
    try:
        fd = os.open(directory, DIRECTORY)
    except OSError:
        yield True
        return
    with closed_after(fd):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_unclaimed = True
        except OSError as error:
            is_unclaimed = not isinstance(error, BlockingIOError)
        yield is_unclaimed


def _is_free(path: str) -> bool:
    """Return whether `path` is missing or a sentinel. Git itself never writes a sentinel's content."""
    try:
        return read_file(path, len(SENTINEL), follows=False) == SENTINEL
    except OSError:
        return not os.path.lexists(path)


def _append(record: int, data: bytes) -> None:
    end = os.lseek(record, 0, os.SEEK_END)
    if os.write(record, data) < len(data):
        os.ftruncate(record, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def remove_sentinels(state_dir: str, claim: Claim) -> None:
    """
    Release this session's `claim`. The last session of the project removes the sentinels of all.

    The record is read through its descriptor, because its directory may have been removed. If there is a new record, that one is
    responsible.
    """
    with ExitStack() as alone:
        with suppress(OSError):  # the directory was removed, or the disk is full
            alone.enter_context(_only_one(state_dir))
        fcntl.flock(claim.record, fcntl.LOCK_UN)
        _close(*claim.directories)
        if not _is_succeeded(state_dir, claim.record):
            _remove_if_last(claim.record)
    os.close(claim.record)


def _is_succeeded(state_dir: str, record: int) -> bool:
    try:
        return not os.path.samestat(os.stat(f"{state_dir}/placed"), os.fstat(record))
    except OSError:
        return False


def clean_up_after_the_dead(sandbox_state_root: str) -> None:
    """Remove the sentinels that killed sessions left in any project, according to the state directories below `sandbox_state_root`."""
    try:
        state_dirs = [entry.path for entry in os.scandir(sandbox_state_root) if entry.is_dir()]
    except OSError:
        return
    for state_dir in state_dirs:
        if os.path.exists(f"{state_dir}/placed") and os.path.getsize(f"{state_dir}/placed"):
            with _only_one(state_dir):
                record = _open_record(state_dir)
                _remove_if_last(record)
            os.close(record)


@contextmanager
def _only_one(state_dir: str) -> Generator[None]:
    """Lock out other processes: a shared lock cannot be exchanged for an exclusive one atomically."""
    os.makedirs(state_dir, mode=0o700, exist_ok=True)  # the user may have removed it meanwhile
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with closed_after(os.open(f"{state_dir}/placed.lock", flags, 0o600)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def _open_record(state_dir: str) -> int:
    return os.open(f"{state_dir}/placed", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _remove_if_last(record: int) -> None:
    try:
        fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    content = os.pread(record, os.fstat(record).st_size, 0)
    for path in filter(None, os.fsdecode(content).split("\0")):
        with _unclaimed(os.path.dirname(path)) as is_unclaimed:
            if os.path.basename(path) == _HOOKS:
                _remove_hooks(path, is_unclaimed=is_unclaimed)
                continue
            for name in (path, f"{path}.new") if is_unclaimed else ():
                with suppress(OSError):  # gone, or replaced by another file
                    if read_file(name, len(SENTINEL), follows=False) in (SENTINEL, b""):
                        os.unlink(name)
    os.ftruncate(record, 0)


def _remove_hooks(path: str, *, is_unclaimed: bool) -> None:
    with suppress(OSError):  # gone, or the user has put hooks there
        if is_unclaimed:
            os.rmdir(path)


def _place(path: str) -> None:
    """Create the sentinel atomically: git refuses a repository with an empty `commondir`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with suppress(OSError):  # another user's repository; the guard watches for the name
        with closed_after(os.open(f"{path}.new", flags, 0o644)) as fd:
            os.write(fd, SENTINEL)
        os.rename(f"{path}.new", path)
