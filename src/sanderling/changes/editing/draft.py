"""
A file's text while it is edited, so that all bytes outside the replacements stay as they are.

A replacement is first reduced to the characters in which `old` and `new` differ, which preserves line endings inside it. In the end, only
the bytes of changed characters are replaced.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from sanderling.changes.editing.lines import line_start
from sanderling.changes.editing.merge import line_changes
from sanderling.changes.editing.text import UNREADABLE, FileText, readable
from sanderling.errors import ToolError
from sanderling.text import common_length


class NotFoundError(ToolError):
    """The text to replace does not occur."""


class _Splice(NamedTuple):
    """Characters `start` to `end` of a draft, with newlines `first_newline` to `last_newline`, become `new`."""

    start: int
    end: int
    first_newline: int
    last_newline: int
    new: str
    endings: bytes


class _Spliced(NamedTuple):
    """A range of the file's characters, and the range of the draft that replaced it."""

    file_start: int
    file_end: int
    start: int
    end: int


class TextDraft:
    """
    A file's text while it is edited, and the ranges that were changed.

    `lines` are the numbers of the file's lines after which lines will be inserted.
    """

    def __init__(self, file: FileText, lines: Iterable[int] = ()) -> None:
        # A composed change (`changes`) does not tell where a line ended inside it, so these places are moved at each step.
        self._line_ends = {line: line_start(file.text, line) for line in lines}
        self.file = file
        self.exact = file.exact
        self.text = file.text
        self.endings = file.endings
        self.changes: list[_Spliced] = []

    def replace(self, starts: Sequence[int], old: str, new: str) -> bool:
        """
        Replace `old`, which is at each of `starts`, by `new`; return whether that changes text written earlier.

        Raises:
            ToolError: it is unclear which invalid bytes to keep.
        """
        return self._change(_spans(self, starts, old, new))

    def insert(self, file_line: int, new: str) -> bool:
        """
        Insert `new` as lines after line `file_line` of the file as it was before all changes.

        After lines inserted there earlier, and after text that replaced that line. Return whether it is inside text written earlier.
        """
        line, place = self._line_after(file_line), self._line_ends[file_line]
        at = min(line, len(self.endings))
        start = line_start(self.text, line)
        new = new.removesuffix("\n")
        new = f"{new}\n" if line == at else f"\n{new}"  # after a last line without a newline
        endings = _endings(self.endings, range(at, at), range(max(at - 1, 0), at), new.count("\n"))
        is_overlapping = self._change([_Splice(start, start, at, at, new, endings)])
        # What is inserted after this line, or a later one that is gone, follows in the order of the calls.
        follows = (each for each in self._line_ends if each >= file_line)
        for each in follows:
            if self._line_ends[each] <= max(start, place):
                self._line_ends[each] = start + len(new)
        return is_overlapping

    def _line_after(self, file_line: int) -> int:
        """Return the draft's line after which the file's line `file_line` ends now."""
        offset = self._line_ends[file_line]
        if offset >= len(self.text):
            return self.line_count
        is_start = offset == 0 or self.text[offset - 1] == "\n"
        return self.text.count("\n", 0, offset) + (not is_start)

    def _move_line_ends(self, spans: Sequence[_Splice]) -> None:
        for span in reversed(spans):
            end = span.start + len(span.new)
            for line, at in self._line_ends.items():
                if at > span.start:
                    self._line_ends[line] = max(at + end - span.end, end)

    @property
    def line_count(self) -> int:
        return _line_count(self.text)

    @property
    def file_line_count(self) -> int:
        return _line_count(self.file.text)

    def file_lines(self, offsets: Sequence[int]) -> list[int]:
        """Return the file's line number, from 1, for each offset into the draft; `offsets` must be ascending."""
        starts = [change.start for change in self.changes]
        lines: list[int] = []
        done, line = 0, 1
        for offset in offsets:
            at = offset
            if before := bisect_right(starts, offset):
                change = self.changes[before - 1]
                is_new = offset < change.end
                at = change.file_start if is_new else change.file_end + offset - change.end
            line += self.file.text.count("\n", done, at)
            done = max(done, at)
            lines.append(line)
        return lines

    def data(self, data: bytes) -> bytes:
        """Return the file's bytes `data` with the changes applied."""
        edges = [edge for change in self.changes for edge in (change.file_start, change.file_end)]
        offsets = self.file.byte_offsets(edges)
        pieces: list[bytes | memoryview] = []
        view = memoryview(data)
        done = seen = line = 0
        for change, start, end in zip(self.changes, offsets, offsets, strict=False):
            first = line + self.exact.count("\n", seen, change.start)
            line = first + self.exact.count("\n", change.start, change.end)
            new = self.file.encode(self.exact[change.start : change.end], self.endings[first:line])
            pieces += (view[done:start], new)
            done, seen = end, change.end
        return b"".join((*pieces, view[done:]))

    def _change(self, spans: Sequence[_Splice]) -> bool:
        pieces: list[str] = []
        endings: list[bytes] = []
        done = line = 0
        for span in spans:
            pieces += (self.exact[done : span.start], span.new)
            endings += (self.endings[line : span.first_newline], span.endings)
            done, line = span.end, span.last_newline
        self.exact = "".join((*pieces, self.exact[done:]))
        self.endings = b"".join((*endings, self.endings[line:]))
        self.text = readable(self.exact) if self.file.is_damaged else self.exact
        self._move_line_ends(spans)
        is_overlapping = _overlap(self.changes, spans)
        self.changes = _composed(self.changes, spans)
        return is_overlapping


