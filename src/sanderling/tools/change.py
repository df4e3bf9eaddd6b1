"""
A change of one file, on the disk or in the buffer that shows it, without losing what anybody else has done to it.

What decides is who holds the newest text. Nobody has the file open: it is replaced on the disk, if it is still the one that was
looked at. A buffer without unsaved changes shows it: the buffer is changed, and then written. A buffer with unsaved changes: they
and the change are merged into it, and the person writes it when they like. Whoever was quicker than us makes us look again.

The kernel decides about every path, also where only a buffer is changed: the person will write that with all of their rights.
"""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

import anyio
from msgspec.structs import replace

from sanderling.changes.journal import Edit
from sanderling.changes.states import ABSENT as NOTHING
from sanderling.changes.states import FileChange, State
from sanderling.editing.lines import Difference, Hunk, applied, buffer_hunks
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
from sanderling.tools.changed import Changed, Written
from sanderling.tools.editor import Buffer, Editor
from sanderling.tools.in_its_words import considered, words_of
from sanderling.tools.known import Knowledge, Known, Proposal
from sanderling.tools.outcome import OverlapError, Preview
from sanderling.tools.reviewed import Accepted, is_reviewable, proposed
from sanderling.tools.texts import asked_of_person, difference, done, text_of
from sanderling.tools.unsaved import merged

MAX_BYTES = 64 << 20
MAX_TRIES = 5
NEW_MODE = 0o666  # less what the umask takes

SANDBOXS_OWN = "That is in a directory of the sandbox's own, which ends with it: the person's files are as they were."
UNDONE = (
    "{name} cannot be written while the sandbox is open, whoever approves it: it could make the person's machine run something, or"
    " instruct an agent, so that the sandbox's guard would undo it. Nothing was written. Tell the person what it is to hold: they"
    " can write it when this session has ended."
)


class _MovedError(Exception):
    """Somebody else has changed the file or the buffer meanwhile: look again."""


