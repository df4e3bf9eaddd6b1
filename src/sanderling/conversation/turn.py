"""The turn: ask the model, show what it says as it says it, run the tools that it wants, keep the history whole."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.conversation.parts import Parts
from sanderling.conversation.prompt import prompt_message
from sanderling.conversation.reply import Reply
from sanderling.conversation.tool_uses import INTERRUPTED, ToolUses
from sanderling.errors import ProviderError
from sanderling.protocol.events import ErrorOccurred, PromptSteered, TurnStarted
from sanderling.protocol.messages import Message, Prompt, StopReason, TextBlock, ToolResult
from sanderling.session.history import NOT_RUN
from sanderling.session.records import LoggedTurnEnd

UNTIL_ASKED_S = 0.01  # from a prompt to its request on the wire, and more
READY_AFTER_S = 0.04  # an answer that comes at once is not held up
# A process that ends with its answer would wait for what has just begun to open.
PATIENT_S = 0.15
REPEATED = (
    "The model has made the same call again and again, and its result was the same each time."
)
CUT_BY_LIMIT = "The answer has reached the limit of tokens that one answer can have (max_tokens)."
GO_ON = "Your answer has reached its limit of tokens. Go on exactly where it stops."


class Turn:
    """
    One turn, from its prompt to the stop reason. `take_steering` gives what the person has said meanwhile.

    What tools need is made ready while the model thinks: if this `is_eager`, sooner, and with the tool servers, for which the request
    waits otherwise.
    """

    def __init__(
        self, parts: Parts, take_steering: Callable[[], tuple[Prompt, ...]], *, is_eager: bool
    ) -> None:
        self._parts = parts
        self._take_steering = take_steering
        self._is_eager = is_eager
        self._reply = Reply(parts.session)
        self._scope = anyio.CancelScope()

    def cancel(self) -> None:
        self._scope.cancel()

    async def run(self, prompt: Prompt) -> StopReason:
        """Answer `prompt`. However that ends, the next turn can go on from the history."""
        self._begin(prompt)
        stop_reason: StopReason = "cancelled"
        error_message = ""
        with self._scope, self._parts.sandbox.keeper.kept_open():
            async with anyio.create_task_group() as tasks:
                self._start_what_goes_along(tasks)
                try:
                    stop_reason = await self._answer(tasks)
                except ProviderError as error:
                    stop_reason, error_message = "error", error.message
                    self._parts.emit(ErrorOccurred(error.kind, error.message, error.remedy))
                tasks.cancel_scope.cancel()
        if self._scope.cancel_called and stop_reason != "error":
            stop_reason = "cancelled"  # even in the last moment: what waited is dropped with it
        self._end(stop_reason, error_message)
        return stop_reason

    def _begin(self, prompt: Prompt) -> None:
        parts = self._parts
        parts.emit(TurnStarted(prompt))
        parts.calls.begin_turn()
        parts.workspace.journal.begin_turn(prompt.id)
        notes = parts.notes.with_prompt(prompt)
        message = prompt_message(prompt, parts.commands.records(), notes)
        parts.memory.begin_turn(message, prompt)

    def _end(self, stop_reason: StopReason, error_message: str) -> None:
        parts = self._parts
        if uses := self._reply.keep(parts.provider.model):
            text = INTERRUPTED if stop_reason == "cancelled" else NOT_RUN
            results = (ToolResult(use.id, text, is_error=True) for use in uses)
            parts.session.append_message(Message("user", tuple(results)))
        if stop_reason == "error":
            parts.waiting.hold()
        parts.session.append(LoggedTurnEnd(stop_reason, error_message))

    async def _answer(self, tasks: TaskGroup) -> StopReason:
        """Ask the model, run the tools that it wants, show it the results, until it wants none."""
        parts = self._parts
        tools = (await parts.calls.catalog.so_far()).by_name
        tool_uses = ToolUses(tools, parts.workspace, parts.session, parts.gate, parts.emit)
        while True:
            if limit := await parts.calls.stop_at_limit():
                return limit
            await parts.compactor.make_room()
            stop_reason = await self._ask_model()
            problems = self._reply.problems
            if uses := self._reply.keep(parts.provider.model):
                try:
                    await tool_uses.run(uses, problems)
                finally:
                    self._append_results(tool_uses)
                tasks.start_soon(parts.memory.sync)
                repeated = tool_uses.take_repeated()
                if repeated and not await parts.approvals.ask_to_go_on("again", repeated, REPEATED):
                    return "end_turn"
            elif not await self._goes_on(stop_reason):
                return stop_reason

    async def _ask_model(self) -> StopReason:
        """Make one call; of a conversation that has become too long show the model less, as long as that can be."""
        while True:
            try:
                return await self._parts.calls.ask(self._reply)
            except ProviderError as error:
                if error.kind != "context_full" or not await self._parts.compactor.shrink():
                    raise

    def _append_results(self, tool_uses: ToolUses) -> None:
        """Put the results into the history, and with them what the person has said meanwhile."""
        parts = self._parts
        waiting = () if self._scope.cancel_called else self._take_steering()
        steered = tuple(parts.project.expand_or_keep(prompt) for prompt in waiting)
        notes = map(TextBlock, parts.notes.with_results(tool_uses.take_paths()))
        said = (block for prompt in steered for block in prompt_message(prompt).content)
        message = Message("user", (*tool_uses.results(), *notes, *said))
        parts.session.append_message(message, steered)
        parts.memory.keep()
        for prompt in steered:
            parts.emit(PromptSteered(prompt))
        parts.memory.report_problem()

    async def _goes_on(self, stop_reason: StopReason) -> bool:
        """Say whether the turn goes on though the model has asked for no tool."""
        parts = self._parts
        match stop_reason:
            case "context_full":
                goes_on = await parts.compactor.shrink()
            case "max_tokens":
                rest = "the rest of the answer"
                goes_on = await parts.approvals.ask_to_go_on("tokens", rest, CUT_BY_LIMIT)
            case _:
                return False
        is_answered = parts.session.history[-1].role == "assistant"  # not by a summary
        if goes_on and is_answered:
            parts.session.append_message(Message("user", (TextBlock(GO_ON),)))
        return goes_on

    # --- beside the answer ---------------------------------------------------------------------------------------------

    def _start_what_goes_along(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._reply.log_as_it_grows)
        tasks.start_soon(self._get_ready, tasks)
        if self._parts.provider.limits is None:
            tasks.start_soon(self._parts.provider.learn_limits)

    async def _get_ready(self, tasks: TaskGroup) -> None:
        """Do what is needed soon, but must not hold up the request."""
        parts = self._parts
        # If it is not eager, the request waits for servers.
        with parts.servers.giving_way() if self._is_eager else nullcontext():
            await anyio.sleep(UNTIL_ASKED_S)
            tasks.start_soon(parts.memory.sync)
            parts.tell_untrusted()
            with suppress(ProviderError):  # which the turn tells
                await parts.provider.prepare()
            with anyio.move_on_after(READY_AFTER_S if self._is_eager else PATIENT_S):
                await parts.calls.tool_use_begun.wait()
        for load in (parts.gate.get_ready, parts.workspace.jobs.get_ready):
            tasks.start_soon(partial(to_thread.run_sync, load, abandon_on_cancel=True))
        await parts.sandbox.get_ready()
        parts.servers.begin()
        changes = parts.workspace.changes
        ahead = parts.sandbox.ahead if changes.is_quick else None
        if ahead is None:  # a turn may come to its end without a tool
            await parts.calls.tool_use_begun.wait()
        if parts.sandbox.can_write:
            await changes.look_ahead(ahead or parts.sandbox.ground)
