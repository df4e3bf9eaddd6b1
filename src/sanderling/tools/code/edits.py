"""A server's edits of a text: positions as it counts them, applied to exactly the text that it knows."""

from collections.abc import Sequence
from itertools import pairwise

from sanderling.editing.draft import Draft
from sanderling.editing.lines import line_start
from sanderling.editing.text import decode
from sanderling.errors import ToolError

ServerEdit = tuple[int, int, int, int, str]

_UNIT_BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
OVERLAPPING = "The server's edits of {name} overlap: nothing was changed."
CHANGED = "{name} has changed since the server looked at it: nothing more was changed. Ask again."
STRANGE = (
    "The server counts characters as {encoding}, which is not known here: nothing was changed."
)


def offset_of(text: str, row: int, character: int, encoding: str) -> int:
    """The offset of a position; one behind a line's end, or the text's, is that end."""
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
    The edits as offsets and new texts, the first first.

    Raises:
        ToolError: they overlap, or cannot be understood.
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
    found.sort(key=lambda each: each[:2])  # those at one place stay in their order
    for one, other in pairwise(found):
        if one[1] > other[0]:
            raise ToolError(OVERLAPPING.format(name=name))
    return [each for each in found if text[each[0] : each[1]] != each[2]]


def applied(text: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """The text after `splices`."""
    pieces, done = list[str](), 0
    for start, end, new in changes:
        pieces += (text[done:start], new)
        done = end
    return "".join((*pieces, text[done:]))


def changed(data: bytes, base: str, changes: Sequence[tuple[int, int, str]], name: str) -> bytes:
    """
    The bytes of a file after `splices` of its text, which must be `base`.

    Raises:
        ToolError: it holds another text by now.
    """
    draft = Draft(decode(data))
    if draft.text != base:
        raise ToolError(CHANGED.format(name=name))
    for start, end, new in reversed(changes):
        draft.replace([start], base[start:end], new)
    return draft.data(data)
