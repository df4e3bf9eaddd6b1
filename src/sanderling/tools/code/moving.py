"""Moves a file: writes the new one, removes the old one, and journals both."""

import os
import stat

import anyio
from msgspec.structs import replace

from sanderling.changes.records import Changing, Unchanged
from sanderling.changes.states import ABSENT, FileChange
from sanderling.errors import ToolError
from sanderling.sandbox.files import FileChangedError, Loaded
from sanderling.tools.base import Context
from sanderling.tools.change import MAX_BYTES, UNDONE, Change
from sanderling.tools.known import ProposedContent

EXISTS = "{name} already exists: nothing was moved."
UNSAVED = (
    "{name} has unsaved changes in the editor: ask the user to save it first. Nothing was moved."
)
LINK = "{name} is a link: move it with bash. Nothing was moved."
STAYS = "{new} is written, but {old} could not be removed: {reason}"


class Move:
    """The move of one file, with new content."""

    def __init__(self, context: Context, old: str, new: str) -> None:
        self._context = context
        self._workspace = context.workspace
        self.old, self.new = old, new

    async def check(self) -> Loaded:
        """
        Check that the move is possible now; return the file.

        Raises:
            ToolError: it is not.
        """
        workspace = self._workspace
        names = {path: workspace.shown(path) for path in (self.old, self.new)}
        with workspace.explaining(self.old, "moved"):
            files = await workspace.files()
            look = await files.look(self.old, 0)
            if look.kind == "link":
                raise ToolError(LINK.format(name=names[self.old]))
            loaded = await files.load(self.old, MAX_BYTES)
            await files.check(self.old)
        with workspace.explaining(self.new, "written"):
            if (await files.look(self.new, 0)).kind != "absent":
                raise ToolError(EXISTS.format(name=names[self.new]))
        for path, name in names.items():
            if await workspace.sandbox.undoes(path):
                raise ToolError(UNDONE.format(name=name))
        if not loaded.is_whole:
            raise ToolError(f"{names[self.old]} is too large: move it with bash.")
        return loaded

    async def make(self, data: bytes) -> None:
        """
        Move the file, and give it the content `data`.

        Raises:
            ToolError: it could not be moved, or the old one could not be removed.
        """
        loaded = await self.check()
        mode = stat.S_IMODE(loaded.stamp.mode)
        with anyio.CancelScope(shield=True):
            await Change(
                self._context, self.new, lambda _: ProposedContent(data), is_whole=True
            ).make()
            await self._set_mode(data, mode)
            await self._remove(loaded, mode)
        if self._workspace.code:
            await self._workspace.code.moved(self.old, self.new)

    async def _set_mode(self, data: bytes, mode: int) -> None:
        """Copy the old file's mode to the new one, so that a program stays executable."""
        workspace = self._workspace
        files = await workspace.files()
        look = await files.look(self.new, 0)
        if look.mode == mode or look.kind != "file":
            return
        with workspace.explaining(self.new, "written"):
            await files.chmod(self.new, mode, look.stamp)
        path = workspace.disk.real_path(self.new)
        before = await workspace.journal.keep(path, data, look.mode)
        change = FileChange(path, before, replace(before, mode=mode), self._context.tool_use_id)
        await workspace.journal.note(change)

    async def _remove(self, loaded: Loaded, mode: int) -> None:
        workspace, use_id = self._workspace, self._context.tool_use_id
        path = workspace.disk.real_path(self.old)
        before = await workspace.journal.keep(path, loaded.data, mode)
        change = FileChange(path, before, ABSENT, use_id)
        await workspace.journal.append(Changing(change))
        try:
            with workspace.explaining(self.old, "removed"):
                await (await workspace.files()).unlink(path, loaded.stamp)
        except (ToolError, FileChangedError) as error:
            await workspace.journal.append(Unchanged(path))
            reason = str(error) if isinstance(error, ToolError) else "it has just changed."
            names = {"old": workspace.shown(self.old), "new": workspace.shown(self.new)}
            raise ToolError(STAYS.format(reason=reason, **names)) from error
        await workspace.journal.note(change)
        workspace.read_cache.forget(self.old)


def target_of(context: Context, path: str, to: str) -> str:
    """Return a file's new path; `to` may be a directory."""
    workspace = context.workspace
    new = workspace.path(to)
    status = workspace.disk.status(new)
    is_directory = to.endswith("/") or (status is not None and stat.S_ISDIR(status.st_mode))
    return os.path.join(new, os.path.basename(path)) if is_directory else new
