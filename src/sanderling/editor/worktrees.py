"""Answers to Neovim's requests about worktrees."""

from typing import Any

import msgspec

from sanderling.config import Settings
from sanderling.errors import WorktreeError
from sanderling.protocol.requests import (
    DiffWorktree,
    ListWorktrees,
    RemoveWorktree,
    WorktreeRequest,
)
from sanderling.worktrees.changes import diff
from sanderling.worktrees.shown import shown_worktree, shown_worktrees
from sanderling.worktrees.worktrees import Worktrees


def answer(request: WorktreeRequest, settings: Settings) -> dict[str, Any]:
    """
    Execute the request. Blocks.

    Raises:
        WorktreeError: it is impossible, and nothing was changed.
    """
    worktrees = Worktrees(settings.state_dir, request.project)
    match request:
        case ListWorktrees():
            return {"worktrees": msgspec.to_builtins(shown_worktrees(worktrees))}
        case DiffWorktree(_, name):
            return {"text": diff(worktrees.find(name))}
        case RemoveWorktree(_, name, is_applied=True):
            worktrees.remove_whole(name)
            return {}
        case RemoveWorktree(_, name, loses):
            loss = shown_worktree(worktrees.find(name)).loss
            if loss != loses:
                raise WorktreeError(f"removing {name} would now lose {loss or 'nothing'}")
            worktrees.remove(name, loses=bool(loses))
            kept = [each.kept_ref for each in worktrees.all() if each.name == name]
            return {"kept_ref": kept[0]} if kept else {}
