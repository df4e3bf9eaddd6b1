"""
The tools and callbacks that the user's configuration and other plugins declare in Lua; lua/sanderling/extend/ has their functions.

Neovim declares all of them when it starts the host, and again whenever one is added or removed, or a debug session begins or ends. So
nothing has to ask Neovim what there is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import EditorQuestions
from sanderling.errors import ToolError
from sanderling.hooks.callbacks import Point
from sanderling.tools.effects import Does

MAX_NESTED = 20
"""
How deeply lists and objects may be nested. Neovim reads messages of at most 28 levels, some of which belong to the request. At more it
closes the channel, which ends the host with all of its sessions. The model may choose a tool's input.
"""


class DeclaredTool(msgspec.Struct, frozen=True):
    """A tool. `owner` is the plugin that declares it, `effect` what the tool does; empty if it does not say."""

    name: str
    desc: str
    owner: str
    timeout_s: float
    schema: Any = None
    effect: Does = ""


class DeclaredCallback(msgspec.Struct, frozen=True):
    point: Point
    timeout_s: float


class _Declared(msgspec.Struct, frozen=True):
    tools: tuple[DeclaredTool, ...] = ()
    callbacks: tuple[DeclaredCallback, ...] = ()
    is_debugging: bool = False


class Extensions:
    """The extensions of the Neovim at the other end of `bridge`, for all sessions."""

    def __init__(self, bridge: Bridge) -> None:
        self._questions = EditorQuestions(bridge, "sanderling.extend.calls")
        self.tools: Mapping[str, DeclaredTool] = {}
        self.callbacks: tuple[DeclaredCallback, ...] = ()
        self.is_debugging = False  # a debug session runs in Neovim

    def declare(self, declared: Mapping[str, Any]) -> None:
        """Take what there is from now on."""
        now = msgspec.convert(declared, _Declared)
        self.tools = {each.name: each for each in now.tools}
        self.callbacks = now.callbacks
        self.is_debugging = now.is_debugging

    async def call(
        self,
        question: Literal["tool", "callbacks"],
        timeout_s: float,
        *args: Any,
        show: Callable[[str], None] = lambda _: None,
    ) -> Any:
        """
        Call functions in Neovim, and return its answer. If that is cancelled, Neovim stops waiting for them, too.

        Raises:
            ToolError: Neovim cannot begin, or cannot take one of `args`.
            TimeoutError: there is no answer in time.
        """
        if problem := _problem_of(args):
            raise ToolError(f"Neovim cannot take {problem}.")
        return await self._questions.call(question, timeout_s, *args, show=show)


def _problem_of(value: object, levels: int = MAX_NESTED + 1) -> str:
    """Return what Neovim cannot take, as JSON allows more; "" if it takes all."""
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**63 else "a number of more than 64 bits"
    if not isinstance(value, Mapping | list | tuple):
        return ""
    if not levels:
        return f"lists and objects that are nested more than {MAX_NESTED} deep"
    items = cast("Iterable[object]", value.values() if isinstance(value, Mapping) else value)
    problems = (_problem_of(each, levels - 1) for each in items)
    return next(filter(None, problems), "")
