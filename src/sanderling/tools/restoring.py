"""
Undo on disk and in buffers: restore files to earlier states at the user's request.

Current files are read inside the sandbox; unsaved text in a buffer counts as the file's content. The plan is journaled before the first
file changes, so that an interrupted undo can be finished after a crash. Each step changes only what was read: a file that has changed
since is left alone. A file shown in a buffer is changed as a tool would change it, but without the user's write hooks, so that its bytes
return exactly.
"""

import errno
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import anyio
from anyio import to_thread
from msgspec.structs import replace

from sanderling.changes.records import Changed, Changing, Restored, Restoring, Unchanged
from sanderling.changes.restoring import (
    SAME_LINES,
    PresentState,
    RestorePlan,
    RestoreStep,
    SkippedError,
    SkippedPath,
    by_path,
    file_state,
    in_parts,
    is_same,
    is_torn,
    plan,
    states_needed,
)
from sanderling.changes.states import (
    NO_ROOM,
    TOO_LARGE,
    UNREADABLE,
    FileChange,
    State,
    stamp_of,
)
from sanderling.changes.store import MAX_FILE_BYTES
from sanderling.changes.timeline import Undoing
from sanderling.errors import SandboxError, ToolError
from sanderling.sandbox.files import ABSENT, Expected, FileChangedError, Files, Inspection
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.base import Context
from sanderling.tools.buffers import buffer_of, bytes_or_text, text_in
from sanderling.tools.change import Change
from sanderling.tools.editor import Buffer
from sanderling.tools.known import ProposedContent
from sanderling.tools.read_cache import ReadCache
from sanderling.tools.workspace import Workspace

PREFIX = "restoring:"
"""Prefix of the tool use id, before the undo's id, for changes to buffers."""
JUST_CHANGED = "it changed just now"
PROTECTED = "it is protected while the sandbox is open"
UNLINKED = ("file", "link", "fifo", "socket")
OWNERS, OWNERS_FILE, RUNNABLE = 0o700, 0o600, 0o111
UNSAVED = "it has unsaved changes"
INTERRUPTED = "undo was interrupted, and it changed since then"
MAX_HELD_BYTES = 512 << 20
LOOKED_AT_ONCE = 50
TOO_MUCH = "too much for one undo: undo the turn again"
UNRECORDED = "Nothing was changed: the undo could not be recorded ({reason})."
REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "it is read-only in the sandbox",
    errno.EACCES: "its mode or the sandbox forbids it",
    errno.EPERM: "its mode or the sandbox forbids it",
    errno.ENOTEMPTY: "there are other files in it",
    errno.ENOTDIR: "its directory was replaced by something else",
}


class _PathState(NamedTuple):
    """A path as it was read, and the buffer that shows it."""

    look: Inspection
    buffer: Buffer | None
    present: PresentState


class _Modes:
    """
    The modes of the directories that `steps` change.

    Without write permission, only root could change files in a directory. Such a directory gets the owner's permissions first, and its
    final mode when everything in it is done.
    """

    def __init__(self, files: Files, steps: Iterable[RestoreStep]) -> None:
        self._files = files
        self._closed = {
            step.path: step.now.state.mode
            for step in steps
            if step.now.state.kind == "directory" and not _is_open(step.now.state.mode)
        }
        self._final: dict[str, int] = {}

    async def open(self) -> None:
        for path, mode in sorted(self._closed.items()):
            with suppress(OSError):  # changes inside will then report it
                await self._change(path, mode, mode | OWNERS)
                self._final[path] = mode

    async def make(self, path: str, mode: int) -> None:
        """Create a directory that gets `mode` at the end."""
        await self._files.mkdir(path, mode | OWNERS)
        if not _is_open(mode):
            self._final[path] = mode

    async def set(self, path: str, before: int, mode: int) -> None:
        """Set the mode of a directory that had the mode `before` when the undo started."""
        now = before | OWNERS if path in self._final else before
        await self._change(path, now, mode)
        self._final.pop(path, None)

    async def close(self) -> None:
        """Set the final modes of directories that were opened or created, if they still exist."""
        for path, mode in sorted(self._final.items(), reverse=True):
            with suppress(OSError):
                await self._change(path, mode | OWNERS, mode)

    async def _change(self, path: str, before: int, after: int) -> None:
        look = await self._files.look(path, 0)  # its times change with its entries
        if look.kind != "directory" or look.mode != before:
            raise FileChangedError
        await self._files.chmod(path, after, look.stamp)


