"""
Replacements in a file, from bytes to bytes.

What is replaced is found in the file's text as a model reads it, and written so that every byte outside stays what it was: of the
file's bytes only those are exchanged that the text's changed characters came from. To that end a replacement is first cut down to
the characters in which `old` and `new` differ, which also keeps the line endings inside of it and the marks of an editor's buffer.

Text that is not there exactly is looked for once more, as whole lines that differ in their indentation and in whitespace at
their ends; nothing less alike is ever replaced. Whether such lines, indented as the file has them, leave its syntax as good as it was
is asked of Python's own parsers. There is none here for languages with braces: where indentation has no meaning, it breaks nothing.
"""

import ast
import json
import math
import re
import tomllib
import unicodedata
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Annotated, Literal, NamedTuple

import msgspec

from sanderling.errors import ToolError
from sanderling.tools.editor import Hunk
from sanderling.tools.merge import line_changes
from sanderling.tools.text import CR, CRLF, UNREADABLE, Text, decode, readable

MAX_PLACES = 100_000
MAX_CHARS = 64 << 20  # that a file may grow to by `replace_all`
MAX_LISTED_LINES = 100
MAX_SHOWN_LINES = 12
MAX_SHOWN_CHARS = 160  # of a line
MAX_CHECKED_CHARS = 256 * 1024
MAX_CHECKED_DOTS = 100  # of a line of TOML
MAX_STYLE_LINES = 2000
MAX_INDENT_CHARS = 400
MAX_COMPARED_LINES = 1_000_000
MAX_COMPARED_CHARS = 20_000
MAX_KEYS = 8  # of each kind
MAX_VOTES = 50  # of each key
MIN_DIVIDED_CHARS = 12
MAX_WORD_LINES = 200
MAX_WORD_CHARS = 1000
MIN_LIKENESS = 0.25

_WORD = re.compile(r"\w{4,}+")
_SHORT_WORD = re.compile(r"\w\w++")


