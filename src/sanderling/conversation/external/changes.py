"""Changes that an external agent makes without our tools: found by scanning, recorded in the journal, and shown in the editor's buffers."""

from contextlib import suppress

from sanderling.changes.editing.lines import buffer_hunks
from sanderling.changes.editing.text import decode
from sanderling.changes.states import FileChange
from sanderling.errors import ToolError
from sanderling.tools.texts import done
from sanderling.tools.workspace import Workspace

MAX_BYTES = 1 << 20
MAX_FILES = 50
"""Limit on files to be reviewed hunk by hunk; more is not practical for the user."""


async def look_after(workspace: Workspace, use_id: str, *, is_command: bool = False) -> None:
    """Record what the call `use_id` changed, and show it in the editor. Changes of commands need no review."""
    changes: list[FileChange] = []
    if workspace.sandbox.can_write:
        changes = await workspace.changes.look(workspace.environment, is_of_command=is_command)
    if workspace.editor is None:
        return
    with suppress(ToolError):  # if the editor does not answer, it loads them later
        for change in () if is_command else changes[:MAX_FILES]:
            await _show(workspace, change, use_id)
        await workspace.editor.files_changed(())


async def _show(workspace: Workspace, change: FileChange, use_id: str) -> None:
    """Show the changed lines in the editor, if they are text."""
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
