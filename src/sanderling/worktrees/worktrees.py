"""
Creates, finds and removes worktrees.

A worktree is a detached checkout, so it moves no branch, and no branch is in its way: git refuses to check one out twice. It is never
made from less than asked: whatever a checkout cannot contain (a submodule's changes) is refused in words, and nothing falls back to the
project's own tree.

**Work is never lost.** Git's own `worktree remove` ignores commits on no branch, and most tools that lost work called it with force, or
judged "clean" without untracked files. Here `losses` looks at all of it, removal needs the worktree alone, and each step can be
repeated after a crash: a record names the step that was begun, and `repair` finishes it only where nothing can be lost.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from sanderling.errors import WorktreeError
from sanderling.paths import state_directory
from sanderling.text import counted, printable
from sanderling.worktrees import extras, records
from sanderling.worktrees.changes import Side
from sanderling.worktrees.git import Git
from sanderling.worktrees.present import commit_present
from sanderling.worktrees.records import Record, Repeated
from sanderling.worktrees.snapshots import keep_snapshot, losses

LOCK_REASON = "made by Sanderling: `sanderling worktrees` lists and removes it"
MAX_SHOWN_PATHS = 3
PRESENT = "the project's files"
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"


class Worktrees:
    """The worktrees of one project; `state_dir` is Sanderling's."""

    def __init__(self, state_dir: str, project: str) -> None:
        self._project = os.path.realpath(project)
        self._root = Path(state_directory(f"{state_dir}/worktrees", project))

    # --- making ----------------------------------------------------------------------------------------------------------

    def create(
        self,
        session_id: str,
        ref: str = "",
        *,
        copies: tuple[str, ...] = (),
        links: tuple[str, ...] = (),
        name: str = "",
    ) -> Record:
        """
        Create a worktree of the project's repository at `ref`, by default its HEAD, for this session.

        Raises:
            WorktreeError: there can be none; nothing was changed.
        """
        git, ref = Git(self._project), "" if ref == "HEAD" else ref
        top = _top_of(git)
        base = _commit(git, ref)
        prefix = os.path.relpath(self._project, top) if self._project != top else ""
        if prefix and git.maybe("cat-file", "-t", f"{base}:{prefix}") != "tree":
            raise WorktreeError(f"{ref or 'HEAD'} does not contain {printable(prefix)}")
        notes = _about_submodules(git, top, base)
        if name and not re.fullmatch(NAME, name):
            raise WorktreeError(
                f"'{printable(name)}' cannot name a worktree: use letters, digits, - and _"
            )
        name = name or _new_name(ref or git.maybe("symbolic-ref", "--short", "-q", "HEAD") or "")
        record = Record(
            name=name,
            project=self._project,
            directory=str(self._root / name),
            prefix=prefix,
            base=base,
            ref=printable(ref),
            session_id=session_id,
            created_at=time.time(),
            notes=tuple(notes),
        )
        return self._made(record, lambda record: record, copies=copies, links=links)

    def copy(
        self,
        session_id: str,
        repeated: Repeated,
        earlier: Mapping[str, Side],
        *,
        copies: tuple[str, ...] = (),
        links: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> Record:
        """
        Create a worktree of the present files of the `repeated` session, except that `earlier` replaces what is at these absolute paths.

        A project that is in no repository gets one for this worktree alone.

        Raises:
            WorktreeError: there can be none; nothing was changed.
        """
        source = os.path.realpath(repeated.source)
        git, name = Git(source, self._project), _new_name("again")
        is_in_repository = _is_in_repository(git)
        top = _top_of(git) if is_in_repository else source
        record = Record(
            name=name,
            project=self._project,
            directory=str(self._root / name),
            prefix=os.path.relpath(source, top) if source != top else "",
            base="",
            ref=PRESENT,
            session_id=session_id,
            created_at=time.time(),
            notes=notes,
            repeated=repeated,
            repository="" if is_in_repository else str(self._root / f"{name}.git"),
        )

        def with_base(record: Record) -> Record:
            if record.repository:
                init = ("init", "--quiet", "--bare", "--template=", "--initial-branch=copy")
                Git(str(self._root), self._project).run(*init, record.repository)
            whole = Git(top, self._project, repository=record.repository)
            base = commit_present(whole, record.directory, record.prefix, earlier)
            inside = f"{base}:{record.prefix}"
            if record.prefix and whole.maybe("cat-file", "-t", inside) != "tree":
                raise WorktreeError(f"git has no file of {printable(record.prefix)}")
            notes = (*record.notes, *_about_submodules(whole, top, base))
            return replace(record, base=base, notes=notes)

        return self._made(record, with_base, copies=copies, links=links)

    def _made(
        self,
        record: Record,
        with_base: Callable[[Record], Record],
        *,
        copies: tuple[str, ...],
        links: tuple[str, ...],
    ) -> Record:
        """Make a worktree. `with_base` runs once its record is stored, so that the next process removes what a killed one has made."""
        path = self._path(record.name)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with records.in_use(path, alone=True):
            # Whatever is there was not made here, so a failure below must not remove it.
            is_taken = path.exists() or os.path.lexists(record.directory)
            if is_taken or record.directory in _registered(record.git):
                raise WorktreeError(f"there is a worktree {record.name} already")
            records.write(path, record)
            try:
                return self._fill(path, with_base(record), copies=copies, links=links)
            except BaseException:
                self._discard(path, record)
                raise

    def _fill(
        self, path: Path, record: Record, *, copies: tuple[str, ...], links: tuple[str, ...]
    ) -> Record:
        notes = list(record.notes)
        add = ("worktree", "add", "--quiet", "--detach", "--lock", "--reason", LOCK_REASON)
        record.git.run(*add, "--", record.directory, record.base)
        own = Git(record.directory, record.project)
        record = replace(record, git_dir=own.line("rev-parse", "--absolute-git-dir"))
        if own.filters and (unfiltered := _filtered(own)):
            notes = [*notes, unfiltered]
        if missing := extras.missing(record.project, (*copies, *links)):
            notes = [*notes, f"Not in the project, so not copied or linked: {', '.join(missing)}."]
        made = (
            *extras.copied(record.project, record.work_dir, copies),
            *extras.linked(record.project, record.work_dir, links),
        )
        return records.write(path, replace(record, stage="ready", extras=made, notes=tuple(notes)))

    # --- finding ---------------------------------------------------------------------------------------------------------

    def all(self) -> list[Record]:
        """Return the worktrees, newest first, after repairing those whose making or removal was interrupted."""
        found = list(self._read())
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def find(self, name: str) -> Record:
        """
        Return the worktree `name`.

        Raises:
            WorktreeError: it does not exist.
        """
        record = self._one(self._path(name)) if re.fullmatch(NAME, name) else None
        if record is None:
            raise WorktreeError(
                f"there is no worktree '{printable(name)}': `sanderling worktrees list` lists them"
            )
        return record

    def use(self, record: Record) -> int:
        """
        Return a descriptor that keeps the worktree from being removed until `records.release`.

        Raises:
            WorktreeError: its directory is missing, or it is being removed.
        """
        require_directory(record)
        return records.use(self._path(record.name))

    def _read(self) -> Iterator[Record]:
        for path in self._root.glob(
            "*.use"
        ):  # of a process that was killed before it wrote a record
            if not path.with_suffix(".json").exists():
                with suppress(WorktreeError), records.in_use(path, alone=True):
                    path.unlink()
        for path in sorted(self._root.glob("*.json")):
            if record := self._one(path):
                yield record

    def _one(self, path: Path) -> Record | None:
        record = records.read(path)
        return self._repaired(path, record) if record else None

    def _path(self, name: str) -> Path:
        return self._root / f"{name}.json"

    # --- repairing -------------------------------------------------------------------------------------------------------

    def _repaired(self, path: Path, record: Record) -> Record | None:
        """Finish what a killed process has begun; None if nothing is left of it."""
        if record.stage == "kept" or (record.stage == "ready" and not self._is_orphan(record)):
            return record
        try:
            with records.in_use(path, alone=True):
                record = records.read(path) or record
                is_unused = self._is_orphan(record) and not losses(record).any
                if record.stage == "creating" or is_unused:  # no session has ever worked in it
                    self._discard(path, record)
                    return None
                if record.stage == "removing":
                    return self._finish_removal(path, record)
        except WorktreeError:  # the process is still at it
            return record if record.stage != "creating" else None
        return record

    def _is_orphan(self, record: Record) -> bool:
        """Return whether the process was killed before it wrote the log of the session that repeats a turn there."""
        repeated = record.repeated if record.stage == "ready" else None
        return repeated is not None and not os.path.exists(repeated.log)

    def _discard(self, path: Path, record: Record) -> None:
        """Remove a worktree in which no session has worked."""
        git = record.git
        if os.path.lexists(record.directory) or record.directory in _registered(git):
            with suppress(WorktreeError):
                git.run("worktree", "unlock", record.directory)
            git.maybe("worktree", "remove", "--force", record.directory)
        if not os.path.lexists(record.directory):
            self._forget(path)

    def _forget(self, path: Path) -> None:
        shutil.rmtree(path.with_suffix(".git"), ignore_errors=True)
        copies = self._root.glob(f"{path.stem}.index-*")  # of the index, in a killed process
        for each in (path, path.with_suffix(".lock"), path.with_suffix(".use"), *copies):
            each.unlink(missing_ok=True)

    # --- removing --------------------------------------------------------------------------------------------------------

    def remove(self, name: str, *, loses: bool = False) -> None:
        """
        Remove a worktree in which nothing would be lost, or with `loses` whatever would. Its ref remains.

        Once only the ref is left, it is removed in the same way.

        Raises:
            WorktreeError: something would be lost, or a session uses it; nothing was changed.
        """
        record = self.find(name)
        path = self._path(name)
        with records.in_use(path, alone=True):
            if record.stage == "kept":
                if not loses:
                    raise WorktreeError(f"its work would be lost: {record.kept_ref}")
                record.git.run("update-ref", "-d", record.kept_ref)
                self._forget(path)
                return
            found = losses(record)
            if found.any and not loses:
                raise WorktreeError(f"it would lose {found.words()}")
            if not found.is_missing:
                keep_snapshot(record)
            record = records.write(path, replace(record, stage="removing"))
            self._finish_removal(path, record, is_checked=True)

    def remove_whole(self, name: str) -> None:
        """
        Remove a worktree whose files were applied, with its ref.

        Raises:
            WorktreeError: a session uses it, or it has more than these files; nothing was changed.
        """
        rest = replace(losses(self.find(name)), modified=(), deleted=(), untracked=())
        if rest.any:
            raise WorktreeError(f"{name} stays, because removing it would lose {rest.words()}")
        self.remove(name, loses=True)
        if self._path(name).exists():
            self.remove(name, loses=True)

    def _finish_removal(
        self, path: Path, record: Record, *, is_checked: bool = False
    ) -> Record | None:
        """Remove the worktree, unless somebody has put new files into it since the check."""
        git = record.git
        if not is_checked and os.path.isdir(record.directory):
            found = losses(record)
            if found.untracked or found.repositories or found.extras or found.modified:
                return records.write(path, replace(record, stage="ready"))
        if os.path.lexists(record.directory) or record.directory in _registered(git):
            git.maybe("worktree", "unlock", record.directory)
            _remove(git, record)
        if git.maybe("rev-parse", "--verify", "--quiet", record.kept_ref):
            return records.write(path, replace(record, stage="kept"))
        self._forget(path)
        return None


def require_directory(record: Record) -> None:
    """
    Check that the worktree is where it was made.

    Raises:
        WorktreeError: it was moved or deleted.
    """
    if record.stage == "kept":
        raise WorktreeError(
            f"the worktree {record.name} was removed; {record.kept_ref} has its work"
        )
    if not os.path.exists(f"{record.directory}/.git"):
        raise WorktreeError(
            f"the worktree {record.name} is gone: {printable(record.directory)} was moved or deleted."
            " Move it back, or remove it: `sanderling worktrees remove`"
        )


def _remove(git: Git, record: Record) -> None:
    """
    Have git remove a worktree that was looked at.

    Without force, which would also remove what appears in this moment, or a worktree that the user has locked. But git removes no worktree
    whose repository has submodules in any other way, and one that lost files to an interrupted removal looks changed.
    """
    if git.maybe("worktree", "remove", record.directory) is None:
        git.run("worktree", "remove", "--force", record.directory)


def _registered(git: Git) -> list[str]:
    lines = (git.maybe("worktree", "list", "--porcelain", "-z") or "").split("\0")
    return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]


