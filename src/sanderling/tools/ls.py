"""The ls tool: lists a directory as a tree."""

from typing import Annotated

import msgspec

from sanderling.errors import ToolError
from sanderling.tools.base import Context, on_path, tool
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped
from sanderling.tools.ripgrep import NEWLINE, TIMEOUT_S, program_inside, run
from sanderling.tools.workspace import Workspace


class LsInput(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="Directory")] = "."
    depth: Annotated[int, msgspec.Meta(ge=1, le=10, description="Levels to open")] = 2


def _title(args: LsInput, workspace: Workspace) -> str:
    path = workspace.path(args.path)
    return "." if path == workspace.project else escaped(workspace.shown(path))


@tool(LsInput, effect=on_path("ls", "read"), title=_title)
async def ls(args: LsInput, context: Context) -> Outcome:
    """
    List a directory as a tree: directories first, files with sizes, links with targets.

    Hidden files are shown; .git and files in .gitignore are skipped unless `path` is in them. At most 100 entries per directory, 500 in
    all. "…" marks a directory that was not opened.
    """
    workspace = context.workspace
    path = workspace.path(args.path)
    lines: list[str] = []

    def take(record: bytes) -> bool:
        lines.append(record.decode(errors="backslashreplace"))
        return True

    ended = await run(workspace, program_inside("tree", path, str(args.depth)), take, NEWLINE)
    shown = escaped(workspace.shown(path)).rstrip("/")
    if ended.is_late:
        raise ToolError(f"Listing {shown} took longer than {TIMEOUT_S:.0f} s: use a smaller depth.")
    text = "\n".join(lines)
    if ended.is_cut_off:
        raise _failure(workspace, path, f"the listing {ended.how}")
    if ended.status:
        raise _failure(workspace, path, text or f"exit status {ended.status}")
    return Outcome(content=f"{shown}/\n{text}", summary=f"{len(lines):,} lines")


def _failure(workspace: Workspace, path: str, reason: str) -> ToolError:
    shown = escaped(workspace.shown(path))
    match reason:
        case "Not a directory":
            return ToolError(f"{shown} is a file, not a directory: read it instead.")
        case "No such file or directory":
            return workspace.absent(path)
        case _:
            return ToolError(f"{shown} cannot be listed: {reason}")
