"""The tools of a session: where they come from, and what a model is told of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import anyio

from sanderling.providers import ToolSpec
from sanderling.tools.base import Tool
from sanderling.tools.bash import bash
from sanderling.tools.edit import edit
from sanderling.tools.glob import glob
from sanderling.tools.grep import grep
from sanderling.tools.jobs import jobs
from sanderling.tools.ls import ls
from sanderling.tools.read import read
from sanderling.tools.todo import todo
from sanderling.tools.web_fetch import web_fetch
from sanderling.tools.write import write

TOOLS: dict[str, Tool] = {
    tool.name: tool for tool in (read, edit, write, bash, jobs, grep, glob, ls, todo, web_fetch)
}


class ToolSource(Protocol):
    """A place that tools come from. The names of those that are not ours have `OUTSIDE` in them."""

    async def tools(self) -> Sequence[Tool]: ...


class OwnTools:
    """The tools that ship."""

    async def tools(self) -> Sequence[Tool]:
        return tuple(TOOLS.values())


class Toolset(NamedTuple):
    """Tools by name, and what a model is told of them."""

    by_name: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]


class Catalog:
    """
    The tools of a session, of which each source is asked once, before the first request.

    From then on they stay: another set would cost the API's cache of the prefix. A name belongs to the source that comes first.
    """

    def __init__(self, *sources: ToolSource) -> None:
        self._sources = sources
        self._frozen: Toolset | None = None
        self._freezing = anyio.Lock()

    async def frozen(self) -> Toolset:
        async with self._freezing:
            if self._frozen is None:
                tools: dict[str, Tool] = {}
                for source in self._sources:
                    for tool in await source.tools():
                        tools.setdefault(tool.name, tool)
                self._frozen = Toolset(tools, specs_of(tools.values()))
            return self._frozen


def specs_of(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools)
