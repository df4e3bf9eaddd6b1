"""One turn of a conversation: call the model, stream its reply, run its tool calls, repeat until it stops."""

from contextlib import nullcontext, suppress
from functools import partial

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.conversation.budget import BudgetSpentError
from sanderling.conversation.hooked import MAX_CONTINUATIONS, STILL_STOPPING
from sanderling.conversation.named_model import NamedModel
from sanderling.conversation.prompt import prompt_message
from sanderling.conversation.reply import Reply
from sanderling.conversation.services import SessionServices
from sanderling.conversation.tool_uses import INTERRUPTED, ToolUses, cut_input
from sanderling.errors import ProviderError
from sanderling.protocol.events import ErrorOccurred, PromptSteered, TurnStarted
from sanderling.protocol.messages import (
    Message,
    NoteBlock,
    Prompt,
    StopReason,
    TextBlock,
    ToolResult,
    ToolUse,
)
from sanderling.session.history import NOT_RUN
from sanderling.session.records import LoggedTurnEnd

REQUEST_SENT_S = 0.01  # by then the request is on the wire
EAGER_DELAY_S = 0.04  # interactive: let a fast reply through first
# Print mode: the process ends with the reply, and would wait for a sandbox that has just begun to open.
PATIENT_DELAY_S = 0.15
REPEATED = "The model keeps making the same call with the same result."
CUT_BY_LIMIT = "The answer reached the model's output limit (max_tokens)."
GO_ON = "Your answer reached its token limit. Continue exactly where it stops."


