"""
The buffers of Neovim for the file tools; lua/sanderling/editing/init.lua does the work there.

Nothing waits for notifications after a write or a change of files: Neovim handles them as soon as it can, and before it answers the next
question.
"""

from typing import Any

import msgspec

from sanderling.changes.editing.lines import Hunk
from sanderling.editor.bridge import Bridge
from sanderling.editor.questions import EditorQuestions
from sanderling.sandbox.files import Identity
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.editor import Buffer, Diagnostic

AFTER_WRITE = "require('sanderling.editing').after_write(...)"
NOT_WRITTEN = "require('sanderling.editing').not_written(...)"
FILES_CHANGED = "require('sanderling.editing').files_changed(...)"
CHANGED_ON_DISK = "require('sanderling.editing').changed_on_disk(...)"


class NeovimBuffers:
    """The `Editor` of the Neovim at the other end of `bridge`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._questions = EditorQuestions(bridge, "sanderling.editing")
        self._diagnostics = EditorQuestions(bridge, "sanderling.editing.diagnostics")

    async def buffer(self, path: str, identity: Identity) -> Buffer | None:
        return _buffer(await self._questions.ask("find", path, *identity))

    async def opened(self, path: str, identity: Identity, tool_use_id: str) -> Buffer | None:
        return _buffer(await self._questions.ask("open", path, *identity, tool_use_id))

    async def again(self, buffer: Buffer) -> Buffer | None:
        return _buffer(await self._questions.ask("again", buffer.id, buffer.path))

    async def change(self, buffer: Buffer, hunks: tuple[Hunk, ...], tool_use_id: str) -> bool:
        plain = [(hunk.first_line, hunk.line_count, hunk.lines) for hunk in hunks]
        return await self._questions.ask("change", buffer.id, buffer.tick, plain, tool_use_id)

    async def before_write(self, buffer: Buffer) -> Buffer | None:
        return _buffer(await self._questions.ask("before_write", buffer.id, buffer.path))

    async def after_write(self, buffer: Buffer, stamp: Stamp) -> None:
        # Seconds are sent separately, because Lua's numbers cannot hold that many nanoseconds.
        written = (*divmod(stamp.mtime_ns, 1_000_000_000), stamp.size, stamp.inode)
        self._bridge.notify(AFTER_WRITE, buffer.id, buffer.tick, written)

    async def not_written(self, buffer: Buffer) -> None:
        self._bridge.notify(NOT_WRITTEN, buffer.id, buffer.tick)

    async def unsaved(self) -> tuple[str, ...]:
        return tuple(await self._questions.ask("unsaved"))

    async def save_buffer(self, path: str) -> str:
        return await self._questions.ask("save", path)

    async def files_changed(self, paths: tuple[str, ...]) -> None:
        self._bridge.notify(FILES_CHANGED, paths)

    async def changed_on_disk(self, path: str, hunks: tuple[Hunk, ...], tool_use_id: str) -> None:
        counts = [(hunk.first_line, hunk.line_count, len(hunk.lines)) for hunk in hunks]
        self._bridge.notify(CHANGED_ON_DISK, path, counts, tool_use_id)

    async def watch(self, buffer: Buffer, watch: str) -> None:
        await self._diagnostics.ask("watch", buffer.id, watch)

    async def new_diagnostics(
        self, watches: tuple[str, ...], *, waits: bool
    ) -> tuple[Diagnostic, ...]:
        value = await self._diagnostics.ask("tell_new", watches, waits)
        return msgspec.convert(value, tuple[Diagnostic, ...])


def _buffer(value: Any) -> Buffer | None:
    return msgspec.convert(value, Buffer) if value else None
