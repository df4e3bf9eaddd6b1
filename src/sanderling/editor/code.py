"""The language servers that run in Neovim; lua/sanderling/code/init.lua asks them."""

from typing import TYPE_CHECKING, Any

import msgspec

from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import EditorQuestions, checked

if TYPE_CHECKING:  # loaded when the first question is asked
    from sanderling.tools.code.servers import (
        CodeFile,
        DiagnosticList,
        LanguageServerAnswer,
        WorkspaceChange,
    )

MOVED = "require('sanderling.code').moved(...)"


class NeovimCode:
    """The `LanguageServers` of the Neovim at the other end of `bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._questions = EditorQuestions(bridge, "sanderling.code")

    async def navigate(
        self, file: "CodeFile", op: str, symbol: str, line: int | None
    ) -> "LanguageServerAnswer":
        return _answer(await self._about(file, "navigate", op, symbol, line))

    async def symbols(self, project: str, symbol: str, *, is_like: bool) -> "LanguageServerAnswer":
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

    async def diagnostics(self, file: "CodeFile | None") -> "DiagnosticList":
        from sanderling.tools.code.servers import DiagnosticList

        if file:
            return checked(await self._about(file, "diagnostics"), DiagnosticList)
        return checked(await self._questions.ask("all_diagnostics"), DiagnosticList)

    async def _about(self, file: "CodeFile", question: str, *args: Any) -> Any:
        return await self._questions.ask(question, msgspec.structs.asdict(file), *args)


def _answer(value: Any) -> "LanguageServerAnswer":
    from sanderling.tools.code.servers import LanguageServerAnswer

    return checked(value, LanguageServerAnswer)


def _change(value: Any) -> "WorkspaceChange":
    from sanderling.tools.code.servers import WorkspaceChange

    return checked(value, WorkspaceChange)
