"""
The change that the model proposes to a file, compared with what it knows of the file and with the buffer that shows it.

It must not replace unseen text, and learns of changes by others. A file whose encoding only the editor knows is changed in the buffer's
text, encoded as the editor does. A buffer with unsaved changes gets the change merged in; where they overlap, the user decides.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from sanderling.changes.editing.lines import MAX_DIFFERENCE_LINES, lines_of, numbered, shown
from sanderling.changes.editing.merge import Conflict, merge
from sanderling.errors import ToolError
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.buffers import bytes_of, is_in_step, is_utf_8, plain
from sanderling.tools.editor import Buffer
from sanderling.tools.outcome import UnsavedConflictError
from sanderling.tools.read_cache import KnownFile, ReadCache
from sanderling.tools.texts import asked_of_person, difference, done, text_of

RENUMBERED = "Line numbers may have shifted: nothing was changed."


class ProposedContent(NamedTuple):
    """A file's new bytes, with notes for the model on how they came about."""

    data: bytes
    notes: tuple[str, ...] = ()


class ChangeNotes(NamedTuple):
    """Notes for the model on changes by others; `is_all` if it knows the whole file afterwards."""

    notes: tuple[str, ...]
    is_all: bool


class Knowledge(msgspec.Struct, frozen=True):
    """The model's knowledge of the file `path`, and the change that it proposes: see `Change`."""

    read_cache: ReadCache
    path: str
    name: str
    propose: Callable[[bytes | None], ProposedContent]
    is_whole: bool
    counts_lines: bool
    is_quoting: bool

    @property
    def known_file(self) -> KnownFile | None:
        return self.read_cache.get(self.path)

    async def considered(
        self, data: bytes | None, old: str, stamp: Stamp | None
    ) -> tuple[ProposedContent, ChangeNotes]:
        """Return the proposal for a file, after comparing the file with what the model knows."""
        known = await self.known(old, stamp)
        if known.notes and self.counts_lines:
            self.remember(old, known)
            raise ToolError("\n".join([RENUMBERED, *known.notes]))
        try:
            proposal = await self.proposal(data)
        except ToolError as error:
            if not known.notes:
                raise
            self.remember(old, known)
            raise ToolError("\n".join([str(error), *known.notes])) from error
        if self.is_whole and old and proposal.data != data:
            await self._require_known(old, proposal, known)
        return proposal, known._replace(is_all=known.is_all or self.is_whole)

    async def known(self, text: str, stamp: Stamp | None) -> ChangeNotes:
        """Compare `text` to what the model has seen."""
        known_file = self.known_file
        if not text and self.is_whole:
            return ChangeNotes((), is_all=True)
        if known_file is None or known_file.is_of(text, stamp):
            return ChangeNotes((), is_all=known_file is not None)
        if known_file.text is None:
            note = f"{self.name} has changed since you read it; the earlier text is no longer kept: read it again."
            return ChangeNotes((note,), is_all=False)
        since = await difference(known_file.text, text)
        part = since.shown()
        return ChangeNotes(
            (f"{self.name} has changed since you read it, not by you:\n{part.text}",),
            is_all=part.is_whole,
        )

    async def _require_known(self, old: str, proposal: ProposedContent, known: ChangeNotes) -> None:
        is_seen = self.known_file is not None
        if is_seen and not known.notes:
            return
        if not is_seen:
            new = await text_of(proposal.data)
            part = (await difference(old, new)).shown()
            problem = (
                f"{self.name} exists, and you have not read it. The change would be:\n{part.text}"
            )
            known = ChangeNotes((), is_all=part.is_whole)
        else:
            problem = known.notes[0]
        self.remember(old, known)
        remedy = (
            "Nothing was written. To replace it anyway, call write again."
            if known.is_all
            else "Nothing was written. Read it first, or use edit."
        )
        raise ToolError(f"{problem}\n{remedy}")

    def remember(self, text: str, known: ChangeNotes) -> None:
        if known.is_all:
            self.read_cache.note(self.path, text)
        elif known.notes:
            self.read_cache.forget(self.path)

    async def proposal(self, data: bytes | None) -> ProposedContent:
        return await done(len(data or b""), self.propose, data)


