"""The tools of a session: their sources, and the definitions sent to the model."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple, Protocol

import anyio

from sanderling.errors import ConfigError
from sanderling.packages import extensions
from sanderling.protocol.messages import SEARCH_TOOL
from sanderling.providers import ToolSpec
from sanderling.text import name_set
from sanderling.tools.ask_user import ask_user
from sanderling.tools.base import OutsideTool, Tool
from sanderling.tools.bash import bash
from sanderling.tools.code.tools import code_nav, code_refactor, diagnostics
from sanderling.tools.delegate import delegate
from sanderling.tools.edit import edit
from sanderling.tools.effects import DEBUG, OUTSIDE, is_outside_name
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
        *(read, edit, write, bash, jobs, grep, glob, ls, todo, ask_user, web_fetch, delegate),
        *EDITOR_TOOLS,
    )
}

UNLISTED = frozenset((ls.name,))
"""Tools that the model is not offered, but may call, because it knows them from other agents. `read` lists directories."""

Shorter = Mapping[str, tuple[frozenset[str], str]]

# For small context windows: tools, with the parameters that are left out and a shorter description. Together they have less than 1,500
# tokens. A call may still use all that the tool takes.
SMALL: Shorter = {
    "read": (
        name_set(""),
        "Read a file or list a directory. Lines have their number and a tab in front. Continue with `offset`.",
    ),
    "edit": (
        name_set("cell new_cell replace_all"),
        "Replace text in a file. Copy `old` exactly, without line numbers; it must occur once. To insert, give `insert_at_line` and no `old`.",
    ),
    "write": (name_set(""), "Create or replace a whole file. To change a part, use `edit`."),
    "bash": (
        name_set("background pty"),
        "Run a command in the sandbox. The directory persists. There is no terminal and no stdin.",
    ),
    "grep": (
        name_set("type context literal files_only limit"),
        "Search files' text. Skips what .gitignore names.",
    ),
}

WITHOUT_USER: Shorter = {
    "bash": (name_set("pty"), ""),
    "jobs": (
        name_set("text keys"),
        "List, read or stop background commands.\n\n`read` returns output since the last read; with wait_s it waits for some.",
    ),
}
"""Like `SMALL`, where no user could take over a terminal."""

NAMES = (*TOOLS, DEBUG, SEARCH_TOOL)
"""The names of all tools, including tools that need a setting or a debug session."""


class ToolSource(Protocol):
    """A source of tools. Names of third-party tools must satisfy `is_outside_name`."""

    async def tools(self) -> Sequence[Tool]: ...


class OwnTools:
    """The built-in tools; without an editor, only tools that work without one."""

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
    it. So new tools come last. A name belongs to the first tool with it. Tools in `disabled` (names and globs) are not offered. Without a
    user, terminals are not.
    """

    def __init__(
        self, *sources: ToolSource, disabled: Sequence[str] = (), has_user: bool = True
    ) -> None:
        self._sources = sources
        self._disabled = disabled
        self._tools: dict[str, Tool] = {}
        self._sent: dict[str, ToolSpec] = {}
        self._asking = anyio.Lock(fast_acquire=True)  # do not yield before the request
        self._is_small = False
        self._shorter: Shorter = {} if has_user else WITHOUT_USER

    def copy(self) -> "Catalog":
        """Return a catalog with the same sources that begins with what was sent from this one."""
        copy = Catalog(*self._sources, disabled=self._disabled)
        copy._tools, copy._sent = dict(self._tools), dict(self._sent)
        copy._is_small, copy._shorter = self._is_small, self._shorter
        return copy

    @property
    def is_small(self) -> bool:
        return self._is_small

    def add(self, source: ToolSource) -> None:
        self._sources = (*self._sources, source)

    def offers(self, name: str) -> bool:
        return not any(fnmatchcase(name, each) for each in self._disabled)

    def make_small(self) -> bool:
        """Offer only third-party tools and `SMALL`; return whether that changes anything."""
        if self._is_small:
            return False
        self._is_small, self._shorter = True, SMALL
        kept = [self._tools[name] for name in self._sent]
        self._sent.clear()
        self._send(kept)
        return True

    def _send(self, tools: Iterable[Tool]) -> None:
        """Add the definitions of `tools` that the model is offered now."""
        for tool in tools:
            is_in_set = not self._is_small or tool.name in SMALL or tool.name not in NAMES
            if is_in_set and tool.name not in UNLISTED and not _is_waiting(tool):
                self._sent[tool.name] = _spec(tool, self._shorter)

    async def so_far(self) -> Toolset:
        """Return the current tools. `by_name` stays up to date: it includes later tools, too."""
        async with self._asking:
            for source in self._sources:
                new = [tool for tool in await source.tools() if self._is_new(tool)]
                self._tools |= {tool.name: tool for tool in new}
                self._send(new)
        return Toolset(self._tools, tuple(self._sent.values()))

    def _is_new(self, tool: Tool) -> bool:
        """True for tools to add, and for deferred tools that are now sent."""
        known = self._tools.get(tool.name)
        is_well_named = is_outside_name(tool.name) if isinstance(tool, OutsideTool) else True
        is_sent_now = known is not None and _is_waiting(known) and not _is_waiting(tool)
        return is_well_named and self.offers(tool.name) and (known is None or is_sent_now)


def _is_waiting(tool: Tool) -> bool:
    return isinstance(tool, OutsideTool) and tool.is_waiting


def check_disabled(names: Sequence[str]) -> None:
    """
    Reject names that match no tool.

    Raises:
        ConfigError: naming the first one.
    """
    for number, name in enumerate(names):
        if OUTSIDE in name or any(fnmatchcase(tool, name) for tool in NAMES):
            continue
        added = [each.name for each in extensions("sanderling.tools")]
        if not any(fnmatchcase(tool, name) for tool in added):
            known = ", ".join((*NAMES, *added))
            path = ("tools", "disabled", number)
            raise ConfigError(f"there is no tool '{name}'; tools: {known}, or mcp__server__*", path)


def specs_of(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    return tuple(_spec(tool) for tool in tools if tool.name not in UNLISTED)


def _spec(tool: Tool, shorter: Shorter = MappingProxyType({})) -> ToolSpec:
    schema = tool.schema
    if tool.name not in shorter or isinstance(tool, OutsideTool):
        return ToolSpec(tool.name, tool.description, schema)
    left_out, description = shorter[tool.name]
    for part in (schema, *schema.get("$defs", {}).values()):
        fields = part["properties"]
        part["properties"] = {name: fields[name] for name in fields if name not in left_out}
    return ToolSpec(tool.name, description or tool.description, schema)