class Replacement(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One replacement, or one insertion of lines."""

    old: Annotated[
        str, msgspec.Meta(description="The exact text to replace; it must occur once")
    ] = ""
    new: Annotated[str, msgspec.Meta(description="The text to put there")]
    replace_all: Annotated[bool, msgspec.Meta(description="Replace every occurrence")] = False
    insert_at_line: Annotated[
        int | None,
        msgspec.Meta(description="Instead of `old`: insert after this line; 0 is the start"),
    ] = None


class Edited(msgspec.Struct, frozen=True):
    """
    A file after its replacements.

    `before` and `after` are its text, with newlines. `hunks` make the one of the other in an editor's buffer, `count` is how many
    places were replaced, `notes` are sentences that the model should be told.
    """

    data: bytes
    before: str
    after: str
    hunks: tuple[Hunk, ...]
    count: int
    notes: tuple[str, ...] = ()


def replace(
    data: bytes,
    replacements: Sequence[Replacement],
    *,
    path: str,
    line_ending: Literal["unix", "dos", "mac"] | None = None,
) -> Edited:
    """
    `data` with all the replacements made, each in what those before it left.

    `path` is what the file is called to the model; its ending tells the language. The hunks are for a buffer with this 'fileformat'
    (without one: that which Neovim would choose); where its lines keep a CR, so do theirs.

    Raises:
        ToolError: one of them cannot be made; none is.
    """
    file = decode(data)
    if file.is_binary:
        raise ToolError(
            f"{path} is a binary file: it holds control characters that no text has. Change it with a command."
        )
    if not replacements:
        raise ToolError("There is nothing to replace: give at least one replacement.")
    draft = Draft(file)
    notes: list[str] = []
    count = 0
    for number, replacement in enumerate(replacements, 1):
        which = f"Replacement {number} of {len(replacements)}: " if len(replacements) > 1 else ""
        try:
            made = _made(draft, replacement, path)
        except ToolError as error:
            if isinstance(error, _NotFoundError):
                error = _undone(file, replacements[: number - 1], replacement, path) or error
            nothing = " None of the replacements was made." if which else ""
            raise ToolError(f"{which}{error}{nothing}") from error
        count += made.places
        notes += [which + note for note in made.notes]
    return Edited(
        draft.data(data), file.text, draft.text, draft.hunks(line_ending), count, tuple(notes)
    )


# --- the text while it is edited ---------------------------------------------------------------------------------------


class Span(NamedTuple):
    """Characters `start` to `end` of a draft, with its newlines `first_newline` to `last_newline`, become `new`."""

    start: int
    end: int
    first_newline: int
    last_newline: int
    new: str
    endings: bytes


class Changed(NamedTuple):
    """Characters of the file, and those of the draft that stand for them now."""

    file_start: int
    file_end: int
    start: int
    end: int


class Draft:
    """A file's text while it is edited, and which of its characters are no longer the file's."""

    def __init__(self, file: Text) -> None:
        self.file = file
        self.exact = file.exact
        self.text = file.text
        self.endings = file.endings
        self.changes: list[Changed] = []

    def apply(self, spans: Sequence[Span]) -> bool:
        """Make the changes, which follow each other; return whether any is of what was changed before."""
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
        is_overlapping = _overlap(self.changes, spans)
        self.changes = _composed(self.changes, spans)
        return is_overlapping

    def file_lines(self, offsets: Sequence[int]) -> list[int]:
        """The lines of the file, counted from 1, at the `offsets` into the draft, which must not fall."""
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
        """The bytes `data` of the file with what has changed exchanged."""
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

    def hunks(self, line_ending: str | None) -> tuple[Hunk, ...]:
        """The changes by lines, as a buffer has them."""
        is_mac = bool(self.file.endings) and self.file.endings[0] == CR
        if is_mac and line_ending != "mac":  # the buffer takes the whole file for one line
            raw = self.exact.replace("\n", "\r")
            return (Hunk(0, 1, (raw,)),) if self.changes else ()
        if line_ending is None:
            line_ending = "dos" if set(self.file.endings) == {CRLF} else "unix"
        lines = _lines(self.exact)
        if line_ending == "unix" and CRLF in self.endings:
            ends = self.endings + bytes(1)  # the last line may have none
            lines = [
                line + "\r" if end == CRLF else line for line, end in zip(lines, ends, strict=False)
            ]
        file_count = len(_lines(self.file.exact))
        hunks: list[Hunk] = []
        for old, new in _changed_lines(self.file.exact, self.exact, self.changes):
            last = min(old.stop, file_count)
            hunks.append(Hunk(old.start, last - old.start, tuple(lines[new.start : new.stop])))
        return tuple(hunks)


def _overlap(changes: Sequence[Changed], spans: Sequence[Span]) -> bool:
    """Whether a span has a character in common with what was changed before."""
    starts = [change.start for change in changes]
    for span in spans:
        before = bisect_right(starts, max(span.start, span.end - 1))
        if before and max(changes[before - 1].start, span.start) < min(
            changes[before - 1].end, span.end
        ):
            return True
    return False


def _composed(changes: Sequence[Changed], spans: Sequence[Span]) -> list[Changed]:
    """All changes from the file on, after `changes` made the draft in which now the `spans` were changed."""
    steps = sorted(
        [(c.start, c.end, c.end - c.start - c.file_end + c.file_start, 0) for c in changes]
        + [(s.start, s.end, 0, len(s.new) - s.end + s.start) for s in spans]
    )
    composed: list[Changed] = []
    grown_before = grown_now = 0  # all that comes ahead, by that many characters
    previous_end = -1  # in the draft between the two
    for start, end, before, now in steps:
        if start <= previous_end:
            group = composed.pop()
            end = max(end, previous_end)  # noqa: PLW2901 - the group's
            file_start, new_start = group.file_start, group.start
        else:
            file_start, new_start = start - grown_before, start + grown_now
        grown_before += before
        grown_now += now
        composed.append(Changed(file_start, end - grown_before, new_start, end + grown_now))
        previous_end = end
    return composed


def _changed_lines(old: str, new: str, changes: Sequence[Changed]) -> Iterator[tuple[range, range]]:
    """The lines of both texts that the changes touch, those together that share one."""
    old_done = new_done = old_line = new_line = 0
    pending: tuple[range, range] | None = None
    for change in changes:
        old_start = old_line + old.count("\n", old_done, change.file_start)
        new_start = new_line + new.count("\n", new_done, change.start)
        old_line = old_start + old.count("\n", change.file_start, change.file_end)
        new_line = new_start + new.count("\n", change.start, change.end)
        old_done, new_done = change.file_end, change.end
        is_whole = (
            _begins_line(old, change.file_start)
            and _begins_line(old, change.file_end)
            and _begins_line(new, change.end)
        )
        rest = 0 if is_whole and old and new else 1  # an empty text has a line
        lines = range(old_start, old_line + rest), range(new_start, new_line + rest)
        if pending and old_start < pending[0].stop:
            lines = (
                range(pending[0].start, max(lines[0].stop, pending[0].stop)),
                range(pending[1].start, max(lines[1].stop, pending[1].stop)),
            )
        elif pending:
            yield pending
        pending = lines
    if pending:
        yield pending


def _begins_line(text: str, offset: int) -> bool:
    return offset == 0 or text[offset - 1] == "\n"


def _lines(text: str) -> list[str]:
    """The lines as an editor counts them: an empty text has one."""
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


# --- one replacement ---------------------------------------------------------------------------------------------------


class _NotFoundError(ToolError):
    pass


class _Made(NamedTuple):
    places: int
    notes: list[str]


def _made(draft: Draft, replacement: Replacement, path: str) -> _Made:
    """
    Make one replacement in the draft.

    Raises:
        ToolError: the draft is as it was.
    """
    old, new = (_normalised(text, draft.file) for text in (replacement.old, replacement.new))
    _check_writable(new, draft.file, path)
    if replacement.insert_at_line is not None:
        spans = [_insertion(draft, replacement, new, path)]
        return _Made(1, _overlap_notes(draft.apply(spans)))
    _check_old(old, new, replacement)
    notes: list[str] = []
    starts = _all_places(draft, old, new) if replacement.replace_all else []
    if not starts:
        start = draft.text.find(old)
        if start < 0:
            start, old, new, note = _alike(draft, old, new, path)
            notes.append(note)
        elif draft.text.find(old, start + 1) >= 0:
            raise ToolError(_ambiguous(draft, old, path))
        starts = [start]
    is_overlapping = draft.apply(_spans(draft, starts, old, new))
    return _Made(len(starts), notes + _overlap_notes(is_overlapping))


def _normalised(text: str, file: Text) -> str:
    """What the model wrote, as it would be in the file's text."""
    text = text.removeprefix("\ufeff") if file.has_bom else text
    text = text.replace("\r\n", "\n")
    return text.replace("\r", "\n") if CR in file.endings else text


def _check_writable(new: str, file: Text, path: str) -> None:
    try:
        new.encode(file.encoding)
    except UnicodeEncodeError as error:
        character = new[error.start]
        code = f"U+{ord(character):04X}"
        if character != readable(character):
            raise ToolError(f"`new` holds half a character, {code}. Write it whole.") from error
        raise ToolError(
            f"{path} is {file.encoding_name}, which has no “{character}” ({code}). Write it differently, or convert the"
            " file to UTF-8 with a command first."
        ) from error


def _check_old(old: str, new: str, replacement: Replacement) -> None:
    if not old:
        raise ToolError("`old` is empty. Give the text to replace, or `insert_at_line`.")
    if not old.strip():
        raise ToolError("`old` is only whitespace. Give text around it as well.")
    if old == new:
        but = " but for line endings, which stay as the file has them" * (
            replacement.old != replacement.new
        )
        raise ToolError(f"`old` and `new` are the same{but}: there is nothing to change.")


def _insertion(draft: Draft, replacement: Replacement, new: str, path: str) -> Span:
    line = replacement.insert_at_line or 0
    if replacement.old or replacement.replace_all:
        raise ToolError(
            "`insert_at_line` goes with `new` alone: leave out `old` and `replace_all`."
        )
    if not new:
        raise ToolError("`new` is empty: there is nothing to insert.")
    text = draft.text
    count = len(draft.endings) + (bool(text) and not text.endswith("\n"))
    if not 0 <= line <= count:
        lines = "1 line" if count == 1 else f"{count:,} lines"
        raise ToolError(
            f"`insert_at_line` is {line}, but {path} has {lines}: give 0 for its start to {count} for its end."
        )
    start = _line_start(text, line)
    is_behind_open_line = line > len(draft.endings)
    new = new.removesuffix("\n")
    new = f"\n{new}" if is_behind_open_line else f"{new}\n"
    at = min(line, len(draft.endings))
    endings = _endings(draft.endings, range(at, at), range(max(at - 1, 0), at), new.count("\n"))
    return Span(start, start, at, at, new, endings)


def _occurrences(text: str, old: str) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + len(old))


