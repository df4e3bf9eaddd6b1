"""
A turn of a remote agent.

The turn starts here only when the prompt is in the remote log; until then the prompt is pending, and shown as such if it takes long.
Connections may be lost and restored meanwhile.
"""

from collections.abc import Sequence
from functools import partial

import anyio

from sanderling.acp.content import ContentBlock
from sanderling.conversation.guest_turn import STOP_REASONS, blocks_of
from sanderling.conversation.prompt import prompt_message
from sanderling.conversation.remote_guest import RemoteGuest
from sanderling.errors import ProviderError
from sanderling.protocol.events import (
    ErrorOccurred,
    Notice,
    PromptsReturned,
    ProviderStarting,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt, StopReason
from sanderling.session.records import LoggedTurnEnd

UNLISTED_S = 0.15  # how long a prompt may be in transit before it is shown as pending
GRACE_S = 5.0  # for an agent that was asked to stop
STILL_STOPPING = "{name} has not confirmed that it stopped."


class RemoteTurn:
    """One turn of `guest`. If it `is_known`, the agent already has the prompt and the turn is running remotely."""

    def __init__(self, guest: RemoteGuest, *, is_known: bool = False) -> None:
        self._guest = guest
        self._parts = guest.parts
        self._is_known = is_known
        self._scope = anyio.CancelScope()
        self._stop_requested = anyio.Event()
        self._has_begun = self._is_listed = self._is_left = False

    def cancel(self) -> None:
        if not self._has_begun and not self._guest.link.is_ready:
            self._guest.lasting.cancel()  # the prompt may have arrived before the connection was lost
        if self._stop_requested.is_set() or not self._has_begun:
            self._scope.cancel()
        self._stop_requested.set()

    def leave(self) -> None:
        """End the turn here; it continues remotely, if possible."""
        self._is_left = True
        self._scope.cancel()

    async def run(self, prompt: Prompt) -> StopReason:
        """Run the turn. The next turn can run, whether this one ends, fails or is cancelled."""
        stop_reason: StopReason = "cancelled"
        error: ProviderError | None = None
        with self._scope, self._parts.sandbox.keeper.kept_open():
            async with anyio.create_task_group() as tasks:
                for task in (
                    self._parts.memory.sync,
                    self._guest.telling.keep_up,
                    self._stop_when_asked,
                ):
                    tasks.start_soon(task)
                tasks.start_soon(self._list_soon, prompt)
                try:
                    stop_reason = await self._answer(prompt)
                except ProviderError as problem:
                    stop_reason, error = "error", problem
                tasks.cancel_scope.cancel()
        if self._stop_requested.is_set():
            stop_reason, error = "cancelled", None
        if self._is_left:
            stop_reason = "interrupted"
        if not self._has_begun:
            self._guest.turn.end()
            self._give_back(prompt, error)
        elif error:
            self._parts.emit(ErrorOccurred(error.kind, error.message, error.remedy))
        if self._has_begun:
            await self._end(prompt, stop_reason, error.message if error else "")
        return stop_reason

    # --- start ---------------------------------------------------------------------------------------------------------------

    async def _answer(self, prompt: Prompt) -> StopReason:
        guest = self._guest
        if not guest.link.is_ready:
            self._parts.emit(ProviderStarting())
        if self._is_known:
            self._begin(prompt)
        await guest.link.ready()
        if not guest.is_ours:  # it never reports that it has accepted a prompt
            self._begin(prompt)
        guest.turn.expect()
        notes = () if self._is_known else guest.tools.notes_with(prompt, guest.lasting.seen.life)
        answer = await guest.lasting.deliver(
            prompt.id,
            _blocks(prompt),
            partial(self._begin, prompt),
            is_known=self._is_known,
            notes=notes,
        )
        self._begin(prompt)
        if answer.usage and not guest.lends:  # what was lent is counted here
            guest.usage.take_turn(answer.usage)
        return STOP_REASONS.get(answer.stop_reason, "end_turn")

    async def _list_soon(self, prompt: Prompt) -> None:
        """Show the prompt as pending if it is long in transit. This also saves it to the disk."""
        await anyio.sleep(UNLISTED_S)
        if not self._has_begun:
            self._is_listed = True
            self._parts.waiting.put_back(prompt)

    def _begin(self, prompt: Prompt) -> None:
        """Start the turn here, once. By now the prompt is in both logs."""
        if self._has_begun:
            return
        self._has_begun = True
        parts, guest = self._parts, self._guest
        if self._is_known and guest.is_told_whole:
            guest.telling.go_on()
        parts.emit(TurnStarted(prompt, is_continued=self._is_known))
        if not self._is_known:
            parts.memory.begin_turn(prompt_message(prompt), prompt)
        is_wanted = parts.waiting.remove(prompt.id) or not self._is_listed
        guest.keep(prompt.id if guest.goes_on_alone else "", is_beginning=True)
        guest.begin_turn(prompt.id)
        guest.is_in_turn = True
        guest.may_show.set()
        if not is_wanted:  # the user removed it from the queue while it was in transit
            self.cancel()

    def _give_back(self, prompt: Prompt, error: ProviderError | None) -> None:
        """Return a prompt that was not sent, to the prompt buffer or to the queue."""
        parts = self._parts
        self._guest.tools.forget()
        is_there = parts.waiting.remove(prompt.id)
        if error or self._is_left:
            if is_there or not self._is_listed:
                parts.waiting.put_back(prompt)
                parts.waiting.hold()
        elif is_there or not self._is_listed:
            parts.emit(PromptsReturned((prompt,)))
        if error:
            parts.emit(ErrorOccurred(error.kind, error.message, error.remedy))
        parts.memory.keep()

    # --- end -----------------------------------------------------------------------------------------------------------------

    async def _stop_when_asked(self) -> None:
        """Ask the agent to stop. If it cannot be reached, stop waiting after a while."""
        await self._stop_requested.wait()
        self._guest.stop_asking()
        self._guest.lasting.cancel()
        await anyio.sleep(GRACE_S)
        self._parts.emit(Notice("warning", STILL_STOPPING.format(name=self._guest.name)))
        self._scope.cancel()

    async def _end(self, prompt: Prompt, stop_reason: StopReason, error_message: str) -> None:
        parts, guest = self._parts, self._guest
        guest.is_in_turn = False
        guest.stop_asking()
        with anyio.CancelScope(shield=True):
            await guest.end_turn()
            is_whole = stop_reason not in ("cancelled", "error", "interrupted")
            await guest.telling.end_turn("" if is_whole else "stopped")
        if stop_reason == "error":
            parts.waiting.hold()
        parts.session.append(LoggedTurnEnd(stop_reason, error_message))
        guest.keep(prompt.id if self._is_left else "")


def _blocks(prompt: Prompt) -> Sequence[ContentBlock]:
    return blocks_of(prompt, prompt_message(prompt))
