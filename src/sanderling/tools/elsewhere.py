"""Missing paths: where the project has what the model probably means."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

import anyio
import anyio.to_thread

from sanderling.errors import ToolError
from sanderling.tools.paths import escaped
from sanderling.tools.ripgrep import Filter, each_file
from sanderling.tools.workspace import Workspace

PATIENCE_S = 2.0
MAX_FILES = 50_000
MAX_SHOWN = 3
MAX_NAMESAKES = 5
"""More files with only the name in common, such as `__init__.py`, suggest nothing."""


async def missing(
    workspace: Workspace, path: str, may_read: Callable[[str], bool] | None = None
) -> ToolError:
    """
    Return the error for a missing path, with similar names next to it and the places in the project that end alike.

    The search sees what commands see, without ignored files and what a rule denies.
    """
    near = await workspace.near_names(path, may_read)
    found = await _places(workspace, path, may_read) if near is not None else []
    advice = " It is a broken link." if near is None else ""
    if near:
        advice = f" Did you mean {' or '.join(_shown(workspace, near))}?"
    if found := [each for each in found if each not in (near or ())]:
        are = "is" if len(found) == 1 else "are"
        advice += f" There {are} {' and '.join(_shown(workspace, found))}."
    return workspace.absent(path, advice)


def _shown(workspace: Workspace, paths: Iterable[str]) -> list[str]:
    return [escaped(workspace.shown(path)) for path in paths]


async def _places(
    workspace: Workspace, path: str, may_read: Callable[[str], bool] | None
) -> list[str]:
    """Return the files and directories of the project that `path` probably means, best first."""
    project = workspace.project
    if not os.path.basename(path):
        return []
    files: list[str] = []

    def take(file: str) -> None:
        if len(files) < MAX_FILES:
            files.append(file)

    selected = Filter(workspace.disk, project, may_read=may_read)
    with suppress(ToolError), anyio.move_on_after(PATIENCE_S):
        await each_file(workspace, project, selected, take)
    return await anyio.to_thread.run_sync(alike, path, files, project)


def alike(path: str, files: Iterable[str], project: str) -> list[str]:
    """Return the files, and directories above them, that end like `path`, or a similar name in a directory of the same name."""
    wanted = path.casefold().split("/")
    namesakes: dict[str, int] = {}  # the number of last parts in common
    siblings: defaultdict[str, list[str]] = defaultdict(list)
    top = project.count("/") + 1
    for file in files:
        parts = file.split("/")
        folded = file.casefold().split("/")
        if wanted[-1] in folded[top:]:
            end = folded.index(wanted[-1], top) + 1
            place = "/".join(parts[:end]) + ("/" if end < len(parts) else "")
            namesakes.setdefault(place, _common_end(folded[top:end], wanted))
        elif len(folded) > top + 1 and folded[-2] == wanted[-2]:
            siblings[parts[-1]].append(file)
    best = max(namesakes.values(), default=0)
    found = sorted(place for place, common in namesakes.items() if common == best)
    if not found:
        found = _similar(os.path.basename(path), siblings)
    elif best == 1 and len(found) > MAX_NAMESAKES:
        return []
    return sorted(found, key=len)[:MAX_SHOWN]


def _common_end(parts: list[str], wanted: list[str]) -> int:
    pairs = zip(reversed(parts), reversed(wanted), strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(parts))


def _similar(name: str, files: dict[str, list[str]]) -> list[str]:
    from difflib import get_close_matches  # slow to import, and rarely needed

    near = get_close_matches(name, list(files)[: MAX_FILES // 25], 1, 0.8)
    return files[near[0]] if near else []
