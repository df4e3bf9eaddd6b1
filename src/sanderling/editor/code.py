"""The language servers that run in a Neovim. What is asked of them is lua/sanderling/code/init.lua's business."""

from typing import Any

import msgspec

from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import Questions
from sanderling.tools.code.servers import Answer, CodeFile, Said, WorkspaceChange

MOVED = "require('sanderling.code').moved(...)"


class NeovimCode:
    """The `LanguageServers` of the Neovim at the other end of `bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._questions = Questions(bridge, "sanderling.code")

    async def navigate(self, file: CodeFile, op: str, symbol: str, line: int | None) -> Answer:
        value = await self._about(file, "navigate", op, symbol, line)
        return msgspec.convert(value, Answer)

    async def symbols(self, project: str, symbol: str, *, is_like: bool) -> Answer:
        value = await self._questions.ask("symbols", project, symbol, is_like)
        return msgspec.convert(value, Answer)

    async def rename(
        self, file: CodeFile, symbol: str, line: int | None, new: str
    ) -> WorkspaceChange:
        value = await self._about(file, "rename", symbol, line, new)
        return msgspec.convert(value, WorkspaceChange)

    async def action(self, file: CodeFile, symbol: str, line: int, title: str) -> WorkspaceChange:
        value = await self._about(file, "action", symbol, line, title)
        return msgspec.convert(value, WorkspaceChange)

    async def move(self, file: CodeFile, new: str) -> WorkspaceChange:
        return msgspec.convert(await self._about(file, "move", file.path, new), WorkspaceChange)

    async def moved(self, old: str, new: str) -> None:
        self._bridge.notify(MOVED, old, new)

    async def diagnostics(self, file: CodeFile | None) -> Said:
        if file:
            return msgspec.convert(await self._about(file, "diagnostics"), Said)
        return msgspec.convert(await self._questions.ask("all_diagnostics"), Said)

    async def _about(self, file: CodeFile, question: str, *args: Any) -> Any:
        return await self._questions.ask(question, msgspec.structs.asdict(file), *args)