class Turn:
    """
    A turn from the user's prompt to the model's stop reason.

    The sandbox opens while the model is thinking. With `is_eager` it opens earlier, and tool servers start after the request; without it
    the request waits for tool servers.
    """

    def __init__(self, services: SessionServices, *, is_eager: bool) -> None:
        self._services = services
        self._is_eager = is_eager
        self._reply = Reply(services.session)
        self._scope = anyio.CancelScope()
        self._model = NamedModel(
            services.session, services.provider, services.calls.models, services.emit
        )

    def cancel(self) -> None:
        self._scope.cancel()

    async def run(self, prompt: Prompt) -> StopReason:
        """Run the turn. The history stays valid for the next turn, whether this one ends, fails or is cancelled."""
        self._begin(prompt)
        stop_reason: StopReason = "cancelled"
        error_message = ""
        with self._scope, self._services.sandbox.manager.kept_open():
            async with anyio.create_task_group() as tasks:
                self._start_background_tasks(tasks)
                try:
                    stop_reason = await self._answer(tasks)
                except BudgetSpentError:
                    stop_reason = "budget"
                except ProviderError as error:
                    stop_reason, error_message = "error", error.message
                    remedy = await self._remedy(error)
                    self._services.emit(ErrorOccurred(error.kind, error.message, remedy))
                tasks.cancel_scope.cancel()
        if self._scope.cancel_called and stop_reason != "error":
            # Even at the last moment: pending prompts are returned with it.
            stop_reason = "cancelled"
        self._end(stop_reason, error_message)
        return stop_reason

    async def _remedy(self, error: ProviderError) -> str:
        """Return the remedy, and behind it, without a key, the offer of a model on this machine."""
        if error.kind != "no_key":
            return error.remedy
        from sanderling.providers.local_servers import offer_of_local  # only needed without a key

        offer = await offer_of_local(self._services.settings.providers)
        return " ".join(filter(None, (error.remedy, offer)))

    def _begin(self, prompt: Prompt) -> None:
        services = self._services
        services.emit(TurnStarted(prompt))
        self._model.begin(prompt.model, origin="This command")
        services.calls.begin_turn(prompt.effort)
        services.begin_changes(prompt)
        notes = [*services.notes.with_prompt(prompt), *services.hooks.take_notes()]
        if services.answer_note:
            notes.append(services.answer_note)
        message = prompt_message(prompt, services.commands.records(), notes)
        services.memory.begin_turn(message, prompt)

    def _end(self, stop_reason: StopReason, error_message: str) -> None:
        services = self._services
        if uses := self._reply.keep(services.provider.model):
            text = INTERRUPTED if stop_reason == "cancelled" else NOT_RUN
            results = (ToolResult(use.id, text, is_error=True) for use in uses)
            services.session.append_message(Message("user", tuple(results)))
        if stop_reason == "error":
            services.waiting.hold()
        if stop_reason == "end_turn":
            services.memory.name_by_answer()
        services.session.append(LoggedTurnEnd(stop_reason, error_message))
        self._model.end()

    async def _answer(self, tasks: TaskGroup) -> StopReason:
        """Call the model and run its tool calls until it asks for no more."""
        services = self._services
        await services.calls.fit_window()
        tools = (await services.calls.catalog.so_far()).by_name
        tool_uses = ToolUses(
            tools,
            services.workspace,
            services.session,
            services.gate,
            services.emit,
            hooks=services.hooks,
            shows_calls=services.shows_calls,
        )
        while True:
            if limit := await services.calls.stop_at_limit():
                return limit
            await services.compactor.make_room()
            stop_reason = await self._call_model()
            problems = self._problems(stop_reason)
            if uses := self._reply.keep(services.provider.model, tool_uses.repaired):
                try:
                    await tool_uses.run(uses, problems)
                finally:
                    self._append_results(tool_uses)
                tasks.start_soon(services.memory.sync)
                if self._is_ended_by_a_hook():
                    return "end_turn"
                repeated = tool_uses.take_repeated()
                if repeated and not await services.approvals.ask_to_go_on(
                    "again", repeated, REPEATED
                ):
                    return "end_turn"
            elif not await self._continues_after(stop_reason):
                return stop_reason

    def _problems(self, stop_reason: StopReason) -> dict[str, str]:
        """Return the inputs that could not be parsed, by call. The last one of an answer that was cut off is incomplete."""
        problems, last = self._reply.problems, self._reply.last_block
        limit = self._services.provider.answer_limit
        count = self._services.session.last_usage.output_tokens
        is_cut = stop_reason in ("max_tokens", "context_full") or 0 < limit <= count
        if is_cut and isinstance(last, ToolUse) and last.id in problems:
            tokens = 0 if stop_reason == "context_full" else limit or count
            problems = {**problems, last.id: cut_input(last, tokens)}
        return problems

    async def _call_model(self) -> StopReason:
        """Call the model once. If the context is full, shrink it and try again until it cannot shrink further."""
        while True:
            try:
                return await self._services.calls.ask(self._reply)
            except ProviderError as error:
                if error.kind != "context_full" or not await self._services.compactor.shrink():
                    raise

    def _append_results(self, tool_uses: ToolUses) -> None:
        """Append the tool results to the history, with the messages that the user sent meanwhile."""
        services = self._services
        waiting = () if self._scope.cancel_called else services.waiting.take_steering()
        steered = tuple(services.project.expand_or_keep(prompt) for prompt in waiting)
        notes = map(NoteBlock, services.notes.with_results(tool_uses.take_paths()))
        said = (block for prompt in steered for block in prompt_message(prompt).content)
        message = Message("user", (*tool_uses.results(), *notes, *said))
        services.session.append_message(message, steered)
        services.memory.keep()
        for prompt in steered:
            services.emit(PromptSteered(prompt))
        services.memory.report_problem()

    async def _continues_after(self, stop_reason: StopReason) -> bool:
        services = self._services
        match stop_reason:
            case "context_full":
                continues = await services.compactor.shrink()
            case "max_tokens":
                rest = "the rest of the answer"
                continues = await services.approvals.ask_to_go_on("tokens", rest, CUT_BY_LIMIT)
            case "end_turn":
                return await self._is_continued_by_a_hook()
            case _:
                return False
        is_answered = services.session.history[-1].role == "assistant"  # false after a summary
        if continues and is_answered:
            services.session.append_message(Message("user", (TextBlock(GO_ON),)))
        return continues

    async def _is_continued_by_a_hook(self) -> bool:
        services = self._services
        last = services.session.history[-1]
        text = "".join(block.text for block in last.content if isinstance(block, TextBlock))
        reason = await services.hooks.before_stop(text)
        if self._is_ended_by_a_hook():
            return False
        if not reason or last.role != "assistant":
            return False
        if services.hooks.continues_too_often:
            services.warn(STILL_STOPPING.format(count=MAX_CONTINUATIONS))
            return False
        note = NoteBlock(f"[A hook asks you to continue:\n{reason}]")
        services.session.append_message(Message("user", (note,)))
        return True

    def _is_ended_by_a_hook(self) -> bool:
        stop = self._services.hooks.take_stop()
        if stop:
            self._services.warn(f"A hook ended the turn: {stop}")
        return bool(stop)

    # --- alongside the answer ----------------------------------------------------------------------------------------------

    def _start_background_tasks(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._reply.log_as_it_grows)
        tasks.start_soon(self._prepare, tasks)
        provider = self._services.provider
        if provider.limits is None and not provider.is_local:
            tasks.start_soon(provider.learn_limits)

    async def _prepare(self, tasks: TaskGroup) -> None:
        """Open the provider's connection, the sandbox and the tool servers, and scan the project, without delaying the request."""
        services = self._services
        # If not eager, the request waits for tool servers.
        with services.servers.giving_way() if self._is_eager else nullcontext():
            await anyio.sleep(REQUEST_SENT_S)
            tasks.start_soon(services.memory.sync)
            services.tell_untrusted()
            with suppress(ProviderError):  # which the turn reports
                await services.provider.prepare()
            with anyio.move_on_after(EAGER_DELAY_S if self._is_eager else PATIENT_DELAY_S):
                await services.calls.tool_use_begun.wait()
        for load in (services.gate.get_ready, services.workspace.jobs.get_ready):
            tasks.start_soon(partial(to_thread.run_sync, load, abandon_on_cancel=True))
        await services.sandbox.get_ready()
        services.servers.begin()
        tasks.start_soon(services.notes.learn_git)
        changes = services.workspace.changes
        ahead = services.sandbox.ahead if changes.is_quick else None
        if ahead is None:  # the turn may end without a tool call
            await services.calls.tool_use_begun.wait()
        if services.sandbox.can_write:
            await changes.look_ahead(ahead or services.sandbox.environment)
