"""The project's present files as a commit, from which the copy for a repeated turn is made."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping

from sanderling.errors import WorktreeError
from sanderling.paths import is_within
from sanderling.sandbox.guard.repositories import is_env_file
from sanderling.sandbox.guard.settings import PUBLIC_ENV_ENDINGS
from sanderling.text import counted
from sanderling.worktrees.changes import LINK, RUNNABLE, Side, is_of_project
from sanderling.worktrees.git import Git
from sanderling.worktrees.snapshots import Index

FILE = "100644"
MAX_COPIED_FILES = 50_000
MAX_COPIED_BYTES = 1 << 30
TOO_MUCH = (
    "{} of this project ({:,.0f} MB) are in no commit, and a private copy takes at most {:,} files and {:,.0f} MB:"
    " commit them, or have git ignore them"
)


def commit_present(git: Git, worktree: str, prefix: str, earlier: Mapping[str, Side]) -> str:
    """
    Return a commit of all files in git's directory that are not ignored, for a copy at `worktree`.

    Commands there can read all that is in a commit. So of `.env` files, and of files outside of the project, to which `prefix` leads from
    git's directory, it has only what is committed: the sandbox hides the rest. `earlier` replaces what is at these absolute paths. Neither
    index nor branches change.

    Raises:
        WorktreeError: there is too much to copy, or git cannot read it.
    """
    top = os.path.realpath(git.directory)
    inside = {
        os.path.relpath(path, top): side
        for path, side in earlier.items()
        if is_within(path, f"{top}/{prefix}".rstrip("/"))
    }

    def is_hidden(path: str) -> bool:
        return _is_secret(path) or (prefix != "" and not path.startswith(f"{prefix}/"))

    head = git.maybe("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    with Index(git, worktree) as index:
        changed = (*index.changed("--diff-filter=d"), *index.untracked())
        _check_size(top, (path for path in changed if not is_hidden(path)))
        index.add_everything(is_hidden)
        for path in copyable(git, inside, index.env):
            index.put(path, *_entry(git, path, inside[path]))
        _leave_out(git, index, head, is_hidden)
        tree = index.tree()
    parents = ("-p", head) if head else ()
    return git.line("commit-tree", tree, *parents, "-m", "Sanderling: before the repeated prompt")


def copyable(git: Git, paths: Iterable[str], env: Mapping[str, str] | None = None) -> list[str]:
    """Return the `paths`, relative to git's directory, that a copy contains: git does not ignore them, and they are not secret."""
    found = [path for path in paths if is_of_project(path) and not _is_secret(path)]
    if not found:
        return []
    asked = b"".join(os.fsencode(path) + b"\0" for path in found)
    ignored = set(git.listed("check-ignore", "-z", "--stdin", stdin=asked, env=env))
    return [path for path in found if path not in ignored]


def _is_secret(path: str) -> bool:
    return is_env_file(os.path.basename(path)) and not path.endswith(PUBLIC_ENV_ENDINGS)


def _leave_out(
    git: Git, index: Index, head: str | None, is_left_out: Callable[[str], bool]
) -> None:
    """Replace what the user has staged, or deleted, by what is committed."""
    if head:
        compare = ("diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", head)
        fields = git.paths(*compare, env=index.env)
        committed = zip(fields[1::2], (field[1:].split() for field in fields[::2]), strict=True)
        index.put_all(
            (path, mode, blob) for path, (mode, _, blob, *_) in committed if is_left_out(path)
        )
    else:
        staged = git.paths("ls-files", "-z", env=index.env)
        index.remove([path for path in staged if is_left_out(path)])


def _entry(git: Git, path: str, side: Side) -> tuple[str, str]:
    match side.kind:
        case "absent":
            return "", ""
        case "link":
            write = ("hash-object", "-w", "--stdin", "--no-filters")
            return LINK, os.fsdecode(git.run(*write, stdin=side.data)).strip()
        case "file":
            write = ("hash-object", "-w", "--stdin", f"--path={path}")
            blob = os.fsdecode(git.run(*write, stdin=side.data)).strip()
            return RUNNABLE if side.is_runnable else FILE, blob


def _check_size(top: str, paths: Iterable[str]) -> None:
    size = count = 0
    for path in paths:
        try:
            found = os.lstat(f"{top}/{path}")
        except OSError:
            continue
        count += 1
        size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    if count > MAX_COPIED_FILES or size > MAX_COPIED_BYTES:
        raise WorktreeError(
            TOO_MUCH.format(
                counted(count, "file"), size / 1e6, MAX_COPIED_FILES, MAX_COPIED_BYTES / 1e6
            )
        )
