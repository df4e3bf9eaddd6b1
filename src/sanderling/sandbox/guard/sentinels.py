"""Sentinels: directories that keep a name in the project taken, so that no command can make it."""

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from sanderling.sandbox.guard.protection import outside, own_repository
from sanderling.sandbox.guard.repositories import (
    DIRECTORY,
    Survey,
    git_directories,
    read_file,
)

SENTINEL = b"./\n"
"""The slash matters: libgit2 looks for packed refs in the wrong place after a plain `.`"""

CLAIM_TRIES, CLAIM_S = 20, 0.2


class Claim(NamedTuple):
    """
    A session's on its sentinels, in descriptors with shared locks: the session lives as long as a process keeps them open.

    `record` is of the file in its state directory that names them, `directories` are the git directories that need them: a session
    of a linked worktree, of a repository around this one, or with another state directory has a record of its own.
    """

    record: int
    directories: tuple[int, ...]


def place_sentinels(state_dir: str, survey: Survey) -> Claim:
    """
    Put a sentinel into every git directory that has no `commondir`, as far as they can be written to.

    Return what `remove_sentinels` takes. The record is written first: whatever kills this leaves nothing unrecorded. A sentinel of
    which the record is lost, for somebody has deleted that directory, is taken over.

    Raises:
        OSError: the record cannot be written, so that nothing was placed.
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
            _append(record, b"".join(os.fsencode(path) + b"\0" for path in wanted))
        except OSError:
            _close(record, *claimed)
            raise
        for path in wanted:
            _place(path)
        fcntl.flock(record, fcntl.LOCK_SH)
    return Claim(record, tuple(claimed))


def _claimed(directory: str) -> int | None:
    """Return a descriptor that claims `directory`; None if it cannot be opened, or there are no locks."""
    try:
        fd = os.open(directory, DIRECTORY)
    except OSError:
        return None
    for _ in range(CLAIM_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another session's sentinel is removed in this moment
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
    """Find out whether no session needs the sentinel there; none that begins comes in between."""
    try:
        fd = os.open(directory, DIRECTORY)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_unclaimed = True
    except OSError as error:
        is_unclaimed = not isinstance(error, BlockingIOError)
    try:
        yield is_unclaimed
    finally:
        os.close(fd)


def _is_free(path: str) -> bool:
    """Say whether nothing is there, or a sentinel: git itself never writes one."""
    try:
        return read_file(path, len(SENTINEL), follows=False) == SENTINEL
    except OSError:
        return not os.path.lexists(path)


def _append(record: int, data: bytes) -> None:
    """Append all of it or nothing."""
    end = os.lseek(record, 0, os.SEEK_END)
    if os.write(record, data) < len(data):
        os.ftruncate(record, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def remove_sentinels(state_dir: str, claim: Claim) -> None:
    """
    End this session's `claim`; the last session of the project removes what all of them placed.

    The record is read through its descriptor: its directory may be gone. If there is another one by now, that has taken over.
    """
    with ExitStack() as alone:
        with suppress(OSError):  # the directory is gone, or its disk full
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
    """Remove what killed sessions left in any project; `sandbox_state_root` holds the projects' state directories."""
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
    """One process at a time: a shared lock and an exclusive one are not exchanged in one step."""
    os.makedirs(state_dir, mode=0o700, exist_ok=True)  # the person may have removed it meanwhile
    fd = os.open(f"{state_dir}/placed.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


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
            for name in (path, f"{path}.new") if is_unclaimed else ():
                with suppress(OSError):  # gone, or something else by now: not ours
                    if read_file(name, len(SENTINEL), follows=False) in (SENTINEL, b""):
                        os.unlink(name)
    os.ftruncate(record, 0)


def _place(path: str) -> None:
    """Never for a moment empty: git refuses a repository with an empty `commondir`."""
    try:
        fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, SENTINEL)
        finally:
            os.close(fd)
        os.rename(f"{path}.new", path)
    except OSError:
        pass  # another user's; the guard watches the name
