"""All tools, by name, and what a model is told of them."""

from functools import cache

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


@cache
def tool_specs() -> tuple[ToolSpec, ...]:
    """The same for every request of every session, or the API's cache of the prefix would be lost."""
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in TOOLS.values())
