"""
Changes to one file, on disk or in the buffer that shows it, without losing concurrent edits.

Where a change goes depends on who holds the newest text. If no buffer shows the file, it is replaced on disk, provided it is still the
version that was read. If an unmodified buffer shows it, the buffer is changed and then written. If the buffer has unsaved changes, the
change is merged into it, and the user writes it when they like. If the file or buffer changes meanwhile, everything starts over.

The kernel decides about every path, even where only a buffer is changed: the user will write that buffer with their full rights.
"""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from sanderling.changes.editing.lines import Hunk, TextDifference, applied, buffer_hunks
from sanderling.changes.journal import Edit, unjournaled
from sanderling.changes.states import ABSENT as NOTHING
from sanderling.changes.states import FileChange, State
from sanderling.errors import ToolError
from sanderling.sandbox.files import ABSENT, FileChangedError, Loaded
from sanderling.sandbox.inside.reading import Stamp
from sanderling.sandbox.policy import NO_GRANT
from sanderling.tools.base import Context
from sanderling.tools.buffers import (
    buffer_of,
    bytes_of,
    bytes_or_text,
    covers,
    is_in_step,
    opened,
    plain,
    text_in,
)
from sanderling.tools.editor import Buffer, Editor
from sanderling.tools.elsewhere import missing
from sanderling.tools.known import (
    ChangeNotes,
    Knowledge,
    ProposedContent,
    considered,
    merged,
    words_of,
)
from sanderling.tools.outcome import Preview, UnsavedConflictError
from sanderling.tools.reviewed import AcceptedPart, is_reviewable, proposed
from sanderling.tools.texts import asked_of_person, difference, done, text_of

MAX_BYTES = 64 << 20
MAX_TRIES = 5
NEW_MODE = 0o666  # before the umask

SANDBOXS_OWN = (
    "This path is private to the sandbox and disappears with it: the user's files are unchanged."
)
UNDONE = (
    "{name} cannot be written while the sandbox is open, even with approval: it could run code on the user's machine or instruct an"
    " agent, so the sandbox's guard would revert it. Nothing was written. Tell the user the content: they can write it after this"
    " session."
)


class CompletedChange(NamedTuple):
    """
    The text before a completed change (None for a new file) and after it.

    `is_written`: it is in the file, not only in the buffer. `byte_count` is the file's size.
    """

    old: str | None
    new: str
    notes: tuple[str, ...]
    is_written: bool = True
    byte_count: int = 0


class _WrittenBuffer(NamedTuple):
    """A buffer's text as written; `is_known` if the notes report everything that the model did not ask for."""

    text: str
    byte_count: int
    notes: tuple[str, ...]
    is_known: bool


class _MovedError(Exception):
    """The file or buffer changed meanwhile: read it again."""


