"""
Matches lines that differ only in leading and trailing whitespace, and indents the replacement accordingly.

Less similar text is never replaced, nor is anything that would break the file's syntax.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from sanderling.changes.editing.closest import not_found
from sanderling.changes.editing.draft import TextDraft
from sanderling.changes.editing.lines import MAX_LISTED_LINES, indent_of, lines_of, listed
from sanderling.changes.editing.merge import line_changes
from sanderling.changes.editing.syntax import compared

MAX_STYLE_LINES = 2000
MAX_INDENT_CHARS = 400
MAX_COMPARED_LINES = 1_000_000


class SimilarLines(NamedTuple):
    """The matched lines of the file, their replacement, and a note for the model."""

    start: int
    old: str
    new: str
    note: str


def alike(draft: TextDraft, old: str, new: str, path: str) -> SimilarLines:
    """
    Return the only lines that match `old` apart from leading and trailing whitespace, and `new` indented like them.

    Raises:
        NotFoundError: there is no unique match, or the replacement would do harm.
    """
    lines, wanted = _compared_lines(draft, old), lines_of(old)
    places = _places(lines, wanted)
    if not places:
        raise not_found(draft, old, path)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    if len(places) > 1:
        numbers = draft.file_lines([starts[place] for place in places])
        why = f"Apart from whitespace, it matches lines {listed(numbers)}, so it is ambiguous"
        raise not_found(draft, old, path, why)
    there = lines[places[0] : places[0] + len(wanted)]
    indented = _indented(wanted, there, lines_of(new), lines)
    if indented is None or (new and old.endswith("\n") != new.endswith("\n")):
        raise not_found(draft, old, path)
    start = starts[places[0]]
    text_there, text_new = "\n".join(there), "\n".join(indented)
    if not new and old.endswith("\n") and draft.text.startswith("\n", start + len(text_there)):
        text_there += "\n"
    after = draft.text[:start] + text_new + draft.text[start + len(text_there) :]
    problem, verdict = compared(path, draft.text, after)
    if harm := _harm(is_same=after == draft.text, problem=problem):
        raise not_found(draft, old, path, f"Apart from whitespace it matches, but {harm}")
    note = f"`old` differed in whitespace, but matched from line {draft.file_lines([start])[0]} on: `new` was indented to fit. {verdict}"
    return SimilarLines(start, text_there, text_new, note)


def _harm(*, is_same: bool, problem: str) -> str:
    if is_same:
        return "`new`, indented to fit, changes nothing"
    return f"`new`, indented to fit, would break the file ({problem})" if problem else ""


def _compared_lines(draft: TextDraft, old: str) -> list[str]:
    """Return the draft's lines; empty if `old` cannot match, or the comparison would take too long."""
    longest = max(map(str.strip, lines_of(old)), key=len)
    is_worth_it = longest in draft.text and len(draft.endings) <= MAX_COMPARED_LINES
    return lines_of(draft.text) if is_worth_it else []


def _places(lines: list[str], wanted: list[str]) -> list[int]:
    """Return the lines where `wanted` matches apart from whitespace, at most `MAX_LISTED_LINES`."""
    text, part = ("\n".join(("", *map(str.strip, some), "")) for some in (lines, wanted))
    places: list[int] = []
    seen = line = 0
    at = text.find(part)
    while at >= 0 and len(places) < MAX_LISTED_LINES:
        line += text.count("\n", seen, at)
        seen = at
        places.append(line)
        at = text.find(part, at + 1)
    return places


def _indented(
    old: list[str], there: list[str], new: list[str], lines: list[str]
) -> list[str] | None:
    """Return `new` indented like the matched lines `there`; None if that is ambiguous."""
    pairs = {
        (indent_of(line), indent_of(line_there))
        for line, line_there in zip(old, there, strict=True)
        if line.strip()
    }
    indents = _indents(pairs, {indent_of(line) for line in new if line.strip()}, lines)
    if not indents:
        return None
    indented: list[str] = []
    done = 0
    for change in line_changes(old, new):
        indented += there[done : change.old.start]
        indented += (
            indents[indent_of(line)] + line.lstrip(" \t") if line.strip() else ""
            for line in new[change.new.start : change.new.stop]
        )
        done = change.old.stop
    return indented + there[done:]


