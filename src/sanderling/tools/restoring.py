"""
Files brought back to what they were, as the person has asked: no tool use of the model's.

What stands there is looked at inside the sandbox, and where a buffer has unsaved text, that counts. What is to be done is in the
journal before the first file is touched, so that one who comes after a crash can finish it. Each step changes exactly what was looked
at; where somebody was quicker, it is left. A file that a buffer shows is changed as a tool would change it, without the person's hooks:
what stood there is to come back byte by byte.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import anyio
from anyio import to_thread

from sanderling.changes.records import Restored, Restoring
from sanderling.changes.restoring import (
    Left,
    LeftError,
    Plan,
    Present,
    Step,
    by_path,
    file_state,
    plan,
    states_needed,
)
from sanderling.changes.states import TOO_LARGE, UNREADABLE, FileChange, State
from sanderling.changes.store import MAX_FILE_BYTES
from sanderling.changes.timeline import Undoing
from sanderling.errors import SandboxError, ToolError
from sanderling.sandbox.files import ABSENT, FileChangedError, Files, Look
from sanderling.tools.base import Context
from sanderling.tools.buffers import buffer_of, bytes_or_text, text_in
from sanderling.tools.change import Change
from sanderling.tools.editor import Buffer
from sanderling.tools.known import Proposal
from sanderling.tools.seen import Seen
from sanderling.tools.workspace import Workspace

PREFIX = "restoring:"
"""What stands in the place of a tool use's id, with that of the undoing behind it, where a buffer is changed."""
JUST_CHANGED = "it was changed by somebody else just now"
PROTECTED = "the sandbox's guard protects it while it is open"
UNSAVED = "it has unsaved changes"
INTERRUPTED = "undoing was interrupted, and it has changed since"
REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "it is read-only in the sandbox",
    errno.EACCES: "its mode or the sandbox forbids it",
    errno.EPERM: "its mode or the sandbox forbids it",
    errno.ENOTEMPTY: "there are other files in it",
    errno.ENOTDIR: "something else stands in the place of its directory",
}


class _Sight(NamedTuple):
    """A path as it was looked at, and the buffer that shows it."""

    look: Look
    buffer: Buffer | None
    present: Present


