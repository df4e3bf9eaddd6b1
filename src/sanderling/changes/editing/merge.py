"""
Line-based diff and three-way merge.

The library merge3 does not fit: it is under the GPL, and compares with difflib, which drops common lines from 200 lines on and takes
quadratic time for repetitive text.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

MAX_STEPS = 1_000_000
"""The limit for a comparison, some 0.3 s. Beyond it, everything between the first and last difference counts as changed."""


class LineChange(NamedTuple):
    """Lines `old` of one text (from 0) became lines `new` of the other. Either may be empty."""

    old: range
    new: range


class Conflict(msgspec.Struct, frozen=True):
    """Lines of the base that both sides changed differently, and their lines on each side, from 0."""

    base: range
    ours: range
    theirs: range


class Merged(msgspec.Struct, frozen=True):
    """The merged text, with their side in conflicts."""

    text: str
    conflicts: tuple[Conflict, ...] = ()


def merge(base: str, ours: str, theirs: str) -> Merged:
    """
    Merge the changes of `ours` and `theirs` to `base`, line by line.

    Changes to adjacent lines are both made. Two different changes conflict if they share a line, or if one inserts lines where the other
    changes something, because their order is unknown.
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
    """Group the changes of both sides by overlap, in the base's order."""
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
    """True if ranges share lines, or an insertion touches the other range."""
    if before and after:
        return after.start < before.stop
    return after.start <= before.stop


def _counterpart(span: range, changes: list[LineChange], shift: int) -> tuple[range, int]:
    """Return the current lines for the base's `span`, and the new shift of later lines."""
    shift_after = changes[-1].new.stop - changes[-1].old.stop if changes else shift
    return range(span.start + shift, span.stop + shift_after), shift_after


def line_changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """Return the changes from `old` to `new`, minimal unless `MAX_STEPS` is exceeded."""
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
    """Return common lines; lines on only one side are excluded first, because they cost the most."""
    in_old, in_new = set(old), set(new)
    places = [i for i, line in enumerate(old) if line in in_new]
    new_places = [j for j, line in enumerate(new) if line in in_old]
    kept = _kept([old[i] for i in places], [new[j] for j in new_places])
    return [(places[i], new_places[j]) for i, j in kept]


def _kept(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """
    Return common lines by their positions in each text.

    Source: E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986. Diagonal k has the points i, j with i - j = k. `rounds`
    has, before each round, the furthest point on each diagonal with that many insertions and deletions.
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
    """True if the furthest path on diagonal `k` inserts a line rather than deleting one."""
    return k == -count or (k != count and reached[at - 1] < reached[at + 1])
