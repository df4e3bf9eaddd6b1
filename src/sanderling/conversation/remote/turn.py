"""
A turn of a remote agent.

The turn starts here only when the prompt is in the remote log; until then the prompt is pending, and shown as such if it takes long.
Connections may be lost and restored meanwhile.
"""

from collections.abc import Sequence
from functools import partial

import anyio

from sanderling.acp.wire.content import ContentBlock
from sanderling.conversation.external.turn import STOP_REASONS, blocks_of
from sanderling.conversation.prompt import prompt_message
from sanderling.conversation.remote.agent import RemoteAgent
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
    """One turn of `external`. If it `is_known`, the agent already has the prompt and the turn is running remotely."""

    def __init__(self, external: RemoteAgent, *, is_known: bool = False) -> None:
        self._external = external
        self._services = external.services
        self._is_known = is_known
        self._scope = anyio.CancelScope()
        self._stop_requested = anyio.Event()
        self._has_begun = self._is_listed = self._is_left = False

    def cancel(self) -> None:
        if not self._has_begun and not self._external.link.is_ready:
            self._external.reconnecting.cancel()  # the prompt may have arrived before the connection was lost
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
        with self._scope, self._services.sandbox.manager.kept_open():
            async with anyio.create_task_group() as tasks:
                for task in (
                    self._services.memory.sync,
                    self._external.presenter.keep_up,
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
            self._external.turn.end()
            self._give_back(prompt, error)
        elif error:
            self._services.emit(ErrorOccurred(error.kind, error.message, error.remedy))
        if self._has_begun:
            await self._end(prompt, stop_reason, error.message if error else "")
        return stop_reason

    # --- start ---------------------------------------------------------------------------------------------------------------

    async def _answer(self, prompt: Prompt) -> StopReason:
        external = self._external
        if not external.link.is_ready:
            self._services.emit(ProviderStarting())
        if self._is_known:
            self._begin(prompt)
        await external.link.ready()
        if not external.is_ours:  # it never reports that it has accepted a prompt
            self._begin(prompt)
        external.turn.expect()
        notes = (
            ()
            if self._is_known
            else external.tools.notes_with(prompt, external.reconnecting.seen.life)
        )
        answer = await external.reconnecting.deliver(
            prompt.id,
            _blocks(prompt),
            partial(self._begin, prompt),
            is_known=self._is_known,
            notes=notes,
        )
        self._begin(prompt)
        if answer.usage and not external.lends:  # what was lent is counted here
            external.usage.take_turn(answer.usage)
        return STOP_REASONS.get(answer.stop_reason, "end_turn")

    async def _list_soon(self, prompt: Prompt) -> None:
        """Show the prompt as pending if it is long in transit. This also saves it to the disk."""
        await anyio.sleep(UNLISTED_S)
        if not self._has_begun:
            self._is_listed = True
            self._services.waiting.put_back(prompt)

    def _begin(self, prompt: Prompt) -> None:
        """Start the turn here, once. By now the prompt is in both logs."""
        if self._has_begun:
            return
        self._has_begun = True
        services, external = self._services, self._external
        if self._is_known and external.is_told_whole:
            external.presenter.go_on()
        services.emit(TurnStarted(prompt, is_continued=self._is_known))
        if not self._is_known:
            services.memory.begin_turn(prompt_message(prompt), prompt)
        is_wanted = services.waiting.remove(prompt.id) or not self._is_listed
        external.keep(prompt.id if external.goes_on_alone else "", is_beginning=True)
        external.begin_turn(prompt.id)
        external.is_in_turn = True
        external.may_show.set()
        if not is_wanted:  # the user removed it from the queue while it was in transit
            self.cancel()

    def _give_back(self, prompt: Prompt, error: ProviderError | None) -> None:
        """Return a prompt that was not sent, to the prompt buffer or to the queue."""
        services = self._services
        self._external.tools.forget()
        is_there = services.waiting.remove(prompt.id)
        if error or self._is_left:
            if is_there or not self._is_listed:
                services.waiting.put_back(prompt)
                services.waiting.hold()
        elif is_there or not self._is_listed:
            services.emit(PromptsReturned((prompt,)))
        if error:
            services.emit(ErrorOccurred(error.kind, error.message, error.remedy))
        services.memory.keep()

    # --- end -----------------------------------------------------------------------------------------------------------------

    async def _stop_when_asked(self) -> None:
        """Ask the agent to stop. If it cannot be reached, stop waiting after a while."""
        await self._stop_requested.wait()
        self._external.stop_asking()
        self._external.reconnecting.cancel()
        await anyio.sleep(GRACE_S)
        self._services.emit(Notice("warning", STILL_STOPPING.format(name=self._external.name)))
        self._scope.cancel()

    async def _end(self, prompt: Prompt, stop_reason: StopReason, error_message: str) -> None:
        services, external = self._services, self._external
        external.is_in_turn = False
        external.stop_asking()
        with anyio.CancelScope(shield=True):
            await external.end_turn()
            is_whole = stop_reason not in ("cancelled", "error", "interrupted")
            await external.presenter.end_turn("" if is_whole else "stopped")
        if stop_reason == "error":
            services.waiting.hold()
        services.session.append(LoggedTurnEnd(stop_reason, error_message))
        external.keep(prompt.id if self._is_left else "")


def _blocks(prompt: Prompt) -> Sequence[ContentBlock]:
    return blocks_of(prompt, prompt_message(prompt))
