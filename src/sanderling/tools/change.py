"""
A change of one file, on the disk or in the buffer that shows it, without losing what anybody else has done to it.

What decides is who holds the newest text. Nobody has the file open: it is replaced on the disk, if it is still the one that was
looked at. A buffer without unsaved changes shows it: the buffer is changed, and then written. A buffer with unsaved changes: they
and the change are merged into it, and the person writes it when they like. Whoever was quicker than us makes us look again.

The kernel decides about every path, also where only a buffer is changed: the person will write that with all of their rights.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread

from sanderling.editing.lines import (
    MAX_DIFFERENCE_LINES,
    Difference,
    Hunk,
    applied,
    buffer_hunks,
    lines_of,
    numbered,
    shown,
)
from sanderling.editing.merge import Conflict, merge
from sanderling.editing.text import decode
from sanderling.errors import ToolError
from sanderling.sandbox.files import ABSENT, FileChangedError, Loaded
from sanderling.sandbox.inside.worker import Stamp
from sanderling.sandbox.policy import NO_GRANT
from sanderling.tools.base import Context
from sanderling.tools.buffers import buffer_of, bytes_of, covers, is_in_step, plain, text_in
from sanderling.tools.editor import Buffer, Editor
from sanderling.tools.outcome import OverlapError, Preview
from sanderling.tools.seen import Sight

MAX_BYTES = 64 << 20
MAX_TRIES = 5
MAX_SHOWN_LINES = 1000
MAX_ASKED_LINES, MAX_ASKED_LINE_CHARS = 50_000, 100_000
THREAD_BYTES = 16 * 1024
"""Work on more than that would hold up everything else."""

SANDBOXS_OWN = "That is in a directory of the sandbox's own, which ends with it: the person's files are as they were."
UNDONE = (
    "{name} cannot be written while the sandbox is open, whoever approves it: it could make the person's machine run something, or"
    " instruct an agent, so that the sandbox's guard would undo it. Nothing was written. Tell the person what it is to hold: they"
    " can write it when this session has ended."
)
RENUMBERED = "Its lines may have other numbers now: nothing was changed."

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Proposal(NamedTuple):
    """What a file is to hold, and what the model should know of how it came to that."""

    data: bytes
    notes: tuple[str, ...] = ()


class Changed(NamedTuple):
    """
    What has come of a change: the text before (None for a new file) and after it.

    `is_written`: the file holds it; else only the buffer does. `byte_count` is that of the file.
    """

    old: str | None
    new: str
    notes: tuple[str, ...]
    is_written: bool = True
    byte_count: int = 0


class _Written(NamedTuple):
    """A buffer's text as it was written; `is_known` if the notes tell the model all that it did not want itself."""

    text: str
    byte_count: int
    notes: tuple[str, ...]
    is_known: bool


class _MovedError(Exception):
    """Somebody else has changed the file or the buffer meanwhile: look again."""


class _Known(NamedTuple):
    """What the model is told of others' changes, and whether it then knows all of the file."""

    notes: tuple[str, ...]
    is_all: bool


