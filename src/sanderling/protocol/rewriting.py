"""Rewriting lines in place: the request, the answer as it streams, and its cost."""

from typing import Literal

import msgspec

from sanderling.protocol.messages import Selection, StopReason, Usage


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An earlier instruction, and the text that the model wrote for it."""

    instruction: str
    text: str


class Rewrite(msgspec.Struct, tag="rewrite", frozen=True, forbid_unknown_fields=True):
    """
    Have the model rewrite `text`. Streams `RewritePiece`s and ends with `Rewritten`.

    `path` is the file's absolute path, or empty; `shown_as` is the name that the model sees. Lines count from 1. `before` and `after`
    surround `text`; `lines` are the full lines if `text` is a block of columns; `outline` names what else the file contains. `drafts` are
    earlier attempts that the user did not accept. `selections` are attached. An `instruction` `/name …` is expanded from that command's
    file. Without a `model` the settings choose. The usage counts in the session `session_id`, if that is open.
    """

    project: str
    path: str
    shown_as: str
    filetype: str
    first_line: int
    text: str
    instruction: str
    kind: Literal["lines", "characters", "block"] = "lines"
    before: str = ""
    after: str = ""
    lines: str = ""
    outline: str = ""
    drafts: tuple[Draft, ...] = ()
    selections: tuple[Selection, ...] = ()
    model: str = ""
    session_id: str = ""


class RewritePiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text so far: its first `kept` bytes, then `text`. `notice` says in a sentence what the request is waiting for."""

    kept: int = 0
    text: str = ""
    notice: str = ""


class Rewritten(msgspec.Struct, frozen=True):
    """
    The complete replacement, and the cost of this request; `total_usd` is the cost of all since the process began.

    Unless `stop_reason` is "end_turn", the text is incomplete.
    """

    text: str
    model: str
    stop_reason: StopReason
    usage: Usage
    usd: float
    is_priced: bool
    total_usd: float