def _is_open(mode: int) -> bool:
    return mode & OWNERS == OWNERS


class FileRestorer:
    """Restores files in one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        # The model has not seen the restored text, so its next edit must report it as changed.
        self._workspace = replace(workspace, read_cache=ReadCache(disk=workspace.disk))
        self._journal = workspace.journal
        self._states: dict[str, _PathState] = {}

    async def plan(self, changes: Sequence[FileChange]) -> RestorePlan:
        """
        Return how to undo `changes`, given oldest first, from the current files.

        Raises:
            ToolError: there is no sandbox, or the editor does not answer.
        """
        made = _that_fit(by_path(changes))
        await self._look(made)
        present = {path: state.present for path, state in self._states.items()}
        chosen = [each for each in changes if each.path in present]
        needed = [
            state
            for path, each in by_path(chosen).items()
            for state in states_needed(each, present[path].state)
        ]
        kept = await self._journal.contents(needed)

        def content(state: State) -> bytes | None:
            return kept.get(state.content)

        planned = await to_thread.run_sync(plan, chosen, present, content)
        others = dict.fromkeys(each.path for each in changes if each.path not in present)
        left = (
            *planned.left,
            *(SkippedPath(path, TOO_MUCH) for path in others),
            *(SkippedPath(path, UNSAVED) for path in await self._hidden(chosen, planned)),
        )
        return RestorePlan(planned.steps, left)

    async def _hidden(self, changes: Sequence[FileChange], planned: RestorePlan) -> list[str]:
        """Return paths changed only on disk, behind a modified buffer that does not contain the change."""
        known = {each.path for each in (*planned.steps, *planned.left)}
        on_disk = {
            path: _present(state.look)
            for path, state in self._states.items()
            if state.buffer and state.buffer.is_modified and path not in known
        }
        if not on_disk:
            return []
        chosen = [each for each in changes if each.path in on_disk]
        behind = await to_thread.run_sync(plan, chosen, on_disk, self._journal.stored)
        return [each.path for each in (*behind.steps, *behind.left)]

    async def restore(
        self,
        undoing_id: str,
        turns: tuple[str, ...],
        changes: Sequence[FileChange],
        undoes: str = "",
        *,
        kind: Literal["", "undo", "redo", "rewind"] = "",
        prompt_id: str = "",
    ) -> RestorePlan:
        """
        Undo `changes`; return the completed steps and the files left alone.

        The journal records `undoing_id` and the `turns`, and `kind` and `prompt_id`, which it needs to finish an interrupted undo.

        Raises:
            ToolError: there is no sandbox, the editor does not answer, or the undo cannot be recorded; nothing was changed.
        """
        planned = await self.plan(changes)
        with anyio.CancelScope(shield=True):  # once started, it must finish
            steps = tuple([await self._kept(undoing_id, step) for step in planned.steps])
            await self._announce(Restoring(undoing_id, turns, steps, undoes, kind, prompt_id))
            done, left = await self._take(undoing_id, planned.steps, left=planned.left)
            return RestorePlan(done, left)
        raise AssertionError  # a shielded scope is not cancelled

    async def done(self, undoing: Undoing) -> RestorePlan:
        """Return the steps and the left files of a completed undo."""
        states = [state for each in undoing.changes for state in (each.before, each.after)]
        kept = await self._journal.contents(states)
        steps = (
            RestoreStep(
                each.path,
                PresentState(each.before, kept.get(each.before.content), each.before_twin),
                PresentState(each.after, kept.get(each.after.content), each.after_twin),
            )
            for each in undoing.changes
        )
        return RestorePlan(tuple(steps), tuple(SkippedPath(*each) for each in undoing.left))

    async def finish(self, undoing: Undoing) -> RestorePlan:
        """
        Finish an interrupted undo; leave files alone that have changed since.

        Raises:
            ToolError: there is no sandbox, or the editor does not answer.
        """
        await self._look(change.path for change in undoing.changes)
        planned = await self.done(undoing)
        steps: list[RestoreStep] = []
        done: list[RestoreStep] = []
        left: list[SkippedPath] = []
        for step in planned.steps:
            if step.path not in self._states:
                left.append(SkippedPath(step.path, TOO_MUCH))
                continue
            now = self._states[step.path].present
            is_kept = step.then.data is not None or not step.then.state.content
            if now.state == step.then.state:
                done.append(step)
            elif is_kept and (now.state == step.now.state or _is_half_done(now, step)):
                steps.append(step._replace(now=now._replace(twin=step.now.twin)))
            else:
                left.append(SkippedPath(step.path, INTERRUPTED))
        with anyio.CancelScope(shield=True):
            return RestorePlan(*await self._take(undoing.id, steps, done, left))
        raise AssertionError

    async def bring(
        self, use_id: str, changes: Sequence[FileChange], *, by_hunk: bool
    ) -> RestorePlan:
        """
        Undo `changes` as a tool's change of the current turn: the user reviews it, and undoing the turn takes it back.

        So their "before" is what the files get, and their "after" what they were made from. Returns the completed steps and the files left
        alone. With `by_hunk`, the parts of a file that do not conflict with the user's changes are made; without it, all of a file or
        nothing.

        Raises:
            ToolError: there is no sandbox, or the editor does not answer; nothing was changed.
        """
        planned = await self.plan(changes)
        if by_hunk:
            planned = await to_thread.run_sync(self._in_parts, planned, changes)
        files = await self._workspace.files()
        modes = _Modes(files, planned.steps)
        with anyio.CancelScope(shield=True):  # once started, it must finish
            done, left = await _each(
                planned.steps, lambda step: self._bring(files, modes, use_id, step)
            )
            if done and self._workspace.editor:
                await self._workspace.editor.files_changed(())
            return RestorePlan(tuple(done), (*planned.left, *left))
        raise AssertionError  # a shielded scope is not cancelled

    def _in_parts(self, planned: RestorePlan, changes: Sequence[FileChange]) -> RestorePlan:
        """Return the plan, with files that are left because of conflicts changed where nothing conflicts."""
        by_name = by_path(changes)
        steps, left = list(planned.steps), list[SkippedPath]()
        for each in planned.left:
            if each.why != SAME_LINES:
                left.append(each)
                continue
            now = self._states[each.path].present
            then, why = in_parts(by_name[each.path], now, self._journal.stored)
            if then.data != now.data:
                steps.append(RestoreStep(each.path, now, then, is_merged=True))
            left.append(SkippedPath(each.path, why))
        return RestorePlan(tuple(steps), tuple(left))

    async def _bring(self, files: Files, modes: _Modes, use_id: str, step: RestoreStep) -> None:
        if await self._workspace.sandbox.undoes(step.path):
            raise SkippedError(PROTECTED)
        state, now, then = self._states[step.path], step.now, step.then
        if then.state.kind == "file" and now.state.kind in ("file", "absent"):
            if now.data != then.data:
                await self._change(use_id, step, state.buffer)
            await self._set_mode(files, use_id, step)
            return
        if state.buffer and state.buffer.is_modified:
            raise SkippedError(UNSAVED)
        async with self._workspace.lock(step.path):
            before = now.state
            if now.data is not None:
                before = await self._journal.keep(step.path, now.data, now.state.mode)
            change = FileChange(step.path, before, then.state, use_id)
            await self._journal.append(Changing(change))
            try:
                stamp = await _on_disk(files, modes, step, state.look)
            except BaseException:
                await self._journal.append(Unchanged(step.path))
                raise
            await self._note(files, step, stamp)
            await self._journal.append(Changed(change))

    async def _set_mode(self, files: Files, use_id: str, step: RestoreStep) -> None:
        """Make the file runnable, or no longer. Other bits are the user's, or of a new file the umask's."""
        look = await files.look(step.path, 0)
        is_runnable = bool(step.then.state.mode & RUNNABLE)
        if look.kind != "file" or bool(look.mode & RUNNABLE) == is_runnable:
            return
        readers = look.mode & 0o444
        mode = look.mode | readers >> 2 if is_runnable else look.mode & ~RUNNABLE
        data = step.then.data or b""
        before = await self._journal.keep(step.path, data, look.mode)
        after = await self._journal.keep(step.path, data, mode)
        await files.chmod(step.path, mode, look.stamp)
        await self._journal.note(FileChange(step.path, before, after, use_id))

    # --- looking -----------------------------------------------------------------------------------------------------------

    async def _look(self, paths: Iterable[str]) -> None:
        """Read the current state of `paths`, until `MAX_HELD_BYTES` are in memory."""
        paths, room = list(paths), MAX_HELD_BYTES
        self._states = {}
        for first in range(0, len(paths), LOOKED_AT_ONCE):
            some = paths[first : first + LOOKED_AT_ONCE]
            looks = await self._looks(some)
            for path, look in zip(some, looks, strict=True):
                self._states[path] = await self._with_buffer(path, look)
                room -= len(look.data or b"")
            if room < 0:
                return

    async def _looks(self, paths: Sequence[str]) -> Sequence[Inspection]:
        # The view may have closed because the permission mode changed: try again once.
        for is_last_try in (False, True):
            try:
                return await (await self._workspace.files()).looks(paths, MAX_FILE_BYTES)
            except SandboxError as error:
                if is_last_try:
                    raise ToolError(str(error)) from error
        raise AssertionError

    async def _with_buffer(self, path: str, look: Inspection) -> _PathState:
        present = _present(look)
        if look.kind != "file" or not look.stamp:
            return _PathState(look, None, present)
        buffer = await buffer_of(self._workspace, path, look.stamp)
        if buffer and buffer.is_modified:
            data = bytes_or_text(buffer)
            present = PresentState(file_state(data, look.mode), data)
        return _PathState(look, buffer, present)

    # --- doing -------------------------------------------------------------------------------------------------------------

    async def _kept(self, undoing_id: str, step: RestoreStep) -> FileChange:
        """Return the journal's record of a step, after storing both contents of a merged file."""
        change = FileChange(
            step.path,
            step.now.state,
            step.then.state,
            PREFIX + undoing_id,
            before_twin=step.now.twin,
            after_twin=step.then.twin,
        )
        if step.is_merged:
            for each in (step.now, step.then):
                if each.data is not None:
                    kept = await self._journal.keep(step.path, each.data, each.state.mode)
                    if kept.lost == NO_ROOM:
                        raise ToolError(UNRECORDED.format(reason="there is no room"))
        return change

    async def _announce(self, record: Restoring) -> None:
        try:
            await self._journal.announce(record)
        except OSError as error:
            raise ToolError(UNRECORDED.format(reason=error.strerror)) from error

    async def _take(
        self,
        undoing_id: str,
        steps: Sequence[RestoreStep],
        done: Iterable[RestoreStep] = (),
        left: Iterable[SkippedPath] = (),
    ) -> tuple[tuple[RestoreStep, ...], tuple[SkippedPath, ...]]:
        files = await self._workspace.files()
        modes = _Modes(files, steps)
        await modes.open()
        now_taken, now_left = await _each(
            steps, lambda step: self._step_or_same(files, modes, undoing_id, step)
        )
        taken, left = [*done, *now_taken], [*left, *now_left]
        paths = tuple(step.path for step in taken)
        with suppress(SandboxError):  # the sandbox closed; the completed steps remain
            await modes.close()
            await files.sync(paths)
        end = Restored(undoing_id, paths, tuple((each.path, each.why) for each in left))
        await self._journal.append(end)
        if taken and self._workspace.editor:
            await self._workspace.editor.files_changed(())
        return tuple(taken), tuple(left)

    async def _step_or_same(
        self, files: Files, modes: _Modes, undoing_id: str, step: RestoreStep
    ) -> None:
        """
        Do a step, even if another step has changed the same file under another name.

        Writing or removing one hard link changes the times of all of them. So if the stamp differs, read the file again: it may already
        have the wanted content, or still have the content that the step expects. Its bytes decide, as before.
        """
        try:
            await self._step(files, modes, undoing_id, step)
        except FileChangedError:
            look, state = await files.look(step.path, MAX_FILE_BYTES), self._states[step.path]
            now = _present(look).state
            if is_same(now, step.then.state):
                await self._note(files, step)
            elif is_same(now, _present(state.look).state):
                self._states[step.path] = state._replace(look=look)
                await self._step(files, modes, undoing_id, step)
            else:
                raise

    async def _step(self, files: Files, modes: _Modes, undoing_id: str, step: RestoreStep) -> None:
        if await self._workspace.sandbox.undoes(step.path):
            raise SkippedError(PROTECTED)
        state, then = self._states[step.path], step.then.state
        if state.buffer and then.kind == "file":
            await self._in_buffer(undoing_id, step, state.buffer)
            look = await files.look(step.path, 0)
            if look.kind == "file" and look.mode != then.mode:
                await files.chmod(step.path, then.mode, look.stamp)
                await self._note(files, step)
        elif state.buffer and state.buffer.is_modified:
            raise SkippedError(UNSAVED)
        else:
            async with self._workspace.lock(step.path):
                stamp = await _on_disk(files, modes, step, state.look)
                await self._note(files, step, stamp)

    async def _note(self, files: Files, step: RestoreStep, stamp: Stamp | None = None) -> None:
        """Record the new state in the scan, so that it does not count as a change by others."""
        scan, then = self._journal.scan, step.then.state
        if then.kind == "absent":
            scan.removed(step.path)
        elif stamp:
            scan.edited(step.path, stamp, then)
        else:
            look = await files.look(step.path, 0)
            if look.kind == then.kind and look.stamp:
                scan.edited(step.path, look.stamp, then)

    async def _in_buffer(self, undoing_id: str, step: RestoreStep, buffer: Buffer) -> None:
        if step.now.data != step.then.data:
            await self._change(PREFIX + undoing_id, step, buffer, restored=step.then.state)

    async def _change(
        self,
        use_id: str,
        step: RestoreStep,
        buffer: Buffer | None,
        *,
        restored: State | None = None,
    ) -> None:
        """Change the file's bytes as planned, in the buffer if one shows it."""
        was, will = step.now.data, step.then.data
        assert will is not None

        def propose(old: bytes | None) -> ProposedContent:
            if old == was:
                return ProposedContent(will)
            if buffer and old == buffer.text.encode("utf-8", "surrogateescape"):  # unsaved
                return ProposedContent(text_in(buffer, will).encode("utf-8", "surrogateescape"))
            raise SkippedError(JUST_CHANGED)

        context = Context(self._workspace, use_id, lambda _: None)
        is_new = was is None
        await Change(context, step.path, propose, is_whole=is_new, restored=restored).make()


