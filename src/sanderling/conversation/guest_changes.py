"""Changes that a guest makes by itself: found by looking, kept in the journal, and shown in the buffers that they are in."""

from contextlib import suppress

from sanderling.changes.states import FileChange
from sanderling.editing.lines import buffer_hunks
from sanderling.editing.text import decode
from sanderling.errors import ToolError
from sanderling.tools.texts import done
from sanderling.tools.workspace import Workspace

MAX_BYTES = 1 << 20
MAX_FILES = 50
"""The most files that are reviewed hunk by hunk: nobody reviews more."""


async def look_after(workspace: Workspace, use_id: str, *, is_command: bool = False) -> None:
    """Record what the call `use_id` has changed, and have the editor show it; a command's changes are not to be reviewed."""
    changes: list[FileChange] = []
    if workspace.sandbox.can_write:
        changes = await workspace.changes.look(workspace.ground, is_of_command=is_command)
    if workspace.editor is None:
        return
    with suppress(ToolError):  # the editor does not answer: it loads them when it can
        for change in () if is_command else changes[:MAX_FILES]:
            await _show(workspace, change, use_id)
        await workspace.editor.files_changed(())


async def _show(workspace: Workspace, change: FileChange, use_id: str) -> None:
    """Have the editor show the lines that have changed, where they are text."""
    before, after = change.before, change.after
    is_text = after.kind == "file" and before.kind in ("file", "absent") and not change.doubt
    if not is_text or max(before.size, after.size) > MAX_BYTES:
        return
    kept = await workspace.journal.contents((before, after))
    texts = [decode(kept.get(state.content, b"")) for state in (before, after)]
    if any(text.is_binary for text in texts) or workspace.editor is None:
        return
    old, new = (text.text for text in texts)
    hunks = await done(len(old) + len(new), buffer_hunks, old, new)
    if hunks:
        await workspace.editor.changed_on_disk(change.path, hunks, use_id)
