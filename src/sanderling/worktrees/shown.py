"""Worktrees as a list shows them: their size, their age, and what removing them would lose."""

import os
from math import ceil

from sanderling.errors import WorktreeError
from sanderling.protocol.requests import ShownWorktree
from sanderling.text import duration
from sanderling.worktrees.records import Record
from sanderling.worktrees.snapshots import losses
from sanderling.worktrees.worktrees import Worktrees

MEGABYTE = 1e6
MAX_SIZED_FILES = 200_000
KEPT = "the only copy of its files, {}"


def shown_worktrees(worktrees: Worktrees) -> list[ShownWorktree]:
    """Return the worktrees, newest first. Blocks: their files are counted."""
    return [shown_worktree(record) for record in worktrees.all()]


def shown_worktree(record: Record) -> ShownWorktree:
    is_kept = record.stage == "kept"
    try:
        found = losses(record)
        loss = KEPT.format(record.kept_ref) if is_kept else found.words() if found.any else ""
    except WorktreeError as error:
        loss = f"what is in it ({error})"
    return ShownWorktree(
        record.name,
        created_at=record.created_at,
        session_id=record.session_id,
        directory="" if is_kept else record.work_dir,
        ref=record.ref,
        base=record.base[:12],
        size_bytes=0 if is_kept else _size(record.directory),
        loss=loss,
        kept_ref=record.kept_ref,
        notes=record.notes,
        repeated_session=record.repeated.session_id if record.repeated else "",
        repeated_turn=record.repeated.turn if record.repeated else "",
        source=record.repeated.source if record.repeated else "",
    )


def _size(directory: str) -> int:
    """Return the size of the files on disk, of a very large tree only a part."""
    total = count = 0
    for top, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(f"{top}/{name}").st_blocks * 512
            except OSError:
                continue
        count += len(names)
        if count > MAX_SIZED_FILES:
            break
    return total


def _in_words(size_bytes: int) -> str:
    return (
        f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= MEGABYTE else f"{ceil(size_bytes / 1000)} kB"
    )


def line_of(worktree: ShownWorktree, now: float) -> str:
    """Return a worktree's line of a list."""
    age = duration(max(0.0, now - worktree.created_at))
    size = _in_words(worktree.size_bytes) if worktree.directory else "removed"
    origin = f"from {worktree.ref or 'HEAD'} at {worktree.base}"
    return f"{worktree.name}  {size}, {age} old, {origin}"
