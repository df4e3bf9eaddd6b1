"""Links below a directory, which ripgrep skips: links to files are searched, links to directories are reported."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import anyio
import msgspec

from sanderling.errors import ToolError
from sanderling.paths import is_within
from sanderling.sandbox.sandbox import alone
from sanderling.tools.inside.links import FILE, MORE
from sanderling.tools.paths import escaped
from sanderling.tools.ripgrep import NUL, program_inside, run
from sanderling.tools.workspace import Workspace

MAX_NAMES = 5
PATIENCE_S = 2.0
"""How long to look for links after the search has ended: there can be many .gitignore rules."""
T = TypeVar("T")


class Links(msgspec.Struct):
    """The links below a directory that are not ignored, by target kind."""

    files: list[str] = []
    directories: list[str] = []
    is_all: bool = True
    are_more: bool = False

    def take(self, record: bytes) -> bool:
        kind, path = record[:1].decode(), os.fsdecode(record[1:])
        if kind == MORE:
            self.are_more = True
        elif kind:
            (self.files if kind == FILE else self.directories).append(path)
        return True

    def note(self, workspace: Workspace, directory: str, *, is_found: bool) -> str:
        """
        Return a note on links to directories that were not followed.

        If something `is_found`, links into `directory` itself are omitted: their targets were searched.
        """
        top = workspace.disk.real_path(directory)
        followed = [
            link
            for link in self.directories
            if not (is_found and is_within(workspace.disk.real_path(link), top))
        ]
        sentences: list[str] = []
        if followed:
            names = listed(followed, workspace)
            sentences.append(
                f"Links to directories were not followed: {names}. Pass one as path to search it."
            )
        if not self.is_all:
            sentences.append("Too many directories or links: not all links were checked.")
        return "\n".join(sentences)


async def with_links(
    workspace: Workspace, directory: str, search: Callable[[], Awaitable[T]]
) -> tuple[T, Links]:
    """Run `search` and find the links below `directory` in parallel; none if it is not a directory."""
    links = Links(is_all=False)
    results: list[T] = []

    async def look() -> None:
        with suppress(ToolError):  # an error here also makes the search fail
            ended = await run(workspace, program_inside("links", directory), links.take, NUL)
            links.is_all = ended.status == 0 and not links.are_more

    with alone():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            results.append(await search())
            tasks.cancel_scope.deadline = anyio.current_time() + PATIENCE_S
    return results[0], links


def listed(links: Sequence[str], workspace: Workspace) -> str:
    names = [escaped(workspace.shown(link)) for link in sorted(links)[:MAX_NAMES]]
    more = len(links) - MAX_NAMES
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")