async def _each(
    steps: Iterable[RestoreStep], take: Callable[[RestoreStep], Awaitable[None]]
) -> tuple[list[RestoreStep], list[SkippedPath]]:
    """Take each step. Return the possible ones, and the paths left alone."""
    taken: list[RestoreStep] = []
    left: list[SkippedPath] = []
    for step in steps:
        try:
            await take(step)
        except SkippedError as error:
            left.append(SkippedPath(step.path, str(error)))
        except FileChangedError:
            left.append(SkippedPath(step.path, JUST_CHANGED))
        except OSError as error:
            if step.now.state.kind != "directory" or error.errno != errno.ENOTEMPTY:
                left.append(SkippedPath(step.path, _reason(error)))
        except (ToolError, SandboxError) as error:
            left.append(SkippedPath(step.path, str(error).rstrip(".")))
        else:
            taken.append(step)
    return taken, left


async def _on_disk(
    files: Files, modes: _Modes, step: RestoreStep, look: Inspection
) -> Stamp | None:
    """Do a step on disk; return the stamp of the written file, if any."""
    path, now, then, expected = step.path, step.now.state, step.then.state, look.stamp
    if now.kind == "directory" and then.kind != "directory":
        await files.rmdir(path)
        expected = ABSENT
    elif now.kind in UNLINKED and then.kind not in (now.kind, "link"):
        await files.unlink(path, expected)
        expected = ABSENT
    match then.kind:
        case "file":
            return await _file_on_disk(files, step, expected)
        case "fifo" if now.kind == "fifo":
            await files.chmod(path, then.mode, expected)
        case "fifo":
            await files.mkfifo(path, then.mode)
        case "link":
            await files.symlink(path, then.target, expected)
        case "directory" if now.kind == "directory":
            await modes.set(path, now.mode, then.mode)
        case "directory":
            await modes.make(path, then.mode)
        case _:
            pass
    return None