@dataclass
class Change:
    """
    A change of the file `path`.

    `propose` makes the new bytes of the old ones (None: there is no file), and raises `ToolError` if it cannot. If it gives the
    file's `is_whole` content, the file may be a new one, and what is replaced must be known to the model. If it `counts_lines`,
    they are those of the file as the model knows it.
    """

    context: Context
    path: str
    propose: Callable[[bytes | None], Proposal]
    is_whole: bool = False
    counts_lines: bool = False

    def __post_init__(self) -> None:
        self._workspace = self.context.workspace
        self._name = self._workspace.shown(self.path)

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

    async def preview(self) -> Preview:
        """
        What the person is asked about: what the change would do to the text, as it is now.

        Raises:
            OverlapError: it would go over unsaved changes.
            ToolError: it cannot be made, so there is nothing to ask.
        """
        try:
            return asked_of_person(await self._difference())
        except OverlapError:
            raise
        except ToolError as error:
            # The reason shows what the file holds: who has not granted that yet hears it instead of the model.
            if self._workspace.grant == NO_GRANT:
                raise
            return Preview(str(error))

    async def _difference(self) -> Difference:
        loaded, buffer = await self._look()
        if buffer and self._stays_unsaved(loaded, buffer):
            merged, _ = await self._merged(buffer.text)
            return await difference(buffer.text, merged)
        data, stamp = (loaded.data, loaded.stamp) if loaded else (None, None)
        if data is None and not self.is_whole:
            raise await self._workspace.missing(self.path)
        old = await self._text(data or b"")
        if self.is_whole and self._workspace.grant != NO_GRANT:
            # The model may not know the file; the person is shown what would be lost, and decides.
            self._workspace.seen.note(self.path, old)
        proposal, _ = await self._considered(data, old, stamp)
        return await difference(old, await self._text(proposal.data))

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
        old = None if data is None else await self._text(data)
        proposal, known = await self._considered(data, old or "", stamp)
        notes = (*proposal.notes, *known.notes)
        if proposal.data != data:
            try:
                stamp = await self._write(proposal.data, loaded)
            except FileChangedError as error:
                raise _MovedError from error
            if covers(self.path, stamp) and not self._workspace.is_inside(self.path):
                notes = (SANDBOXS_OWN, *notes)
            # The editor may still have a buffer of it, by a name that it could not tell before.
            if editor := self._workspace.editor:
                with suppress(ToolError):
                    await editor.files_changed((self.path,))
        new = await self._text(proposal.data)
        self._remember(new, known)
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
            try:
                return await files.write(
                    self.path, data, expected=expected, makes_parents=self.is_whole
                )
            except FileChangedError:
                now = await self._load()
                if now and now.data == data:  # an editor that saves by itself
                    return now.stamp
                raise

    # --- in a buffer without unsaved changes -----------------------------------------------------------------------------

    async def _in_saved(self, editor: Editor, buffer: Buffer, loaded: Loaded | None) -> Changed:
        data, stamp = (loaded.data, loaded.stamp) if loaded else (None, None)
        if data is not None and not is_in_step(buffer, data):
            buffer = await self._reloaded(editor, buffer)
        is_in_its_words = data is None or is_in_step(buffer, data)
        old = plain(buffer.text) if is_in_its_words else await self._text(data or b"")
        proposal, known = await self._considered(data, old.strip("\n") and old, stamp)
        if proposal.data == data:
            self._remember(old, known)
            return Changed(old, old, (*proposal.notes, *known.notes), byte_count=len(proposal.data))
        written = await self._change_and_write(editor, buffer, loaded, proposal)
        new = plain(written.text)
        self._remember(new, known._replace(is_all=known.is_all and written.is_known))
        notes = (*proposal.notes, *written.notes, *known.notes)
        return Changed(old if loaded else None, new, notes, byte_count=written.byte_count)

    async def _reloaded(self, editor: Editor, buffer: Buffer) -> Buffer:
        """The buffer after it has noticed that its file has changed."""
        await editor.files_changed((self.path,))
        now = await editor.again(buffer)
        if now is None or now.is_modified:
            raise _MovedError
        return now

    async def _change_and_write(
        self, editor: Editor, buffer: Buffer, loaded: Loaded | None, proposal: Proposal
    ) -> "_Written":
        wanted = text_in(buffer, proposal.data)
        hunks = await _done(len(wanted), buffer_hunks, buffer.text, wanted)
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
    ) -> "_Written":
        if not await editor.change(buffer, hunks, self.context.tool_use_id):
            raise _MovedError
        current = changed = applied(buffer.text, hunks)
        try:
            if ready := await editor.before_write(buffer):
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
        return _Written(current, len(data), notes, part.is_whole)

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
        ours = buffer.text
        merged, notes = await self._merged(ours)
        hunks = await _done(len(ours), buffer_hunks, ours, merged)
        with anyio.CancelScope(shield=True):
            if not await editor.change(buffer, hunks, self.context.tool_use_id):
                raise _MovedError
        sight = self._workspace.seen.get(self.path)
        known = await self._known(plain(ours), None, sight)
        self._remember(plain(merged), known)
        why = (
            "The person has unsaved changes in it: the change stands in the editor's buffer with them, and the file on the disk"
            " is not written."
            if loaded
            else "The file is not on the disk: the change stands in the editor's buffer only, which the person can write."
        )
        return Changed(ours, merged, (why, *notes, *known.notes), is_written=False)

    async def _merged(self, ours: str) -> tuple[str, tuple[str, ...]]:
        """A buffer's text with the change in it, and notes."""
        theirs, base, notes = await self._theirs(ours)
        merged = await _done(len(ours), merge, base, ours, theirs)
        if merged.conflicts and ours not in self.context.overruled:
            preview = asked_of_person(await difference(ours, merged.text))
            raise OverlapError(self._overlap(ours, merged.conflicts), ours, preview)
        return merged.text, notes

    async def _theirs(self, ours: str) -> tuple[str, str, tuple[str, ...]]:
        """What the model wants the text to be, what it has made that of, and notes."""
        sight = self._workspace.seen.get(self.path)
        if self.is_whole:
            self._require_base(sight, ours)
        seen = sight.text if sight and not sight.is_of(plain(ours), None) else None
        bases = [ours] if seen is None else [seen, ours]
        while True:
            base = bases.pop(0)
            try:
                proposal = await self._proposal(_utf_8(base))
            except ToolError:
                if not bases:
                    raise
            else:
                theirs = proposal.data.decode("utf-8", "surrogateescape")
                return theirs if "\r\n" in base else plain(theirs), base, proposal.notes

    def _require_base(self, sight: Sight | None, ours: str) -> None:
        if sight is None or (sight.text is None and not sight.is_of(plain(ours), None)):
            raise ToolError(
                f"{self._name} is open in the editor with unsaved changes, and you have not read them. Read it first."
            )

    def _overlap(self, ours: str, conflicts: tuple[Conflict, ...]) -> str:
        lines = lines_of(ours)
        places = [conflict.ours for conflict in conflicts]
        text = shown(
            (
                line
                for place in places
                for line in numbered(lines[place.start : place.stop], place.start + 1)
            ),
            MAX_DIFFERENCE_LINES,
        ).text
        where = ", ".join(_lines_in_words(place) for place in places[:10])
        return (
            f"The person has unsaved changes in {self._name}, {where}, where this would change the same text. Nothing was changed."
            f" Read the file again and change what is there now, or ask the person.\n{text}"
        ).rstrip()

    # --- what the model knows --------------------------------------------------------------------------------------------

    async def _considered(
        self, data: bytes | None, old: str, stamp: Stamp | None
    ) -> tuple[Proposal, _Known]:
        """The proposal for a file, after a look at whether it is still the one that the model knows."""
        sight = self._workspace.seen.get(self.path)
        known = await self._known(old, stamp, sight)
        if known.notes and self.counts_lines:
            self._remember(old, known)
            raise ToolError("\n".join([RENUMBERED, *known.notes]))
        try:
            proposal = await self._proposal(data)
        except ToolError as error:
            if not known.notes:
                raise
            self._remember(old, known)
            raise ToolError("\n".join([str(error), *known.notes])) from error
        if self.is_whole and old and proposal.data != data:
            await self._require_known(old, proposal, sight, known)
        return proposal, known._replace(is_all=known.is_all or self.is_whole)

    async def _known(self, text: str, stamp: Stamp | None, sight: Sight | None) -> _Known:
        """Whether `text` is what the model has seen, and if not, the difference."""
        if not text and self.is_whole:
            return _Known((), is_all=True)
        if sight is None or sight.is_of(text, stamp):
            return _Known((), is_all=sight is not None)
        if sight.text is None:
            note = f"{self._name} has changed since you read it; what exactly is no longer known: read it again."
            return _Known((note,), is_all=False)
        since = await difference(sight.text, text)
        part = since.shown()
        return _Known(
            (f"{self._name} has changed since you read it, not by you:\n{part.text}",),
            is_all=part.is_whole,
        )

    async def _require_known(
        self, old: str, proposal: Proposal, sight: Sight | None, known: _Known
    ) -> None:
        if sight is not None and not known.notes:
            return
        if sight is None:
            new = await self._text(proposal.data)
            part = (await difference(old, new)).shown()
            problem = f"{self._name} exists, and you have not read it. This is what would change:\n{part.text}"
            known = _Known((), is_all=part.is_whole)
        else:
            problem = known.notes[0]
        self._remember(old, known)
        remedy = (
            "Nothing was written. If it is to be replaced all the same, call write again."
            if known.is_all
            else "Nothing was written. Read it first, or use edit."
        )
        raise ToolError(f"{problem}\n{remedy}")

    def _remember(self, text: str, known: _Known) -> None:
        if known.is_all:
            self._workspace.seen.note(self.path, text)
        elif known.notes:
            self._workspace.seen.forget(self.path)

    async def _proposal(self, data: bytes | None) -> Proposal:
        return await _done(len(data or b""), self.propose, data)

    @staticmethod
    async def _text(data: bytes) -> str:
        return (await _done(len(data), decode, data)).text


async def difference(old: str, new: str) -> Difference:
    return await _done(len(old) + len(new), Difference, old, new)


def asked_of_person(change: Difference) -> Preview:
    """All of it: nobody can approve what they cannot read. The float shows as much as has room, and `p` the rest."""
    return Preview(change.shown(MAX_ASKED_LINES, MAX_ASKED_LINE_CHARS).text, "diff")


def shown_to_person(change: Difference) -> Preview:
    return Preview(change.shown(MAX_SHOWN_LINES).text, "diff")


async def _done(
    size: int, work: Callable[[Unpack[Arguments]], Result], *arguments: *Arguments
) -> Result:
    """`work` done, in a thread if there are so many bytes of it."""
    if size < THREAD_BYTES:
        return work(*arguments)
    return await anyio.to_thread.run_sync(work, *arguments)


def _lines_in_words(place: range) -> str:
    if len(place) > 1:
        return f"lines {place.start + 1}-{place.stop}"
    return f"line {place.start + 1}" if place else f"after line {place.start}"


def _utf_8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