def _line_count(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _overlap(changes: Sequence[_Spliced], spans: Sequence[_Splice]) -> bool:
    """True if a span overlaps an earlier change."""
    starts = [change.start for change in changes]
    for span in spans:
        before = bisect_right(starts, max(span.start, span.end - 1))
        if before and max(changes[before - 1].start, span.start) < min(
            changes[before - 1].end, span.end
        ):
            return True
    return False


def _composed(changes: Sequence[_Spliced], spans: Sequence[_Splice]) -> list[_Spliced]:
    """Combine earlier `changes` with new `spans` of the resulting draft; return changes relative to the file."""
    steps = sorted(
        [(c.start, c.end, c.end - c.start - c.file_end + c.file_start, 0) for c in changes]
        + [(s.start, s.end, 0, len(s.new) - s.end + s.start) for s in spans]
    )
    composed: list[_Spliced] = []
    grown_before = grown_now = 0  # total growth so far, in characters
    previous_end = -1  # in the draft before the spans
    for start, end, before, now in steps:
        if start <= previous_end:
            group = composed.pop()
            end = max(end, previous_end)  # noqa: PLW2901 - extend the group
            file_start, new_start = group.file_start, group.start
        else:
            file_start, new_start = start - grown_before, start + grown_now
        grown_before += before
        grown_now += now
        composed.append(_Spliced(file_start, end - grown_before, new_start, end + grown_now))
        previous_end = end
    return composed


# --- minimal changes -----------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A range of `old` that differs in `new`, with the number of newlines before it and in it."""

    start: int
    end: int
    newlines_before: int
    newlines: int
    new: str


def _parts(old: str, new: str) -> list[_Part]:
    """Return the differing ranges: in each changed group of lines, from the first difference to the last."""
    old_lines, new_lines = _split(old), _split(new)
    old_at = [0, *accumulate(map(len, old_lines))]
    parts: list[_Part] = []
    for change in line_changes(old_lines, new_lines):
        start, end = old_at[change.old.start], old_at[change.old.stop]
        written = "".join(new_lines[change.new.start : change.new.stop])
        ahead = common_length(old[start:end], written)
        start, written = start + ahead, written[ahead:]
        behind = common_length(old[start:end][::-1], written[::-1])
        end, written = end - behind, written[: len(written) - behind]
        before = old.count("\n", 0, start)
        parts.append(_Part(start, end, before, old.count("\n", start, end), written))
    return parts


def _split(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*(line + "\n" for line in lines), last]


def _spans(draft: TextDraft, starts: Sequence[int], old: str, new: str) -> list[_Splice]:
    """Return the splices that replace `old` by `new` at each of `starts`."""
    parts = _parts(old, new)
    newlines = old.count("\n")
    spans: list[_Splice] = []
    done = line = 0
    for start in starts:
        line += draft.exact.count("\n", done, start)
        done = start
        context = range(line, line + newlines)
        for part, written in zip(parts, _written(draft, start, parts, old, new), strict=True):
            first = line + part.newlines_before
            own = range(first, first + part.newlines)
            endings = _endings(draft.endings, own, context, part.new.count("\n"))
            spans.append(
                _Splice(start + part.start, start + part.end, own.start, own.stop, written, endings)
            )
    return spans


def _endings(endings: bytes, own: range, context: range, count: int) -> bytes:
    """
    Return the line endings for `count` written lines.

    The replaced ones, repeating the last one for additional lines. If there were none: that of the previous line in the matched
    `context`, or else of the line where the text is inserted.
    """
    if not count or not endings:
        return bytes(count)
    if own:
        mine = endings[own.start : own.stop]
        return (mine + mine[-1:] * count)[:count]
    if context:
        at = min(max(own.start - 1, context.start), context.stop - 1)
    else:
        at = min(own.start, len(endings) - 1)
    return endings[at : at + 1] * count


def _written(draft: TextDraft, start: int, parts: Sequence[_Part], old: str, new: str) -> list[str]:
    """Return the new text of each part, in which U+FFFD keeps the invalid byte that it was shown for."""
    texts = [part.new for part in parts]
    if not draft.file.is_damaged or UNREADABLE not in new:
        return texts
    if new.count(UNREADABLE) != old.count(UNREADABLE):
        raise ToolError(
            f"“{UNREADABLE}” marks a byte of the file that is not {draft.file.encoding_name}. `new` must keep all of them in order, or"
            f" none, but `old` has {old.count(UNREADABLE)} and `new` has {new.count(UNREADABLE)}."
        )
    there = (
        character
        for part in parts
        for character in draft.exact[start + part.start : start + part.end]
        if readable(character) == UNREADABLE
    )
    return [re.sub(UNREADABLE, lambda _: next(there), text) for text in texts]