def _top_of(git: Git) -> str:
    if git.maybe("rev-parse", "--git-dir") is None:
        raise WorktreeError(
            f"{printable(git.directory)} is in no git repository, so it can have no worktree"
        )
    if git.maybe("rev-parse", "--is-inside-work-tree") != "true":
        raise WorktreeError(
            f"the repository {printable(git.directory)} is bare: it has no files to which work could return"
        )
    return os.path.realpath(git.line("rev-parse", "--show-toplevel"))


def _is_in_repository(git: Git) -> bool:
    """Return whether git's directory is among the files of a repository, and not ignored there."""
    if git.maybe("rev-parse", "--is-inside-work-tree") != "true":
        return False
    return git.maybe("check-ignore", "--quiet", ".") is None


def _commit(git: Git, ref: str) -> str:
    found = git.maybe(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref or 'HEAD'}^{{commit}}"
    )
    if found:
        return found
    if not ref:
        raise WorktreeError(
            "the repository has no commit yet, so a worktree would be empty: commit first"
        )
    raise WorktreeError(f"there is no branch or commit '{printable(ref)}'")


def _about_submodules(git: Git, top: str, base: str) -> list[str]:
    """
    Return a note if the commit has submodules, which are empty in a worktree.

    Raises:
        WorktreeError: one has changes, which a worktree would not contain.
    """
    found = {
        path: commit
        for entry in git.paths("ls-tree", "-r", "-z", "--full-tree", base)
        if entry.startswith("160000 ")
        for facts, _, path in [entry.partition("\t")]
        for commit in [facts.split(" ")[2]]
    }
    dirty = [path for path, commit in found.items() if _is_dirty(f"{top}/{path}", commit)]
    if dirty:
        raise WorktreeError(
            f"the submodule {_listed(dirty)} has changes, which a worktree would not contain: commit them there, and the"
            " submodule's new commit here"
        )
    return [f"Submodules are empty in a worktree: {_listed(list(found))}."] if found else []


