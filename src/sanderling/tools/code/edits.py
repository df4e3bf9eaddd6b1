"""A server's edits: converts its positions to offsets and applies them to exactly the text that it knows."""

from collections.abc import Sequence
from itertools import pairwise

from sanderling.changes.editing.draft import TextDraft
from sanderling.changes.editing.lines import line_start
from sanderling.changes.editing.text import decode
from sanderling.errors import ToolError

ServerEdit = tuple[int, int, int, int, str]

_UNIT_BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
OVERLAPPING = "The server's edits of {name} overlap: nothing was changed."
CHANGED = "{name} has changed since the server read it: nothing more was changed. Try again."
STRANGE = "The server's position encoding {encoding} is not supported: nothing was changed."


def offset_of(text: str, row: int, character: int, encoding: str) -> int:
    """Return the offset of a position; positions beyond the end of a line or text mean that end."""
    codec, size = _UNIT_BYTES[encoding]
    start = line_start(text, row)
    end = text.find("\n", start)
    line = text[start : end if end >= 0 else len(text)]
    before = line.encode(codec, "surrogatepass")[: character * size]
    return start + len(before.decode(codec, "ignore"))


def splices(
    text: str, edits: Sequence[ServerEdit], encoding: str, name: str
) -> list[tuple[int, int, str]]:
    """
    Return the edits as start, end and new text, in order.

    Raises:
        ToolError: they overlap, or the encoding is unknown.
    """
    if encoding not in _UNIT_BYTES:
        raise ToolError(STRANGE.format(encoding=encoding))
    found = [
        (
            offset_of(text, row, character, encoding),
            offset_of(text, last_row, last, encoding),
            new.replace("\r\n", "\n"),
        )
        for row, character, last_row, last, new in edits
    ]
    found.sort(key=lambda each: each[:2])  # edits at one position keep their order
    for one, other in pairwise(found):
        if one[1] > other[0]:
            raise ToolError(OVERLAPPING.format(name=name))
    return [each for each in found if text[each[0] : each[1]] != each[2]]


def applied(text: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """Apply the result of `splices`."""
    pieces, done = list[str](), 0
    for start, end, new in changes:
        pieces += (text[done:start], new)
        done = end
    return "".join((*pieces, text[done:]))


def changed(data: bytes, base: str, changes: Sequence[tuple[int, int, str]], name: str) -> bytes:
    """
    Apply `splices` to a file whose text must be `base`.

    Raises:
        ToolError: the file has changed.
    """
    draft = TextDraft(decode(data))
    if draft.text != base:
        raise ToolError(CHANGED.format(name=name))
    for start, end, new in reversed(changes):
        draft.replace([start], base[start:end], new)
    return draft.data(data)
