"""Tools of Python packages. What they raise becomes an error with the package's name and version, and ends only the call."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, cast

import anyio
import msgspec
from anyio import to_thread

from sanderling.errors import ConfigError, ToolError
from sanderling.packages import Extension, extensions, in_words, translated
from sanderling.protocol.events import Event, Notice
from sanderling.text import counted, printable
from sanderling.tools.base import Context, OutsideTool, Tool
from sanderling.tools.catalog import NAMES
from sanderling.tools.effects import MAX_NAME_CHARS, OUTSIDE, Does, Effect, outside_sandbox
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.workspace import Workspace

LOADING_S = 5.0
MAX_CONTENT_CHARS = 100_000
_NAME = r"[a-z][a-z0-9_]*"
_DOES: Mapping[str, Does] = {"read": "read", "write": "write", "run": "run", "fetch": "network"}
log = logging.getLogger(__name__)


class PackagedTools:
    """The source of the tools of packages, which are loaded with the first request. Each problem is shown once."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._tools: Sequence[Tool] | None = None

    async def tools(self) -> Sequence[Tool]:
        if self._tools is None:
            self._tools = ()
            with anyio.move_on_after(LOADING_S) as loading:
                found = await to_thread.run_sync(load_tools, abandon_on_cancel=True)
                self._tools = [each for each in found.values() if isinstance(each, Tool)]
                for problem in found.values():
                    if isinstance(problem, ConfigError):
                        self._warn(str(problem))
            if loading.cancelled_caught:
                self._warn(f"the tools of packages are not used: no answer within {LOADING_S:g} s")
        return self._tools

    def _warn(self, problem: str) -> None:
        self._emit(Notice("warning", printable(f"{problem[0].upper()}{problem[1:]}.")))


def load_tools() -> dict[Extension, Tool | ConfigError]:
    """Return the tools of the installed packages, and why others cannot be used."""
    found = dict[Extension, Tool | ConfigError]()
    for extension in extensions("sanderling.tools"):
        if any(each.name == extension.name for each in found):
            problem = f"{extension} is not used: another package has one of that name"
            found[extension] = ConfigError(problem)
            continue
        try:
            found[extension] = _loaded(extension)
        except ConfigError as error:
            found[extension] = error
    return found


def _loaded(extension: Extension) -> Tool:
    """
    Return the tool as the conversation may use it.

    Raises:
        ConfigError: with the package's name and version.
    """
    name = extension.name
    if name in NAMES:
        raise ConfigError(f"{extension} is not used: Sanderling has a tool of that name")
    if not re.fullmatch(_NAME, name) or OUTSIDE in name or len(name) > MAX_NAME_CHARS:
        raise ConfigError(
            f"{extension} is not used: a name has at most {MAX_NAME_CHARS} lowercase letters, digits and single underscores"
        )
    tool = extension.load()
    if not isinstance(tool, Tool) or isinstance(tool, OutsideTool):
        raise ConfigError(f"{extension} is not used: {tool!r:.80} was not made by `@tool`")
    if tool.name != name:
        raise ConfigError(f"{extension} is not used: its function is called '{tool.name}'")
    try:
        is_described = bool(tool.description)
        msgspec.json.encode(tool.schema)
    except Exception as error:
        log.info("%s has no schema", extension, exc_info=True)
        raise ConfigError(f"{extension} is not used: {in_words(error)}") from error
    if not is_described:
        raise ConfigError(
            f"{extension} is not used: its function has no docstring, which the model would read"
        )
    return _guarded(extension, tool)


def _guarded(extension: Extension, tool: Tool) -> Tool:
    """Return the tool with an effect in its own name, judged like that of a Lua tool, and with errors that name its package."""
    whose = str(extension)

    def effect(args: Any, workspace: Workspace) -> Effect:
        with translated(whose, ToolError):
            made = _of_type(tool.effect(args, workspace), Effect)
            path = workspace.path(made.path) if made.path else ""
        made = msgspec.structs.replace(made, tool=tool.name, path=path)
        if made.kind == "none":
            return made
        return outside_sandbox(made, extension.package, _DOES.get(made.kind, made.does))

    def title(args: Any, workspace: Workspace) -> str:
        with translated(whose, ToolError):
            return _of_type(tool.title(args, workspace), str)

    async def look(args: Any, context: Context) -> Preview:
        assert tool.look
        with translated(whose, ToolError):
            return _of_type(await tool.look(args, context), Preview)

    async def plan(args: Any, context: Context) -> Any:
        assert tool.plan
        with translated(whose, ToolError):
            return await tool.plan(args, context)

    @wraps(tool.run)
    async def run(args: Any, context: Context) -> Outcome:
        with translated(whose, ToolError):
            running = cast("Awaitable[Outcome] | Outcome", tool.run(args, context))
            if not isinstance(
                running, Awaitable
            ):  # a wrapper of an `async def` need not be one, so loading cannot tell
                raise TypeError(f"{tool.name}() must be `async def`")
            outcome = _of_type(await running, Outcome)
        return msgspec.structs.replace(outcome, content=_bounded(outcome.content))

    return Tool(
        tool.name,
        tool.input_type,
        run,
        effect,
        title,
        look if tool.look else None,
        plan if tool.plan else None,
    )


def _of_type(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"it returned {type(value).__name__} instead of {kind.__name__}")
    return value


def _bounded(content: Any) -> Any:
    if not isinstance(content, str) or len(content) <= MAX_CONTENT_CHARS:
        return content
    left = counted(len(content) - MAX_CONTENT_CHARS, "character")
    return f"{content[:MAX_CONTENT_CHARS]}\n[{left} more are left out.]"
