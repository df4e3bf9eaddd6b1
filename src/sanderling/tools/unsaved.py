"""Merges a change into a buffer with unsaved changes; where they overlap, the user decides."""

from sanderling.changes.editing.lines import MAX_DIFFERENCE_LINES, lines_of, numbered, shown
from sanderling.changes.editing.merge import Conflict, merge
from sanderling.errors import ToolError
from sanderling.tools.buffers import plain
from sanderling.tools.known import Knowledge
from sanderling.tools.outcome import UnsavedConflictError
from sanderling.tools.texts import asked_of_person, difference, done


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
