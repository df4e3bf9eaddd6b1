"""The request for the origins of a file's lines, and its answer."""

from typing import Literal

import msgspec

Outcome = Literal["kept", "unreviewed", "edited", "rejected", "undone", "removed"]


class BlamedLines(msgspec.Struct, frozen=True, omit_defaults=True):
    """`count` lines from `first` on, which counts from 1, are from the hunk with the index `hunk`."""

    first: int
    count: int
    hunk: int


class BlamedHunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A hunk of the agent's: its session and turn, the file it was made in, the session's project, and what became of it.

    `lines` replaced `old`, at most the first 40 of each; the counts are of all. `usd` is the cost of the whole turn. `at` is in seconds
    since 1970. `agent` is an external agent, `child` the child session that made the change. `earlier` are the indexes of the hunks whose
    lines it replaced. Without a `number`, the session's log no longer has the turn.
    """

    session_id: str
    turn: str
    path: str
    project: str
    outcome: Outcome
    lines: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    number: int = 0
    title: str = ""
    prompt: str = ""
    at: float = 0.0
    model: str = ""
    usd: float = 0.0
    is_priced: bool = False
    agent: str = ""
    child: str = ""
    child_id: str = ""
    earlier: tuple[int, ...] = ()


class Blame(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines of a text with `line_count` lines that the agent wrote; the others are not in `lines`."""

    line_count: int
    lines: tuple[BlamedLines, ...] = ()
    hunks: tuple[BlamedHunk, ...] = ()
