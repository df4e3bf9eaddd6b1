"""The debug sessions of nvim-dap; lua/sanderling/debugger/init.lua asks for them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import EditorQuestions, T, checked
from sanderling.text import with_printable
from sanderling.tools.code.servers import CodeFile
from sanderling.tools.debugger import Breakpoint, Control, Stack, Value, Values, Waited


class NeovimDebugger:
    """The `Debugger` of the Neovim at the other end of `bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._questions = EditorQuestions(bridge, "sanderling.debugger")

    async def check(self, session: int) -> None:
        await self._ask(int, "check", session)

    async def stack(self, session: int, thread: int, most: int) -> Stack:
        return await self._ask(Stack, "stack", session, thread, most)

    async def variables(self, session: int, thread: int, frame: int | None) -> Sequence[Values]:
        return await self._ask(tuple[Values, ...], "variables", session, thread, frame)

    async def parts(self, session: int, reference: int) -> Values:
        return await self._ask(Values, "parts", session, reference)

    async def evaluate(
        self, session: int, thread: int, frame: int | None, expression: str
    ) -> Value:
        return await self._ask(Value, "evaluate", session, thread, frame, expression)

    async def control(self, session: int, thread: int, control: Control) -> tuple[int, int]:
        return await self._ask(tuple[int, int], "control", session, thread, control)

    async def wait(self, session: int, stops: int, timeout_s: float) -> Waited:
        try:
            answer = await self._questions.call("wait", timeout_s, session, stops)
        except TimeoutError:
            return Waited("running")
        return checked(answer, Waited)

    async def breakpoints(self) -> Sequence[Breakpoint]:
        return await self._ask(tuple[Breakpoint, ...], "breakpoints")

    async def breakpoints_at(self, file: CodeFile, line: int) -> Sequence[Breakpoint]:
        place = msgspec.structs.asdict(file)
        return await self._ask(tuple[Breakpoint, ...], "at", place, line)

    async def set_breakpoint(self, file: CodeFile, line: int, condition: str) -> Breakpoint:
        return await self._ask(Breakpoint, "set", msgspec.structs.asdict(file), line, condition)

    async def clear_breakpoints(self, file: CodeFile, line: int) -> int:
        return await self._ask(int, "clear", msgspec.structs.asdict(file), line)

    async def _ask(self, kind: type[T], question: str, *args: Any) -> T:
        return checked(with_printable(await self._questions.ask(question, *args)), kind)
