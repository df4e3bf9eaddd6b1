"""The language servers that run in Neovim; lua/sanderling/code/init.lua asks them."""

from typing import TYPE_CHECKING, Any

import msgspec

from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import Questions

if TYPE_CHECKING:  # loaded when the first question is asked
    from sanderling.tools.code.servers import Answer, CodeFile, Said, WorkspaceChange

MOVED = "require('sanderling.code').moved(...)"


class NeovimCode:
    """The `LanguageServers` of the Neovim at the other end of `bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._questions = Questions(bridge, "sanderling.code")

    async def navigate(self, file: "CodeFile", op: str, symbol: str, line: int | None) -> "Answer":
        return _answer(await self._about(file, "navigate", op, symbol, line))

    async def symbols(self, project: str, symbol: str, *, is_like: bool) -> "Answer":
        return _answer(await self._questions.ask("symbols", project, symbol, is_like))

    async def rename(
        self, file: "CodeFile", symbol: str, line: int | None, new: str
    ) -> "WorkspaceChange":
        return _change(await self._about(file, "rename", symbol, line, new))

    async def action(
        self, file: "CodeFile", symbol: str, line: int, title: str
    ) -> "WorkspaceChange":
        return _change(await self._about(file, "action", symbol, line, title))

    async def move(self, file: "CodeFile", new: str) -> "WorkspaceChange":
        return _change(await self._about(file, "move", file.path, new))

    async def moved(self, old: str, new: str) -> None:
        self._bridge.notify(MOVED, old, new)

    async def diagnostics(self, file: "CodeFile | None") -> "Said":
        from sanderling.tools.code.servers import Said

        if file:
            return msgspec.convert(await self._about(file, "diagnostics"), Said)
        return msgspec.convert(await self._questions.ask("all_diagnostics"), Said)

    async def _about(self, file: "CodeFile", question: str, *args: Any) -> Any:
        return await self._questions.ask(question, msgspec.structs.asdict(file), *args)


def _answer(value: Any) -> "Answer":
    from sanderling.tools.code.servers import Answer

    return msgspec.convert(value, Answer)


def _change(value: Any) -> "WorkspaceChange":
    from sanderling.tools.code.servers import WorkspaceChange

    return msgspec.convert(value, WorkspaceChange)
