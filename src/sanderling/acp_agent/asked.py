"""
Prompts that a client has asked to have answered, by their ids: each runs once, however often it is sent.

A client whose connection is cut does not know what has become of its prompt, and sends it again under the same id. That joins the one
that runs, or gets the end that it had, also of an earlier life of the session.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from sanderling.acp.errors import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_REQUEST, RpcError, invalid
from sanderling.protocol.events import ErrorOccurred
from sanderling.protocol.messages import Prompt, StopReason
from sanderling.session.records import is_session_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sanderling.errors import SanderlingError

KEPT = 256  # prompts of which the end is known
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
FAILED = ErrorOccurred("internal", "The turn has failed.", "")


class Asked:
    """A prompt that is being answered, or was. It `is_accepted` when it stands in the log; `done` is set when all that there is to tell of it has been told."""

    def __init__(self, prompt_id: str = "") -> None:
        self.prompt_id = prompt_id
        self.is_submitted = self.is_accepted = self.has_begun = False
        self.is_cancelled = False
        self.error: ErrorOccurred | None = None
        self.failure: SanderlingError | None = None
        self.stop_reason: StopReason | None = None
        self.ended = anyio.Event()
        self.done = anyio.Event()

    def end(self, stop_reason: StopReason) -> None:
        self.stop_reason = stop_reason
        self.ended.set()

    @property
    def told(self) -> str:
        """The stop reason as the protocol has it; "error" where it has none."""
        if self.is_cancelled:
            return "cancelled"
        return "error" if self.failure else STOP_REASONS.get(self.stop_reason or "error", "error")

    def result(self) -> str:
        """
        The stop reason as the protocol has it.

        Raises:
            RpcError: the turn has failed.
        """
        if self.failure and not self.is_cancelled:
            raise self.failure
        if self.told != "error":
            return self.told
        error = self.error or FAILED
        code = AUTH_REQUIRED if error.kind in NO_KEY else INTERNAL_ERROR
        words = f"{error.message} {error.remedy}".rstrip()
        raise RpcError(code, words, {"kind": error.kind, "remedy": error.remedy})


class AskedPrompts:
    """
    The prompts of one session. `now` is the one that is being answered, if any is.

    `ends` has those of the turns in the log, the newest included; `waiting` the ids of prompts that waited when the session was opened.
    """

    def __init__(self) -> None:
        self.now: Asked | None = None
        self.is_in_turn = False  # whoever has asked for it
        self.ends: Mapping[str, StopReason] = {}
        self.waiting: frozenset[str] = frozenset()
        self._kept: OrderedDict[str, Asked] = OrderedDict()

    def find(self, prompt_id: str) -> Asked | None:
        """The prompt of that id, if it was asked before."""
        if not prompt_id:
            return None
        if self.now and self.now.prompt_id == prompt_id:
            return self.now
        if prompt_id in self._kept:
            return self._kept[prompt_id]
        if prompt_id in self.ends:
            asked = Asked(prompt_id)
            asked.is_submitted = asked.is_accepted = True
            asked.end(self.ends[prompt_id])
            asked.done.set()
            return asked
        return None

    def reserve(self, prompt_id: str) -> None:
        """
        Have the prompt be the one that is answered next, unless it is known.

        Raises:
            RpcError: another one is being answered, or its id is none.
        """
        if prompt_id and not is_session_id(prompt_id):
            raise invalid("a `prompt_id` has letters, digits, '-' and '_' only")
        if self.find(prompt_id):
            return
        if self.now:
            raise RpcError(INVALID_REQUEST, "a prompt is being answered in this session: cancel it")
        self.now = Asked(prompt_id)

    # --- what becomes of it --------------------------------------------------------------------------------------------

    def begin(self, prompt: Prompt) -> bool:
        """A turn has begun with `prompt`; say whether that is the one that was asked."""
        self.is_in_turn = True
        is_it = self.now is not None and prompt.id == self.now.prompt_id
        if self.now and is_it:
            self.now.has_begun = True
        return is_it

    def end(self, stop_reason: StopReason) -> None:
        """A turn has ended."""
        self.is_in_turn = False
        if self.now and (self.now.has_begun or self.now.is_cancelled):
            self.now.end(stop_reason)

    def fail(self, error: ErrorOccurred) -> bool:
        """Something has failed; say whether there is a prompt whose end will tell it."""
        if self.now:
            self.now.error = error
        return self.now is not None

    def is_held_back(self, queued: Sequence[Prompt]) -> bool:
        """Say whether what was asked is among those that wait because a prompt before it has failed."""
        if self.now is None or self.now.error is None or self.now.has_begun:
            return False
        return self.now.prompt_id in {each.id for each in queued}

    def give_back(self, prompts: Sequence[Prompt]) -> None:
        """Note that `prompts` come back unsent. If the one that was asked is among them, the end that follows is its own."""
        if self.now and self.now.prompt_id in {each.id for each in prompts}:
            self.now.has_begun = True

    def release(self) -> None:
        """Let another prompt be answered; the end of this one is kept, if it has come to one and the log does not say it all."""
        asked, self.now = self.now, None
        if asked and asked.done.is_set() and not self._is_in_log(asked):
            self._kept[asked.prompt_id] = asked
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _is_in_log(self, asked: Asked) -> bool:
        """Say whether the log tells of the end of a prompt what there is to tell."""
        end = STOP_REASONS.get(self.ends.get(asked.prompt_id, "error"))
        return asked.told == end
