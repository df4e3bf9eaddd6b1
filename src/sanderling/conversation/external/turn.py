"""A turn of an external agent: sends the prompt, shows the agent's updates, and records its changes in the journal."""

from collections.abc import Sequence

import anyio

from sanderling.acp.wire.content import ContentBlock, text_block
from sanderling.conversation.external.agent import ExternalAgent
from sanderling.conversation.external.changes import look_after
from sanderling.conversation.prompt import prompt_message
from sanderling.errors import ProviderError
from sanderling.protocol.events import (
    ErrorOccurred,
    Notice,
    ProviderStarting,
    TurnStarted,
)
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


class ExternalTurn:
    """One turn of an external agent, from its prompt to the stop reason. A second `cancel` does not wait for the agent."""

    def __init__(self, external: ExternalAgent) -> None:
        self._external = external
        self._services = external.services
        self._scope = anyio.CancelScope()
        self._stop_requested = anyio.Event()
        self._is_asking = False

    def cancel(self) -> None:
        if self._stop_requested.is_set() or not self._is_asking:
            self._scope.cancel()
        self._stop_requested.set()

    async def run(self, prompt: Prompt) -> StopReason:
        """Run the turn. The next turn can run, whether this one ends, fails or is cancelled."""
        blocks = self._begin(prompt)
        stop_reason: StopReason = "cancelled"
        error_message = ""
        with self._scope, self._services.sandbox.manager.kept_open():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._services.memory.sync)
                tasks.start_soon(self._external.presenter.keep_up)
                tasks.start_soon(self._stop_when_asked)
                try:
                    stop_reason = await self._answer(prompt, blocks)
                except ProviderError as error:
                    stop_reason, error_message = "error", error.message
                    self._services.emit(ErrorOccurred(error.kind, error.message, error.remedy))
                tasks.cancel_scope.cancel()
        if self._scope.cancel_called and self._is_asking:
            name = self._external.name
            text = f"{name} did not stop in time and was ended. The next prompt restarts it."
            self._external.link.end(f"{name} was ended.")
            self._services.emit(Notice("warning", text))
        if self._stop_requested.is_set():
            stop_reason, error_message = "cancelled", ""
        await self._end(stop_reason, error_message)
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

    async def _end(self, stop_reason: StopReason, error_message: str) -> None:
        services, external = self._services, self._external
        external.is_in_turn = False
        external.stop_asking()
        with anyio.CancelScope(shield=True):
            is_whole = stop_reason not in ("cancelled", "error")
            await external.presenter.end_turn("" if is_whole else "stopped")
        external.service.end_turn()
        services.sandbox.look_after("", has_failed=False)
        if stop_reason == "error":
            services.waiting.hold()
        services.session.append(LoggedTurnEnd(stop_reason, error_message))
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
