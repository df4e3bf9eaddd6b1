"""Text for users who approve or trust what they read: invisible characters are shown as their numbers."""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, AnyStr

# Control characters, direction marks, letters without width or shape, tags and selectors. Whole sentences have been smuggled in them past
# readers.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013440-\U00013442\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]+"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # except tabs and line ends
MOST_KINDS = 8  # of hidden characters that a note lists
_WITHIN_SCRIPTS = ("\u200c", "\u200d", "\ufe0f", "\ufe0f\u200d")  # Persian, Hindi, emoji


def is_seen(character: str) -> bool:
    return character.isprintable() and not _HIDDEN.match(character)


def number(character: str) -> str:
    return f"<U+{ord(character):04X}>"


class _Spellings(dict[int, str]):
    """Characters and how each is shown; a cache, because a large change has many."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_shown = character in "\n\t" or is_seen(character)
        self[code] = character if is_shown else number(character)
        return self[code]


_SPELLINGS = _Spellings()


def visible(text: str) -> str:
    """Replace invisible, blank-looking and bidi characters by `<U+XXXX>`, in a command or a change."""
    return text.translate(_SPELLINGS)


def visible_line(text: str) -> str:
    """Make text `visible` in one line, so that it cannot imitate another row of a list."""
    return visible(text).replace("\n", number("\n")).replace("\t", number("\t"))


def visible_exactly(text: str) -> str:
    """Make text `visible` in one line that no other text is shown as: blanks at its ends and after another are `<U+0020>`, too."""
    shown = re.sub(r"^ +| +$|(?<= ) +", lambda run: number(" ") * len(run[0]), text)
    return visible_line(shown)


def visible_prose(text: str) -> str:
    """Make prose of any language `visible`, but keep unusual spaces and single joiners: alone they hide nothing."""
    return _HIDDEN.sub(_numbers, text)


def _numbers(found: re.Match[str]) -> str:
    return found[0] if found[0] in _WITHIN_SCRIPTS else "".join(map(number, found[0]))


def hidden_note(text: str) -> str:
    """Return a sentence that lists the characters of `text` that cannot be seen; "" if all can be."""
    runs = _HIDDEN.findall(text.replace("\r\n", "\n"))
    found = "".join(run for run in runs if run not in _WITHIN_SCRIPTS)
    if not found:
        return ""
    kinds = ", ".join(map(number, list(dict.fromkeys(found))[:MOST_KINDS]))
    return f"Contains {counted(len(found), 'character')} that cannot be seen: {kinds}."


def without_hidden(text: str) -> str:
    """Remove what `visible_prose` shows by number: web pages have soft hyphens in every word, and hide text for models."""
    return _HIDDEN.sub(lambda found: found[0] if found[0] in _WITHIN_SCRIPTS else "", text)


def printable(text: str) -> str:
    """Replace halves of surrogate pairs by U+FFFD: no encoding can represent them, so they cannot be sent or written."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def with_printable(value: Any) -> Any:
    """Make all strings in plain data `printable`, except keys."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {key: with_printable(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [with_printable(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def fence_around(text: str) -> str:
    """Return a Markdown fence that nothing inside `text` can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return "`" * (longest + 1)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that is readable as it is; the first row is its head. All columns but the first are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in rows
    ]
    rule = " | ".join(("-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])))
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def shortened(text: str, most: int) -> str:
    """Return `text` cut to `most` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(count: int, noun: str) -> str:
    """Format a number of things: `1 file`, `1,200 files`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"signal {number}"


def duration(seconds: float) -> str:
    """Format `seconds` for people: `90 s`, `10 min`, `2.5 h`."""
    minutes, hours = seconds / 60, seconds / 3600
    if seconds < 120:  # noqa: PLR2004 - more is shown in a larger unit
        return f"{seconds:.1f} s".replace(".0 ", " ")
    if minutes < 120:  # noqa: PLR2004
        return f"{minutes:.0f} min"
    return f"{hours:,.1f} h".replace(".0 ", " ") if hours < 100_000 else "years"  # noqa: PLR2004


def common_length(one: AnyStr, other: AnyStr) -> int:
    """Return how many characters, or bytes, both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the question to append to an error about an unknown `word`; empty if no known word is like it."""
    near = nearest(word, known)
    return f"; did you mean '{near[0]}'?" if near else ""


def nearest(word: str, known: Iterable[str], likeness: float = 0.65) -> list[str]:
    """Return the known word most like `word`, if one is like it: "nope" is not "openai"."""
    from difflib import get_close_matches  # needed after a typing error only

    return get_close_matches(word, known, n=1, cutoff=likeness)
