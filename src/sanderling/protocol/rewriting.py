"""Rewriting lines in place: what is asked of the model, its answer as it comes, and what it has cost."""

from typing import Literal

import msgspec

from sanderling.protocol.messages import Selection, StopReason, Usage


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An instruction, and the text that came of it."""

    instruction: str
    text: str


class Rewrite(msgspec.Struct, tag="rewrite", frozen=True, forbid_unknown_fields=True):
    """
    Have the model write what is to stand in the place of `text`: `Rewritten`; until then `RewritePiece`s come.

    `path` is the file's absolute path, empty where there is none, and `shown_as` what the model is told; lines count from 1. `before` and
    `after` stand around it, `lines` are those of which a block is some columns, `outline` names what else the file holds. `drafts` were
    not yet what the person wanted. `selections` go along. An `instruction` that begins with `/name` is what that command's file says.
    Without a `model` the settings say which. Its usage counts in the session `session_id`, if that is open.
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
    """The text is by now its first `kept` bytes, and `text`. `notice` says in a sentence what is waited for."""

    kept: int = 0
    text: str = ""
    notice: str = ""


class Rewritten(msgspec.Struct, frozen=True):
    """
    The whole of what is to stand there, and what this request has cost; `total_usd` is that of all since the process began.

    The text is not all of it unless the `stop_reason` is "end_turn".
    """

    text: str
    model: str
    stop_reason: StopReason
    usage: Usage
    usd: float
    is_priced: bool
    total_usd: float