def _all_places(draft: Draft, old: str, new: str) -> list[int]:
    count = draft.text.count(old)
    length = len(draft.text) + count * (len(new) - len(old))
    if count > MAX_PLACES or length > max(len(draft.text), MAX_CHARS):
        raise ToolError(
            f"`old` is there {count:,} times, and the file would have {length:,} characters: that is too much to replace here."
            " Change it with a command."
        )
    return list(_occurrences(draft.text, old))


def _overlap_notes(is_overlapping: bool) -> list[str]:
    return ["It changed text that one before it had written."] if is_overlapping else []


def _ambiguous(draft: Draft, old: str, path: str) -> str:
    count = draft.text.count(old)
    offsets = list(islice(_occurrences(draft.text, old), MAX_LISTED_LINES))
    if count == 1:  # and once more in the middle of that
        offsets.append(draft.text.find(old, offsets[0] + 1))
        count = 2
    more = f" and {count - len(offsets):,} more places" if count > len(offsets) else ""
    words = (
        f"`old` is in {path} {count:,} times, in lines {_listed(draft.file_lines(offsets))}{more}."
    )
    if draft.changes and draft.file.text.count(old) == 1:
        words += " The replacements before it have written it once more."
    return f"{words} Give more of the text around the one you mean, or set `replace_all`."


