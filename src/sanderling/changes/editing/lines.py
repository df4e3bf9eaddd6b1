"""Texts as lines: differences between them, and bounded display."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from sanderling.changes.editing.merge import line_changes
from sanderling.changes.editing.sliding import slid
from sanderling.text import printable

MAX_LINE_CHARS = 2000
MAX_DIFFERENCE_LINES, MAX_DIFFERENCE_LINE_CHARS = 40, 400
MAX_LISTED_LINES = 100
MAX_PLACES = 20
CONTEXT = 3
CUT = "… [cut: the line has"


class Hunk(msgspec.Struct, frozen=True):
    r"""
    Replace `line_count` lines from `first_line`, which counts from 0, by `lines`.

    Lines come from `buffer.text.split("\n")`: a text that ends in a newline has an empty last line, which determines whether the file
    ends in a newline.
    """

    first_line: int
    line_count: int
    lines: tuple[str, ...]


class Excerpt(NamedTuple):
    """Bounded text; `is_whole` if nothing was omitted."""

    text: str
    is_whole: bool = True


class TextDifference:
    """The difference between two texts. Line numbers of `hunks` count from 0, in ascending order."""

    def __init__(self, old: str, new: str) -> None:
        self._old = lines_of(old)
        self._new = lines_of(new)
        self.hunks = _hunks(self._old, self._new)
        self._is_end_alone = not self.hunks and old != new

    @property
    def counts(self) -> tuple[int, int]:
        added = sum(len(hunk.lines) for hunk in self.hunks)
        return added, sum(hunk.line_count for hunk in self.hunks)

    @property
    def summary(self) -> str:
        return "+{} −{}".format(*self.counts)

    def shown(
        self, max_lines: int = MAX_DIFFERENCE_LINES, max_chars: int = MAX_DIFFERENCE_LINE_CHARS
    ) -> Excerpt:
        """Return a unified diff without file names."""
        if self._is_end_alone:
            return Excerpt("(Only the newline at the end of the file differs.)")
        return shown(self._unified(), max_lines, max_chars)

    def regions(self, context: int = 2) -> Iterator[str]:
        """Yield the changed regions of the new text with line numbers, and `…` between them."""
        shift = shown_to = 0
        for hunk in self.hunks:
            first = hunk.first_line + shift
            start = max(shown_to, first - context)
            end = min(len(self._new), first + len(hunk.lines) + context)
            if 0 < shown_to < start:
                yield "…"
            yield from numbered(self._new[start:end], start + 1)
            shown_to = max(end, shown_to)
            shift += len(hunk.lines) - hunk.line_count

    @property
    def places(self) -> str:
        """Where the new text is: "now lines 3-5, 9; removed after line 12"; "" if only the end of the file differs."""
        shift, now, removed = 0, list[str](), list[str]()
        for hunk in self.hunks:
            first = hunk.first_line + shift
            last = first + len(hunk.lines)
            if last > first:
                now.append(f"{first + 1}-{last}" if last > first + 1 else f"{last}")
            else:
                removed.append(f"{first}")
            shift += len(hunk.lines) - hunk.line_count
        is_one = len(now) == 1 and "-" not in now[0]
        parts = [
            *([f"now line{'' if is_one else 's'} {first_places(now)}"] if now else []),
            *([f"removed after line {first_places(removed)}"] if removed else []),
        ]
        return "; ".join(parts)

    def _unified(self) -> Iterator[str]:
        shift = 0
        for group in _groups(self.hunks):
            first, end = self._around(group)
            growth = sum(len(hunk.lines) - hunk.line_count for hunk in group)
            yield f"@@ -{_span(first, end)} +{_span(first + shift, end + shift + growth)} @@"
            for hunk in group:
                yield from (f" {line}" for line in self._old[first : hunk.first_line])
                first = hunk.first_line + hunk.line_count
                yield from (f"-{line}" for line in self._old[hunk.first_line : first])
                yield from (f"+{line}" for line in hunk.lines)
            yield from (f" {line}" for line in self._old[first:end])
            shift += growth

    def _around(self, group: Sequence[Hunk]) -> tuple[int, int]:
        """Return the range of old lines to show for `group`: with context, but without blank lines at the ends."""
        begin, behind = group[0].first_line, group[-1].first_line + group[-1].line_count
        first, end = max(0, begin - CONTEXT), min(len(self._old), behind + CONTEXT)
        while first < begin and not self._old[first].strip():
            first += 1
        while end > behind and not self._old[end - 1].strip():
            end -= 1
        return first, end


def buffer_hunks(old: str, new: str) -> tuple[Hunk, ...]:
    """Return the hunks between two buffer texts; a final newline counts as an empty last line."""
    return _hunks(old.split("\n"), new.split("\n"))


def applied(old: str, hunks: Sequence[Hunk]) -> str:
    """Apply `buffer_hunks`."""
    before, after, position = old.split("\n"), list[str](), 0
    for hunk in hunks:
        after += before[position : hunk.first_line]
        after += hunk.lines
        position = hunk.first_line + hunk.line_count
    return "\n".join([*after, *before[position:]])


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def line_start(text: str, line: int) -> int:
    """Return the offset of the line after `line` newlines; the end if there are fewer."""
    low, high = 0, len(text)
    while line and low < high:
        middle = (low + high + 1) // 2
        count = text.count("\n", low, middle)
        if count >= line and middle < high:
            high = middle
        elif count < line:
            low, line = middle, line - count
        else:
            low = text.find("\n", low, high) + 1
            line -= 1
    return low


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def occurrences(text: str, part: str) -> Iterator[int]:
    """Yield the offsets of `part`, without overlaps."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def listed(numbers: Sequence[int]) -> str:
    """Format line numbers: `3, 5 (2 times) and 9`."""
    words = [f"{line} ({n} times)" if n > 1 else str(line) for line, n in Counter(numbers).items()]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def shown(
    lines: Iterable[str], max_lines: int, max_chars: int = MAX_DIFFERENCE_LINE_CHARS
) -> Excerpt:
    """Return the first lines, each shortened to `max_chars`, and a note if there are more."""
    found: list[str] = []
    is_whole = True
    for line in lines:
        if len(found) == max_lines:
            return Excerpt("\n".join([*found, "… and more"]), is_whole=False)
        found.append(cut(line, max_chars))
        is_whole = is_whole and len(line) <= max_chars
    return Excerpt("\n".join(found), is_whole)


