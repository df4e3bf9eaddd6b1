"""
Modes of directories while files in them are brought back: who is not root can change nothing in one that they may not write.

Such a directory is opened to its owner first, and gets its mode when all that is in it is done.
"""

from collections.abc import Iterable
from contextlib import suppress

from sanderling.changes.restoring import Step
from sanderling.sandbox.files import FileChangedError, Files

OWNERS = 0o700


class Modes:
    """The modes of the directories that are changed in some `steps`."""

    def __init__(self, files: Files, steps: Iterable[Step]) -> None:
        self._files = files
        self._closed = {
            step.path: step.now.state.mode
            for step in steps
            if step.now.state.kind == "directory" and not _is_open(step.now.state.mode)
        }
        self._final: dict[str, int] = {}

    async def open(self) -> None:
        """Open those that are closed to their owner."""
        for path, mode in sorted(self._closed.items()):
            with suppress(OSError):  # then what is in it will say so
                await self._change(path, mode, mode | OWNERS)
                self._final[path] = mode

    async def make(self, path: str, mode: int) -> None:
        """Make a directory that gets `mode` in the end."""
        await self._files.mkdir(path, mode | OWNERS)
        if not _is_open(mode):
            self._final[path] = mode

    async def set(self, path: str, before: int, mode: int) -> None:
        """Set the mode of a directory that has the one `before`, or had it when it was opened."""
        now = before | OWNERS if path in self._final else before
        await self._change(path, now, mode)
        self._final.pop(path, None)

    async def close(self) -> None:
        """Give those that were opened or made the modes that they are to have, if they are still there."""
        for path, mode in sorted(self._final.items(), reverse=True):
            with suppress(OSError):
                await self._change(path, mode | OWNERS, mode)

    async def _change(self, path: str, before: int, after: int) -> None:
        look = await self._files.look(path, 0)  # its times are those of what was done in it
        if look.kind != "directory" or look.mode != before:
            raise FileChangedError
        await self._files.chmod(path, after, look.stamp)


def _is_open(mode: int) -> bool:
    return mode & OWNERS == OWNERS
