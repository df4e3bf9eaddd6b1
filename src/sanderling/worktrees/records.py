"""
What is known of a worktree: a state file next to it, outside the reach of what runs in it.

    STATE/worktrees/PROJECT-DIGEST/NAME        the worktree
    STATE/worktrees/PROJECT-DIGEST/NAME.json   its record
    STATE/worktrees/PROJECT-DIGEST/NAME.use    locked shared by its sessions, exclusively by who makes or removes it
    STATE/worktrees/PROJECT-DIGEST/NAME.git    its repository, if the project has none
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from sanderling.errors import WorktreeError
from sanderling.state_file import StateFile, UnreadableError, Versioned
from sanderling.worktrees.extras import Extra
from sanderling.worktrees.git import Git

VERSION = 1
MAX_BYTES = 4 << 20
REFS = "refs/sanderling/worktrees/"


class Repeated(msgspec.Struct, frozen=True):
    """The turn `turn` of another session, by the id of its prompt, that the session with the log at `log` repeats. That session works in `source`."""

    session_id: str
    turn: str
    source: str
    log: str


class Record(Versioned, kw_only=True):
    """
    A worktree of `project`'s repository at `directory`, made from the commit `base`, which `ref` named then.

    `prefix` leads from the repository's top to the project. `git_dir` is the worktree's own git directory.
    `notes` are sentences about what the worktree lacks. The `stage` is stored before each step of making and removing, so that another
    process can finish it; "kept": only the ref is left. A worktree for a turn that is `repeated` is made from the project's files as they
    were before that turn; its `repository` is the git directory that was made for it, if the project is in none.
    """

    version: int = VERSION
    name: str
    project: str
    directory: str
    prefix: str
    base: str
    ref: str
    session_id: str
    created_at: float
    stage: Literal["creating", "ready", "removing", "kept"] = "creating"
    git_dir: str = ""
    extras: tuple[Extra, ...] = ()
    notes: tuple[str, ...] = ()
    repeated: Repeated | None = None
    repository: str = ""

    @property
    def git(self) -> Git:
        """Git in the project."""
        return Git(self.project, repository=self.repository)

    @property
    def work_dir(self) -> str:
        """The project's directory in the worktree."""
        return f"{self.directory}/{self.prefix}".rstrip("/")

    @property
    def kept_ref(self) -> str:
        """The ref under which the work is kept."""
        return REFS + self.name


def record_file(path: Path) -> StateFile[Record]:
    return StateFile(path, Record, version=VERSION, max_bytes=MAX_BYTES)


def read(path: Path) -> Record | None:
    """
    Return the record at `path`; None without one.

    Raises:
        WorktreeError: it cannot be used.
    """
    try:
        return record_file(path).read()
    except UnreadableError as error:
        raise WorktreeError(f"{path} {error}") from error


def write(path: Path, record: Record) -> Record:
    """
    Store `record` durably, and return it.

    Raises:
        WorktreeError: it cannot be stored.
    """
    try:
        record_file(path).change(lambda: record)
    except (OSError, UnicodeEncodeError) as error:
        raise WorktreeError(f"{path} cannot be written: {error}") from error
    return record


@contextmanager
def in_use(path: Path, *, alone: bool = False) -> Generator[None]:
    """
    Hold the worktree whose record is at `path` in this context, so that no other process removes it; `alone`: nor uses it.

    Raises:
        WorktreeError: another process uses it.
    """
    fd = use(path, alone=alone)
    try:
        yield
    finally:
        release(fd)


def release(fd: int) -> None:
    """Let go of a worktree that `use` holds."""
    # Closing alone is not enough: a process that another thread is just starting has a copy of the descriptor until its exec, and keeps
    # the lock meanwhile. With four children starting on a busy machine, a new worktree was "in use" for its own session.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def use(path: Path, *, alone: bool = False) -> int:
    """
    Return a descriptor that holds the worktree until its `release`.

    Raises:
        WorktreeError: another process uses it.
    """
    lock = path.with_suffix(".use")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(lock)):  # removed just now
            raise FileNotFoundError(lock)
    except OSError as error:
        os.close(fd)
        raise WorktreeError(
            f"the worktree {path.stem} is in use: close its session first, in Neovim with :Agent close"
        ) from error
    return fd