def numbered(lines: Sequence[str], first: int) -> Iterator[str]:
    """Yield each line after its number and a tab. The number is not padded: in a page of 2000 lines the blanks cost a thousand tokens."""
    for number, line in enumerate(lines, first):
        yield f"{number}\t{cut(line, MAX_LINE_CHARS)}"


def cut(line: str, max_chars: int) -> str:
    if len(line) <= max_chars:
        return printable(line)
    return f"{printable(line[:max_chars])}{CUT} {len(line):,} characters]"


def _hunks(old: list[str], new: list[str]) -> tuple[Hunk, ...]:
    return tuple(
        Hunk(change.old.start, len(change.old), tuple(new[change.new.start : change.new.stop]))
        for change in slid(line_changes(old, new), old, new)
    )


def _groups(hunks: Sequence[Hunk]) -> Iterator[list[Hunk]]:
    """Group hunks whose contexts touch."""
    group: list[Hunk] = []
    for hunk in hunks:
        if group and hunk.first_line - group[-1].first_line - group[-1].line_count > 2 * CONTEXT:
            yield group
            group = []
        group.append(hunk)
    if group:
        yield group


def first_places(places: Sequence[str]) -> str:
    more = f" and {len(places) - MAX_PLACES} more" if len(places) > MAX_PLACES else ""
    return ", ".join(places[:MAX_PLACES]) + more


def _span(first: int, end: int) -> str:
    """Format a line range like `diff -u`: an empty range has the number of the line before it."""
    return f"{first + (end > first)},{end - first}"
