"""The editor as the file tools know it: buffers with the text that the user sees, saved or not."""

from typing import Literal, Protocol

import msgspec

from sanderling.changes.editing.lines import Hunk
from sanderling.sandbox.files import Identity
from sanderling.sandbox.inside.reading import Stamp


class Buffer(msgspec.Struct, frozen=True):
    """
    A loaded buffer of a file.

    `text` is its lines joined by newlines, with a final one if the file ends in one. `tick` increases with every change of the text.
    `encoding`, `line_ending` and `has_bom` are 'fileencoding', 'fileformat' and 'bomb'. `is_diagnosed`: a language server may report on a
    change.
    """

    id: int
    path: str
    tick: int
    text: str
    is_modified: bool
    encoding: str = "utf-8"
    line_ending: Literal["unix", "dos", "mac"] = "unix"
    has_bom: bool = False
    is_diagnosed: bool = False


class Diagnostic(msgspec.Struct, frozen=True):
    """A language server's message on the line `line`, from 1. `is_in_edit`: it is in an edited file."""

    path: str
    line: int
    severity: Literal["error", "warning"]
    message: str
    source: str = ""
    code: str = ""
    is_in_edit: bool = False


class Editor(Protocol):
    """
    A frontend's buffers, for the file tools.

    Every method raises `ToolError` if the editor does not answer in time, for example because it waits in a prompt.
    """

    async def buffer(self, path: str, identity: Identity) -> Buffer | None:
        """
        Return the loaded buffer of the file `identity`, under any of its names; None if it has none.

        `path` is only a label: it may lead elsewhere by now, and is not resolved again.
        """
        ...

    async def opened(self, path: str, identity: Identity, tool_use_id: str) -> Buffer | None:
        """
        Return the buffer in which the user will review a change to the file, loading it if needed.

        None: the user does not want a review, or there is no window for one.
        """
        ...

    async def again(self, buffer: Buffer) -> Buffer | None:
        """Return the current state of a buffer; None if it is no longer loaded."""
        ...

    async def change(self, buffer: Buffer, hunks: tuple[Hunk, ...], tool_use_id: str) -> bool:
        """Change the buffer, in one undo block per tool call; return False, and do nothing, if its tick has changed."""
        ...

    async def before_write(self, buffer: Buffer) -> Buffer | None:
        """
        Run the user's hooks (format on save) on the buffer, as before any write; return the result.

        None, and nothing done, if the user has changed it since our change, because they decide when to write it.
        """
        ...

    async def after_write(self, buffer: Buffer, stamp: Stamp) -> None:
        """Mark `buffer` as saved if the file still has this `stamp`, and run the user's after-write hooks."""
        ...

    async def not_written(self, buffer: Buffer) -> None:
        """Mark `buffer` as unmodified after our change was undone, whatever its file contains."""
        ...

    async def unsaved(self) -> tuple[str, ...]:
        """Return the paths of files whose buffers have unsaved changes."""
        ...

    async def save_buffer(self, path: str) -> str:
        """Write a buffer of `unsaved` as the user would; return why that failed, or ""."""
        ...

    async def files_changed(self, paths: tuple[str, ...]) -> None:
        """Reload unmodified buffers of files that changed on disk; no paths means all."""
        ...

    async def changed_on_disk(self, path: str, hunks: tuple[Hunk, ...], tool_use_id: str) -> None:
        """Reload a buffer of a file that a tool changed on disk, if it is open under a name that was not found before."""
        ...

    async def watch(self, buffer: Buffer, watch: str) -> None:
        """Before the first edit of a message, store the current diagnostics of all files as `watch`."""
        ...

    async def new_diagnostics(
        self, watches: tuple[str, ...], *, waits: bool
    ) -> tuple[Diagnostic, ...]:
        """Return diagnostics not yet reported that appeared since `watches` began; `waits` allows time after the last edit."""
        ...