def _listed(lines: Sequence[int]) -> str:
    """`3, 5 (2 times) and 9`."""
    words = [f"{line} ({n} times)" if n > 1 else str(line) for line, n in Counter(lines).items()]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _undone(
    file: Text, earlier: Sequence[Replacement], failed: Replacement, path: str
) -> ToolError | None:
    """What to say if it was one of the `earlier` replacements that took the text away which `failed` looks for."""
    old = _normalised(failed.old, file)
    at = file.text.find(old)
    if at < 0:
        return None
    draft = Draft(file)
    for number, replacement in enumerate(earlier, 1):
        _made(draft, replacement, path)
        if old not in draft.text:
            line = file.text.count("\n", 0, at) + 1
            return ToolError(
                f"`old` was in {path}, line {line}, but replacement {number} overlaps it and has changed that text. Each is looked"
                " for in what those before it left: put the two into one."
            )
    return None


# --- what is exchanged for a match -------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Characters of `old` that `new` has otherwise, and the newlines of `old` ahead of them and in them."""

    start: int
    end: int
    newlines_before: int
    newlines: int
    new: str


def _parts(old: str, new: str) -> list[_Part]:
    """What distinguishes `new` from `old`: in each changed group of lines all from the first difference to the last."""
    old_lines, new_lines = _split(old), _split(new)
    old_at = [0, *accumulate(map(len, old_lines))]
    parts: list[_Part] = []
    for change in line_changes(old_lines, new_lines):
        start, end = old_at[change.old.start], old_at[change.old.stop]
        written = "".join(new_lines[change.new.start : change.new.stop])
        ahead = _common_prefix(old[start:end], written)
        start, written = start + ahead, written[ahead:]
        behind = _common_prefix(old[start:end][::-1], written[::-1])
        end, written = end - behind, written[: len(written) - behind]
        before = old.count("\n", 0, start)
        parts.append(_Part(start, end, before, old.count("\n", start, end), written))
    return parts


