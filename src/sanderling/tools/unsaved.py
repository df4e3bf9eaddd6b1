"""Unsaved text in the editor: commands do not see it, because they read the disk."""

from contextlib import suppress

from sanderling.errors import ToolError
from sanderling.tools.buffers import identify
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

MAX_NAMES = 5


async def unsaved_note(workspace: Workspace) -> str:
    """Return a line on project files that are newer in the editor than a command sees them, or ""."""
    paths = list[str]()
    if workspace.editor:
        with suppress(ToolError):
            for path in sorted(await workspace.editor.unsaved()):
                if workspace.is_inside(path) and await identify(workspace, path):
                    paths.append(path)
    if not paths:
        return ""
    names = ", ".join(escaped(workspace.shown(path)) for path in paths[:MAX_NAMES])
    more = f" and {len(paths) - MAX_NAMES} more" if len(paths) > MAX_NAMES else ""
    return f"[Commands read the disk, where these are older than in the editor: {names}{more}]"