def _indents(pairs: set[tuple[str, str]], wanted: set[str], lines: list[str]) -> dict[str, str]:
    """
    Map the `wanted` indentations to the file's; empty if that is ambiguous.

    `pairs` are the indentations of matched lines, in `old` and in the file. The file's own indentation is kept, unless it has another
    meaning in `old`.
    """
    known = dict(pairs)
    is_clear = len(pairs) == len(known) == len(set(known.values()))
    if is_clear and wanted <= known.keys():
        return known
    kept = {indent: indent for indent in wanted}
    if all(given == there for given, there in pairs):
        return kept
    readings = _derived_indents(known, wanted, lines) if is_clear else []
    if _is_theirs(pairs, wanted) and kept not in readings:
        readings.append(kept)
    return readings[0] if len(readings) == 1 else {}


def _is_theirs(pairs: set[tuple[str, str]], wanted: set[str]) -> bool:
    """Return whether the `wanted` indentations begin with one of the matched lines in the file, and none means another one in `old`."""
    if any(given in wanted and given != there for given, there in pairs):
        return False
    found = wanted & {there for _, there in pairs}
    return bool(found) and all(indent.startswith(min(found, key=len)) for indent in wanted)


def _derived_indents(
    known: dict[str, str], wanted: set[str], lines: list[str]
) -> list[dict[str, str]]:
    """Return the ways to extend the mapping to the `wanted` indentations by the indentation units of both."""
    given = wanted | known.keys()
    if max(map(len, (*given, *known.values()))) > MAX_INDENT_CHARS:
        return []
    base = min(known, key=len)
    found = list[dict[str, str]]()
    for given_unit, unit in _units(known, wanted, lines):
        moved = {
            indent: there
            for indent in given
            if (there := _moved(indent, base, known[base], given_unit, unit)) is not None
        }
        way = {indent: moved[indent] for indent in wanted & moved.keys()}
        if len(moved) == len(given) and known.items() <= moved.items() and way not in found:
            found.append(way)
    return found


def _units(known: dict[str, str], wanted: set[str], lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the possible indentation units of the given text, each with the file's."""
    given = wanted | known.keys()
    unit = _unit(known.values(), _usual_unit(lines))
    if not unit:
        return
    if any("\t" in indent for indent in given):
        yield "\t", unit
        return
    step = _step(given)
    base = min(known, key=len)
    is_off = (len(base) - len(known[base])) % len(unit) != 0
    if is_off and all(len(indent) % len(unit) == 0 for indent in wanted):
        return  # `new` can be in the file's unit already, and only `old` is wrong
    for width in range(2, step + 1):
        levels, rest = divmod(len(base), width)
        if base:
            is_likely = unit == " " * width or (not rest and known[base] == unit * levels)
        else:
            is_likely = len(known) > 1 or (width in (step, len(unit)) and base in wanted)
        if step % width == 0 and (is_likely or unit == " " * width == " " * step):
            yield " " * width, unit


def _moved(indent: str, base: str, base_there: str, given_unit: str, unit: str) -> str | None:
    """Return the indentation that relates to `base_there` as `indent` does to `base`, in the file's unit."""
    if not given_unit:
        return None
    if indent.startswith(base):
        deeper = indent[len(base) :]
        levels = (len(deeper) - len(deeper.lstrip(given_unit[0]))) // len(given_unit)
        rest = deeper[levels * len(given_unit) :]
        is_mixed = "\t" in rest or (levels and base_there.strip(unit[0]))
        return None if is_mixed else base_there + unit * levels + rest
    levels = (len(base) - len(indent)) // len(given_unit)
    lost = unit * levels
    if base != indent + given_unit * levels or not base_there.endswith(lost):
        return None
    return base_there[: len(base_there) - len(lost)]


def _unit(indents: Collection[str], usual: str) -> str:
    """Return the indentation unit in a file with these indentations: a tab or a number of spaces; "" if it is unclear."""
    if any("\t" in indent for indent in indents):
        return "\t"
    if usual == "\t":
        return "" if any(indents) else usual
    step = _step(indents)
    if not usual or step % len(usual) == 0:
        return usual or " " * step
    return " " * step if step > 1 else ""


def _step(indents: Collection[str]) -> int:
    """Return the greatest number of spaces of which all indentations differ by multiples."""
    widths = sorted({len(indent) for indent in indents})
    return math.gcd(*(after - before for before, after in pairwise(widths)))


def _usual_unit(lines: list[str]) -> str:
    """Return the file's most frequent increase in indentation, or ""."""
    indents = [indent_of(line) for line in lines[:MAX_STYLE_LINES] if line.strip()]
    deeper = [
        "\t" if after.startswith("\t") else " " * (len(after) - len(before))
        for before, after in pairwise(["", *indents])
        if len(after) > len(before)
    ]
    counts = Counter(deeper)
    return max(counts, key=lambda step: (counts[step], -len(step)), default="")