def _split(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*(line + "\n" for line in lines), last]


def _common_prefix(a: str, b: str) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((at for at, (x, y) in pairs if x != y), min(len(a), len(b)))


def _spans(draft: Draft, starts: Sequence[int], old: str, new: str) -> list[Span]:
    """What changes when at each of `starts` `new` takes the place of `old`."""
    parts = _parts(old, new)
    newlines = old.count("\n")
    spans: list[Span] = []
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
                Span(start + part.start, start + part.end, own.start, own.stop, written, endings)
            )
    return spans


def _endings(endings: bytes, own: range, context: range, count: int) -> bytes:
    """
    The line endings for `count` lines that are written.

    Those that were there, the last of them for all that come in addition; if there were none, that of the line before in the
    `context`, which is what was matched; if it has none, that of the line in which they are written.
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


def _written(draft: Draft, start: int, parts: Sequence[_Part], old: str, new: str) -> list[str]:
    """The new text of each part, where a character for an unreadable byte that was there stands for this very byte."""
    texts = [part.new for part in parts]
    if not draft.file.is_damaged or UNREADABLE not in new:
        return texts
    if new.count(UNREADABLE) != old.count(UNREADABLE):
        raise ToolError(
            f"“{UNREADABLE}” stands for a byte of the file that is not {draft.file.encoding_name}. `new` may keep those of `old` in"
            f" their order or leave all of them out, but `old` has {old.count(UNREADABLE)} where `new` has {new.count(UNREADABLE)}."
        )
    there = (
        character
        for part in parts
        for character in draft.exact[start + part.start : start + part.end]
        if readable(character) == UNREADABLE
    )
    return [re.sub(UNREADABLE, lambda _: next(there), text) for text in texts]


# --- lines that differ in whitespace -----------------------------------------------------------------------------------


class _Alike(NamedTuple):
    """Lines to replace, as they are in the file, the text for them, and what to tell the model."""

    start: int
    old: str
    new: str
    note: str


def _alike(draft: Draft, old: str, new: str, path: str) -> _Alike:
    """
    The only lines that are those of `old` but for whitespace at their beginnings and ends, and `new` indented as they are.

    Raises:
        _NotFoundError: there are none, or it would do harm.
    """
    wanted = _lines(old)
    longest = max((line.strip() for line in wanted), key=len)
    is_worth_it = longest in draft.text and len(draft.endings) <= MAX_COMPARED_LINES
    lines = _lines(draft.text) if is_worth_it else []
    places = _places(lines, wanted)
    if not places:
        raise _NotFoundError(_not_found(draft, old, path))
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    if len(places) > 1:
        numbers = draft.file_lines([starts[place] for place in places])
        why = f"But for whitespace it is lines {_listed(numbers)}, and there is no telling which"
        raise _NotFoundError(_not_found(draft, old, path, why))
    at = places[0]
    there = lines[at : at + len(wanted)]
    indented = _indented(wanted, there, [] if not new else _lines(new), lines)
    if indented is None or (new and old.endswith("\n") != new.endswith("\n")):
        raise _NotFoundError(_not_found(draft, old, path))
    start = starts[at]
    text_there, text_new = "\n".join(there), "\n".join(indented)
    if not new and old.endswith("\n") and draft.text.startswith("\n", start + len(text_there)):
        text_there += "\n"
    after = draft.text[:start] + text_new + draft.text[start + len(text_there) :]
    if after == draft.text:
        why = "But for whitespace it is there, and `new`, indented like that, is the same"
        raise _NotFoundError(_not_found(draft, old, path, why))
    problem, verdict = _compared(path, draft.text, after)
    if problem:
        why = f"But for whitespace it is there, yet `new`, indented like that, would break the file ({problem})"
        raise _NotFoundError(_not_found(draft, old, path, why))
    first = draft.file_lines([start])[0]
    note = (
        f"The whitespace of `old` is not the file's, but its lines are those from line {first} on: `new` was indented like them."
        f" {verdict}"
    )
    return _Alike(start, text_there, text_new, note)


def _places(lines: list[str], wanted: list[str]) -> list[int]:
    """Where `wanted` is among the `lines`, whitespace around each aside; at most `MAX_LISTED_LINES` of the places."""
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


def _line_start(text: str, line: int) -> int:
    """Where the line begins that has `line` newlines before it; the end if there are fewer."""
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


def _indented(
    old: list[str], there: list[str], new: list[str], lines: list[str]
) -> list[str] | None:
    """`new` indented like the lines `there`, which `old` means; None if how is not clear."""
    known: dict[str, str] = {}
    for line, line_there in zip(old, there, strict=True):
        if line.strip() and known.setdefault(_indent(line), _indent(line_there)) != _indent(
            line_there
        ):
            return None
    if len(set(known.values())) < len(known):
        return None
    indents = {_indent(line) for line in new if line.strip()}
    if not indents <= known.keys():
        if max(map(len, (*indents, *known, *known.values()))) > MAX_INDENT_CHARS:
            return None
        given_unit = _unit({*indents, *known})
        unit = _unit(known.values()) or _usual_unit(lines) or given_unit
        base = min(known, key=len)
        found = {
            indent: _moved(indent, base, known[base], given_unit, unit)
            for indent in indents | known.keys()
        }
        if None in found.values() or any(found[given] != real for given, real in known.items()):
            return None
        known = {given: real for given, real in found.items() if real is not None}
    indented: list[str] = []
    done = 0
    for change in line_changes(old, new):
        indented += there[done : change.old.start]
        indented += (
            known[_indent(line)] + line.lstrip(" \t") if line.strip() else ""
            for line in new[change.new.start : change.new.stop]
        )
        done = change.old.stop
    return indented + there[done:]


def _moved(indent: str, base: str, base_there: str, given_unit: str, unit: str) -> str | None:
    """The indentation that is to `base_there` what `indent` is to `base`, in the file's unit."""
    if not given_unit or not unit:
        return None
    if indent.startswith(base):
        deeper = indent[len(base) :]
        levels = (len(deeper) - len(deeper.lstrip(given_unit[0]))) // len(given_unit)
        rest = deeper[levels * len(given_unit) :]
        return None if "\t" in rest else base_there + unit * levels + rest
    levels, rest = divmod(len(base) - len(indent), len(given_unit))
    lost = unit * levels
    if rest or not base.startswith(indent) or not base_there.endswith(lost):
        return None
    return base_there[: len(base_there) - len(lost)]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(indents: Collection[str]) -> str:
    """By what some indentations differ: a tab, or so many spaces; empty if that is not clear."""
    if any("\t" in indent for indent in indents):
        return "\t"
    widths = sorted({len(indent) for indent in indents})
    step = math.gcd(*(after - before for before, after in pairwise(widths)))
    return " " * step if step > 1 else ""