def _is_dirty(directory: str, commit: str) -> bool:
    if not os.path.lexists(f"{directory}/.git"):
        return False
    git = Git(directory)
    is_moved = git.maybe("rev-parse", "HEAD") != commit
    return is_moved or bool(
        git.maybe("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all")
    )


def _filtered(git: Git) -> str:
    """Return a sentence about files whose filters were not run, such as Git LFS; "" without such files."""
    names = git.run("ls-files", "-z")
    fields = os.fsdecode(git.run("check-attr", "--stdin", "-z", "filter", stdin=names)).split("\0")
    paths = [
        path
        for path, value in zip(fields[::3], fields[2::3], strict=False)
        if value not in ("unspecified", "unset")
    ]
    if not paths:
        return ""
    are = "is as git stores it" if len(paths) == 1 else "are as git stores them"
    return f"{_listed(paths)} {are}, with Git LFS a pointer: no filter runs in a worktree."


def _listed(paths: list[str]) -> str:
    shown = ", ".join(map(printable, paths[:MAX_SHOWN_PATHS]))
    rest = len(paths) - MAX_SHOWN_PATHS
    return f"{shown} and {counted(rest, 'other')}" if rest > 0 else shown


def _new_name(ref: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", ref).strip("-")[:24].strip("-")
    return f"{words or 'work'}-{os.urandom(3).hex()}"
