"""
Keeps the content of a worktree under a ref, and says what removing it would lose.

A snapshot is a commit of everything that git does not ignore, made without the user's index and branches. `git add -A` would do, but it
compares submodules with *their* configuration, and files that an agent has marked as unchanged (`update-index --assume-unchanged`)
would be missing.
"""

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

import msgspec

from sanderling.errors import WorktreeError
from sanderling.text import counted, printable
from sanderling.worktrees import extras
from sanderling.worktrees.copying import copy_file
from sanderling.worktrees.git import Git
from sanderling.worktrees.records import Record

MAX_NAMED = 5
COMPARING = ("--name-only", "-z", "--ignore-submodules=all")
"""Without the last, git runs `git status` in each repository below, with the configuration that an agent may have written there."""


class Losses(msgspec.Struct, frozen=True):
    """
    What removing a worktree would lose. Paths are relative to the repository's top.

    Attributes:
        modified, deleted, untracked: files that differ from the worktree's HEAD.
        repositories: repositories that were made in the worktree.
        extras: copies from the project that were changed.
        commits: how many are on no branch.
        is_missing: the directory was moved or deleted, so nothing is known of it.
    """

    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    commits: int = 0
    is_missing: bool = False

    @property
    def any(self) -> bool:
        return self != Losses()

    def words(self) -> str:
        """Return what would be lost, in words."""
        parts = [
            _named(paths, what)
            for paths, what in (
                (self.modified, "changed file"),
                (self.deleted, "deletion"),
                (self.untracked, "new file"),
                (self.extras, "changed copy"),
                (self.repositories, "repository"),
            )
            if paths
        ]
        if self.commits:
            parts.append(f"{counted(self.commits, 'commit')} on no branch")
        if self.is_missing:
            parts.append("whatever its directory had, which was moved or deleted")
        return ", ".join(parts) or "nothing"


def _named(paths: tuple[str, ...], what: str) -> str:
    many = {"repository": "repositories", "changed copy": "changed copies"}
    count = (
        f"{len(paths):,} {many[what]}"
        if what in many and len(paths) > 1
        else counted(len(paths), what)
    )
    named = ", ".join(printable(path) for path in paths[:MAX_NAMED])
    return f"{count} ({named}{', …' if len(paths) > MAX_NAMED else ''})"


def losses(record: Record) -> Losses:
    """
    Return what removing the worktree would lose.

    Raises:
        WorktreeError: git cannot tell.
    """
    if record.stage == "kept":
        return Losses(commits=1)
    if not os.path.exists(f"{record.directory}/.git"):
        return Losses(is_missing=True)
    git = Git(record.directory, record.project)
    with Index(git, record.directory) as index:
        modified = index.changed("--diff-filter=d")
        deleted = index.changed("--diff-filter=D")
        staged = git.paths("diff-index", "--cached", *COMPARING, "HEAD", env=index.env)
        others = index.untracked()
        repositories = index.repositories()
    changed = {*modified, *staged} - {*deleted}
    return Losses(
        modified=tuple(sorted(changed)),
        deleted=tuple(sorted(deleted)),
        untracked=tuple(path for path in others if not path.endswith("/")),
        repositories=(*repositories, *(path for path in others if path.endswith("/"))),
        extras=tuple(extras.changed(record.work_dir, record.extras)),
        commits=_commits_on_no_branch(git, record.base),
    )


def _commits_on_no_branch(git: Git, base: str) -> int:
    known = ("--branches", "--tags", "--remotes", base)
    return int(git.line("rev-list", "--count", "HEAD", "--not", *known))


def keep_snapshot(record: Record) -> str:
    """
    Keep everything in the worktree that is not ignored under its ref; return the commit, or "" if nothing differs from its base.

    Raises:
        WorktreeError: git cannot read or store it. The earlier commit remains.
    """
    git = Git(record.directory, record.project)
    before = git.maybe("rev-parse", "--verify", "--quiet", record.kept_ref) or ""
    head = git.maybe("rev-parse", "--verify", "--quiet", "HEAD") or record.base
    with Index(git, record.directory) as index:
        tree = index.tree_of_everything()
    if not before and head == record.base and tree == git.line("rev-parse", f"{head}^{{tree}}"):
        return ""
    if before and git.maybe("rev-parse", f"{before}^{{tree}}", f"{before}^1") == f"{tree}\n{head}":
        return before
    message = f"Sanderling: the worktree {record.name}"
    commit = git.line("commit-tree", tree, "-p", head, "-m", message)
    # With a reflog, so that an earlier state can be found for as long as git keeps reflogs.
    git.run("update-ref", "--create-reflog", "-m", "turn", record.kept_ref, commit, before)
    return commit