async def _file_on_disk(files: Files, step: RestoreStep, expected: Expected) -> Stamp | None:
    """Restore a file; return its stamp if it was written or linked to its former other name."""
    path, now, then = step.path, step.now.state, step.then.state
    data = step.then.data or b""
    is_there = now.kind == "file"
    # An unreadable file's content is unknown: make it readable, then compare.
    if is_there and now.lost == UNREADABLE:
        await files.chmod(path, now.mode | OWNERS_FILE, expected)
        look = await files.look(path, MAX_FILE_BYTES)
        expected = look.stamp
        holds_it = look.data == data
    else:
        holds_it = is_there and now.content == then.content
    if twin := step.then.twin:
        stamp = await files.link(path, twin, data, then.mode, expected)
        if stamp:
            return stamp
    is_split = is_there and bool(step.now.twin) and step.now.twin != twin
    if holds_it and not is_split:
        await files.chmod(path, then.mode, expected)
        return None
    return await files.write(
        path, data, expected=expected, makes_parents=True, mode=then.mode, is_split=is_split
    )


def _that_fit(made: Mapping[str, Sequence[FileChange]]) -> list[str]:
    """Return the leading paths whose stored contents fit in memory together."""
    room = MAX_HELD_BYTES
    fit: list[str] = []
    for path, changes in made.items():
        room -= sum(at.size for each in changes for at in (each.before, each.after) if at.content)
        if room < 0:
            break
        fit.append(path)
    return fit


