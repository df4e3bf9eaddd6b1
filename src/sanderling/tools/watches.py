"""
Watches: new diagnostics from the editor's language servers since edits were made.

The diagnostics before the first edit of a message are stored, so that all its edits share one wait. The editor tells the user's typing
and moved lines apart: lua/sanderling/editing/diagnostics.lua.
"""

import time
from contextlib import suppress

import anyio

from sanderling.errors import ToolError
from sanderling.tools.editor import Buffer, Diagnostic, Editor

LIMIT_S = 1.5  # the editor's own limit is 1.3 s, if it is not busy
EXPIRES_S = 60.0


class EditWatches:
    """
    The watches over a session's edits, by the first edit of each.

    Without a language server for an edited file, there is no request and no wait.
    """

    def __init__(self) -> None:
        self._watches: dict[str, float] = {}  # by start time
        self._current = ""  # the one for current edits
        self._prepared = ""  # the one for a proposed edit

    async def prepare(self, editor: Editor, buffer: Buffer, tool_use_id: str) -> None:
        """Store diagnostics before a change is proposed in `buffer`: servers read the proposal, too."""
        if buffer.is_diagnosed:
            self._prepared = self._current or self._prepared or tool_use_id
            with suppress(ToolError):
                await editor.watch(buffer, self._prepared)

    async def begin(self, editor: Editor, buffer: Buffer, tool_use_id: str) -> None:
        """Store the diagnostics of `buffer` before the edit `tool_use_id`. After the first edit since `take`, do nothing."""
        if not buffer.is_diagnosed:
            return
        watch = self._current or self._prepared or tool_use_id
        with suppress(ToolError):
            await editor.watch(buffer, watch)
            self._watches[watch] = time.monotonic()
            self._current = watch

    async def take(self, editor: Editor | None, *, waits: bool) -> tuple[Diagnostic, ...]:
        """Return each new diagnostic once; if it `waits`, allow time for new ones after edits since the last call."""
        since = time.monotonic() - EXPIRES_S
        self._watches = {watch: at for watch, at in self._watches.items() if at > since}
        waits, self._current, self._prepared = waits and bool(self._current), "", ""
        if editor and self._watches:
            with suppress(ToolError), anyio.move_on_after(LIMIT_S):
                return await editor.new_diagnostics(tuple(self._watches), waits=waits)
        return ()
