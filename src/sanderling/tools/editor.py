"""The editor as the file tools know it: buffers that hold what a person sees, unsaved text included."""

from typing import Literal, Protocol

import msgspec

from sanderling.editing.lines import Hunk
from sanderling.sandbox.files import Identity
from sanderling.sandbox.inside.reading import Stamp


class Buffer(msgspec.Struct, frozen=True):
    """
    A loaded buffer of a file.

    `text` is its lines joined by newlines, with one at the end if the file ends in one. `tick` changes with every change of the
    text. `encoding`, `line_ending` and `has_bom` say how the editor writes it ('fileencoding', 'fileformat', 'bomb').
    If it `is_diagnosed`, a language server may have something to say of a change.
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
    """A sentence of a language server's about the line `line`, from 1. `is_in_edit`: the file is one that was edited."""

    path: str
    line: int
    severity: Literal["error", "warning"]
    message: str
    source: str = ""
    code: str = ""
    is_in_edit: bool = False


class Editor(Protocol):
    """
    The buffers of a face that has some, for the file tools.

    Every method raises `ToolError` when the editor does not answer in time: it sits in a prompt, for instance.
    """

    async def buffer(self, path: str, identity: Identity) -> Buffer | None:
        """
        The loaded buffer of the file that `identity` is, by whatever name it was opened; None if there is none.

        `path` is only what it is called: it may lead elsewhere by now, and is not followed again.
        """
        ...

    async def opened(self, path: str, identity: Identity, tool_use_id: str) -> Buffer | None:
        """
        The buffer in which the person is to review a change of that file, loaded for it if it was not.

        None: there is no place for that, or they want none.
        """
        ...

    async def again(self, buffer: Buffer) -> Buffer | None:
        """The buffer as it is now; None if it is no longer loaded."""
        ...

    async def change(self, buffer: Buffer, hunks: tuple[Hunk, ...], tool_use_id: str) -> bool:
        """Change the buffer in one undo block per tool use; False, and nothing done, if its tick is no longer the same."""
        ...

    async def before_write(self, buffer: Buffer) -> Buffer | None:
        """
        Let the person's own hooks (format on save) at the buffer, as before any write; return what it is then.

        None, and nothing done, if the person has changed it since our change: what they type is theirs to write.
        """
        ...

    async def after_write(self, buffer: Buffer, stamp: Stamp) -> None:
        """The file, as far as it has this `stamp`, holds what `buffer` does: not modified, and what follows a write follows."""
        ...

    async def not_written(self, buffer: Buffer) -> None:
        """Our change was taken back, and `buffer` is what it was: not modified, whatever has become of its file."""
        ...

    async def files_changed(self, paths: tuple[str, ...]) -> None:
        """Files have changed on disk, all if none is named: load them again into buffers that are not modified."""
        ...

    async def changed_on_disk(self, path: str, hunks: tuple[Hunk, ...], tool_use_id: str) -> None:
        """A file of which no buffer was known was changed by a tool: load it again into one that has another name for it."""
        ...

    async def watch(self, buffer: Buffer, watch: str) -> None:
        """The buffer is about to be edited: keep in `watch`, which the first edit of a message begins, what is said of all files now."""
        ...

    async def new_diagnostics(
        self, watches: tuple[str, ...], *, waits: bool
    ) -> tuple[Diagnostic, ...]:
        """The diagnostics that have come since `watches` began and were not told yet; if it `waits`, soon after the last edit of the last one."""
        ...
