"""
Replacements in a file, from bytes to bytes.

Replacements match the file's text as a model reads it. Text without an exact match is searched again by lines, ignoring whitespace
(`alike`); the error for unmatched text shows the closest text (`closest`).
"""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Literal

import msgspec

from sanderling.changes.editing.draft import NotFoundError, TextDraft
from sanderling.changes.editing.legacy import NAMES, inside
from sanderling.changes.editing.lines import MAX_LISTED_LINES, listed, occurrences
from sanderling.changes.editing.text import (
    CR,
    FileText,
    character_name,
    declared_encoding,
    decode,
    readable,
    utf_16_hint,
)
from sanderling.errors import ToolError
from sanderling.text import counted

NOTEBOOK_SUFFIX = ".ipynb"
MAX_PLACES = 100_000
MAX_CHARS = 64 << 20  # the limit for a file that grows by `replace_all`


class Replacement(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A replacement, or an insertion of lines."""

    old: Annotated[
        str, msgspec.Meta(description="The exact text to replace; it must occur once")
    ] = ""
    new: Annotated[str, msgspec.Meta(description="The replacement text")]
    replace_all: Annotated[bool, msgspec.Meta(description="Replace every occurrence")] = False
    insert_at_line: Annotated[
        int | None,
        msgspec.Meta(description="Instead of `old`: insert after this line as read; 0: top"),
    ] = None
    cell: Annotated[int, msgspec.Meta(description="Notebook cell, whole without `old`")] = 0
    new_cell: Annotated[
        Literal["", "code", "markdown"], msgspec.Meta(description="Insert before `cell`")
    ] = ""


class Edited(msgspec.Struct, frozen=True):
    """A file after its replacements, with notes for the model."""

    data: bytes
    notes: tuple[str, ...] = ()


def replace(data: bytes, replacements: Sequence[Replacement], *, path: str) -> Edited:
    """
    Make all replacements in order, each in the result of the previous one; line numbers are those of `data`.

    `path` is the file's name for the model; its extension determines the language.

    Raises:
        ToolError: one is impossible; none was made.
    """
    if any(each.cell or each.new_cell for each in replacements):
        raise ToolError(f"{path} is not a notebook: omit `cell` and `new_cell`.")
    file = decode(data)
    if file.is_binary:
        raise ToolError(
            f"{path} is a binary file (it contains control characters). Change it with a command.{utf_16_hint(data)}"
        )
    if not replacements:
        raise ToolError("Nothing to replace: give at least one replacement.")
    draft = TextDraft(file, _insertion_lines(replacements))
    notes: list[str] = []
    for number, replacement in enumerate(replacements, 1):
        which = f"Replacement {number} of {len(replacements)}: " if len(replacements) > 1 else ""
        try:
            notes += [which + note for note in _make(draft, replacement, path)]
        except ToolError as error:
            if isinstance(error, NotFoundError):
                error = _undone(file, replacements[: number - 1], replacement, path) or error
            nothing = " No replacement was made." if which else ""
            raise ToolError(f"{which}{error}{nothing}") from error
    return Edited(draft.data(data), tuple(notes))


def _make(draft: TextDraft, replacement: Replacement, path: str) -> list[str]:
    """Make one replacement in the draft; return notes for the model."""
    old, new = (_normalised(text, draft.file) for text in (replacement.old, replacement.new))
    _check_writable(new, draft.file, path)
    _check_declared(old, new, draft, path)
    if replacement.insert_at_line is not None:
        _check_insertion(draft, replacement, new, path)
        return _overlap_notes(is_overlapping=draft.insert(replacement.insert_at_line, new))
    _check_old(old, new, replacement)
    notes: list[str] = []
    starts = _all_places(draft, old, new) if replacement.replace_all else []
    if replacement.replace_all and (left := draft.text.count(old) - len(starts)) > 0 and starts:
        notes.append(
            f"{left} of {left + len(starts)} occurrences were not replaced: {_MAY_BE_HALF}."
        )
    if not starts:
        start = _find(draft, old, 0)
        if start < 0:
            if old in draft.text:
                raise ToolError(_half(draft, path))
            from sanderling.changes.editing.alike import (
                alike,  # for models that do not copy exactly
            )

            start, old, new, note = alike(draft, old, new, path)
            notes.append(note)
        elif _find(draft, old, start + 1) >= 0:
            raise ToolError(_ambiguous(draft, old, path))
        starts = [start]
    return notes + _overlap_notes(is_overlapping=draft.replace(starts, old, new))


def _insertion_lines(replacements: Sequence[Replacement]) -> set[int]:
    return {max(0, each.insert_at_line) for each in replacements if each.insert_at_line is not None}


def _normalised(text: str, file: FileText) -> str:
    """Adapt the model's `text` to the file's line endings and byte order mark."""
    text = text.removeprefix("\ufeff") if file.has_bom else text
    text = text.replace("\r\n", "\n")
    return text.replace("\r", "\n") if CR in file.endings else text


def _check_writable(new: str, file: FileText, path: str) -> None:
    try:
        new.encode(file.encoding)
    except UnicodeEncodeError as error:
        character = new[error.start]
        if character != readable(character):
            code = f"U+{ord(character):04X}"
            raise ToolError(
                f"`new` contains half of a character, {code}. Write it whole."
            ) from error
        raise ToolError(
            f"{path} is {file.encoding_name}, which has no {character_name(character)}. Write it differently, or convert the"
            " file to UTF-8 with a command first."
        ) from error


def _check_declared(old: str, new: str, draft: TextDraft, path: str) -> None:
    """Refuse characters that have other bytes in the encoding that the file declares. The ones of `old` keep their bytes."""
    added = "".join(sorted({*new} - {*old}))
    if added.isascii() or not (declared := declared_encoding(draft.file, draft.text)):
        return
    for character in added:
        if character.encode(draft.file.encoding) != _bytes_in(declared, character):
            raise ToolError(
                f"{path} declares the encoding {declared}, where {character_name(character)} has other bytes than in"
                f" {draft.file.encoding_name}, as which it is edited. Write the character as an escape, or change the file with a command"
                " that uses its encoding."
            )


def _bytes_in(encoding: str, character: str) -> bytes | None:
    try:
        return character.encode(encoding)
    except UnicodeError:
        return None


def _check_old(old: str, new: str, replacement: Replacement) -> None:
    if not old:
        raise ToolError("`old` is empty. Give the text to replace, or `insert_at_line`.")
    if not old.strip():
        raise ToolError("`old` is only whitespace. Include text around it.")
    if old == new:
        but = " except for line endings, which are kept" * (replacement.old != replacement.new)
        raise ToolError(f"`old` and `new` are the same{but}: nothing to change.")


def _check_insertion(draft: TextDraft, replacement: Replacement, new: str, path: str) -> None:
    line, count = replacement.insert_at_line or 0, draft.file_line_count
    if replacement.old or replacement.replace_all:
        raise ToolError("`insert_at_line` takes `new` alone: omit `old` and `replace_all`.")
    if not new:
        raise ToolError("`new` is empty: nothing to insert.")
    if not 0 <= line <= count:
        raise ToolError(
            f"`insert_at_line` is {line}, but {path} has {counted(count, 'line')}: use 0 (start) to {count} (end)."
        )


def _all_places(draft: TextDraft, old: str, new: str) -> list[int]:
    count = draft.text.count(old)
    length = len(draft.text) + count * (len(new) - len(old))
    if count > MAX_PLACES or length > max(len(draft.text), MAX_CHARS):
        raise ToolError(
            f"`old` occurs {count:,} times, and the file would have {length:,} characters: too much to replace here. Use a command."
        )
    inside = _Inside(draft)
    return [start for start in occurrences(draft.text, old) if inside.is_whole(start, len(old))]


def _find(draft: TextDraft, old: str, start: int) -> int:
    """Return the first match of `old` from `start` on that does not split a character, or -1."""
    inside = _Inside(draft)
    start = draft.text.find(old, start)
    while start >= 0 and not inside.is_whole(start, len(old)):
        start = draft.text.find(old, start + 1)
    return start


_MAY_BE_HALF = "each may be half of a character, because the file is not UTF-8"


class _Inside:
    """Finds positions inside possible two-byte characters of a draft."""

    def __init__(self, draft: TextDraft) -> None:
        self._text = draft.exact
        self._file = draft.file
        self._lines: dict[int, frozenset[int]] = {}

    def is_whole(self, start: int, length: int) -> bool:
        """True if the part begins and ends between characters."""
        if not self._file.doubtful:
            return True
        return not any(map(self._is_inside, (start, start + length)))

    def _is_inside(self, at: int) -> bool:
        begin = self._text.rfind("\n", 0, at) + 1
        if begin not in self._lines:
            end = self._text.find("\n", begin)
            line = self._text[begin : end if end >= 0 else len(self._text)]
            data = line.encode(self._file.encoding, "replace")
            self._lines[begin] = inside(data, self._file.doubtful)
        return at - begin in self._lines[begin]


def _half(draft: TextDraft, path: str) -> str:
    names = " or ".join(NAMES[each] for each in draft.file.doubtful)
    return (
        f"`old` only matches half of a possible character in {path}: the file is not UTF-8, but perhaps {names}."
        " Convert it to UTF-8 first (iconv), or give whole characters."
    )


def _overlap_notes(*, is_overlapping: bool) -> list[str]:
    return ["It changed text written by an earlier one."] if is_overlapping else []


def _ambiguous(draft: TextDraft, old: str, path: str) -> str:
    count = draft.text.count(old)
    offsets = list(islice(occurrences(draft.text, old), MAX_LISTED_LINES))
    if count == 1:  # the second one overlaps the first
        offsets.append(draft.text.find(old, offsets[0] + 1))
        count = 2
    more = f" and {count - len(offsets):,} more" if count > len(offsets) else ""
    words = f"`old` occurs {count:,} times in {path}, in lines {listed(draft.file_lines(offsets))}{more}."
    if draft.changes and draft.file.text.count(old) == 1:
        words += " An earlier replacement added one."
    return f"{words} Include more context, or set `replace_all`."


def _undone(
    file: FileText, earlier: Sequence[Replacement], failed: Replacement, path: str
) -> ToolError | None:
    """Return an error naming the `earlier` replacement that removed the text for `failed`; None if not found."""
    old = _normalised(failed.old, file)
    at = file.text.find(old)
    if at < 0:
        return None
    draft = TextDraft(file, _insertion_lines(earlier))
    for number, replacement in enumerate(earlier, 1):
        _make(draft, replacement, path)
        if old not in draft.text:
            line = file.text.count("\n", 0, at) + 1
            return ToolError(
                f"`old` was in {path}, line {line}, but replacement {number} changed that text. Each applies to the result of the"
                " previous ones: combine the two."
            )
    return None
