"""
Directory modes during an undo: without write permission, only root could change files in a directory.

Such a directory gets the owner's permissions first, and its final mode when everything in it is done.
"""

from collections.abc import Iterable
from contextlib import suppress

from sanderling.changes.restoring import RestoreStep
from sanderling.sandbox.files import FileChangedError, Files

OWNERS = 0o700


class Modes:
    """The modes of the directories that `steps` change."""

    def __init__(self, files: Files, steps: Iterable[RestoreStep]) -> None:
        self._files = files
        self._closed = {
            step.path: step.now.state.mode
            for step in steps
            if step.now.state.kind == "directory" and not _is_open(step.now.state.mode)
        }
        self._final: dict[str, int] = {}

    async def open(self) -> None:
        """Add the owner's permissions to directories that lack them."""
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