class Change:
    """
    A change to the file `path`.

    Args:
        propose: returns the new bytes for the old ones (None: there is no file), or raises `ToolError`.
        is_whole: `propose` gives the file's whole content. The file may be new; existing content must be known to the model.
        counts_lines: `propose` uses line numbers of the file as the model knows it.
        is_quoting: `propose` only replaces text that the model quotes.
        restored: the state to restore. The user asked for this change and its caller journals it, so the user's write hooks do not run,
            links are not followed, and the file gets the mode of that state.
    """

    def __init__(
        self,
        context: Context,
        path: str,
        propose: Callable[[bytes | None], ProposedContent],
        *,
        is_whole: bool = False,
        counts_lines: bool = False,
        is_quoting: bool = False,
        restored: State | None = None,
    ) -> None:
        self.context = context
        self.path = path
        self.is_whole = is_whole
        self.restored = restored
        self._workspace = context.workspace
        self._name = self._workspace.shown(path)
        self._is_scratch = self._workspace.is_scratch(path)
        self._knowledge = Knowledge(
            self._workspace.read_cache,
            path,
            self._name,
            propose,
            is_whole,
            counts_lines,
            is_quoting,
        )

    @property
    def counts_lines(self) -> bool:
        return self._knowledge.counts_lines

    def know(self, text: str) -> None:
        """Record that the model has seen all of the file, whose text is `text`."""
        self._workspace.read_cache.note(self.path, plain(text))

    async def make(self) -> CompletedChange:
        """
        Make the change, after earlier changes to the same file.

        Raises:
            ToolError: the change is impossible; nothing was changed.
        """
        async with self._workspace.lock(self.path):
            for _ in range(MAX_TRIES):
                with suppress(_MovedError):
                    return await self._try()
        raise ToolError(f"{self._name} keeps changing while you edit it. Read it again and retry.")

    async def check(self) -> None:
        """
        Check that the change is possible now.

        Raises:
            ToolError: it is not.
        """
        loaded, buffer = await self._look()
        data = loaded.data if loaded else None
        if buffer and self._stays_unsaved(loaded, buffer):
            data = buffer.text.encode("utf-8", "surrogateescape")
        await self._knowledge.proposal(data)

    async def preview(self) -> Preview:
        """
        Return what the change would do to the current text, for the user.

        Raises:
            UnsavedConflictError: it would overwrite unsaved changes.
            ToolError: the change is impossible, so there is nothing to ask.
        """
        try:
            return await self._previewed()
        except UnsavedConflictError:
            raise
        except ToolError as error:
            # The reason can quote the file. Before access is granted, only the user may see it, not the model.
            if self._workspace.grant == NO_GRANT:
                raise
            return Preview(str(error))

    async def _previewed(self) -> Preview:
        loaded, buffer = await self._look()
        if buffer and self._stays_unsaved(loaded, buffer):
            text, _ = await merged(self._knowledge, buffer.text, self.context.overruled)
            change = await difference(buffer.text, text)
            place = await self._place(loaded, change)
            is_same = place is not None and place.text == buffer.text
            preview = asked_of_person(change)
            return self._in_place(preview, place if is_same else None, text, is_new=False)
        data, stamp = (loaded.data, loaded.stamp) if loaded else (None, None)
        if data is None and not self.is_whole:
            raise await missing(self._workspace, self.path, self.context.may_read)
        words = words_of(buffer, data)
        old = plain(words.text) if words else await text_of(data or b"")
        if self.is_whole and self._workspace.grant != NO_GRANT:
            # The model may not know the file. The user sees what would be lost, and decides.
            self._workspace.read_cache.note(self.path, old)
        proposal, _ = await considered(self._knowledge, words, data, old, stamp)
        new = plain(text_in(words, proposal.data)) if words else await text_of(proposal.data)
        change = await difference(old, new)
        preview = asked_of_person(change)
        place = await self._place(loaded, change)
        with suppress(ToolError):  # the buffer has a different encoding
            if place and not place.is_modified and (data is None or is_in_step(place, data)):
                new = text_in(place, proposal.data)
                return self._in_place(preview, place, new, is_new=data is None)
        return preview

    async def _place(self, loaded: Loaded | None, change: TextDifference) -> Buffer | None:
        """Return the buffer in which the user reviews the change; None if it cannot be reviewed in a buffer."""
        editor = self._workspace.editor
        if editor is None or self._is_scratch or not is_reviewable(change):
            return None
        place = await opened(self._workspace, self.path, loaded, self.context.tool_use_id)
        if place:
            await self._workspace.watches.prepare(editor, place, self.context.tool_use_id)
        if place and loaded and not place.is_modified and not is_in_step(place, loaded.data):
            with suppress(_MovedError):
                return await self._reloaded(editor, place)
        return place

    def _in_place(
        self, preview: Preview, place: Buffer | None, new: str, *, is_new: bool
    ) -> Preview:
        if place is None:
            return preview
        proposal = proposed(self.path, place, new, is_new=is_new)
        return replace(preview, proposal=proposal)

    async def _try(self) -> CompletedChange:
        loaded, buffer = await self._look()
        if buffer is None:
            return await self._on_disk(loaded)
        assert self._workspace.editor
        if self._stays_unsaved(loaded, buffer):
            return await self._in_unsaved(self._workspace.editor, buffer, loaded)
        return await self._in_saved(self._workspace.editor, buffer, loaded)

    async def _look(self) -> tuple[Loaded | None, Buffer | None]:
        """Return the current file and its buffer, after checking that they may be changed."""
        if self._is_scratch:
            await self._workspace.require_scratch(self.path)
        loaded = await self._load()
        stamp = loaded.stamp if loaded else None
        buffer = None
        if not self._is_scratch:
            buffer = await buffer_of(self._workspace, self.path, stamp)
        if loaded or buffer or self.is_whole:
            with self._workspace.explaining(self.path, "written"):
                await (await self._workspace.files()).check(self.path)
        if await self._workspace.sandbox.undoes(self.path):
            raise ToolError(UNDONE.format(name=self._name))
        return loaded, buffer

    def _stays_unsaved(self, loaded: Loaded | None, buffer: Buffer) -> bool:
        return buffer.is_modified or (loaded is None and not self.is_whole)

    async def _load(self) -> Loaded | None:
        """Return the current file; None if it does not exist."""
        try:
            with self._workspace.explaining(self.path, "changed"):
                loaded = await (await self._workspace.files()).load(self.path, MAX_BYTES)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        if not loaded.is_whole:
            raise ToolError(
                f"{self._name} has {loaded.stamp.size:,} bytes; the limit is {MAX_BYTES:,}. Use bash."
            )
        return loaded

    # --- on disk -------------------------------------------------------------------------------------------------------

    async def _on_disk(self, loaded: Loaded | None) -> CompletedChange:
        if loaded is None and not self.is_whole:
            raise await missing(self._workspace, self.path, self.context.may_read)
        data, stamp = (loaded.data, loaded.stamp) if loaded else (None, None)
        old = None if data is None else await text_of(data)
        if accepted := self.context.accepted:
            new_data = await accepted.in_bytes(self._name, data, self.context.overruled)
            proposal, known = await self._as_accepted(accepted, new_data, data, old or "", stamp)
        else:
            proposal, known = await self._knowledge.considered(data, old or "", stamp)
        notes = (*proposal.notes, *known.notes)
        if proposal.data != data:
            try:
                stamp = await self._write(proposal.data, loaded)
            except FileChangedError as error:
                raise _MovedError from error
            self._note_accepted(loaded, proposal.data)
            is_own = self._is_scratch and not self._workspace.disk.exists(self.path)
            is_hidden = not is_own and covers(self._workspace.disk, self.path, stamp)
            if is_hidden and not self._workspace.is_inside(self.path):
                notes = (SANDBOXS_OWN, *notes)
        new = await text_of(proposal.data)
        editor = None if self._is_scratch else self._workspace.editor
        if proposal.data != data and editor:
            hunks = await done(len(new), buffer_hunks, old or "", new)
            with suppress(ToolError):
                await editor.changed_on_disk(self.path, hunks, self.context.tool_use_id)
        self._knowledge.remember(new, known)
        return CompletedChange(old, new, notes, byte_count=len(proposal.data))

    async def _write(self, data: bytes, loaded: Loaded | None) -> Stamp:
        """Replace the `loaded` file by `data`."""
        with self._workspace.explaining(self.path, "written"):
            files = await self._workspace.files()
            expected = loaded.stamp if loaded else ABSENT
            made = [] if loaded or self._is_scratch else self._missing_directories()
            try:
                old = loaded.data if loaded else None
                async with self._journaled(old, data, loaded, made) as edit:
                    edit.stamp = await files.write(
                        self.path,
                        data,
                        expected=expected,
                        makes_parents=self.is_whole,
                        mode=self.restored.mode if self.restored else None,
                    )
            except FileChangedError:
                now = await self._load()
                if now and now.data == data:  # an editor with autosave
                    return now.stamp
                raise
            else:
                await self._note_directories(made)
                return edit.stamp

    def _note_accepted(self, loaded: Loaded | None, data: bytes) -> None:
        if self.context.is_seen:
            self._workspace.on_accepted(self.path, loaded.data if loaded else None, data)

    def _missing_directories(self) -> list[str]:
        """Return the missing directories above the file, outermost first."""
        missing: list[str] = []
        path = os.path.dirname(self._workspace.disk.real_path(self.path))
        while not self._workspace.disk.exists(path):
            missing.insert(0, path)
            path = os.path.dirname(path)
        return missing

    async def _note_directories(self, paths: list[str]) -> None:
        """Record new directories in the journal, so that undoing removes them if they are empty."""
        if not paths:
            return
        made = [(path, self._workspace.disk.status(path)) for path in paths]
        use_id = self.context.tool_use_id
        await self._workspace.journal.note(
            *(
                FileChange(path, NOTHING, State("directory", stat.S_IMODE(status.st_mode)), use_id)
                for path, status in made
                if status
            )
        )

    def _journaled(
        self,
        old: bytes | None,
        new: bytes,
        loaded: Loaded | None,
        directories: Sequence[str] = (),
    ) -> AbstractAsyncContextManager[Edit]:
        """Return a context that records the change from `old` to `new`, and the new `directories`, in the journal."""
        path = self._workspace.disk.real_path(self.path)
        if self.restored:
            return self._workspace.journal.restoring(path, self.restored)
        mode = loaded.stamp.mode if loaded else NEW_MODE
        context = self.context
        if self._is_scratch:  # nothing of the user's, and gone with the session
            return unjournaled(path, new, mode, context.tool_use_id)
        return self._workspace.journal.editing(
            path,
            old,
            mode,
            new,
            context.tool_use_id,
            directories=directories,
            is_seen=context.is_seen,
        )

    # --- in a buffer without unsaved changes -----------------------------------------------------------------------------

    async def _in_saved(
        self, editor: Editor, buffer: Buffer, loaded: Loaded | None
    ) -> CompletedChange:
        data, stamp = (loaded.data, loaded.stamp) if loaded else (None, None)
        if data is not None and not is_in_step(buffer, data):
            buffer = await self._reloaded(editor, buffer)
        is_in_its_words = data is None or is_in_step(buffer, data)
        old = plain(buffer.text) if is_in_its_words else await text_of(data or b"")
        if accepted := self.context.accepted:
            if is_in_its_words:
                text = await accepted.onto(self._name, buffer.text, self.context.overruled)
                new_data = bytes_of(replace(buffer, text=text))
            else:
                new_data = await accepted.in_bytes(self._name, data, self.context.overruled)
            proposal, known = await self._as_accepted(accepted, new_data, data, old, stamp)
        else:
            words = words_of(buffer, data)
            proposal, known = await considered(
                self._knowledge, words, data, old.strip("\n") and old, stamp
            )
        if proposal.data == data:
            self._knowledge.remember(old, known)
            return CompletedChange(
                old, old, (*proposal.notes, *known.notes), byte_count=len(proposal.data)
            )
        written = await self._change_and_write(editor, buffer, loaded, proposal)
        new = plain(written.text)
        self._knowledge.remember(new, known._replace(is_all=known.is_all and written.is_known))
        notes = (*proposal.notes, *written.notes, *known.notes)
        return CompletedChange(old if loaded else None, new, notes, byte_count=written.byte_count)

    async def _as_accepted(
        self,
        accepted: AcceptedPart,
        new_data: bytes,
        data: bytes | None,
        old: str,
        stamp: Stamp | None,
    ) -> tuple[ProposedContent, ChangeNotes]:
        """Return the accepted part as the proposal, and what the model will know of the file afterwards."""
        known = await self._knowledge.known(old, stamp)
        notes, is_complete = accepted.review_notes()
        # The text may have changed since, so the proposal may fail; only its notes are needed.
        with suppress(ToolError):
            notes = (*(await self._knowledge.proposal(data)).notes, *notes)
        is_all = (known.is_all or self.is_whole) and is_complete
        return ProposedContent(new_data, notes), known._replace(is_all=is_all)

    async def _reloaded(self, editor: Editor, buffer: Buffer) -> Buffer:
        """Return the buffer after the editor has reloaded its changed file."""
        await editor.files_changed((self.path,))
        now = await editor.again(buffer)
        if now is None or now.is_modified:
            raise _MovedError
        return now

    async def _change_and_write(
        self, editor: Editor, buffer: Buffer, loaded: Loaded | None, proposal: ProposedContent
    ) -> _WrittenBuffer:
        wanted = text_in(buffer, proposal.data)
        hunks = await done(len(wanted), buffer_hunks, buffer.text, wanted)
        # Stopping halfway would leave text in the buffer that the user does not expect there.
        with anyio.CancelScope(shield=True):
            return await self._change_then_write(editor, buffer, hunks, loaded, proposal.data)
        raise AssertionError  # a shielded scope is not cancelled

    async def _change_then_write(
        self,
        editor: Editor,
        buffer: Buffer,
        hunks: tuple[Hunk, ...],
        loaded: Loaded | None,
        data: bytes,
    ) -> _WrittenBuffer:
        if not await self._apply(editor, buffer, hunks):
            raise _MovedError
        current = changed = applied(buffer.text, hunks)
        try:
            if ready := await self._ready(editor, buffer, changed):
                current = ready.text
                if current != changed:
                    data = bytes_of(ready)
            stamp = await self._write(data, loaded)
        except (FileChangedError, ToolError) as error:
            if not await self._take_back(editor, buffer, current):
                why = error if isinstance(error, ToolError) else f"{self._name} has just changed."
                left = f"{why} The change is in the editor's buffer, unsaved."
                raise ToolError(left) from error
            if isinstance(error, FileChangedError):
                raise _MovedError from error
            raise
        if current == changed:
            self._note_accepted(loaded, data)
        part = (await difference(changed, current)).shown()
        notes = (f"Then the editor's own hooks (format on save) changed it:\n{part.text}",)
        notes = notes if current != changed else ()
        try:
            await editor.after_write(ready or buffer, stamp)
        except ToolError as error:
            notes = (*notes, f"The file is written, but the editor was not notified: {error}")
        return _WrittenBuffer(current, len(data), notes, part.is_whole)

    async def _apply(self, editor: Editor, buffer: Buffer, hunks: tuple[Hunk, ...]) -> bool:
        """Start collecting diagnostics, then change the buffer; return False if the user changed it first."""
        await self._workspace.watches.begin(editor, buffer, self.context.tool_use_id)
        return await editor.change(buffer, hunks, self.context.tool_use_id)

    async def _ready(self, editor: Editor, buffer: Buffer, changed: str) -> Buffer | None:
        """Return the buffer as it will be written; None if the user has changed it since."""
        if not self.restored:
            return await editor.before_write(buffer)
        now = await editor.again(buffer)
        return now if now and now.text == changed else None

    async def _take_back(self, editor: Editor, before: Buffer, current: str) -> bool:
        """Undo our change to a buffer that could not be written; return False if it is still there because the text has changed since."""
        with suppress(ToolError):
            buffer = await editor.again(before)
            if buffer is None:  # closed meanwhile
                return True
            if buffer.text == current:
                hunks = buffer_hunks(current, before.text)
                if await editor.change(buffer, hunks, self.context.tool_use_id):
                    if restored := await editor.again(buffer):
                        await editor.not_written(restored)
                    return True
        return False

    # --- in a buffer with unsaved changes --------------------------------------------------------------------------------

    async def _in_unsaved(
        self, editor: Editor, buffer: Buffer, loaded: Loaded | None
    ) -> CompletedChange:
        if loaded is None:  # otherwise the user sees the editor's warning about the changed file
            await editor.files_changed((self.path,))
        ours, is_writable = buffer.text, False
        if accepted := self.context.accepted:
            new = await accepted.onto(self._name, ours, self.context.overruled)
            notes, is_complete = accepted.review_notes()
        else:
            new, notes = await merged(self._knowledge, ours, self.context.overruled)
            is_complete = True
        with suppress(ToolError):  # the buffer may already contain characters outside its encoding
            bytes_of(buffer)
            is_writable = True
        if is_writable:
            bytes_of(replace(buffer, text=new))
        hunks = await done(len(ours), buffer_hunks, ours, new)
        before, after = bytes_or_text(buffer), bytes_or_text(replace(buffer, text=new))
        with anyio.CancelScope(shield=True):
            async with self._journaled(before, after, loaded):
                if not await self._apply(editor, buffer, hunks):
                    raise _MovedError
        self._workspace.edited_unsaved.add(self._workspace.disk.real_path(self.path))
        known = await self._knowledge.known(plain(ours), None)
        known = known._replace(is_all=known.is_all and is_complete)
        self._knowledge.remember(plain(new), known)
        why = (
            "The user has unsaved changes here: the change was merged into the editor's buffer, and the file on disk was not written."
            if loaded
            else "The file is not on disk: the change is only in the editor's buffer, which the user can write."
        )
        return CompletedChange(ours, new, (why, *notes, *known.notes), is_written=False)