class Index:
    """A copy of the index of git's directory, for this context, in which no file is marked as unchanged; next to `worktree`."""

    def __init__(self, git: Git, worktree: str) -> None:
        self._git = git
        self._directory = git.directory
        self._path = f"{worktree}.index-{os.urandom(4).hex()}"
        self.env = {"GIT_INDEX_FILE": self._path}

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        own = self._git.line("rev-parse", "--git-path", "index")
        try:
            # With its time: by that, git knows which files it must compare although their size and second are the same.
            # Commands can replace it, as by a link to /dev/zero, of which a copy fills the disk.
            copy_file(os.path.join(self._directory, own), self._path)
        except FileNotFoundError:
            head = self._git.maybe("rev-parse", "--verify", "--quiet", "HEAD")
            self._git.run("read-tree", head or "--empty", env=self.env)
        except OSError as error:
            raise WorktreeError(f"the index cannot be copied: {error.strerror}") from error
        self._unmark()
        # Otherwise each file with a new time would count as changed.
        self._git.maybe("update-index", "-q", "--refresh", env=self.env)

    def __exit__(self, *_: object) -> None:
        for path in (self._path, f"{self._path}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _unmark(self) -> None:
        lines = self._git.paths("ls-files", "-v", "-z", env=self.env)
        assumed = [line[2:] for line in lines if line[0].islower()]
        skipped = [
            line[2:]
            for line in lines
            if line[0] in "Ss" and os.path.lexists(f"{self._directory}/{line[2:]}")
        ]
        self._update(assumed, "--no-assume-unchanged")
        self._update(skipped, "--no-skip-worktree")

    def _update(self, paths: list[str], *options: str) -> None:
        if paths:
            data = b"".join(os.fsencode(path) + b"\0" for path in paths)
            self._git.run("update-index", *options, "-z", "--stdin", stdin=data, env=self.env)

    def _is_kept_by_git(self, path: str) -> bool:
        try:
            mode = os.lstat(f"{self._directory}/{path}").st_mode
        except OSError:
            return True  # git says what is wrong with it
        return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)

    def changed(self, *options: str) -> list[str]:
        """Return the tracked files that differ from the index."""
        return self._git.paths("diff-files", *COMPARING, *options, env=self.env)

    def repositories(self) -> list[str]:
        """Return the tracked paths at which there is another repository, as in a submodule."""
        entries = self._git.paths("ls-files", "--stage", "-z", env=self.env)
        links = (entry.partition("\t")[2] for entry in entries if entry.startswith("160000 "))
        return [path for path in links if os.path.lexists(f"{self._directory}/{path}/.git")]

    def untracked(self) -> list[str]:
        """Return the files that git neither tracks nor ignores; a repository among them ends with a slash."""
        return self._git.paths("ls-files", "--others", "--exclude-standard", "-z", env=self.env)

    def tree_of_everything(self) -> str:
        """Return a tree with all files that are not ignored, without other repositories."""
        self.add_everything()
        return self.tree()

    def tree(self) -> str:
        return self._git.line("write-tree", env=self.env)

    def put(self, path: str, mode: str, blob: str) -> None:
        """Replace the entry of `path`; without a `mode`, remove it."""
        if mode:
            self.put_all([(path, mode, blob)])
        else:
            self.remove([path])

    def put_all(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Replace the entries of paths by modes and blobs; a mode of zeros removes one."""
        data = "".join(f"{mode} {blob}\t{path}\0" for path, mode, blob in entries)
        self._git.run("update-index", "-z", "--index-info", stdin=os.fsencode(data), env=self.env)

    def remove(self, paths: list[str]) -> None:
        self._update(paths, "--force-remove")

    def add_everything(self, is_left_out: Callable[[str], bool] = lambda _: False) -> None:
        """Add all files that are not ignored, without other repositories. Those that are left out keep their entries."""
        # First, because a link may have taken the place of a directory.
        self._update(self.changed("--diff-filter=D"), "--force-remove")
        changed = self.changed("--diff-filter=d")
        # Git cannot keep a pipe by which a command has replaced a file.
        pipes = [path for path in changed if not self._is_kept_by_git(path)]
        self._update(pipes, "--force-remove")
        changed = [path for path in changed if path not in pipes]
        new = [path for path in self.untracked() if not path.endswith("/")]
        added = [path for path in (*changed, *new) if not is_left_out(path)]
        self._update(added, "--add", "--replace")
