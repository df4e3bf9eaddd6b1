"""
What travels between the core and its faces: events are facts (out), actions are imperatives (in).

Both are tagged unions: on the wire each is a map whose `type` is the struct's tag. `None` never travels (in Lua it would be
`vim.NIL`, which is true): a field that has nothing to say is left out.
"""

from typing import Literal

import msgspec

from sanderling.errors import ErrorKind
from sanderling.messages import Usage

StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "context_full",
    "cancelled",
    "interrupted",
    "error",
]


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lines of a buffer as the user sees them, unsaved text included; line numbers count from 1."""

    path: str
    first_line: int
    last_line: int
    text: str
    filetype: str = ""


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person sent: an id of the face's choosing, the words, and the lines that go with them."""

    id: str
    text: str
    selections: tuple[Selection, ...] = ()


# --- events ------------------------------------------------------------------------------------------------------------


class SessionOpened(msgspec.Struct, tag="session_opened", frozen=True):
    """The session can be talked to."""

    model: str


class TurnStarted(msgspec.Struct, tag="turn_started", frozen=True):
    prompt: Prompt


class ProviderStarting(msgspec.Struct, tag="provider_starting", frozen=True):
    """The model's SDK is still loading; the request goes out as soon as it is there."""


class ThinkingDelta(msgspec.Struct, tag="thinking_delta", frozen=True):
    block_id: int
    text: str


class TextDelta(msgspec.Struct, tag="text_delta", frozen=True):
    block_id: int
    text: str


class BlockEnded(msgspec.Struct, tag="block_ended", frozen=True):
    block_id: int


class UsageUpdated(msgspec.Struct, tag="usage_updated", frozen=True, omit_defaults=True):
    """`last_request` fills the model's context window, `total` is the session's; a window of 0 is unknown."""

    last_request: Usage
    total: Usage
    context_window_tokens: int = 0


class Notice(msgspec.Struct, tag="notice", frozen=True):
    """A sentence for the person, which the model does not see."""

    level: Literal["info", "warning"]
    text: str


class ErrorOccurred(msgspec.Struct, tag="error_occurred", frozen=True):
    """The turn fails; its `TurnEnded` follows. `remedy` is what a person can do, empty when there is nothing."""

    kind: ErrorKind
    message: str
    remedy: str


class TurnEnded(msgspec.Struct, tag="turn_ended", frozen=True):
    stop_reason: StopReason


Event = (
    SessionOpened
    | TurnStarted
    | ProviderStarting
    | ThinkingDelta
    | TextDelta
    | BlockEnded
    | UsageUpdated
    | Notice
    | ErrorOccurred
    | TurnEnded
)


# --- actions -----------------------------------------------------------------------------------------------------------


class OpenSession(msgspec.Struct, tag="open_session", frozen=True, forbid_unknown_fields=True):
    """Open the session, or resume it when its log exists. `project` is the absolute path of the project's root."""

    project: str


class SubmitPrompt(msgspec.Struct, tag="submit_prompt", frozen=True, forbid_unknown_fields=True):
    """Ask the model; a prompt that arrives during a turn waits for its end."""

    prompt: Prompt


class CancelTurn(msgspec.Struct, tag="cancel_turn", frozen=True, forbid_unknown_fields=True):
    """Stop the turn and drop the prompts that wait. What the model said so far is kept."""


class CloseSession(msgspec.Struct, tag="close_session", frozen=True, forbid_unknown_fields=True):
    """Stop the turn and forget the session; its log stays."""


Action = OpenSession | SubmitPrompt | CancelTurn | CloseSession
