"""Reviews of a change before it is made: what is proposed, hunk by hunk, and what a person makes of that."""

from typing import Literal

import msgspec


class ProposedHunk(msgspec.Struct, frozen=True):
    """The lines `old`, from the line `first_line` on, which counts from 0, are to become the lines `new`."""

    first_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A change of the file `path` as the editor's buffer `buffer` would show it, from top to bottom.

    `is_new`: there is no such file. `ends_in_newline` says it of the text as proposed.
    """

    path: str
    buffer: int
    hunks: tuple[ProposedHunk, ...]
    is_new: bool = False
    ends_in_newline: bool = True


class ReviewedHunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A part of a proposal as the person leaves it: rejected, for a `reason`, or kept.

    Kept, `new`, which was `proposed` and which they may have changed, comes into the place of the lines `old` of their text, from
    `first_line` on, which counts from 0. Of what they rejected, `new` is what stood there, and `first_line` where.
    """

    first_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    proposed: tuple[str, ...]
    is_kept: bool = False
    reason: str = ""


class ReviewLeft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A file of which some changes are still to be reviewed: its text, and what that would be `before` them.

    The editor writes it with this `encoding`, `line_ending` and, if it `has_bom`, a byte order mark.
    """

    before: str
    after: str
    encoding: str = "utf-8"
    line_ending: Literal["unix", "dos", "mac"] = "unix"
    has_bom: bool = False


class Review(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The review of a proposal, whose kept hunks go into `text`, the person's own without the proposal.

    `ends_in_newline` says it of the text with them.
    """

    text: str
    hunks: tuple[ReviewedHunk, ...]
    ends_in_newline: bool = True


class UnreviewedFile(msgspec.Struct, frozen=True):
    """A file with so many changes that nobody has reviewed, the first of them in the line `line`, from 1."""

    path: str
    count: int
    line: int
