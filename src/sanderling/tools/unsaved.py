"""A change of a buffer that has unsaved changes: both are merged, and where they meet the person decides."""

from sanderling.editing.lines import MAX_DIFFERENCE_LINES, lines_of, numbered, shown
from sanderling.editing.merge import Conflict, merge
from sanderling.errors import ToolError
from sanderling.tools.buffers import plain
from sanderling.tools.known import Knowledge
from sanderling.tools.outcome import OverlapError
from sanderling.tools.texts import asked_of_person, difference, done


async def merged(
    knowledge: Knowledge, ours: str, overruled: frozenset[str]
) -> tuple[str, tuple[str, ...]]:
    """
    A buffer's text with the change in it, and notes.

    Raises:
        OverlapError: it would go over what is unsaved, and is not `overruled`.
        ToolError: it cannot be made.
    """
    theirs, base, notes = await _theirs(knowledge, ours)
    text = await done(len(ours), merge, base, ours, theirs)
    if text.conflicts and ours not in overruled:
        preview = asked_of_person(await difference(ours, text.text))
        raise OverlapError(overlap(knowledge.name, ours, text.conflicts), ours, preview)
    return text.text, notes


async def _theirs(knowledge: Knowledge, ours: str) -> tuple[str, str, tuple[str, ...]]:
    """The text as the model wants it to be, what it has made that of, and notes."""
    sight = knowledge.sight
    is_known = sight and (sight.text is not None or sight.is_of(plain(ours), None))
    if knowledge.is_whole and not is_known:
        raise ToolError(
            f"{knowledge.name} is open in the editor with unsaved changes, and you have not read them. Read it first."
        )
    seen = sight.text if sight and not sight.is_of(plain(ours), None) else None
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
    """The words for the model where a change would go over what the person has not saved."""
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
        f"The person has unsaved changes in {name}, {where}, where this would change the same text. Nothing was changed."
        f" Read the file again and change what is there now, or ask the person.\n{text}"
    ).rstrip()


def _lines_in_words(place: range) -> str:
    if len(place) > 1:
        return f"lines {place.start + 1}-{place.stop}"
    return f"line {place.start + 1}" if place else f"after line {place.start}"
