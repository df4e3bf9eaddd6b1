"""What a worktree changed since its base: the input of its review."""

import os
from typing import Literal

import msgspec

from sanderling.errors import WorktreeError
from sanderling.text import visible_line
from sanderling.worktrees.git import Git
from sanderling.worktrees.records import Record
from sanderling.worktrees.snapshots import keep_snapshot

LINK, SUBMODULE, RUNNABLE = "120000", "160000", "100755"
EMPTY = "000000"
MAX_DIFF_BYTES = 4 << 20


FOREIGN = (
    "{} cannot be a file of a project, so nothing is applied: a command has changed what was kept"
)


class Side(msgspec.Struct, frozen=True):
    """A path on one side: a file with its bytes as in a checkout, a link with its target, or nothing."""

    kind: Literal["absent", "file", "link"] = "absent"
    data: bytes = b""
    is_runnable: bool = False


class ChangedPath(msgspec.Struct, frozen=True):
    """A path, relative to the project, at the base and in the worktree. A renamed file is two of them."""

    path: str
    base: Side
    work: Side


def tip_of(record: Record) -> str:
    """
    Return the commit with the current state of the worktree, or with the last one that was kept; its base if nothing differs.

    Raises:
        WorktreeError: git cannot read it.
    """
    if record.stage == "ready" and os.path.exists(f"{record.directory}/.git"):
        return keep_snapshot(record) or record.base
    kept = record.git.maybe("rev-parse", "--verify", "--quiet", record.kept_ref)
    if not kept:
        raise WorktreeError(f"nothing was kept of the worktree {record.name}")
    return kept


def changed_paths(record: Record) -> list[ChangedPath]:
    """
    Return what the worktree changed in the project since its base. Blocks.

    Raises:
        WorktreeError: git cannot read it, or a path is not of a project's file.
    """
    tip = tip_of(record)
    git = record.git
    fields = git.paths(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--abbrev=64", record.base, tip
    )
    found: list[ChangedPath] = []
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        base_mode, work_mode, base, work, _ = facts.removeprefix(":").split(" ")
        if not is_of_project(path):
            raise WorktreeError(FOREIGN.format(visible_line(path)))
        inside = path.removeprefix(f"{record.prefix}/") if record.prefix else path
        if SUBMODULE in (base_mode, work_mode) or (record.prefix and inside == path):
            continue
        sides = (_side(git, path, *each) for each in ((base_mode, base), (work_mode, work)))
        found.append(ChangedPath(inside, *sides))
    return found


def is_of_project(path: str) -> bool:
    """
    Return whether a relative path leads to a file of a project, not out of it or into a repository's own directory.

    Git checks that when it fills an index. But a command in any worktree can write a tree with such names, and have a ref of kept work
    name it.
    """
    return not any(part.casefold() in ("", ".", "..", ".git") for part in path.split("/"))


def _side(git: Git, path: str, mode: str, blob: str) -> Side:
    if mode == EMPTY:
        return Side()
    if mode == LINK:
        return Side("link", git.run("cat-file", "blob", blob))
    # With line ends as in a checkout. The project's attributes hold, and no filter runs.
    data = git.run("cat-file", "--filters", f"--path={path}", blob)
    return Side("file", data, mode == RUNNABLE)


def diff(record: Record) -> str:
    """
    Return the changes as a diff.

    Raises:
        WorktreeError: git cannot read them.
    """
    tip = tip_of(record)
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "-M")
    return record.git.run("diff", *options, record.base, tip)[:MAX_DIFF_BYTES].decode(
        "utf-8", "replace"
    )


def summary(record: Record) -> list[tuple[str, str]]:
    """
    Return each changed path with a letter, A, M, D or T, as git does.

    Raises:
        WorktreeError: git cannot read them.
    """
    fields = record.git.paths(
        "diff-tree", "-r", "-z", "--name-status", "--no-renames", record.base, tip_of(record)
    )
    return list(zip(fields[::2], fields[1::2], strict=True))