class Restorer:
    """Restores files of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        # The model has not seen what comes back: its next edit hears of that.
        self._workspace = replace(workspace, seen=Seen(disk=workspace.disk))
        self._journal = workspace.journal
        self._sights: dict[str, _Sight] = {}

    async def plan(self, changes: Sequence[FileChange]) -> Plan:
        """
        Return how `changes`, the oldest first, would be taken back now.

        Raises:
            ToolError: there is no sandbox to be had, or the editor does not answer.
        """
        made = by_path(changes)
        await self._look(made)
        present = {path: sight.present for path, sight in self._sights.items()}
        needed = [
            state
            for path, each in made.items()
            for state in states_needed(each, present[path].state)
        ]
        kept = await self._journal.contents(needed)

        def content(state: State) -> bytes | None:
            return kept.get(state.content)

        return await to_thread.run_sync(plan, changes, present, content)

    async def restore(
        self,
        undoing_id: str,
        turns: tuple[str, ...],
        changes: Sequence[FileChange],
        undoes: str = "",
    ) -> Plan:
        """
        Take `changes` back, the undoing `undoing_id` of `turns`; return what was done, and what was left.

        Raises:
            ToolError: there is no sandbox to be had, or the editor does not answer: nothing was done.
        """
        planned = await self.plan(changes)
        with anyio.CancelScope(shield=True):  # once begun, it comes to its end
            steps = [await self._kept(undoing_id, step) for step in planned.steps]
            await self._journal.append(Restoring(undoing_id, turns, tuple(steps), undoes))
            done, left = await self._take(undoing_id, planned.steps)
            return Plan(done, (*planned.left, *left))
        raise AssertionError  # a shield lets no cancellation out

    async def finish(self, undoing: Undoing) -> Plan:
        """
        Do what an undoing that was interrupted has left; what has changed since then stays.

        Raises:
            ToolError: there is no sandbox to be had, or the editor does not answer.
        """
        await self._look(change.path for change in undoing.changes)
        kept = await self._journal.contents([change.after for change in undoing.changes])
        steps: list[Step] = []
        done: list[Step] = []
        left: list[Left] = []
        for change in undoing.changes:
            now = self._sights[change.path].present
            then = Present(change.after, kept.get(change.after.content))
            if now.state == change.after:
                done.append(Step(change.path, now, then))
            elif now.state == change.before and (then.data is not None or not change.after.content):
                steps.append(Step(change.path, now, then))
            else:
                left.append(Left(change.path, INTERRUPTED))
        with anyio.CancelScope(shield=True):
            taken, not_taken = await self._take(undoing.id, steps, done)
            return Plan(taken, (*left, *not_taken))
        raise AssertionError

    # --- looking -----------------------------------------------------------------------------------------------------------

    async def _look(self, paths: Iterable[str]) -> None:
        files, paths = await self._workspace.files(), list(paths)
        looks = await files.looks(paths, MAX_FILE_BYTES)
        self._sights = {
            path: await self._with_buffer(path, look)
            for path, look in zip(paths, looks, strict=True)
        }

    async def _with_buffer(self, path: str, look: Look) -> _Sight:
        present = _present(look)
        if look.kind != "file" or not look.stamp:
            return _Sight(look, None, present)
        buffer = await buffer_of(self._workspace, path, look.stamp)
        if buffer and buffer.is_modified:
            data = bytes_or_text(buffer)
            present = Present(file_state(data, look.mode), data)
        return _Sight(look, buffer, present)

    # --- doing -------------------------------------------------------------------------------------------------------------

    async def _kept(self, undoing_id: str, step: Step) -> FileChange:
        """The step as the journal has it: what was put together is kept, with what stood there."""
        change = FileChange(step.path, step.now.state, step.then.state, PREFIX + undoing_id)
        if step.is_merged:
            for each in (step.now, step.then):
                if each.data is not None:
                    await self._journal.keep(step.path, each.data, each.state.mode)
        return change

    async def _take(
        self, undoing_id: str, steps: Sequence[Step], done: Iterable[Step] = ()
    ) -> tuple[tuple[Step, ...], tuple[Left, ...]]:
        taken, left = list(done), list[Left]()
        files = await self._workspace.files()
        for step in steps:
            try:
                await self._step(files, undoing_id, step)
            except LeftError as error:
                left.append(Left(step.path, str(error)))
            except FileChangedError:
                left.append(Left(step.path, JUST_CHANGED))
            except OSError as error:
                if step.now.state.kind != "directory" or error.errno != errno.ENOTEMPTY:
                    left.append(Left(step.path, _reason(error)))
            except (ToolError, SandboxError) as error:
                left.append(Left(step.path, str(error).rstrip(".")))
            else:
                taken.append(step)
        paths = tuple(step.path for step in taken)
        with suppress(SandboxError):  # which has ended: what it has done stands
            await files.sync(paths)
        await self._journal.append(Restored(undoing_id, paths))
        if taken and self._workspace.editor:
            await self._workspace.editor.files_changed(())
        return tuple(taken), tuple(left)

    async def _step(self, files: Files, undoing_id: str, step: Step) -> None:
        if await self._workspace.sandbox.undoes(step.path):
            raise LeftError(PROTECTED)
        sight, then = self._sights[step.path], step.then.state
        if sight.buffer and then.kind == "file":
            await self._in_buffer(undoing_id, step, sight.buffer)
            look = await files.look(step.path, 0)
            if look.kind == "file" and look.mode != then.mode:
                await files.chmod(step.path, then.mode, look.stamp)
        elif sight.buffer and sight.buffer.is_modified:
            raise LeftError(UNSAVED)
        else:
            async with self._workspace.lock(step.path):
                await _on_disk(files, step, sight.look)

    async def _in_buffer(self, undoing_id: str, step: Step, buffer: Buffer) -> None:
        was, will = step.now.data, step.then.data
        assert was is not None
        assert will is not None
        if was == will:
            return

        def propose(old: bytes | None) -> Proposal:
            if old == was:
                return Proposal(will)
            if old == buffer.text.encode("utf-8", "surrogateescape"):  # unsaved
                return Proposal(text_in(buffer, will).encode("utf-8", "surrogateescape"))
            raise LeftError(JUST_CHANGED)

        context = Context(self._workspace, PREFIX + undoing_id, lambda _: None)
        await Change(context, step.path, propose, is_restoring=True).make()


async def _on_disk(files: Files, step: Step, look: Look) -> None:
    path, now, then, expected = step.path, step.now.state, step.then.state, look.stamp
    if now.kind == "directory" and then.kind != "directory":
        await files.rmdir(path)
        expected = ABSENT
    elif now.kind in ("file", "link") and then.kind not in (now.kind, "link"):
        await files.unlink(path, expected)
        expected = ABSENT
    match then.kind:
        case "file" if now.kind == "file" and now.content == then.content:
            await files.chmod(path, then.mode, expected)
        case "file":
            data = step.then.data or b""
            await files.write(path, data, expected=expected, makes_parents=True, mode=then.mode)
        case "link":
            await files.symlink(path, then.target, expected)
        case "directory" if now.kind == "directory":
            await files.chmod(path, then.mode, expected)
        case "directory":
            await files.mkdir(path, then.mode)
        case _:
            pass


def _present(look: Look) -> Present:
    if look.kind == "file" and look.data is not None:
        return Present(file_state(look.data, look.mode), look.data)
    lost = ""
    if look.kind == "file":
        lost = TOO_LARGE if look.size > MAX_FILE_BYTES else UNREADABLE
    size = look.size if look.kind == "file" else 0
    return Present(State(look.kind, look.mode, size, target=look.target, lost=lost))


def _reason(error: OSError) -> str:
    known = REASONS.get(error.errno or 0)
    return known or (os.strerror(error.errno).lower() if error.errno else str(error))
