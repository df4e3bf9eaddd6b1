"""Diagnostics: what language servers in the editor have newly said of edits, as the model and the person are told."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio.to_thread

from sanderling.errors import ToolError
from sanderling.text import printable, shortened, visible
from sanderling.tools.buffers import identify
from sanderling.tools.editor import Diagnostic
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

MAX_IN_EDIT, MAX_ELSEWHERE, MAX_CHARS = 10, 5, 300
HEADLINE = "New since your edits, by the language servers in the person's editor:"


class Report(NamedTuple):
    """A report of diagnostics, for the model, and its `summary` for the screen. Both are empty where there is nothing to tell."""

    text: str
    summary: str


async def told(
    found: Sequence[Diagnostic], workspace: Workspace, may_read: Callable[[str], bool] | None
) -> Report:
    """Report what is `found` in edited files, and elsewhere as far as the model may read that file of the project."""
    readable = {
        path: await _is_readable(path, workspace, may_read)
        for path in {each.path for each in found if not each.is_in_edit}
    }
    edited = [each for each in found if each.is_in_edit]
    elsewhere = [each for each in found if readable.get(each.path)]
    lines = [
        *await _listed(edited, MAX_IN_EDIT, "in edited files", workspace, may_read),
        *await _listed(elsewhere, MAX_ELSEWHERE, "in other files", workspace, may_read),
    ]
    counts = [
        f"{count} new {kind}{'s' * (count != 1)}"
        for kind in ("error", "warning")
        if (count := sum(each.severity == kind for each in (*edited, *elsewhere)))
    ]
    return Report("\n".join([HEADLINE, *lines]) if lines else "", " · ".join(counts))


async def _is_readable(
    path: str, workspace: Workspace, may_read: Callable[[str], bool] | None
) -> bool:
    """Say whether the sandbox shows the very file of the project that the editor has there, and no rule keeps it from the model."""
    if not await anyio.to_thread.run_sync(workspace.is_inside, path):
        return False
    if may_read and not may_read(path):
        return False
    try:
        identity = await identify(workspace, path)
    except ToolError:
        return False
    status = workspace.disk.status(path)
    return status is not None and identity == (status.st_dev, status.st_ino, "")


async def _listed(
    diagnostics: Sequence[Diagnostic],
    most: int,
    where: str,
    workspace: Workspace,
    may_read: Callable[[str], bool] | None,
) -> list[str]:
    from sanderling.tools.disclosure import disclosed  # only where there is something to show

    shown = await disclosed(diagnostics[:most], workspace, may_read)
    lines = [line_of(each, workspace) for each in shown]
    more = len(diagnostics) - most
    return [*lines, f"… and {more} more {where}"] if more > 0 else lines


def line_of(diagnostic: Diagnostic, workspace: Workspace) -> str:
    """The diagnostic in a line."""
    source = " ".join(filter(None, (diagnostic.source, diagnostic.code)))
    message = _one_line(diagnostic.message) + (f" [{_one_line(source)}]" if source else "")
    path = escaped(workspace.shown(diagnostic.path))
    return f"{path}:{diagnostic.line}: {diagnostic.severity}: {message}"


def _one_line(text: str) -> str:
    line = visible(" ".join(printable(text).split()))
    return shortened(line, MAX_CHARS)