class Change:
    """
    A change of the file `path`.

    `propose` makes the new bytes of the old ones (None: there is no file), and raises `ToolError` if it cannot. If it gives the
    file's `is_whole` content, the file may be a new one, and what is replaced must be known to the model. If it `counts_lines`,
    they are those of the file as the model knows it. If a state is to be `restored`, the change is the person's, who has it journaled:
    their hooks are not run, no link is followed, and the file gets the mode of that state.
    """

    def __init__(
        self,
        context: Context,
        path: str,
        propose: Callable[[bytes | None], Proposal],
        *,
        is_whole: bool = False,
        counts_lines: bool = False,
        restored: State | None = None,
    ) -> None:
        self.context = context
        self.path = path
        self.is_whole = is_whole
        self.restored = restored
        self._workspace = context.workspace
        self._name = self._workspace.shown(path)
        self._knowledge = Knowledge(
            self._workspace.seen, path, self._name, propose, is_whole, counts_lines
        )

    async def make(self) -> Changed:
        """
        Make the change, after those that were asked for before it.

        Raises:
            ToolError: it cannot be made; nothing is changed.
        """
        async with self._workspace.lock(self.path):
            for _ in range(MAX_TRIES):
                with suppress(_MovedError):
                    return await self._try()
        raise ToolError(
            f"{self._name} was changed by somebody else each time it was about to be. Read it again, and try once more."
        )

    async def check(self) -> None:
        """
        Look whether the change can be made now.

        Raises:
            ToolError: it cannot.
        """
        loaded, buffer = await self._look()
        data = loaded.data if loaded else None
        if buffer and self._stays_unsaved(loaded, buffer):
            data = buffer.text.encode("utf-8", "surrogateescape")
        await self._knowledge.proposal(data)

    async def preview(self) -> Preview:
        """
        Show the person what the change would do to the text, as it is now.

        Raises:
            OverlapError: it would go over unsaved changes.
            ToolError: it cannot be made, so there is nothing to ask.
        """
        try:
            return await self._previewed()
        except OverlapError:
            raise
        except ToolError as error:
            # The reason shows what the file holds: who has not granted that yet hears it instead of the model.
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
            raise await self._workspace.missing(self.path)
        words = words_of(buffer, data)
        old = plain(words.text) if words else await text_of(data or b"")
        if self.is_whole and self._workspace.grant != NO_GRANT:
            # The model may not know the file; the person is shown what would be lost, and decides.
            self._workspace.seen.note(self.path, old)
        proposal, _ = await considered(self._knowledge, words, data, old, stamp)
        new = plain(text_in(words, proposal.data)) if words else await text_of(proposal.data)
        change = await difference(old, new)
        preview = asked_of_person(change)
        place = await self._place(loaded, change)
        with suppress(ToolError):  # the buffer's encoding is another one
            if place and not place.is_modified and (data is None or is_in_step(place, data)):
                new = text_in(place, proposal.data)
                return self._in_place(preview, place, new, is_new=data is None)
        return preview

    async def _place(self, loaded: Loaded | None, change: Difference) -> Buffer | None:
        """The buffer in which the person is to review it, if there is a place for that."""
        editor = self._workspace.editor
        if editor is None or not is_reviewable(change):
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
        """The preview with what is proposed in the buffer that is the `place` for it."""
        if place is None:
            return preview
        proposal = proposed(self.path, place, new, is_new=is_new)
        return replace(preview, proposal=proposal)

    async def _try(self) -> Changed:
        loaded, buffer = await self._look()
        if buffer is None:
            return await self._on_disk(loaded)
        assert self._workspace.editor
        if self._stays_unsaved(loaded, buffer):
            return await self._in_unsaved(self._workspace.editor, buffer, loaded)
        return await self._in_saved(self._workspace.editor, buffer, loaded)

    async def _look(self) -> tuple[Loaded | None, Buffer | None]:
        """The file and its buffer as they are now, if they may be changed at all."""
        loaded = await self._load()
        buffer = await buffer_of(self._workspace, self.path, loaded.stamp if loaded else None)
        if loaded or buffer or self.is_whole:
            with self._workspace.explaining(self.path, "written"):
                await (await self._workspace.files()).check(self.path)
        if await self._workspace.sandbox.undoes(self.path):
            raise ToolError(UNDONE.format(name=self._name))
        return loaded, buffer

    def _stays_unsaved(self, loaded: Loaded | None, buffer: Buffer) -> bool:
        return buffer.is_modified or (loaded is None and not self.is_whole)

    async def _load(self) -> Loaded | None:
        """The file as it is now; None if there is none."""
        try:
            with self._workspace.explaining(self.path, "changed"):
                loaded = await (await self._workspace.files()).load(self.path, MAX_BYTES)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        if not loaded.is_whole:
            raise ToolError(
                f"{self._name} has {loaded.stamp.size:,} bytes, and at most {MAX_BYTES:,} can be changed here. Use bash."
            )
        return loaded

    # --- on the disk ---------------------------------------------------------------------------------------------------

    async def _on_disk(self, loaded: Loaded | None) -> Changed:
        if loaded is None and not self.is_whole:
            raise await self._workspace.missing(self.path)
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
            if covers(self._workspace.disk, self.path, stamp) and not self._workspace.is_inside(
                self.path
            ):
                notes = (SANDBOXS_OWN, *notes)
        new = await text_of(proposal.data)
        if proposal.data != data and (editor := self._workspace.editor):
            hunks = await done(len(new), buffer_hunks, old or "", new)
            with suppress(ToolError):
                await editor.changed_on_disk(self.path, hunks, self.context.tool_use_id)
        self._knowledge.remember(new, known)
        return Changed(old, new, notes, byte_count=len(proposal.data))

    async def _write(self, data: bytes, loaded: Loaded | None) -> Stamp:
        """
        Put `data` in the place of what was `loaded`.

        Raises:
            FileChangedError: that is no longer what is there.
        """
        with self._workspace.explaining(self.path, "written"):
            files = await self._workspace.files()
            expected = loaded.stamp if loaded else ABSENT
            made = [] if loaded else self._missing_directories()
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
                if now and now.data == data:  # an editor that saves by itself
                    return now.stamp
                raise
            else:
                await self._note_directories(made)
                return edit.stamp

    def _missing_directories(self) -> list[str]:
        """The directories above the file that would be made, the highest first."""
        missing: list[str] = []
        path = os.path.dirname(self._workspace.disk.real_path(self.path))
        while not self._workspace.disk.exists(path):
            missing.insert(0, path)
            path = os.path.dirname(path)
        return missing

    async def _note_directories(self, paths: list[str]) -> None:
        """Have in the journal that these were made: they go when the file does, if they are empty then."""
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
        """The context in which `new` takes the place of `old`, in new `directories`: the journal has all of it then."""
        path = self._workspace.disk.real_path(self.path)
        if self.restored:
            return self._workspace.journal.restoring(path, self.restored)
        mode = loaded.stamp.mode if loaded else NEW_MODE
        context = self.context
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

    async def _in_saved(self, editor: Editor, buffer: Buffer, loaded: Loaded | None) -> Changed:
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
            return Changed(old, old, (*proposal.notes, *known.notes), byte_count=len(proposal.data))
        written = await self._change_and_write(editor, buffer, loaded, proposal)
        new = plain(written.text)
        self._knowledge.remember(new, known._replace(is_all=known.is_all and written.is_known))
        notes = (*proposal.notes, *written.notes, *known.notes)
        return Changed(old if loaded else None, new, notes, byte_count=written.byte_count)

    async def _as_accepted(
        self,
        accepted: Accepted,
        new_data: bytes,
        data: bytes | None,
        old: str,
        stamp: Stamp | None,
    ) -> tuple[Proposal, Known]:
        """The accepted part as the proposal, with what the model is to know of the rest."""
        known = await self._knowledge.known(old, stamp)
        told = accepted.told()
        notes = told.notes
        # The text may be another one by now; only the notes on it are wanted.
        with suppress(ToolError):
            notes = (*(await self._knowledge.proposal(data)).notes, *notes)
        is_all = (known.is_all or self.is_whole) and told.is_all
        return Proposal(new_data, notes), known._replace(is_all=is_all)

    async def _reloaded(self, editor: Editor, buffer: Buffer) -> Buffer:
        """The buffer after it has noticed that its file has changed."""
        await editor.files_changed((self.path,))
        now = await editor.again(buffer)
        if now is None or now.is_modified:
            raise _MovedError
        return now

    async def _change_and_write(
        self, editor: Editor, buffer: Buffer, loaded: Loaded | None, proposal: Proposal
    ) -> "Written":
        wanted = text_in(buffer, proposal.data)
        hunks = await done(len(wanted), buffer_hunks, buffer.text, wanted)
        # Half of what follows would leave text in the buffer that the person does not expect there.
        with anyio.CancelScope(shield=True):
            return await self._change_then_write(editor, buffer, hunks, loaded, proposal.data)
        raise AssertionError  # a shield lets no cancellation out

    async def _change_then_write(
        self,
        editor: Editor,
        buffer: Buffer,
        hunks: tuple[Hunk, ...],
        loaded: Loaded | None,
        data: bytes,
    ) -> "Written":
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
                left = f"{why} The change stands in the editor's buffer, unsaved."
                raise ToolError(left) from error
            if isinstance(error, FileChangedError):
                raise _MovedError from error
            raise
        part = (await difference(changed, current)).shown()
        notes = (f"The editor's own hooks (format on save) have then changed it:\n{part.text}",)
        notes = notes if current != changed else ()
        try:
            await editor.after_write(ready or buffer, stamp)
        except ToolError as error:
            notes = (*notes, f"The file is written, but the editor does not know that yet: {error}")
        return Written(current, len(data), notes, part.is_whole)

    async def _apply(self, editor: Editor, buffer: Buffer, hunks: tuple[Hunk, ...]) -> bool:
        """Change the buffer, and have what language servers say of that told; False if the person was quicker."""
        await self._workspace.watches.begin(editor, buffer, self.context.tool_use_id)
        return await editor.change(buffer, hunks, self.context.tool_use_id)

    async def _ready(self, editor: Editor, buffer: Buffer, changed: str) -> Buffer | None:
        """The buffer as it is to be written; None if the person has changed it since."""
        if not self.restored:
            return await editor.before_write(buffer)
        now = await editor.again(buffer)
        return now if now and now.text == changed else None

    async def _take_back(self, editor: Editor, before: Buffer, current: str) -> bool:
        """Undo our change of a buffer that could not be written; False if that stands there, with what others have done since."""
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

    async def _in_unsaved(self, editor: Editor, buffer: Buffer, loaded: Loaded | None) -> Changed:
        if loaded is None:  # else it is the person who gets to hear of that, and has to confirm it
            await editor.files_changed((self.path,))
        ours, is_writable = buffer.text, False
        if accepted := self.context.accepted:
            new = await accepted.onto(self._name, ours, self.context.overruled)
            notes, is_told = accepted.told()
        else:
            new, notes = await merged(self._knowledge, ours, self.context.overruled)
            is_told = True
        with suppress(ToolError):
            bytes_of(
                buffer
            )  # else it holds already what its encoding has not, and the person will hear of that
            is_writable = True
        if is_writable:
            bytes_of(replace(buffer, text=new))
        hunks = await done(len(ours), buffer_hunks, ours, new)
        before, after = bytes_or_text(buffer), bytes_or_text(replace(buffer, text=new))
        with anyio.CancelScope(shield=True):
            async with self._journaled(before, after, loaded):
                if not await self._apply(editor, buffer, hunks):
                    raise _MovedError
        known = await self._knowledge.known(plain(ours), None)
        known = known._replace(is_all=known.is_all and is_told)
        self._knowledge.remember(plain(new), known)
        why = (
            "The person has unsaved changes in it: the change stands in the editor's buffer with them, and the file on the disk"
            " is not written."
            if loaded
            else "The file is not on the disk: the change stands in the editor's buffer only, which the person can write."
        )
        return Changed(ours, new, (why, *notes, *known.notes), is_written=False)
