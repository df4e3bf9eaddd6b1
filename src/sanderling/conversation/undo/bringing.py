"""
Brings the work of a worktree into the project: one change of the current files, which the user reviews and undoes like the agent's.

It is planned as an undo "from the base to the worktree": a file that is still as at the base becomes that of the worktree, and changes
of the user's since then, saved or not, are merged with the worktree's line by line. Where both changed the same lines, the file stays as
the user has it, and is reported; in an editor, only these lines stay, and they are named.

If the session of the worktree repeats a turn of this session, the changes of that turn are taken back with the same change of each file,
so that a hunk has the lines of the first result and those of the second.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from uuid import uuid4

from anyio import to_thread

from sanderling.changes.restoring import RestorePlan, SkippedPath
from sanderling.changes.states import ABSENT, ANY_MODE, BRINGING, FileChange, State
from sanderling.changes.timeline import Timeline
from sanderling.conversation.services import SessionServices
from sanderling.errors import WorktreeError
from sanderling.paths import is_within
from sanderling.tools.restoring import FileRestorer
from sanderling.worktrees.changes import ChangedPath, Side, changed_paths, is_of_project
from sanderling.worktrees.git import Git
from sanderling.worktrees.present import copyable
from sanderling.worktrees.records import Record
from sanderling.worktrees.worktrees import Worktrees

DEFAULT_MODE = 0o644
LINK_REMOVED = ("link", "absent")
BEHIND_LINK = "a link leads elsewhere"


async def bring(services: SessionServices, name: str, timeline: Timeline) -> RestorePlan:
    """
    Make the changes of the worktree `name`; return the completed steps and the files left alone. `timeline` is of this session.

    Raises:
        WorktreeError: there is no such worktree, or git cannot read it.
        ToolError: there is no sandbox, or the editor does not answer; nothing was changed.
    """
    session, workspace = services.session, services.workspace
    if session.worktree == name:
        raise WorktreeError(
            "this session works in that worktree: apply it in a session of the project"
        )
    worktrees = Worktrees(services.settings.state_dir, session.project)
    record = await to_thread.run_sync(worktrees.find, name)
    changed = await to_thread.run_sync(changed_paths, record)
    use_id = f"{BRINGING}{name}:{uuid4().hex}"
    workspace.journal.begin_turn(use_id)
    replaced = await to_thread.run_sync(_replaced, services, record, timeline)
    links = {each.path for each in changed if (each.base.kind, each.work.kind) == LINK_REMOVED}
    first, behind = list[ChangedPath](), list[ChangedPath]()
    for each in changed:
        (first if links.isdisjoint(_directories(each)) else behind).append(each)
    done = await _bring(services, use_id, first, replaced)
    if not behind:
        return done
    # Only now: before, their directories were links, through which they would be read and written elsewhere.
    then = await _bring(services, use_id, behind, are_plain=True)
    return RestorePlan((*done.steps, *then.steps), (*done.left, *then.left))


async def _bring(
    services: SessionServices,
    use_id: str,
    changed: list[ChangedPath],
    replaced: Sequence[FileChange] = (),
    *,
    are_plain: bool = False,
) -> RestorePlan:
    """
    Make the changes whose directories are in the project; with `are_plain`, only those behind no link at all.

    First the `replaced` changes are taken back.
    """
    workspace = services.workspace
    top, real_path = workspace.project, workspace.disk.real_path
    real_top = real_path(top)
    reached, left = list[ChangedPath](), list[SkippedPath]()
    for each in changed:
        directory = os.path.dirname(f"{real_top}/{each.path}")  # noqa: PTH120
        real = real_path(directory)
        below = real.removeprefix(real_top).strip("/")
        is_inside = is_within(real, real_top) and (not below or is_of_project(below))
        if is_inside and (real == directory or not are_plain):
            reached.append(each)
        else:
            left.append(SkippedPath(f"{top}/{each.path}", BEHIND_LINK))
    emptied = {
        directory
        for each in reached
        if each.work.kind == "absent"
        for directory in _directories(each)
    }
    changes = [
        await _as_change(services, each, use_id, is_emptied=each.path in emptied)
        for each in reached
    ]
    by_hunk = workspace.editor is not None  # where the user sees the lines that are left
    # Undoing begins with the last one.
    made = await FileRestorer(workspace).bring(use_id, [*changes, *replaced], by_hunk=by_hunk)
    return RestorePlan(made.steps, (*made.left, *left))


def _replaced(
    services: SessionServices, record: Record, timeline: Timeline
) -> tuple[FileChange, ...]:
    """Return the changes of the turn that the worktree's session repeats, to files that a copy of the project contains."""
    repeated, top = record.repeated, services.workspace.project
    if repeated is None or repeated.session_id != services.session.id:
        return ()
    made = [
        each
        for each in timeline.changes_of((repeated.turn,))
        if is_within(each.path, top) and "directory" not in (each.before.kind, each.after.kind)
    ]
    git = Git(top, record.project, repository=record.repository)
    kept = copyable(git, [os.path.relpath(each.path, top) for each in made])
    return tuple(each for each in made if os.path.relpath(each.path, top) in kept)


def _directories(changed: ChangedPath) -> Iterator[str]:
    return map(str, PurePath(changed.path).parents)


async def _as_change(
    services: SessionServices, changed: ChangedPath, use_id: str, *, is_emptied: bool
) -> FileChange:
    """
    Return the change from the worktree's content to the base's: undoing it does the opposite.

    With `is_emptied`, the path was a directory whose files are gone in the worktree.
    """
    workspace = services.workspace
    path = workspace.disk.real_path(os.path.dirname(f"{workspace.project}/{changed.path}"))  # noqa: PTH120
    path = f"{path}/{os.path.basename(changed.path)}"  # noqa: PTH119
    now = workspace.disk.status(path)
    mode = stat.S_IMODE(now.st_mode) if now and stat.S_ISREG(now.st_mode) else DEFAULT_MODE
    base = await _state(services, path, changed.base, mode)
    if is_emptied and base == ABSENT:
        base = State("directory", ANY_MODE)
    work = await _state(services, path, changed.work, _mode(changed, mode))
    return FileChange(path, work, base, use_id)


def _mode(changed: ChangedPath, mode: int) -> int:
    """Return the mode of the file afterwards, if it has `mode` now: only the worktree's own change of "runnable" counts."""
    if changed.base.is_runnable == changed.work.is_runnable:
        return mode
    return mode | 0o111 if changed.work.is_runnable else mode & ~0o111


async def _state(services: SessionServices, path: str, side: Side, mode: int) -> State:
    match side.kind:
        case "absent":
            return ABSENT
        case "link":
            return State("link", target=os.fsdecode(side.data))
        case "file":
            return await services.workspace.journal.keep(path, side.data, mode)
