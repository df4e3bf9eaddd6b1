"""
Fresh copies of projects. Changes in a copy do not reach the user's files.

In a repository the copy is a clone that borrows the objects (`--shared`) and has the files as they are now: with uncommitted changes and
new files, without ignored ones. A clone with hard links (`--local`) would be quicker to make independent, but a task could write through
them into the user's repository. Other directories are copied file by file, sharing blocks where the file system can.
"""

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from sanderling.batch.git import GitError, git, names_in
from sanderling.batch.tasks import Task, is_url
from sanderling.errors import SanderlingError
from sanderling.platforms.files import copy_new


class CopyError(SanderlingError):
    """There is no copy: `str(error)` says why."""


class Copy(NamedTuple):
    """
    A copy: its root, the directory in it that is the project, and the git directory whose objects it borrows.

    The project is a part of the root if the task is about one package of a repository.
    """

    root: Path
    project: Path
    lender: Path | None = None


def make_copy(task: Task, to: Path, cache: Path, *, without: Path | None = None) -> Copy:
    """
    Copy the task's project to `to`, which does not exist. The path `without` is left out, and `cache` keeps fetched repositories.

    Raises:
        CopyError: it cannot be copied.
    """
    try:
        if task.repository:
            return _clone_of_revision(task, to, cache)
        source = Path(task.project)
        if not source.is_dir():
            raise CopyError(f"there is no directory {source}")
        if repository := repository_around(source):
            return _clone_with_changes(source, repository, to, without)
        _copy_tree(source, to, without)
    except (GitError, OSError, shutil.Error) as error:
        raise CopyError(str(error)) from error
    return Copy(to, to)


def repository_around(source: Path) -> Path | None:
    """Return the root of the repository that the directory is in; None without one, or it has no commit."""
    try:
        git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=source)
        root = os.fsdecode(git("rev-parse", "--show-toplevel", cwd=source).removesuffix(b"\n"))
        git("ls-files", "--error-unmatch", "--", ".", cwd=source)
    except GitError:
        return None
    return Path(root)


def _clone_with_changes(source: Path, repository: Path, to: Path, without: Path | None) -> Copy:
    lender = _clone(repository, "HEAD", to)
    compare = ("diff", "--name-only", "--no-renames", "-z", "HEAD")
    changed = names_in(git(*compare, cwd=repository, is_foreign=True))
    others = ("ls-files", "-z", "--others", "--exclude-standard")
    new = names_in(git(*others, cwd=repository, is_foreign=True))
    for name in (*changed, *new):
        path = repository / name
        if without is None or not path.is_relative_to(without):
            _replace(path, to / name)
    return Copy(to, to / source.relative_to(repository), lender)


def _clone_of_revision(task: Task, to: Path, cache: Path) -> Copy:
    repository = task.repository
    if is_url(repository):
        repository = str(fetched(repository, cache))
    lender = _clone(Path(repository), task.revision or "HEAD", to)
    return Copy(to, to, lender)


def fetched(url: str, cache: Path) -> Path:
    """Return the clone of the address in the run's cache. Workers that need it at the same time wait for one of them to fetch it."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{sha256(url.encode()).hexdigest()[:16]}.git"
    with (cache / f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            partial = path.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            options = ("--quiet", "--bare", "--template=")
            git("clone", *options, "--", url, partial, cwd=cache, is_own=False)
            partial.rename(path)
    return path


def _clone(repository: Path, revision: str, to: Path) -> Path:
    """Clone without copying objects, at a commit, and return the directory of the objects' repository."""
    if not repository.is_dir():
        raise CopyError(f"there is no repository {repository}")
    try:
        verified = git(
            "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}", cwd=repository
        )
    except GitError as error:
        if "dubious ownership" in str(error):
            raise CopyError(f"{repository} belongs to another user: copy it first") from error
        raise CopyError(f"{repository} has no revision '{revision}'") from error
    commit = verified.decode().strip()
    options = ("--quiet", "--shared", "--no-checkout", "--no-tags", "--template=")
    git("clone", *options, "--", repository, to, cwd=to.parent)
    git("update-ref", "--no-deref", "HEAD", commit, cwd=to)
    git("reset", "--quiet", "--hard", cwd=to)
    git("remote", "remove", "origin", cwd=to)
    common = git("rev-parse", "--path-format=absolute", "--git-common-dir", cwd=repository)
    return Path(os.fsdecode(common.removesuffix(b"\n")))


def _replace(source: Path, target: Path) -> None:
    """Make `target` like `source`, which may be missing."""
    with suppress(FileNotFoundError):
        target.unlink()
    try:
        mode = source.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(mode):
        copy_file(source, target)


def _copy_tree(source: Path, target: Path, without: Path | None) -> None:
    def left_out(directory: str, names: list[str]) -> list[str]:
        paths = [Path(directory, name) for name in names]
        return [path.name for path in paths if path == without or not _is_copied(path)]

    shutil.copytree(source, target, symlinks=True, ignore=left_out, copy_function=copy_file)


def _is_copied(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a regular file with its mode and times, sharing its blocks where the file system can."""
    with Path(source).open("rb") as original:
        os.close(copy_new(original.fileno(), str(target)))
    shutil.copystat(source, target)
