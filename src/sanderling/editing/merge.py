"""
Changes between texts, line by line, and those of two sides put together.

There is a library, merge3, that does not fit here: it is under the GPL, and compares with difflib, which leaves out common lines
from 200 lines on and takes quadratic time for repetitive text.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

MAX_STEPS = 1_000_000
"""The steps that a comparison may take, some 0.3 s. Beyond them, everything between the first and the last difference counts as changed."""


class LineChange(NamedTuple):
    """The lines `old` of one text, counted from 0, became the lines `new` of the other. One of them may be empty."""

    old: range
    new: range


class Conflict(msgspec.Struct, frozen=True):
    """Lines of the base that both sides changed, each in its own way, and what they are there. Lines count from 0."""

    base: range
    ours: range
    theirs: range


class Merged(msgspec.Struct, frozen=True):
    """The merged text, with their side where there are conflicts."""

    text: str
    conflicts: tuple[Conflict, ...] = ()


def merge(base: str, ours: str, theirs: str) -> Merged:
    """
    `base` with the changes that `ours` and `theirs` made to it, line by line.

    Changes of neighbouring lines are both made. Two different changes conflict if they share a line, or if one inserts lines
    where the other changes something: there nobody knows in which order.
    """
    base_lines, our_lines, their_lines = (text.split("\n") for text in (base, ours, theirs))
    merged: list[str] = []
    conflicts: list[Conflict] = []
    done = our_shift = their_shift = 0
    for our_changes, their_changes in _clashes(
        line_changes(base_lines, our_lines), line_changes(base_lines, their_lines)
    ):
        changes = our_changes + their_changes
        span = range(min(c.old.start for c in changes), max(c.old.stop for c in changes))
        our_range, our_shift = _counterpart(span, our_changes, our_shift)
        their_range, their_shift = _counterpart(span, their_changes, their_shift)
        our_part = our_lines[our_range.start : our_range.stop]
        their_part = their_lines[their_range.start : their_range.stop]
        if our_changes and their_changes and our_part != their_part:
            conflicts.append(Conflict(span, our_range, their_range))
        merged += base_lines[done : span.start]
        merged += their_part if their_changes else our_part
        done = span.stop
    merged += base_lines[done:]
    return Merged("\n".join(merged), tuple(conflicts))


def _clashes(
    ours: list[LineChange], theirs: list[LineChange]
) -> list[tuple[list[LineChange], list[LineChange]]]:
    """The changes of both sides in the base's order, those together that cannot be made one after the other."""
    ordered = sorted(
        ((change, side) for side, changes in enumerate((ours, theirs)) for change in changes),
        key=lambda item: (item[0].old.start, item[0].old.stop),
    )
    groups: list[tuple[list[LineChange], list[LineChange]]] = []
    span = range(-2, -1)
    for change, side in ordered:
        if not _clash(span, change.old):
            groups.append(([], []))
            span = change.old
        span = range(span.start, max(span.stop, change.old.stop))
        groups[-1][side].append(change)
    return groups


def _clash(before: range, after: range) -> bool:
    """Say whether ranges share lines, or one is the place of an insertion and the other begins or ends there."""
    if before and after:
        return after.start < before.stop
    return after.start <= before.stop


def _counterpart(span: range, changes: list[LineChange], shift: int) -> tuple[range, int]:
    """The lines that are there now for those of the base, and by how many lines all that follows has moved."""
    shift_after = changes[-1].new.stop - changes[-1].old.stop if changes else shift
    return range(span.start + shift, span.stop + shift_after), shift_after


def line_changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """The changes that make `new` of `old`: as few lines as possible, but for what `MAX_STEPS` cuts short."""
    start, end_old, end_new = 0, len(old), len(new)
    while start < end_old and start < end_new and old[start] == new[start]:
        start += 1
    while end_old > start and end_new > start and old[end_old - 1] == new[end_new - 1]:
        end_old -= 1
        end_new -= 1
    kept = _common(old[start:end_old], new[start:end_new])
    kept = [(-1, -1), *kept, (end_old - start, end_new - start)]
    return [
        LineChange(
            range(start + i + 1, start + next_i),
            range(start + j + 1, start + next_j),
        )
        for (i, j), (next_i, next_j) in pairwise(kept)
        if i + 1 < next_i or j + 1 < next_j
    ]


def _common(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The lines that are in both; those that occur on one side only cannot be, and would cost the most."""
    in_old, in_new = set(old), set(new)
    places = [i for i, line in enumerate(old) if line in in_new]
    new_places = [j for j, line in enumerate(new) if line in in_old]
    kept = _kept([old[i] for i in places], [new[j] for j in new_places])
    return [(places[i], new_places[j]) for i, j in kept]


def _kept(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """
    The lines that are in both, by their places in each.

    Source: E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986. On diagonal k lie the places i, j with i - j = k;
    `rounds` holds, before each round, how far on each diagonal one comes with so many lines taken out or put in.
    """
    rounds = _rounds(old, new) if old and new else []
    kept: list[tuple[int, int]] = []
    i, j = len(old), len(new)
    for count in range(len(rounds) - 1, -1, -1):
        reached, k = rounds[count], i - j
        from_k = k + 1 if _is_put_in(reached, count + 1 + k, k, count) else k - 1
        from_i = reached[count + 1 + from_k]
        while i > from_i and j > from_i - from_k:
            i, j = i - 1, j - 1
            kept.append((i, j))
        i, j = from_i, from_i - from_k
    return kept[::-1]


def _rounds(old: Sequence[str], new: Sequence[str]) -> list[list[int]]:
    rounds: list[list[int]] = []
    reached = [0, 0, 0]  # diagonals -1, 0, 1
    steps = 0
    for count in range(len(old) + len(new) + 1):
        rounds.append(reached)
        now = [0, *reached, 0]
        for k in range(-count, count + 1, 2):
            at = count + 1 + k
            start = i = (
                reached[at + 1] if _is_put_in(reached, at, k, count) else reached[at - 1] + 1
            )
            j = i - k
            while i < len(old) and j < len(new) and old[i] == new[j]:
                i, j = i + 1, j + 1
            now[at + 1] = i
            steps += 1 + i - start
            if i >= len(old) and j >= len(new):
                return rounds
        if steps > MAX_STEPS:
            return []
        reached = now
    return rounds


def _is_put_in(reached: list[int], at: int, k: int, count: int) -> bool:
    """Say whether the way that comes farthest on diagonal `k` puts in a line, and does not take one out."""
    return k == -count or (k != count and reached[at - 1] < reached[at + 1])