# --- the editor's text -------------------------------------------------------------------------------------------------


def words_of(buffer: Buffer | None, data: bytes | None) -> Buffer | None:
    """
    Return the buffer if it shows these bytes in an encoding other than UTF-8; None if the bytes themselves determine the text.

    The model then reads the buffer's text. Bytes that look like an incomplete character are complete in that encoding.
    """
    if buffer and data is not None and not is_utf_8(buffer) and is_in_step(buffer, data):
        return buffer
    return None


async def considered(
    knowledge: Knowledge, words: Buffer | None, data: bytes | None, old: str, stamp: Stamp | None
) -> tuple[ProposedContent, ChangeNotes]:
    """
    Return the proposal in the file's bytes, made in the buffer's text if `words` is given.

    Raises:
        ToolError: the change is impossible, or has a character outside the encoding.
    """
    if words is None:
        return await knowledge.considered(data, old, stamp)
    text = words.text.encode("utf-8", "surrogateescape")
    proposal, known = await knowledge.considered(text, old, stamp)
    if proposal.data == text:
        return proposal._replace(data=data or b""), known
    new = proposal.data.decode("utf-8", "surrogateescape")
    if words.line_ending == "dos":
        new = new.replace("\r\n", "\n")
    return proposal._replace(data=bytes_of(replace(words, text=new))), known


async def merged(
    knowledge: Knowledge, ours: str, overruled: frozenset[str]
) -> tuple[str, tuple[str, ...]]:
    """
    Return the buffer's text with the change merged in, and notes.

    Raises:
        UnsavedConflictError: it would overwrite unsaved changes, and that is not `overruled`.
        ToolError: the change is impossible.
    """
    theirs, base, notes = await _theirs(knowledge, ours)
    text = await done(len(ours), merge, base, ours, theirs)
    if text.conflicts and ours not in overruled:
        preview = asked_of_person(await difference(ours, text.text))
        raise UnsavedConflictError(overlap(knowledge.name, ours, text.conflicts), ours, preview)
    return text.text, notes


async def _theirs(knowledge: Knowledge, ours: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the text that the model proposes, the base that it changed, and notes."""
    known_file = knowledge.known_file
    is_known = known_file and (known_file.text is not None or known_file.is_of(plain(ours), None))
    if knowledge.is_whole and not is_known:
        raise ToolError(
            f"{knowledge.name} is open in the editor with unsaved changes, and you have not read them. Read it first."
        )
    seen = known_file.text if known_file and not known_file.is_of(plain(ours), None) else None
    if seen is not None and (fitting := await _exactly_in(knowledge, ours)) is not None:
        return fitting, ours, ()
    bases = [ours] if seen is None else [seen, ours]
    while True:
        base = bases.pop(0)
        try:
            proposal = await knowledge.proposal(base.encode("utf-8", "surrogateescape"))
        except ToolError:
            if not bases:
                raise
        else:
            theirs = proposal.data.decode("utf-8", "surrogateescape")
            return theirs if "\r\n" in base else plain(theirs), base, proposal.notes


async def _exactly_in(knowledge: Knowledge, ours: str) -> str | None:
    """
    Return the buffer's text with the change made there; None if it does not fit exactly.

    A change that quotes the user's text replaces what it quotes, even next to other unsaved lines, where a merge would see a conflict. Line
    numbers, cells and whole contents are those of the text that the model has seen.
    """
    if not knowledge.is_quoting:
        return None
    try:
        proposal = await knowledge.proposal(ours.encode("utf-8", "surrogateescape"))
    except ToolError:
        return None
    text = proposal.data.decode("utf-8", "surrogateescape")
    return None if proposal.notes else text if "\r\n" in ours else plain(text)


def overlap(name: str, ours: str, conflicts: tuple[Conflict, ...]) -> str:
    """Return the message for the model when a change would overwrite unsaved changes."""
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
        f"The user has unsaved changes in {name}, {where}, in the same text. Nothing was changed."
        f" Read the file again and edit its current text, or ask the user.\n{text}"
    ).rstrip()


def _lines_in_words(place: range) -> str:
    if len(place) > 1:
        return f"lines {place.start + 1}-{place.stop}"
    return f"line {place.start + 1}" if place else f"after line {place.start}"
