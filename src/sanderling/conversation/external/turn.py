"""A turn of an external agent: sends the prompt, shows the agent's updates, and records its changes in the journal."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import anyio

from sanderling.acp.wire.content import ContentBlock, text_block
from sanderling.conversation.external.agent import ExternalAgent
from sanderling.conversation.external.changes import look_after
from sanderling.conversation.prompt import prompt_message
from sanderling.errors import ProviderError
from sanderling.protocol.events import ErrorOccurred, ProviderStarting, TurnStarted
from sanderling.protocol.messages import ContentBlock as Block
from sanderling.protocol.messages import ImageBlock, Message, Prompt, StopReason, TextBlock
from sanderling.session.records import LoggedTurnEnd

GRACE_S = 5.0  # for an agent that was asked to stop
STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turn_requests": "max_calls",
    "refusal": "refusal",
    "cancelled": "cancelled",
}


class AgentTurn:
    """One turn that an agent answers, here or on another machine, from its prompt to the stop reason."""

    def __init__(self, external: ExternalAgent) -> None:
        self._services = external.services
        self._presenter = external.presenter
        self._scope = anyio.CancelScope()
        self._stop_requested = anyio.Event()

    async def _attempt(
        self,
        answer: Callable[[], Awaitable[StopReason]],
        *tasks: Callable[[], Coroutine[Any, Any, None]],
    ) -> tuple[StopReason, ProviderError | None]:
        """Wait for the answer or its error, and run `tasks` meanwhile."""
        outcome: tuple[StopReason, ProviderError | None] = ("cancelled", None)
        with self._scope, self._services.sandbox.manager.kept_open():
            async with anyio.create_task_group() as group:
                for task in (self._services.memory.sync, self._presenter.keep_up, *tasks):
                    group.start_soon(task)
                try:
                    outcome = (await answer(), None)
                except ProviderError as error:
                    outcome = ("error", error)
                group.cancel_scope.cancel()
        return outcome

    def _show_error(self, error: ProviderError) -> None:
        self._services.emit(ErrorOccurred(error.kind, error.message, error.remedy))

    async def _end_calls(self, stop_reason: StopReason) -> None:
        is_whole = stop_reason not in ("cancelled", "error", "interrupted")
        await self._presenter.end_turn("" if is_whole else "stopped")

    def _log_end(self, stop_reason: StopReason, error: ProviderError | None) -> None:
        if stop_reason == "error":
            self._services.waiting.hold()
        if stop_reason == "end_turn":
            self._services.memory.name_by_answer()
        message = error.message if error else ""
        self._services.session.append(LoggedTurnEnd(stop_reason, message))


class ExternalTurn(AgentTurn):
    """One turn of an external agent on this machine. A second `cancel` does not wait for the agent."""

    def __init__(self, external: ExternalAgent) -> None:
        super().__init__(external)
        self._external = external
        self._is_asking = False

    def cancel(self) -> None:
        if self._stop_requested.is_set() or not self._is_asking:
            self._scope.cancel()
        self._stop_requested.set()

    async def run(self, prompt: Prompt) -> StopReason:
        """Run the turn. The next turn can run, whether this one ends, fails or is cancelled."""
        blocks = self._begin(prompt)
        stop_reason, error = await self._attempt(
            partial(self._answer, prompt, blocks), self._stop_when_asked
        )
        if error:
            self._show_error(error)
        if self._scope.cancel_called and self._is_asking:
            name = self._external.name
            text = f"{name} did not stop in time and was ended. The next prompt restarts it."
            self._external.link.end(f"{name} was ended.")
            self._services.warn(text)
        if self._stop_requested.is_set():
            stop_reason, error = "cancelled", None
        await self._end(stop_reason, error)
        return stop_reason

    def _begin(self, prompt: Prompt) -> list[ContentBlock]:
        services = self._services
        services.emit(TurnStarted(prompt))
        services.workspace.journal.begin_turn(prompt.id)
        notes = services.notes.of_person()
        message = prompt_message(prompt, services.commands.records(), notes)
        services.memory.begin_turn(message, prompt)
        self._external.keep()
        return blocks_of(prompt, message)

    async def _answer(self, prompt: Prompt, blocks: Sequence[ContentBlock]) -> StopReason:
        services, external = self._services, self._external
        await external.renew()
        if not external.link.is_ready:
            services.emit(ProviderStarting())
        await external.link.ready()
        external.usage.begin_turn()
        external.is_in_turn = True
        if not services.sandbox.can_write:
            return await self._ask(blocks)
        workspace = services.workspace
        async with workspace.changes.during(workspace.environment, prompt.id, are_edits=True):
            stop_reason = await self._ask(blocks)
            await look_after(workspace, prompt.id)
            return stop_reason

    async def _ask(self, blocks: Sequence[ContentBlock]) -> StopReason:
        self._is_asking = True
        answer = await self._external.link.prompt(blocks)
        self._is_asking = False
        if answer.usage:
            self._external.usage.take_turn(answer.usage)
        return STOP_REASONS.get(answer.stop_reason, "end_turn")

    async def _stop_when_asked(self) -> None:
        """Ask the agent to stop, and end it if it does not."""
        await self._stop_requested.wait()
        self._external.stop_asking()
        self._external.link.cancel()
        await anyio.sleep(GRACE_S)
        self._scope.cancel()

    async def _end(self, stop_reason: StopReason, error: ProviderError | None) -> None:
        services, external = self._services, self._external
        external.is_in_turn = False
        external.stop_asking()
        with anyio.CancelScope(shield=True):
            await self._end_calls(stop_reason)
        external.service.end_turn()
        services.sandbox.look_after("", has_failed=False)
        self._log_end(stop_reason, error)
        if services.workspace.editor:
            await services.workspace.editor.files_changed(())


def blocks_of(prompt: Prompt, message: Message) -> list[ContentBlock]:
    """Return the prompt as it is sent to the agent. A slash command of the agent has to come first."""
    *before, words = [sent for each in message.content if (sent := _sent(each))] or [text_block("")]
    is_command = (prompt.sent or prompt.text).startswith("/")
    return [words, *before] if is_command else [*before, words]


def _sent(block: Block) -> ContentBlock | None:
    match block:
        case TextBlock(text) if text:
            return text_block(text)
        case ImageBlock(source):
            return ContentBlock(type="image", data=source.data, mime_type=source.media_type)
        case _:
            return None
