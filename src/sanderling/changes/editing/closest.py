"""Describes text that was not found: the most similar text in the file, and the differences."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import accumulate, islice

from sanderling.changes.editing.draft import NotFoundError, TextDraft
from sanderling.changes.editing.lines import indent_of, line_start, lines_of, occurrences
from sanderling.text import number

MAX_SHOWN_LINES = 12
MAX_SHOWN_CHARS = 160  # of a line
MARKED_CHARS = 40
MAX_COMPARED_CHARS = 20_000
MAX_KEYS = 8  # of each kind
MAX_VOTES = 50  # of each key
MIN_DIVIDED_CHARS = 12
MAX_WORD_LINES = 200
MAX_WORD_CHARS = 1000
MIN_LIKENESS = 0.25

_WORD = r"\w{4,}+"
_SHORT_WORD = r"\w\w++"
_LOOKALIKES = {
    "'": "‘’‚‛ʼ′",  # noqa: RUF001 - intended
    '"': "“”„‟″",
    "-": "‐‑‒–—−",  # noqa: RUF001
    "...": "…",
}
_BLANKS = " \t\u00a0\u2002\u2003\u2009\u200a\u200b\u202f\u3000\ufeff"
_NUMBERED = r" *+\d++ *+[\t│]"


def not_found(draft: TextDraft, old: str, path: str, why: str = "") -> NotFoundError:
    """Return the error for a missing `old`, with the most similar text and the differences."""
    sentences = [f"`old` is not in {path}{' exactly' if why else ''}."]
    if why:
        sentences.append(f"{why}.")
    if bare := _without_numbers(old):
        sentences.append("It includes line numbers, which are not in the file: remove them.")
        if bare in draft.text:
            return NotFoundError(" ".join(sentences))
        old = bare
    if draft.file.note:
        sentences.append(f"(The file: {draft.file.note}.)")
    place = _closest(draft.text, old)
    if place is None:
        sentences.append("Nothing in it is similar: read the file again.")
        return NotFoundError(" ".join(sentences))
    excerpt, differences = _excerpt(draft, place, lines_of(old.strip("\n")))
    has_marks = any("→" in line or "·" in line for line in excerpt)
    legend = " (→ is a tab, · a space)" if has_marks else ""
    sentences.append(f"The closest text{legend}:")
    return NotFoundError("\n".join((" ".join(sentences), *excerpt, differences)))


def _excerpt(draft: TextDraft, place: int, wanted: list[str]) -> tuple[list[str], str]:
    """Return the numbered lines from `place` that fit, and their differences from the `wanted` lines."""
    there = _lines_from(draft.text, place, len(wanted))
    differences, first_different = _differences(wanted, there)
    skipped = max(0, min(first_different - 3, len(there) - MAX_SHOWN_LINES))
    shown = there[skipped : skipped + MAX_SHOWN_LINES]
    starts = accumulate((len(line) + 1 for line in there), initial=line_start(draft.text, place))
    numbers = draft.file_lines([*starts][skipped : skipped + len(shown)])
    excerpt = [
        f"{number:>6} {_visible(line, like)}"
        for number, line, like in zip(numbers, shown, wanted[skipped:], strict=False)
    ]
    return excerpt, differences


def _without_numbers(old: str) -> str:
    """Return `old` without line numbers at its line starts; "" if it has none."""
    lines = old.split("\n")
    if not all(re.match(_NUMBERED, line) for line in lines if line.strip()):
        return ""
    return "\n".join(re.sub(_NUMBERED, "", line, count=1) for line in lines)


def _plain(text: str) -> str:
    """Replace typographic characters by their ASCII equivalents."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    for plain, lookalikes in _LOOKALIKES.items():
        for character in lookalikes:
            text = text.replace(character, plain)
    return text


def _solid(text: str) -> str:
    for character in _BLANKS if not text.isascii() else " \t":
        text = text.replace(character, "")
    return text