def _usual_unit(lines: list[str]) -> str:
    """By what the file's lines are mostly indented deeper than the ones before; empty if none is."""
    indents = [_indent(line) for line in lines[:MAX_STYLE_LINES] if line.strip()]
    deeper = [
        "\t" if after.startswith("\t") else " " * (len(after) - len(before))
        for before, after in pairwise(["", *indents])
        if len(after) > len(before)
    ]
    return Counter(deeper).most_common(1)[0][0] if deeper else ""


# --- syntax ------------------------------------------------------------------------------------------------------------


def _compared(path: str, before: str, after: str) -> tuple[str, str]:
    """What is wrong with the syntax of `after` if nothing is with that of `before`; and what to say if nothing is."""
    language, problem_of = _LANGUAGES.get(path.rpartition(".")[2].lower(), ("", None))
    if problem_of is None or max(len(before), len(after)) > MAX_CHECKED_CHARS:
        return "", "Its syntax was not checked."
    try:
        if problem_of(before):
            return "", f"It was not valid {language} before, so its syntax was not checked."
        problem = problem_of(after)
    except (RecursionError, MemoryError):
        return "", "Its syntax was not checked."
    return problem, f"It still is valid {language}."


_SOURCE_NAME = "sanderling_edited_file"


def _python_problem(text: str) -> str:
    # Parsed, not compiled: nested `finally` blocks of a few hundred bytes make the compiler take gigabytes.
    warnings.filterwarnings("ignore", module=_SOURCE_NAME)  # safe in a thread, as others are not
    try:
        ast.parse(text, _SOURCE_NAME)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except ValueError as error:
        return str(error)
    return ""


