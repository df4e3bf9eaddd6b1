"""Review of a change before it is made: the proposal, hunk by hunk, and the user's decisions."""

from typing import Literal

import msgspec


class ProposedHunk(msgspec.Struct, frozen=True):
    """A proposal to replace the lines `old`, beginning at `first_line` (0-based), by the lines `new`."""

    first_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A change of the file `path`, as the editor's buffer `buffer` shows it, from top to bottom.

    `is_new`: the file does not exist. `ends_in_newline` refers to the proposed text.
    """

    path: str
    buffer: int
    hunks: tuple[ProposedHunk, ...]
    is_new: bool = False
    ends_in_newline: bool = True


class ReviewedHunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A hunk after review: accepted (`is_kept`), or rejected with an optional `reason`.

    An accepted hunk replaces the lines `old` of the user's text, from `first_line` (0-based) on, by `new`: the lines `proposed`, perhaps
    edited by the user. For a rejected hunk, `new` and `first_line` are the lines that were there and their position.
    """

    first_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    proposed: tuple[str, ...]
    is_kept: bool = False
    reason: str = ""


class ReviewLeft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A file with changes left to review: its current text, and the text `before` those changes.

    The editor writes it with this `encoding` and `line_ending`, and with a byte order mark if it `has_bom`.
    """

    before: str
    after: str
    encoding: str = "utf-8"
    line_ending: Literal["unix", "dos", "mac"] = "unix"
    has_bom: bool = False


class Review(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The result of a review. `text` is the user's own text, without the proposal; the accepted hunks apply to it.

    `ends_in_newline` refers to the text with these hunks applied.
    """

    text: str
    hunks: tuple[ReviewedHunk, ...]
    ends_in_newline: bool = True


class UnreviewedFile(msgspec.Struct, frozen=True):
    """A file with `count` unreviewed changes, the first in line `line` (1-based)."""

    path: str
    count: int
    line: int
