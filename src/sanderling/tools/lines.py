"""Texts as lines: what differs between two of them, and how that is shown, always within bounds."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sanderling.errors import printable
from sanderling.tools.editor import Hunk
from sanderling.tools.merge import line_changes

MAX_LINE_CHARS = 2000
MAX_DIFFERENCE_LINES, MAX_DIFFERENCE_LINE_CHARS = 40, 400
CONTEXT = 3


class Shown(NamedTuple):
    """Text within bounds; `is_whole` if nothing had to be left out."""

    text: str
    is_whole: bool = True


class Difference:
    """What makes one text of another. `hunks` count from 0, and go from top to bottom."""

    def __init__(self, old: str, new: str) -> None:
        self._old = lines_of(old)
        self._new = lines_of(new)
        self.hunks = _hunks(self._old, self._new)
        self._is_end_alone = not self.hunks and old != new

    @property
    def summary(self) -> str:
        """How many lines were added and removed."""
        added = sum(len(hunk.lines) for hunk in self.hunks)
        return f"+{added} −{sum(hunk.line_count for hunk in self.hunks)}"

    def shown(lines: Iterable[str], max_lines: int) -> Shown:
    """The first lines, each within bounds, and one that says so if there are more."""
    found: list[str] = []
    is_whole = True
    for line in lines:
        if len(found) == max_lines:
            return Shown("\n".join([*found, "… and more"]), is_whole=False)
        found.append(cut(line, MAX_DIFFERENCE_LINE_CHARS))
        is_whole = is_whole and len(line) <= MAX_DIFFERENCE_LINE_CHARS
    return Shown("\n".join(found), is_whole)


def numbered(lines: Sequence[str], first: int) -> Iterator[str]:
    """Lines with their numbers, as `cat -n` shows them."""
    for number, line in enumerate(lines, first):
        yield f"{number:>6}\t{cut(line, MAX_LINE_CHARS)}"


def cut(line: str, max_chars: int) -> str:
    """`line` as it can be sent, or if it is too long its beginning."""
    if len(line) <= max_chars:
        return printable(line)
    return f"{printable(line[:max_chars])}… [cut: the line has {len(line):,} characters]"


def _hunks(old: list[str], new: list[str]) -> tuple[Hunk, ...]:
    return tuple(
        Hunk(change.old.start, len(change.old), tuple(new[change.new.start : change.new.stop]))
        for change in line_changes(old, new)
    )


def _groups(hunks: Sequence[Hunk]) -> Iterator[list[Hunk]]:
    """Hunks whose surroundings touch."""
    group: list[Hunk] = []
    for hunk in hunks:
        if group and hunk.first_line - group[-1].first_line - group[-1].line_count > 2 * CONTEXT:
            yield group
            group = []
        group.append(hunk)
    if group:
        yield group


def _span(first: int, end: int) -> str:
    """A range of lines as `diff -u` writes it: an empty one is named by the line before it."""
    return f"{first + (end > first)},{end - first}"
