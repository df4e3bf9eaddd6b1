"""New diagnostics from the editor's language servers after edits, as shown to the model and the user."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio.to_thread

from sanderling.errors import ToolError
from sanderling.text import counted, printable, shortened, visible
from sanderling.tools.buffers import identify
from sanderling.tools.editor import Diagnostic
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

MAX_IN_EDIT, MAX_ELSEWHERE, MAX_CHARS = 10, 5, 300
HEADLINE = "New since your edits, from the language servers in the user's editor:"


class DiagnosticReport(NamedTuple):
    """Diagnostics for the model, and a `summary` for the screen; both may be empty."""

    text: str
    summary: str


async def diagnostic_report(
    found: Sequence[Diagnostic], workspace: Workspace, may_read: Callable[[str], bool] | None
) -> DiagnosticReport:
    """Report diagnostics in edited files, and in other project files that the model may read."""
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
        counted(count, f"new {kind}")
        for kind in ("error", "warning")
        if (count := sum(each.severity == kind for each in (*edited, *elsewhere)))
    ]
    return DiagnosticReport("\n".join([HEADLINE, *lines]) if lines else "", " · ".join(counts))


async def _is_readable(
    path: str, workspace: Workspace, may_read: Callable[[str], bool] | None
) -> bool:
    """True if the sandbox shows the same project file that the editor has, and no rule denies reading it."""
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
    from sanderling.tools.disclosure import disclosed  # slow to import, and rarely needed

    shown = await disclosed(diagnostics[:most], workspace, may_read)
    lines = [line_of(each, workspace) for each in shown]
    more = len(diagnostics) - most
    return [*lines, f"… and {more} more {where}"] if more > 0 else lines


def line_of(diagnostic: Diagnostic, workspace: Workspace) -> str:
    source = " ".join(filter(None, (diagnostic.source, diagnostic.code)))
    message = _one_line(diagnostic.message) + (f" [{_one_line(source)}]" if source else "")
    path = escaped(workspace.shown(diagnostic.path))
    return f"{path}:{diagnostic.line}: {diagnostic.severity}: {message}"


def _one_line(text: str) -> str:
    line = visible(" ".join(printable(text).split()))
    return shortened(line, MAX_CHARS)
