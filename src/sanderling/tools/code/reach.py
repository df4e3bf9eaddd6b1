"""Access to files in a server's answer: which ones the model may see, and their lines."""

from collections.abc import Sequence

import anyio.to_thread

from sanderling.changes.editing.lines import lines_of, numbered
from sanderling.errors import ToolError
from sanderling.paths import is_in_any
from sanderling.text import printable, shortened
from sanderling.tools.base import Context
from sanderling.tools.buffers import buffer_of, identify
from sanderling.tools.code.servers import CodeFile, LanguageServers
from sanderling.tools.elsewhere import missing
from sanderling.tools.texts import text_of

MAX_BYTES = 4 << 20
FEW = 100  # looked up without a thread: each takes some 20 us
MAX_LINE_CHARS = 200
NO_EDITOR = "There is no editor with language servers (print mode): use grep and read."


def servers_of(context: Context) -> LanguageServers:
    """
    Return the frontend's language servers.

    Raises:
        ToolError: it has none.
    """
    if context.workspace.code is None:
        raise ToolError(NO_EDITOR)
    return context.workspace.code


class Reach:
    """The files in one tool call, each looked up once."""

    def __init__(self, context: Context) -> None:
        self._workspace = context.workspace
        self._may_read = context.may_read
        self._files: dict[str, CodeFile | None] = {}

    def is_inside(self, path: str) -> bool:
        return path.startswith("/") and self._workspace.is_inside(path)

    async def inside(self, paths: Sequence[str]) -> frozenset[str]:
        """Return the paths in the project; a server can name thousands."""

        def choose() -> frozenset[str]:
            return frozenset(filter(self.is_inside, paths))

        is_few = len(paths) <= FEW
        return choose() if is_few else await anyio.to_thread.run_sync(choose)

    async def file(self, path: str) -> CodeFile | None:
        """Return the file as the sandbox shows it; None if it is hidden, not the editor's file, or denied by a rule."""
        if path not in self._files:
            self._files[path] = await self._look_up(path)
        return self._files[path]

    async def named(self, path: str) -> CodeFile:
        """
        Return the project file that the model named.

        Raises:
            ToolError: the model may not ask about it.
        """
        if not self.is_inside(path):
            raise ToolError(f"{self._workspace.shown(path)} is not in the project: use read.")
        if file := await self.file(path):
            return file
        raise await missing(self._workspace, path, self._may_read)

    async def lines(self, path: str, rows: tuple[int, ...], *, is_modified: bool) -> list[str]:
        """Return lines of a file as the user sees it, trimmed and cut."""
        lines = lines_of(await self._text(path, is_modified=is_modified))
        found = (lines[row] if row < len(lines) else "" for row in rows)
        return [shortened(printable(line.strip()), MAX_LINE_CHARS) for line in found]

    async def numbered(self, path: str, first: int, last: int, *, is_modified: bool) -> list[str]:
        """Return the lines of a file from row `first` to `last`, as `read` shows them."""
        lines = lines_of(await self._text(path, is_modified=is_modified))
        return list(numbered(lines[first : last + 1], first + 1))

    async def _look_up(self, path: str) -> CodeFile | None:
        if not path.startswith("/") or (self._may_read and not self._may_read(path)):
            return None
        identity = await identify(self._workspace, path)
        status = self._workspace.disk.status(path)
        if status is None or identity is None or identity != (status.st_dev, status.st_ino, ""):
            return None
        return CodeFile(path, identity.device, identity.inode, identity.place)

    async def _text(self, path: str, *, is_modified: bool) -> str:
        with self._workspace.explaining(path, "read"):
            loaded = await (await self._workspace.files()).load(path, MAX_BYTES)
        if is_modified:
            buffer = await buffer_of(self._workspace, path, loaded.stamp)
            if buffer:
                return buffer.text
        return await text_of(loaded.data)


def is_meant(path: str, within: Sequence[str]) -> bool:
    """True if a result is in a path that the model asked for; an empty `within` means everywhere."""
    return not within or is_in_any(path, within)
