"""The tools of a session: their sources, and the definitions sent to the model."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

import anyio

from sanderling.errors import ConfigError
from sanderling.protocol.messages import SEARCH_TOOL
from sanderling.providers import ToolSpec
from sanderling.tools.base import OutsideTool, Tool
from sanderling.tools.bash import bash
from sanderling.tools.code.tools import code_nav, code_refactor, diagnostics
from sanderling.tools.edit import edit
from sanderling.tools.effects import OUTSIDE, is_outside_name
from sanderling.tools.glob import glob
from sanderling.tools.grep import grep
from sanderling.tools.jobs import jobs
from sanderling.tools.ls import ls
from sanderling.tools.read import read
from sanderling.tools.todo import todo
from sanderling.tools.web_fetch import web_fetch
from sanderling.tools.write import write

EDITOR_TOOLS = (code_nav, code_refactor, diagnostics)
"""They query the language servers of the user's editor."""

TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        *(read, edit, write, bash, jobs, grep, glob, ls, todo, web_fetch),
        *EDITOR_TOOLS,
    )
}

NAMES = (*TOOLS, SEARCH_TOOL)
"""The names of all tools, including those that need a setting."""


class ToolSource(Protocol):
    """A source of tools. Names of third-party tools must satisfy `is_outside_name`."""

    async def tools(self) -> Sequence[Tool]: ...


class OwnTools:
    """The built-in tools; without an editor, only those that need none."""

    def __init__(self, *, has_editor: bool = True) -> None:
        self._tools = tuple(
            tool for tool in TOOLS.values() if has_editor or tool not in EDITOR_TOOLS
        )

    async def tools(self) -> Sequence[Tool]:
        return self._tools


class Toolset(NamedTuple):
    """Tools by name, and the definitions for the model."""

    by_name: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]


class Catalog:
    """
    The tools of a session; each source is queried before each request.

    A definition that was sent stays as and where it is, because a different prefix would invalidate the API's cache of everything after
    it. So new tools come last. A name belongs to the first tool with it. Tools in `disabled` (names and globs) are not offered.
    """

    def __init__(self, *sources: ToolSource, disabled: Sequence[str] = ()) -> None:
        self._sources = sources
        self._disabled = disabled
        self._tools: dict[str, Tool] = {}
        self._sent: dict[str, ToolSpec] = {}
        self._asking = anyio.Lock(fast_acquire=True)  # do not yield before the request

    def add(self, source: ToolSource) -> None:
        self._sources = (*self._sources, source)

    async def so_far(self) -> Toolset:
        """Return the current tools. `by_name` stays up to date: it includes later tools, too."""
        async with self._asking:
            for source in self._sources:
                new = [tool for tool in await source.tools() if self._is_new(tool)]
                self._tools |= {tool.name: tool for tool in new}
                sendable = [tool for tool in new if not _is_waiting(tool)]
                self._sent |= {spec.name: spec for spec in specs_of(sendable)}
        return Toolset(self._tools, tuple(self._sent.values()))

    def _is_new(self, tool: Tool) -> bool:
        """True for tools to add, and for deferred tools that are now sent."""
        known = self._tools.get(tool.name)
        is_well_named = is_outside_name(tool.name) if isinstance(tool, OutsideTool) else True
        is_disabled = any(fnmatchcase(tool.name, each) for each in self._disabled)
        is_sent_now = known is not None and _is_waiting(known) and not _is_waiting(tool)
        return is_well_named and not is_disabled and (known is None or is_sent_now)


def _is_waiting(tool: Tool) -> bool:
    return isinstance(tool, OutsideTool) and tool.is_waiting


def check_disabled(names: Sequence[str]) -> None:
    """
    Reject names that match no tool.

    Raises:
        ConfigError: naming the first one.
    """
    for number, name in enumerate(names):
        if OUTSIDE not in name and not any(fnmatchcase(tool, name) for tool in NAMES):
            known = ", ".join(NAMES)
            path = ("tools", "disabled", number)
            raise ConfigError(f"there is no tool '{name}'; tools: {known}, or mcp__server__*", path)


def specs_of(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