def _json_problem(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return ""


def _toml_problem(text: str) -> str:
    # For `a.a.a…` tomllib takes quadratic time and memory: 256 KB of it kill the process.
    if max(line.count(".") for line in text.split("\n")) > MAX_CHECKED_DOTS:
        raise RecursionError
    try:
        tomllib.loads(text)
    except ValueError as error:
        return str(error)
    return ""


_LANGUAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "py": ("Python", _python_problem),
    "pyi": ("Python", _python_problem),
    "pyw": ("Python", _python_problem),
    "json": ("JSON", _json_problem),
    "toml": ("TOML", _toml_problem),
}


# --- what to say when there is no match ---------------------------------------------------------------------------------

_LOOKALIKES = {
    "'": "‘’‚‛ʼ′",  # noqa: RUF001 - the point of them
    '"': "“”„‟″",
    "-": "‐‑‒–—−",  # noqa: RUF001
    "...": "…",
}
_BLANKS = " \t\u00a0\u2002\u2003\u2009\u200a\u200b\u202f\u3000\ufeff"
_NUMBERED = re.compile(r" *+\d++ *+[\t│]")


def _not_found(draft: Draft, old: str, path: str, why: str = "") -> str:
    """That `old` is not in the file, the text there that is most like it, and in what they differ."""
    sentences = [f"`old` is not in {path}{' as it is given' if why else ''}."]
    if why:
        sentences.append(f"{why}.")
    if bare := _without_numbers(old):
        sentences.append("It has line numbers, which are not in the file: leave them out.")
        if bare in draft.text:
            return " ".join(sentences)
        old = bare
    if draft.file.note:
        sentences.append(f"(The file: {draft.file.note}.)")
    place = _closest(draft.text, old)
    if place is None:
        sentences.append("Nothing in it is like that: read the file again.")
        return " ".join(sentences)
    wanted = _lines(old.strip("\n"))
    there = _lines_from(draft.text, place, len(wanted))
    differences, first_different = _differences(wanted, there)
    skipped = max(0, min(first_different - 3, len(there) - MAX_SHOWN_LINES))
    shown = there[skipped : skipped + MAX_SHOWN_LINES]
    starts = accumulate((len(line) + 1 for line in there), initial=_line_start(draft.text, place))
    numbers = draft.file_lines([*starts][skipped : skipped + len(shown)])
    excerpt = [
        f"{number:>6} {_visible(line, like)}"
        for number, line, like in zip(numbers, shown, wanted[skipped:], strict=False)
    ]
    legend = (
        " (→ is a tab, · a space)" if any("→" in line or "·" in line for line in excerpt) else ""
    )
    sentences.append(f"The closest text in it{legend}:")
    return "\n".join((" ".join(sentences), *excerpt, differences))


def _without_numbers(old: str) -> str:
    """`old` without the line numbers that its lines begin with; empty if they do not."""
    lines = old.split("\n")
    if not all(_NUMBERED.match(line) for line in lines if line.strip()):
        return ""
    return "\n".join(_NUMBERED.sub("", line, count=1) for line in lines)


