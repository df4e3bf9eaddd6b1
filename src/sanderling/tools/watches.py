"""
Watches: what language servers in the editor have newly said since edits were made.

What they said before is kept before the first edit of a message, so that the edits of one message have one wait. The person's
typing, and what has only moved, is the editor's to tell apart: lua/sanderling/editing/diagnostics.lua.
"""

import time
from contextlib import suppress

import anyio

from sanderling.errors import ToolError
from sanderling.tools.editor import Buffer, Diagnostic, Editor

LIMIT_S = 1.5  # the editor keeps to 1.3 s itself, if it is not busy
EXPIRES_S = 60.0


class Watches:
    """
    The watches over a session's edits, by the first edit of each.

    Nothing is asked, and nobody waits, unless a language server has an edited file.
    """

    def __init__(self) -> None:
        self._watches: dict[str, float] = {}  # when each began
        self._current = ""  # the one that takes in the edits of now
        self._prepared = ""  # likewise, before the first of them is made

    async def prepare(self, editor: Editor, buffer: Buffer, tool_use_id: str) -> None:
        """Keep what is said before a change is proposed in `buffer`: servers read what is proposed, too."""
        if buffer.is_diagnosed:
            self._prepared = self._current or self._prepared or tool_use_id
            with suppress(ToolError):
                await editor.watch(buffer, self._prepared)

    async def begin(self, editor: Editor, buffer: Buffer, tool_use_id: str) -> None:
        """Keep what is said before the edit `tool_use_id` of `buffer`, if another edit has not done that since `take`."""
        if not buffer.is_diagnosed:
            return
        watch = self._current or self._prepared or tool_use_id
        with suppress(ToolError):
            await editor.watch(buffer, watch)
            self._watches[watch] = time.monotonic()
            self._current = watch

    async def take(self, editor: Editor | None, *, waits: bool) -> tuple[Diagnostic, ...]:
        """Return each new diagnostic once; if it `waits`, when those of the edits since it was called last have had time to come."""
        since = time.monotonic() - EXPIRES_S
        self._watches = {watch: at for watch, at in self._watches.items() if at > since}
        waits, self._current, self._prepared = waits and bool(self._current), "", ""
        if editor and self._watches:
            with suppress(ToolError), anyio.move_on_after(LIMIT_S):
                return await editor.new_diagnostics(tuple(self._watches), waits=waits)
        return ()
