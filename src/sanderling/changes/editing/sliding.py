"""
Slides insertions and deletions to where a reader expects them: whole blocks, and not the end of one with the beginning of the next.

The same lines can often be inserted at several places with the same result. Source: git's xdiff/xdiffi.c (`indent heuristic`), whose
weights were fitted to the choices of people.
"""

from collections.abc import Sequence

from sanderling.changes.editing.merge import LineChange

MAX_SLID = 100
MAX_BLANK = 20
START_OF_FILE, END_OF_FILE = 1, 21
TOTAL_BLANK, POST_BLANK = -30, 6
INDENTED, INDENTED_WITH_BLANK = -4, 10
OUTDENTED, OUTDENTED_WITH_BLANK = 24, 17
DEDENTED, DEDENTED_WITH_BLANK = 23, 17
INDENT_WEIGHT = 60
TAB = 8


def slid(changes: Sequence[LineChange], old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """Return the changes, with pure insertions and deletions where they read best."""
    found: list[LineChange] = []
    for at, change in enumerate(changes):
        one, other = (change.new, change.old) if change.new else (change.old, change.new)
        if other or not one:
            found.append(change)
            continue
        lines = new if change.new else old
        before, after = found[-1] if found else None, changes[at + 1 : at + 2]
        is_new = bool(change.new)
        least = (before.new if is_new else before.old).stop if before else 0
        most = (after[0].new if is_new else after[0].old).start if after else len(lines)
        shift = _shift(lines, one, least, most)
        found.append(LineChange(*(range(each.start + shift, each.stop + shift) for each in change)))
    return found


def _shift(lines: Sequence[str], part: range, least: int, most: int) -> int:
    first, last = part.start, part.stop
    up = down = 0
    while up < MAX_SLID and first - up > least and lines[first - up - 1] == lines[last - up - 1]:
        up += 1
    while down < MAX_SLID and last + down < most and lines[first + down] == lines[last + down]:
        down += 1
    if not (up or down):
        return 0
    best, best_score = 0, (0, 0)
    for shift in range(-up, down + 1):
        starts, ends = _score(lines, first + shift), _score(lines, last + shift)
        score = (starts[0] + ends[0], starts[1] + ends[1])
        by_indent = (score[0] > best_score[0]) - (score[0] < best_score[0])
        if shift == -up or INDENT_WEIGHT * by_indent + score[1] - best_score[1] <= 0:
            best, best_score = shift, score
    return best


def _indent(line: str) -> int:
    """Return the width of the indent; -1 for a blank line."""
    bare = line.lstrip()
    return len(line[: len(line) - len(bare)].expandtabs(TAB)) if bare else -1


def _next_indent(lines: Sequence[str], at: int, step: int) -> tuple[int, int]:
    """Return the indent of the next line with text, -1 without one, and the number of blank lines before it."""
    blank = 0
    while 0 <= at < len(lines):
        if (indent := _indent(lines[at])) >= 0:
            return indent, blank
        blank += 1
        if blank == MAX_BLANK:
            return 0, blank
        at += step
    return -1, blank


def _score(lines: Sequence[str], at: int) -> tuple[int, int]:
    """Return the indent and the penalty of a border before line `at`; less is better."""
    is_end = at >= len(lines)
    indent = -1 if is_end else _indent(lines[at])
    before, blank_before = _next_indent(lines, at - 1, -1)
    after, blank_after = _next_indent(lines, at + 1, 1)
    penalty = START_OF_FILE * (before == -1 and not blank_before) + END_OF_FILE * is_end
    blank_here = 1 + blank_after if indent == -1 else 0
    blank = blank_before + blank_here
    penalty += TOTAL_BLANK * blank + POST_BLANK * blank_here
    shown = indent if indent != -1 else after
    if -1 in (shown, before) or shown == before:
        pass
    elif shown > before:
        penalty += INDENTED_WITH_BLANK if blank else INDENTED
    elif after > shown:
        penalty += OUTDENTED_WITH_BLANK if blank else OUTDENTED
    else:
        penalty += DEDENTED_WITH_BLANK if blank else DEDENTED
    return shown, penalty
