"""User review of a change before it is made: the proposal, the accepted part, and the model's notes on the rest."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sanderling.changes.editing.draft import TextDraft
from sanderling.changes.editing.lines import TextDifference, lines_of, shown
from sanderling.changes.editing.merge import merge
from sanderling.changes.editing.text import decode
from sanderling.protocol.reviews import Proposal, ProposedHunk, Review, ReviewedHunk
from sanderling.tools.buffers import plain
from sanderling.tools.editor import Buffer
from sanderling.tools.outcome import UnsavedConflictError
from sanderling.tools.texts import asked_of_person, difference, done
from sanderling.tools.unsaved import overlap

MAX_HUNKS, MAX_HUNK_LINES, MAX_HUNK_CHARS = 500, 5000, 1 << 20
"""Limits of a review in a window; larger changes are approved as a whole."""
MAX_TOLD_LINES = 200


class ReviewNotes(NamedTuple):
    """Notes for the model on a review; `is_all` if nothing was left out."""

    notes: tuple[str, ...]
    is_all: bool = True


def is_reviewable(change: TextDifference) -> bool:
    """True if a user can review the change in a window: some line changes, and it is within the limits."""
    if not 0 < len(change.hunks) <= MAX_HUNKS:
        return False
    line_count = sum(hunk.line_count + len(hunk.lines) for hunk in change.hunks)
    char_count = sum(len(line) for hunk in change.hunks for line in hunk.lines)
    return line_count <= MAX_HUNK_LINES and char_count <= MAX_HUNK_CHARS


def proposed(path: str, buffer: Buffer, new: str, *, is_new: bool) -> Proposal:
    """Return the proposal that changes a buffer's text into `new`; the change must be reviewable."""
    hunks = TextDifference(buffer.text, new).hunks
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


class AcceptedPart:
    """The part of a proposal that the user accepted in `review`."""

    def __init__(self, review: Review) -> None:
        self._review = review
        self._kept = [hunk for hunk in review.hunks if hunk.is_kept]
        self._rejected = [hunk for hunk in review.hunks if not hunk.is_kept]
        self.text = self._text()

    @property
    def is_possible(self) -> bool:
        """True if each accepted hunk matches the lines of the user's text, in order and without overlap."""
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
        """The user's reasons for the rejected hunks."""
        reasons = dict.fromkeys(hunk.reason.strip() for hunk in self._rejected)
        return "; ".join(filter(None, reasons))

    async def onto(self, name: str, current: str, overruled: frozenset[str]) -> str:
        """
        Return the user's current text with the accepted changes.

        Raises:
            UnsavedConflictError: they have changed the same lines since, and that is not `overruled`.
        """
        before = self._review.text
        if current == before:
            return self.text
        merged = await done(len(current), merge, before, current, self.text)
        if merged.conflicts and current not in overruled:
            preview = asked_of_person(await difference(current, merged.text))
            raise UnsavedConflictError(overlap(name, current, merged.conflicts), current, preview)
        return merged.text

    async def in_bytes(self, name: str, data: bytes | None, overruled: frozenset[str]) -> bytes:
        """Return a file's bytes with the accepted changes, when no buffer holds it any more."""
        if not data:
            return self.text.encode("utf-8", "surrogateescape")
        draft = TextDraft(decode(data))
        new = await AcceptedPart(_as_read(self._review)).onto(name, draft.text, overruled)
        draft.replace([0], draft.text, new)
        return draft.data(data)

    def review_notes(self) -> ReviewNotes:
        """Return notes for the model: the rejected hunks, and the user's edits to accepted ones."""
        rejected = (_rejection_note(hunk) for hunk in self._rejected)
        changed = (_edit_note(hunk) for hunk in self._kept if hunk.new != hunk.proposed)
        parts = [shown(lines, MAX_TOLD_LINES) for lines in (*rejected, *changed)]
        return ReviewNotes(tuple(part.text for part in parts), all(part.is_whole for part in parts))

    def _text(self) -> str:
        before, after, position = lines_of(self._review.text), list[str](), 0
        for hunk in self._kept:
            after += before[position : hunk.first_line]
            after += hunk.new
            position = hunk.first_line + len(hunk.old)
        after += before[position:]
        return "\n".join(after) + "\n" * (self._review.ends_in_newline and bool(after))


def _as_read(review: Review) -> Review:
    """Return the review with a file's line endings as they are read, not as a buffer holds them."""

    def plain_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line.removesuffix("\r") for line in lines)

    hunks = (
        msgspec.structs.replace(hunk, old=plain_lines(hunk.old), new=plain_lines(hunk.new))
        for hunk in review.hunks
    )
    return Review(plain(review.text), tuple(hunks), review.ends_in_newline)


def _rejection_note(hunk: ReviewedHunk) -> Iterator[str]:
    because = f". Reason: {reason}" if (reason := hunk.reason.strip()) else ":"
    yield f"The user rejected this part, so it is not in the file{because}"
    yield from _hunk_lines(hunk.first_line, hunk.old, hunk.new)


def _edit_note(hunk: ReviewedHunk) -> Iterator[str]:
    yield "The user edited your proposal here before accepting it:"
    yield from _hunk_lines(hunk.first_line, hunk.proposed, hunk.new)


def _hunk_lines(first: int, old: tuple[str, ...], new: tuple[str, ...]) -> Iterator[str]:
    yield f"@@ line {first + 1} @@"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)
