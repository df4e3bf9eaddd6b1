"""Changes that a person reviews before they are made: what is proposed, what they take of it, and what the model is told of the rest."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sanderling.editing.draft import Draft
from sanderling.editing.lines import Difference, lines_of, shown
from sanderling.editing.merge import merge
from sanderling.editing.text import decode
from sanderling.protocol.reviews import Proposal, ProposedHunk, Review, ReviewedHunk
from sanderling.tools.buffers import plain
from sanderling.tools.editor import Buffer
from sanderling.tools.outcome import OverlapError
from sanderling.tools.texts import asked_of_person, difference, done
from sanderling.tools.unsaved import overlap

MAX_HUNKS, MAX_HUNK_LINES, MAX_HUNK_CHARS = 500, 5000, 1 << 20
"""The most of a review: nobody reviews more in a window."""
MAX_TOLD_LINES = 200


class Told(NamedTuple):
    """Notes for the model on a review; `is_all`: nothing had to be left out."""

    notes: tuple[str, ...]
    is_all: bool = True


def is_reviewable(change: Difference) -> bool:
    """Say whether a person can review it in a window: it is not too large, and some line of it changes."""
    if not 0 < len(change.hunks) <= MAX_HUNKS:
        return False
    line_count = sum(hunk.line_count + len(hunk.lines) for hunk in change.hunks)
    char_count = sum(len(line) for hunk in change.hunks for line in hunk.lines)
    return line_count <= MAX_HUNK_LINES and char_count <= MAX_HUNK_CHARS


def proposed(path: str, buffer: Buffer, new: str, *, is_new: bool) -> Proposal:
    """The change of a buffer's text into `new`, which `is_reviewable`."""
    hunks = Difference(buffer.text, new).hunks
    old = lines_of(buffer.text)
    return Proposal(
        path,
        buffer.id,
        tuple(
            ProposedHunk(
                hunk.first_line,
                tuple(old[hunk.first_line : hunk.first_line + hunk.line_count]),
                hunk.lines,
            )
            for hunk in hunks
        ),
        is_new=is_new,
        ends_in_newline=new.endswith("\n"),
    )


class Accepted:
    """The part of a proposal that a person accepts, by their `review`."""

    def __init__(self, review: Review) -> None:
        self._review = review
        self._kept = [hunk for hunk in review.hunks if hunk.is_kept]
        self._rejected = [hunk for hunk in review.hunks if not hunk.is_kept]
        self.text = self._text()

    @property
    def is_possible(self) -> bool:
        """Say whether what is kept replaces lines of the person's text, one after the other."""
        lines, done = lines_of(self._review.text), 0
        for hunk in self._kept:
            end = hunk.first_line + len(hunk.old)
            if hunk.first_line < done or tuple(lines[hunk.first_line : end]) != hunk.old:
                return False
            done = end
        return bool(self._review.hunks)

    @property
    def is_nothing(self) -> bool:
        return not self._kept

    @property
    def reason(self) -> str:
        """The reasons that the person gave for what they rejected."""
        reasons = dict.fromkeys(hunk.reason.strip() for hunk in self._rejected)
        return "; ".join(filter(None, reasons))

    async def onto(self, name: str, current: str, overruled: frozenset[str]) -> str:
        """
        The person's text as it is now, with what they accept.

        Raises:
            OverlapError: they have changed the same lines since, and that is not `overruled`.
        """
        before = self._review.text
        if current == before:
            return self.text
        merged = await done(len(current), merge, before, current, self.text)
        if merged.conflicts and current not in overruled:
            preview = asked_of_person(await difference(current, merged.text))
            raise OverlapError(overlap(name, current, merged.conflicts), current, preview)
        return merged.text

    async def in_bytes(self, name: str, data: bytes | None, overruled: frozenset[str]) -> bytes:
        """The bytes of a file that no buffer holds any more, with what the person accepts."""
        if not data:
            return self.text.encode("utf-8", "surrogateescape")
        draft = Draft(decode(data))
        new = await Accepted(_as_read(self._review)).onto(name, draft.text, overruled)
        draft.replace([0], draft.text, new)
        return draft.data(data)

    def told(self) -> Told:
        """Tell the model what was rejected, as exact hunks, and what the person changed in the others."""
        rejected = (_told_rejected(hunk) for hunk in self._rejected)
        changed = (_told_changed(hunk) for hunk in self._kept if hunk.new != hunk.proposed)
        parts = [shown(lines, MAX_TOLD_LINES) for lines in (*rejected, *changed)]
        return Told(tuple(part.text for part in parts), all(part.is_whole for part in parts))

    def _text(self) -> str:
        before, after, position = lines_of(self._review.text), list[str](), 0
        for hunk in self._kept:
            after += before[position : hunk.first_line]
            after += hunk.new
            position = hunk.first_line + len(hunk.old)
        after += before[position:]
        return "\n".join(after) + "\n" * (self._review.ends_in_newline and bool(after))


def _as_read(review: Review) -> Review:
    """The review of a file's text as it is read, not as a buffer has it."""

    def plain_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line.removesuffix("\r") for line in lines)

    hunks = (
        msgspec.structs.replace(hunk, old=plain_lines(hunk.old), new=plain_lines(hunk.new))
        for hunk in review.hunks
    )
    return Review(plain(review.text), tuple(hunks), review.ends_in_newline)


def _told_rejected(hunk: ReviewedHunk) -> Iterator[str]:
    because = f", because: {reason}" if (reason := hunk.reason.strip()) else ":"
    yield f"The person rejected this part, which is not in the file{because}"
    yield from _hunk_lines(hunk.first_line, hunk.old, hunk.new)


def _told_changed(hunk: ReviewedHunk) -> Iterator[str]:
    yield "The person changed what you proposed here before they accepted it:"
    yield from _hunk_lines(hunk.first_line, hunk.proposed, hunk.new)


def _hunk_lines(first: int, old: tuple[str, ...], new: tuple[str, ...]) -> Iterator[str]:
    yield f"@@ line {first + 1} @@"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)
