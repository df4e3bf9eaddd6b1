"""
Prompts by ID: each one runs once, however often it is sent.

A client that loses its connection does not know whether its prompt arrived, and sends it again with the same ID. The server then waits
for the running turn, or returns the recorded stop reason, also if the session was reopened in between.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from sanderling.acp.wire.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RpcError,
    invalid,
)
from sanderling.protocol.events import ErrorOccurred
from sanderling.protocol.messages import Prompt, StopReason, Usage
from sanderling.session.records import is_session_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sanderling.errors import SanderlingError

KEPT = 256  # finished prompts whose outcome is remembered
STOP_REASONS: dict[StopReason, str] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "max_tokens": "max_tokens",
    "context_full": "max_tokens",
    "max_calls": "max_turn_requests",
    "budget": "max_turn_requests",
    "refusal": "refusal",
    "cancelled": "cancelled",
    "interrupted": "cancelled",
}
NO_KEY = frozenset(("no_key", "auth"))
FAILED = ErrorOccurred("internal", "The turn failed.", "")


class TrackedPrompt:
    """A prompt that is running or has ended. `is_accepted`: it is in the log. `done` is set when its last update was sent."""

    def __init__(self, prompt_id: str = "") -> None:
        self.prompt_id = prompt_id
        self.is_submitted = self.is_accepted = self.has_begun = False
        self.is_cancelled = False
        self.error: ErrorOccurred | None = None
        self.failure: SanderlingError | None = None
        self.stop_reason: StopReason | None = None
        self.usage = Usage()  # of its turn, so far
        self.ended = anyio.Event()
        self.done = anyio.Event()

    def end(self, stop_reason: StopReason) -> None:
        self.stop_reason = stop_reason
        self.ended.set()

    @property
    def outcome(self) -> str:
        """The ACP stop reason; "error" without one."""
        if self.is_cancelled:
            return "cancelled"
        return "error" if self.failure else STOP_REASONS.get(self.stop_reason or "error", "error")

    def result(self) -> str:
        """
        Return the ACP stop reason.

        Raises:
            RpcError: the turn failed.
        """
        if self.failure and not self.is_cancelled:
            raise self.failure
        if self.outcome != "error":
            return self.outcome
        error = self.error or FAILED
        code = AUTH_REQUIRED if error.kind in NO_KEY else INTERNAL_ERROR
        words = f"{error.message} {error.remedy}".rstrip()
        raise RpcError(code, words, {"kind": error.kind, "remedy": error.remedy})


class TrackedPrompts:
    """
    The prompts of one session. `now` is the running one, or None.

    `ends` maps the prompts of logged turns to their stop reasons; `waiting` holds the IDs of prompts that were queued when the session
    was opened.
    """

    def __init__(self) -> None:
        self.now: TrackedPrompt | None = None
        self.is_in_turn = False  # also for a turn that no client of this session started
        self.ends: Mapping[str, StopReason] = {}
        self.waiting: frozenset[str] = frozenset()
        self._kept: OrderedDict[str, TrackedPrompt] = OrderedDict()

    def find(self, prompt_id: str) -> TrackedPrompt | None:
        """Return the prompt with this ID if it was sent before."""
        if not prompt_id:
            return None
        if self.now and self.now.prompt_id == prompt_id:
            return self.now
        if prompt_id in self._kept:
            return self._kept[prompt_id]
        if prompt_id in self.ends:
            tracked = TrackedPrompt(prompt_id)
            tracked.is_submitted = tracked.is_accepted = True
            tracked.end(self.ends[prompt_id])
            tracked.done.set()
            return tracked
        return None

    def reserve(self, prompt_id: str) -> None:
        """
        Make the prompt the next one to run, unless it is already known.

        Raises:
            RpcError: another prompt is running, or the ID is invalid.
        """
        if prompt_id and not is_session_id(prompt_id):
            raise invalid("a `prompt_id` may contain only letters, digits, '-' and '_'")
        if self.find(prompt_id):
            return
        if self.now:
            raise RpcError(INVALID_REQUEST, "a prompt is running in this session; cancel it first")
        self.now = TrackedPrompt(prompt_id)

    # --- progress ----------------------------------------------------------------------------------------------------------

    def begin(self, prompt: Prompt) -> bool:
        """Note that a turn began with `prompt`; return whether it is the current one."""
        self.is_in_turn = True
        is_it = self.now is not None and prompt.id == self.now.prompt_id
        if self.now and is_it:
            self.now.has_begun = True
        return is_it

    def count(self, usage: Usage) -> None:
        """Note what the running turn has used so far."""
        if self.now and self.now.has_begun:
            self.now.usage = usage

    def end(self, stop_reason: StopReason) -> None:
        self.is_in_turn = False
        if self.now and (self.now.has_begun or self.now.is_cancelled):
            self.now.end(stop_reason)

    def fail(self, error: ErrorOccurred) -> bool:
        """Note an error; return whether a running prompt will report it."""
        if self.now:
            self.now.error = error
        return self.now is not None

    def is_held_back(self, queued: Sequence[Prompt]) -> bool:
        """Return whether the current prompt is in the queue because an earlier prompt failed."""
        if self.now is None or self.now.error is None or self.now.has_begun:
            return False
        return self.now.prompt_id in {each.id for each in queued}

    def give_back(self, prompts: Sequence[Prompt]) -> None:
        """Note that `prompts` return unsent. If the current one is among them, the next end of a turn is its own."""
        if self.now and self.now.prompt_id in {each.id for each in prompts}:
            self.now.has_begun = True

    def release(self) -> None:
        """Free the session for another prompt. The outcome is remembered if the log does not have it."""
        tracked, self.now = self.now, None
        if tracked and tracked.done.is_set() and not self._is_in_log(tracked):
            self._kept[tracked.prompt_id] = tracked
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _is_in_log(self, tracked: TrackedPrompt) -> bool:
        end = STOP_REASONS.get(self.ends.get(tracked.prompt_id, "error"))
        return tracked.outcome == end
