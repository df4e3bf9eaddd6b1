"""The debug sessions of nvim-dap; lua/sanderling/debugger/init.lua asks for them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import EditorQuestions
from sanderling.text import with_printable
from sanderling.tools.code.servers import CodeFile
from sanderling.tools.debugger import Breakpoint, Control, Stack, Value, Values, Waited


class NeovimDebugger:
    """The `Debugger` of the Neovim at the other end of `bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._questions = EditorQuestions(bridge, "sanderling.debugger")

    async def check(self, session: int) -> None:
        await self._ask("check", session)

    async def stack(self, session: int, thread: int, most: int) -> Stack:
        return msgspec.convert(await self._ask("stack", session, thread, most), Stack)

    async def variables(self, session: int, thread: int, frame: int | None) -> Sequence[Values]:
        scopes = await self._ask("variables", session, thread, frame)
        return msgspec.convert(scopes, tuple[Values, ...])

    async def parts(self, session: int, reference: int) -> Values:
        return msgspec.convert(await self._ask("parts", session, reference), Values)

    async def evaluate(
        self, session: int, thread: int, frame: int | None, expression: str
    ) -> Value:
        value = await self._ask("evaluate", session, thread, frame, expression)
        return msgspec.convert(value, Value)

    async def control(self, session: int, thread: int, control: Control) -> tuple[int, int]:
        begun = await self._ask("control", session, thread, control)
        return msgspec.convert(begun, tuple[int, int])

    async def wait(self, session: int, stops: int, timeout_s: float) -> Waited:
        try:
            answer = await self._questions.call("wait", timeout_s, session, stops)
        except TimeoutError:
            return Waited("running")
        return msgspec.convert(answer, Waited)

    async def breakpoints(self) -> Sequence[Breakpoint]:
        return msgspec.convert(await self._ask("breakpoints"), tuple[Breakpoint, ...])

    async def breakpoints_at(self, file: CodeFile, line: int) -> Sequence[Breakpoint]:
        found = await self._ask("at", msgspec.structs.asdict(file), line)
        return msgspec.convert(found, tuple[Breakpoint, ...])

    async def set_breakpoint(self, file: CodeFile, line: int, condition: str) -> Breakpoint:
        made = await self._ask("set", msgspec.structs.asdict(file), line, condition)
        return msgspec.convert(made, Breakpoint)

    async def clear_breakpoints(self, file: CodeFile, line: int) -> int:
        return await self._ask("clear", msgspec.structs.asdict(file), line)

    async def _ask(self, question: str, *args: Any) -> Any:
        return with_printable(await self._questions.ask(question, *args))