def _is_half_done(now: PresentState, step: RestoreStep) -> bool:
    """
    Return whether a killed process left this step half done.

    Then a file is partly written, a directory has added owner permissions, or the old kind of entry is gone and the new one is missing.
    """
    if now.state.kind == "absent":
        return "absent" not in (step.now.state.kind, step.then.state.kind) and (
            step.now.state.kind != step.then.state.kind
        )
    kinds = {now.state.kind, step.now.state.kind, step.then.state.kind}
    if kinds == {"file"}:
        return is_torn(now, step.now.data, step.then.data)
    sides = (step.now.state, step.then.state)
    return now.state.kind == "directory" and any(
        each.kind == "directory" and now.state.mode == each.mode | OWNERS for each in sides
    )


def _present(look: Inspection) -> PresentState:
    if look.kind == "file" and look.data is not None:
        return PresentState(file_state(look.data, look.mode), look.data)
    lost = stamp = ""
    if look.kind == "file":
        lost = TOO_LARGE if look.size > MAX_FILE_BYTES else UNREADABLE
    if look.kind == "other" and not look.stamp:  # it could not be looked at
        lost = UNREADABLE
    if look.stamp and (lost == UNREADABLE or look.kind == "socket"):
        stamp = stamp_of(look.stamp.inode, look.stamp.ctime_ns)
    size = look.size if look.kind == "file" else 0
    return PresentState(
        State(look.kind, look.mode, size, target=look.target, lost=lost, stamp=stamp)
    )


def _reason(error: OSError) -> str:
    known = REASONS.get(error.errno or 0)
    return known or (os.strerror(error.errno).lower() if error.errno else str(error))