def _plain(text: str) -> str:
    """`text` with the characters of a typewriter for those that look like them."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    for plain, lookalikes in _LOOKALIKES.items():
        for character in lookalikes:
            text = text.replace(character, plain)
    return text


def _solid(text: str) -> str:
    """`text` without blanks; its lines stay."""
    for character in _BLANKS if not text.isascii() else " \t":
        text = text.replace(character, "")
    return text


def _closest(text: str, old: str) -> int | None:
    """
    The line, counted from 0, from which on `text` is most like `old`; None if nothing is.

    Both are compared without blanks, case and typography, by strings that are in them: all of `old`; or its longest lines and
    thirds of them, its longest words and their beginnings. Each of these votes for the line where `old` would begin, the more the
    longer and rarer it is.
    """
    folded, folded_old = (_solid(_plain(some)).casefold() for some in (text, old.strip("\n")))
    if not folded_old:
        return None
    if (at := folded.find(folded_old)) >= 0:
        return folded.count("\n", 0, at)
    keys = _keys(old.strip("\n"), folded_old)
    hits: list[tuple[int, int, int]] = []  # offset, line of `old`, vote
    for key, at in keys.items():
        found = list(islice(_occurrences(folded, key), MAX_VOTES))
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
    """`count` lines from `line` on, which counts from 0; fewer if the text ends before."""
    start = end = _line_start(text, line)
    for _ in range(count):
        end = text.find("\n", end) + 1
        if not end:
            return _lines(text[start:])
    return _lines(text[start:end])


def _keys(old: str, folded: str) -> dict[str, int]:
    """Folded strings to look for, and the line of `old` in which each is."""
    lines = {line: at for at, line in reversed([*enumerate(folded.split("\n"))]) if line}
    words = {
        word.casefold(): at
        for at, line in reversed([*enumerate(old.split("\n")[:MAX_WORD_LINES])])
        for word in _WORD.findall(line[:MAX_WORD_CHARS])
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
    """In what `old` differs from the lines that are most like it, in a sentence, and in which of its lines first."""
    missing = next(
        (at for at, line in enumerate(old) if not _is_folded(line, there[at : at + 1])), None
    )
    if missing is not None:
        like = "".join(there[missing : missing + 1])
        return (
            f"Line {missing + 1} of `old` is not there like that: {_visible(old[missing], like)}",
            missing,
        )
    different = [at for at in range(len(old)) if not _fits(old, there, at)] or [0]
    first = different[0]
    while len(different) > 1 and sum(len(old[at]) for at in different) > MAX_COMPARED_CHARS:
        different = different[: len(different) // 2]
    # Only the first line may lack its beginning, only the last its end.
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
    return f"It differs in {' and in '.join(words)}. Give the text as the file has it.", first


def _fits(old: list[str], there: list[str], at: int) -> bool:
    """Whether a line of `old` could be the file's: the first may lack its beginning, the last its end."""
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
    """Which characters only look like those of the other text."""
    lookalikes = "".join(_LOOKALIKES.values())
    for text, other, name in ((there, old, "the file"), (old, there, "`old`")):
        for character in text:
            if character in lookalikes and character not in other:
                return f"typography: {name} has “{character}” (U+{ord(character):04X})"
    return "the form of accented letters: one character in the one text, two in the other"


def _visible(line: str, like: str) -> str:
    """`line` of the file with tabs, with spaces where they differ from those of `like`, and with what cannot be seen as marks."""
    begin = 0
    if len(line) > MAX_SHOWN_CHARS:  # the part in which it is like the other
        words = [
            word for word in _SHORT_WORD.findall(like[:MAX_SHOWN_CHARS])[:MAX_KEYS] if word in line
        ]
        word = min(words, key=line.count, default="")
        begin = max(0, line.find(word) - max(like.find(word), 0) - 20)
    shown = line[begin : begin + MAX_SHOWN_CHARS]
    indent, body = _indent(shown), shown.strip(" \t")
    trail = shown[len(indent) + len(body) :]
    if _indent(line) != _indent(like):
        indent = indent.replace(" ", "·")
    if trail != like[len(like.rstrip(" \t")) :]:
        trail = trail.replace(" ", "·")
    marked = "".join(map(_mark, indent + body + trail))
    return f"{'…' * (begin > 0)}{marked}{'…' * (begin + MAX_SHOWN_CHARS < len(line))}"


def _mark(character: str) -> str:
    if character == "\t":
        return "→"
    return character if character.isprintable() else f"<U+{ord(character):04X}>"