def _closest(text: str, old: str) -> int | None:
    """
    Return the line (from 0) where `text` is most similar to `old`; None if nothing is.

    Both are compared without blanks, case and typography. First, all of `old` is searched; then its longest lines and their thirds, and
    its longest words and their beginnings. Each match votes for the line where `old` would begin; longer and rarer matches count more.
    """
    folded, folded_old = (_solid(_plain(some)).casefold() for some in (text, old.strip("\n")))
    if not folded_old:
        return None
    if (at := folded.find(folded_old)) >= 0:
        return folded.count("\n", 0, at)
    keys = _keys(old.strip("\n"), folded_old)
    hits: list[tuple[int, int, int]] = []  # offset, line of `old`, vote
    for key, at in keys.items():
        found = list(islice(occurrences(folded, key), MAX_VOTES))
        hits += [(hit, at, len(key) * MAX_VOTES // len(found)) for hit in found]
    votes: Counter[int] = Counter()
    seen = line = 0
    for hit, at, vote in sorted(hits):
        line += folded.count("\n", seen, hit)
        seen = hit
        votes[max(0, line - at)] += vote
    if not votes:
        return None
    place = max(votes, key=lambda place: (votes[place], -place))
    window = "\n".join(_lines_from(folded, place, folded_old.count("\n") + 1))
    there = sum(len(key) for key in keys if key in window)
    return place if there >= MIN_LIKENESS * sum(map(len, keys)) else None


def _lines_from(text: str, line: int, count: int) -> list[str]:
    """Return up to `count` lines from `line`, which counts from 0."""
    start = end = line_start(text, line)
    for _ in range(count):
        end = text.find("\n", end) + 1
        if not end:
            return lines_of(text[start:])
    return lines_of(text[start:end])


def _keys(old: str, folded: str) -> dict[str, int]:
    """Return folded search strings, with the line of `old` that contains each."""
    lines = {line: at for at, line in reversed([*enumerate(folded.split("\n"))]) if line}
    words = {
        word.casefold(): at
        for at, line in reversed([*enumerate(old.split("\n")[:MAX_WORD_LINES])])
        for word in re.findall(_WORD, line[:MAX_WORD_CHARS])
    }
    longest = sorted(lines, key=len)[-MAX_KEYS:]
    thirds = {
        line[at : at + len(line) // 3]: lines[line]
        for line in longest
        if len(line) >= MIN_DIVIDED_CHARS
        for at in range(0, len(line) - 2, len(line) // 3)
    }
    longest_words = sorted(words, key=len)[-MAX_KEYS:]
    beginnings = {word[: max(4, len(word) // 2)]: words[word] for word in longest_words}
    return (
        beginnings
        | thirds
        | {word: words[word] for word in longest_words}
        | {line: lines[line] for line in longest}
    )


def _differences(old: list[str], there: list[str]) -> tuple[str, int]:
    """Return a sentence on how `old` differs from the similar lines, and its first differing line."""
    missing = next(
        (at for at, line in enumerate(old) if not _is_folded(line, there[at : at + 1])), None
    )
    if missing is not None:
        like = "".join(there[missing : missing + 1])
        return (
            f"Line {missing + 1} of `old` has no match: {_visible(old[missing], like)}",
            missing,
        )
    different = [at for at in range(len(old)) if not _fits(old, there, at)] or [0]
    first = different[0]
    while len(different) > 1 and sum(len(old[at]) for at in different) > MAX_COMPARED_CHARS:
        different = different[: len(different) // 2]
    # Only the first line may be cut at its beginning, only the last at its end.
    begin, end = "\n" * (first > 0), "\n" * (different[-1] < len(old) - 1)
    one, other = (begin + "\n".join(lines[at] for at in different) + end for lines in (old, there))
    words = [
        words
        for is_needed, words in (
            (not _is_within(one, other, _plain, str.casefold), _whitespace(one, other)),
            (not _is_within(one, other, _solid, _plain), "upper and lower case"),
            (not _is_within(one, other, _solid, str.casefold), _typography(one, other)),
        )
        if is_needed
    ] or ["where lines begin or end"]
    marked = _marked(old, there) if "whitespace" in words else ""
    return (
        f"It differs in {' and in '.join(words)}.{marked and f' {marked}'} Copy the file's text exactly.",
        first,
    )


def _marked(old: list[str], there: list[str]) -> str:
    """Quote the first part that differs in whitespace, as it is in `old` and in the file."""
    for at, (line, other) in enumerate(zip(old, there, strict=False), 1):
        if _is_within(line, other) or not _is_within(line, other, _solid):
            continue
        start = _solid(other).find(_solid(line))
        part, place = _part(other, start, len(_solid(line))), line.strip(" \t")
        begin = 0
        while begin < min(len(part), len(place)) and part[begin] == place[begin]:
            begin += 1
        begin = max(0, min(begin, len(part) - 1) - MARKED_CHARS // 2)
        ours, its = (
            "".join(map(_mark, text[begin : begin + MARKED_CHARS])) for text in (place, part)
        )
        if ours != its:
            return f"Line {at} of `old` has `{ours}`, the file `{its}`."
    return ""


def _part(line: str, start: int, length: int) -> str:
    """Return the part of `line` that has `length` characters from `start`, both without counting blanks."""
    solid = [at for at, character in enumerate(line) if _solid(character)]
    chosen = solid[start : start + length]
    return line[chosen[0] : chosen[-1] + 1] if chosen else ""


def _fits(old: list[str], there: list[str], at: int) -> bool:
    """True if line `at` of `old` matches: the first may be cut at its beginning, the last at its end."""
    begins = old[at] if at == 0 else f"\n{old[at]}"
    whole = begins if at == len(old) - 1 else f"{begins}\n"
    return whole in f"\n{there[at]}\n"


def _is_folded(line: str, there: list[str]) -> bool:
    return bool(there) and _is_within(line, there[0], _solid, _plain, str.casefold)


def _is_within(old: str, there: str, *folds: Callable[[str], str]) -> bool:
    for fold in folds:
        old, there = fold(old), fold(there)
    return old in there


def _whitespace(old: str, there: str) -> str:
    if "\t" in there and "\t" not in old:
        return "whitespace: the file has tabs where `old` has spaces"
    if "\t" in old and "\t" not in there:
        return "whitespace: the file has spaces where `old` has tabs"
    if _is_within(old, there, _without_trails, _plain, str.casefold):
        return "whitespace at the end of lines"
    return "whitespace"


def _without_trails(text: str) -> str:
    return "\n".join(line.rstrip(" \t") for line in text.split("\n"))


def _typography(old: str, there: str) -> str:
    """Describe the first character that only looks like one in the other text."""
    lookalikes = "".join(_LOOKALIKES.values())
    for text, other, name in ((there, old, "the file"), (old, there, "`old`")):
        for character in text:
            if character in lookalikes and character not in other:
                return f"typography: {name} has “{character}” (U+{ord(character):04X})"
    return "accented letters: one character in one text, two in the other"


def _visible(line: str, like: str) -> str:
    """Return a line of the file with marks for tabs, invisible characters, and spaces that differ from `like`."""
    begin = 0
    if len(line) > MAX_SHOWN_CHARS:  # show the similar part
        words = [
            word
            for word in re.findall(_SHORT_WORD, like[:MAX_SHOWN_CHARS])[:MAX_KEYS]
            if word in line
        ]
        word = min(words, key=line.count, default="")
        begin = max(0, line.find(word) - max(like.find(word), 0) - 20)
    shown = line[begin : begin + MAX_SHOWN_CHARS]
    indent, body = indent_of(shown), shown.strip(" \t")
    trail = shown[len(indent) + len(body) :]
    if indent_of(line) != indent_of(like):
        indent = indent.replace(" ", "·")
    if trail != like[len(like.rstrip(" \t")) :]:
        trail = trail.replace(" ", "·")
    marked = "".join(map(_mark, indent + body + trail))
    return f"{'…' * (begin > 0)}{marked}{'…' * (begin + MAX_SHOWN_CHARS < len(line))}"


def _mark(character: str) -> str:
    if character == "\t":
        return "→"
    return character if character.isprintable() else number(character)
