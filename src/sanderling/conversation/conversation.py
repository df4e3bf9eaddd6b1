"""The turn loop: ask the model, show what it says as it says it, keep the history whole."""

import codecs
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.commands.jobs import Jobs
from sanderling.commands.persons import Command, Commands
from sanderling.commands.shell import Shell, ShellState
from sanderling.config import Settings
from sanderling.conversation.compactor import Compactor
from sanderling.conversation.model_calls import ModelCalls
from sanderling.conversation.notes import Notes
from sanderling.conversation.prompt import prompt_message
from sanderling.conversation.reply import Reply
from sanderling.conversation.tool_uses import INTERRUPTED, ToolUses
from sanderling.conversation.usage_report import report
from sanderling.conversation.waiting import Waiting
from sanderling.errors import ConfigError, ProviderError, SandboxError, SessionError, ToolError
from sanderling.permissions.approvals import Approvals
from sanderling.permissions.decide import only_reads_with
from sanderling.permissions.gate import Gate
from sanderling.permissions.rules import Rule
from sanderling.permissions.shell import grammar
from sanderling.permissions.store import RuleStore
from sanderling.project.project import Project
from sanderling.protocol.events import (
    AccessDenied,
    ErrorOccurred,
    Event,
    GuardActed,
    Job,
    JobOutput,
    JobsChanged,
    ModelChanged,
    ModelsListed,
    Notice,
    PromptsReturned,
    PromptSteered,
    ReportShown,
    SandboxChanged,
    TitleChanged,
    TodoChanged,
    ToolUseShown,
    TrustNeeded,
    TurnEnded,
    TurnStarted,
    WaitingChanged,
)
from sanderling.protocol.messages import Message, Prompt, StopReason, TextBlock, ToolResult, Usage
from sanderling.protocol.modes import Mode, NetworkMode
from sanderling.providers import Provider
from sanderling.sandbox.confinement import SessionEvent, SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.policy import Grant, SandboxPolicy
from sanderling.sandbox.report import GuardEvent, ProjectReplaced
from sanderling.session.history import NOT_RUN
from sanderling.session.records import LoggedTurnEnd
from sanderling.session.session import Session
from sanderling.text import printable
from sanderling.tools.catalog import Catalog, OwnTools, ToolSource
from sanderling.tools.editor import Editor
from sanderling.tools.outcome import Content
from sanderling.tools.todo_list import TodoList
from sanderling.tools.workspace import Workspace

Task = Callable[[Any], Coroutine[Any, Any, None]]
MAX_CHUNK_BYTES = 64 * 1024
MAX_REPLAYED_BYTES = 1 << 20  # of what a job has written before somebody watches it
WATCH_PAUSE_S = 0.01
UNTIL_ASKED_S = 0.01  # from a prompt to its request on the wire, and more
REPEATED = (
    "The model has made the same call again and again, and its result was the same each time."
)
PROJECT_REPLACED = (
    "{project} is another directory than before. What was still running in the old one was stopped;"
    " from here on, the new one is used."
)
CUT_BY_LIMIT = "The answer has reached the limit of tokens that one answer can have (max_tokens)."
READY_AFTER_S = 0.04  # an answer that comes at once is not held up
GO_ON = "Your answer has reached its limit of tokens. Go on exactly where it stops."


class Conversation:
    """
    One session's turns and commands. `emit` takes the events; it must not block.

    What tools need is made ready when the model begins to use one, or, if this `is_eager`, while it still thinks.
    """

    _tasks: TaskGroup | None = None

    def __init__(
        self,
        session: Session,
        provider: Provider,
        emit: Callable[[Event], None],
        policy: SandboxPolicy,
        settings: Settings,
        *,
        rules: tuple[Rule, ...] = (),
        editor: Editor | None = None,
        is_eager: bool = True,
        sources: Sequence[ToolSource] = (OwnTools(),),
    ) -> None:
        self.session = session
        self.provider = provider
        self.emit = emit
        self.sandbox = SessionSandbox(policy, self._emit_sandbox_event, self._emit_sandbox)
        self.commands = Commands(
            session,
            self.sandbox,
            emit,
            lambda: self._turn is not None,
            self._start,
            on_end=self._files_may_have_changed,
            offer=self._offer_programs,
        )
        self.workspace = self._make_workspace(editor)
        self.approvals = Approvals(session.project, emit, self._append_said)
        store = RuleStore(settings.state_dir, session.project)
        self.gate = Gate(
            self.workspace,
            self.approvals,
            store,
            rules,
            emit,
            on_allowed=self._keep_grants,
        )
        self.catalog = Catalog(*sources)
        self.surroundings = Project(settings, session.project)
        self.calls = ModelCalls(
            session, provider, settings, self.approvals, emit, catalog=self.catalog
        )
        self._notes = Notes(session, self.workspace, self.gate, self.surroundings.instructions)
        self._compactor = Compactor(
            session,
            provider,
            self.calls,
            self._notes,
            emit,
            is_automatic=settings.auto_compact,
        )
        self._early: list[tuple[Task, Any]] = []
        self.waiting = Waiting(self._keep_waiting)
        self._shown_waiting = WaitingChanged()
        self._wanted_summary: str | None = None  # its focus
        self._arrived = anyio.Event()
        self._is_closed = False
        self._is_eager = is_eager
        self._turn: anyio.CancelScope | None = None
        self._last_write_error = ""
        self._watched: dict[str, anyio.CancelScope] = {}
        self._resume()

    def _resume(self) -> None:
        """Take up what the session has left."""
        session = self.session
        if isinstance(model := session.state("model"), str):
            self.provider.set_model(model)
        elif session.history and session.model != self.provider.model:
            session.switch_model(self.provider.model)
        if waiting := session.state("waiting"):
            with suppress(msgspec.ValidationError):  # another version's
                self.waiting.restore(waiting, {prompt.id for prompt in session.prompts})

    def show_state(self) -> None:
        """Emit what a session begins or goes on with of what can change, and the screen shows."""
        if problem := self.surroundings.trust.problem:
            self.emit(Notice("warning", problem))
        self._tell_untrusted()
        self.show_waiting()
        if items := self.workspace.todo.items:
            self.emit(TodoChanged(items))
        if self.session.ledger.total != Usage():
            self.calls.show_usage()

    # --- what waits ----------------------------------------------------------------------------------------------------

    def submit(self, prompt: Prompt) -> None:
        """Run a turn for `prompt`, after those that wait."""
        self.waiting.queue(prompt)
        self._arrived.set()

    def steer(self, prompt: Prompt) -> None:
        """Tell the model at its next tool boundary; without a turn, that is a turn."""
        self.waiting.steer(prompt)
        self._arrived.set()

    def release(self) -> None:
        """Let the prompts go that are held."""
        self.waiting.release()
        self._arrived.set()

    def _keep_waiting(self) -> None:
        self.session.keep_state("waiting", self.waiting.state())
        self.show_waiting()

    def show_waiting(self) -> None:
        """Emit what waits, if that is not shown; a prompt that goes at once never is."""
        shown = self.waiting.shown()
        goes_at_once = not (self._turn or self.waiting.is_held)
        if goes_at_once and len(shown.steering) + len(shown.queued) == 1:
            return
        if shown != self._shown_waiting:
            self._shown_waiting = shown
            self.emit(shown)

    def cancel(self) -> None:
        """Stop the turn and give back the prompts that wait; without either, stop the newest command."""
        returned = self.waiting.take_all()
        is_summary_dropped = self._wanted_summary is not None
        self._wanted_summary = None
        if returned:
            self.emit(PromptsReturned(returned))
        if self._turn:
            self._turn.cancel()
        elif returned:
            self.emit(TurnEnded("cancelled"))
        elif not is_summary_dropped:
            self.commands.stop_newest()

    def close(self) -> None:
        """Stop the turn; `serve` returns when it has ended. What waits is in the log, for when the session is resumed."""
        self._is_closed = True
        if self._turn:
            self._turn.cancel()
        self._arrived.set()

    async def serve(self) -> None:
        """Run the turn of each prompt, one after the other, and beside them the person's commands, until closed."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self.sandbox.serve)
            if self._is_eager:
                tasks.start_soon(self.sandbox.find_level)
            for task, argument in self._early:
                tasks.start_soon(task, argument)
            await self._serve_prompts()
            tasks.cancel_scope.cancel()
        self._tasks = None  # what is asked for now comes too late

    def _start(self, task: Task, argument: Any) -> None:
        """Start a task that lives no longer than the session, at once or as soon as it is served."""
        if self._tasks:
            self._tasks.start_soon(task, argument)
        else:
            self._early.append((task, argument))

    def set_network(self, mode: NetworkMode) -> None:
        """Change the network of what is started from now on; an event tells when it is so."""
        self._start(self._set_network, mode)

    async def _set_network(self, mode: NetworkMode) -> None:
        try:
            await self.sandbox.set_network(mode)
        except SandboxError as error:
            self.emit(Notice("warning", f"The network stays {self.sandbox.facts.network}. {error}"))

    async def _serve_prompts(self) -> None:
        await self.gate.restore(self.session.state("grants"), self.session.state("mode"))
        while not self._is_closed:
            if self._wanted_summary is not None:
                await self._compact_between_turns()
            elif prompt := self.waiting.take_next():
                await self.run_turn(prompt)
            else:
                self._arrived = anyio.Event()
                await self._arrived.wait()

    async def run_turn(self, prompt: Prompt) -> None:
        try:
            asked = self.surroundings.expand(prompt)
        except ConfigError as error:
            self._refuse(prompt, str(error))
            return
        if not prompt_message(asked).content:
            self._refuse(prompt, "The prompt is empty: nothing was sent.")
            return
        self.emit(TurnStarted(asked))
        self.calls.begin_turn()
        notes = self._notes.with_prompt(asked)
        self.session.append_prompt(prompt_message(asked, self.commands.records(), notes), asked)
        self._notes.keep_told()
        if len(self.session.prompts) == 1:
            self.emit(TitleChanged(self.session.title))
        self._report_write_error()
        reply = Reply(self.session)
        stop_reason: StopReason = "cancelled"
        error_message = ""
        with anyio.CancelScope() as turn, self.sandbox.kept_open():
            self._turn = turn
            self._keep_waiting()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reply.log_as_it_grows)
                tasks.start_soon(self._do_meanwhile, tasks)
                if self.provider.limits is None:
                    tasks.start_soon(self.provider.learn_limits)
                try:
                    stop_reason = await self._run_model_loop(reply, tasks)
                except ProviderError as error:
                    stop_reason, error_message = "error", error.message
                    self.emit(ErrorOccurred(error.kind, error.message, error.remedy))
                tasks.cancel_scope.cancel()
        self._turn = None
        if turn.cancel_called and stop_reason != "error":
            stop_reason = "cancelled"  # even in the last moment: what waited is dropped with it
        if uses := reply.keep(self.provider.model):
            text = INTERRUPTED if stop_reason == "cancelled" else NOT_RUN
            results = (ToolResult(use.id, text, is_error=True) for use in uses)
            self.session.append_message(Message("user", tuple(results)))
        if stop_reason == "error":
            self.waiting.hold()
        self.session.append(LoggedTurnEnd(stop_reason, error_message))
        await self._show_end(stop_reason)

    async def _show_end(self, stop_reason: StopReason) -> None:
        self._report_write_error()
        self._tell_untrusted()  # a short turn has not come to it
        self.emit(TurnEnded(stop_reason))
        self.show_waiting()
        self.commands.show_held()
        await self._sync()
        self._report_write_error()

    def _refuse(self, prompt: Prompt, reason: str) -> None:
        self.emit(TurnStarted(prompt))
        self.emit(ErrorOccurred("invalid_request", reason, ""))
        self.waiting.hold()
        self._keep_waiting()
        self.emit(TurnEnded("error"))

    async def _do_meanwhile(self, tasks: TaskGroup) -> None:
        """What is needed soon, but must not hold up the request."""
        await anyio.sleep(UNTIL_ASKED_S)
        tasks.start_soon(self._sync)
        self._tell_untrusted()
        with suppress(ProviderError):  # which the turn tells
            await self.provider.prepare()
        with anyio.move_on_after(READY_AFTER_S if self._is_eager else None):
            await self.calls.tool_use_begun.wait()
        await self.sandbox.get_ready()
        await to_thread.run_sync(grammar.parse, "", abandon_on_cancel=True)  # loads it

    def _tell_untrusted(self) -> None:
        if paths := self.surroundings.news_of_untrusted():
            self.emit(TrustNeeded(paths))

    async def _run_model_loop(self, reply: Reply, tasks: TaskGroup) -> StopReason:
        """Ask the model, run the tools that it wants, show it the results, until it wants none."""
        tools = (await self.catalog.frozen()).by_name
        tool_uses = ToolUses(tools, self.workspace, self.session, self.gate, self.emit)
        while True:
            if limit := await self.calls.stop_at_limit():
                return limit
            await self._make_room()
            stop_reason = await self._ask_model(reply)
            problems = reply.problems
            if uses := reply.keep(self.provider.model):
                try:
                    await tool_uses.run(uses, problems)
                finally:
                    self._append_results(tool_uses)
                tasks.start_soon(self._sync)
                repeated = tool_uses.take_repeated()
                if repeated and not await self.approvals.ask_to_go_on("again", repeated, REPEATED):
                    return "end_turn"
            elif not await self._goes_on(stop_reason):
                return stop_reason

    async def _ask_model(self, reply: Reply) -> StopReason:
        """One call; of a conversation that has become too long for the model it is shown less, as long as that can be."""
        while True:
            try:
                return await self.calls.ask(reply)
            except ProviderError as error:
                if error.kind != "context_full" or not await self._compactor.shrink():
                    raise

    async def _make_room(self) -> None:
        if self._wanted_summary is None:
            await self._compactor.make_room()
        else:
            focus, self._wanted_summary = self._wanted_summary, None
            await self._compactor.compact(focus, is_in_turn=True)

    def _append_results(self, tool_uses: ToolUses) -> None:
        """With them goes what the person has said meanwhile."""
        is_cancelled = self._turn is None or self._turn.cancel_called
        waiting = () if is_cancelled else self.waiting.take_steering()
        steered = tuple(self.surroundings.expand_or_keep(prompt) for prompt in waiting)
        notes = map(TextBlock, self._notes.with_results(tool_uses.take_paths()))
        said = (block for prompt in steered for block in prompt_message(prompt).content)
        message = Message("user", (*tool_uses.results(), *notes, *said))
        self.session.append_message(message, steered)
        self._notes.keep_told()
        self._keep_waiting()
        for prompt in steered:
            self.emit(PromptSteered(prompt))
        self._keep_shell_state()
        self._report_write_error()

    def _append_said(self, prompt: Prompt) -> None:
        """What the person says where the turn stops; the model reads it with what they ask next."""
        self.session.append_message(prompt_message(prompt), (prompt,))
        self.emit(PromptSteered(prompt))

    async def _goes_on(self, stop_reason: StopReason) -> bool:
        """Whether the turn goes on though the model has asked for no tool."""
        match stop_reason:
            case "context_full":
                goes_on = await self._compactor.shrink()
            case "max_tokens":
                rest = "the rest of the answer"
                goes_on = await self.approvals.ask_to_go_on("tokens", rest, CUT_BY_LIMIT)
            case _:
                return False
        is_answered = self.session.history[-1].role == "assistant"  # not by a summary
        if goes_on and is_answered:
            self.session.append_message(Message("user", (TextBlock(GO_ON),)))
        return goes_on

    # --- compaction ----------------------------------------------------------------------------------------------------

    def compact(self, focus: str) -> None:
        """Summarize the conversation as soon as the model is not speaking."""
        self._wanted_summary = focus
        self._arrived.set()

    async def _compact_between_turns(self) -> None:
        focus, self._wanted_summary = self._wanted_summary or "", None
        with anyio.CancelScope() as self._turn:
            await self._compactor.compact(focus, is_in_turn=False)
        was_cancelled, self._turn = self._turn.cancelled_caught, None
        await self._show_end("cancelled" if was_cancelled else "end_turn")

    def undo_compaction(self) -> None:
        if self._turn:
            self.emit(Notice("warning", "Stop the turn first: the model is being asked."))
        else:
            self._compactor.undo()

    # --- the model, the title ------------------------------------------------------------------------------------------

    def set_model(self, model: str) -> None:
        """From the next request on."""
        if model != self.provider.model:
            self.provider.set_model(model)
            self.session.switch_model(model)
            self._start(self._learn_limits, None)
        self.emit(ModelChanged(model))

    async def _learn_limits(self, _: None) -> None:
        with suppress(ProviderError):
            await self.provider.prepare()
            await self.provider.learn_limits()

    def list_models(self) -> None:
        self._start(self._list_models, None)

    async def _list_models(self, _: None) -> None:
        try:
            await self.provider.prepare()
            self.emit(ModelsListed(await self.provider.list_models()))
        except ProviderError as error:
            self.emit(Notice("warning", f"{error.message} {error.remedy}".rstrip()))

    def set_title(self, title: str) -> None:
        self.session.keep_state("title", title)
        self.emit(TitleChanged(self.session.title))

    def show_usage(self) -> None:
        limits = self.provider.limits
        text = report(
            self.session.ledger,
            self.calls.prices,
            model=self.provider.model,
            context_used=self.session.last_usage.context_tokens,
            window=limits.context_window_tokens if limits else 0,
            budget_usd=self.calls.budget_usd,
        )
        self.emit(ReportShown("Usage", text))

    # --- tools ---------------------------------------------------------------------------------------------------------

    def _make_workspace(self, editor: Editor | None) -> Workspace:
        """What the tools work on, as a session that is resumed has left it."""
        session = self.session
        shell = Shell(session.project, self.sandbox, only_reads_with)
        with suppress(msgspec.ValidationError):  # another version's
            if state := session.state("shell"):
                shell.restore(msgspec.convert(state, ShellState))
        jobs = Jobs(shell, self.sandbox, self._start, self._emit_jobs, self._show_denied)
        todo = TodoList(self._keep_todo, session.state("todo") or [])
        return Workspace(session.project, self.sandbox, shell, jobs, editor, todo=todo)

    def _keep_todo(self) -> None:
        todo = self.workspace.todo
        self.session.keep_state("todo", todo.state())
        self.emit(TodoChanged(todo.items))

    def _keep_shell_state(self) -> None:
        state = msgspec.to_builtins(self.workspace.shell.state())
        if state != self.session.state("shell"):
            self.session.keep_state("shell", state)

    def _emit_jobs(self) -> None:
        self._files_may_have_changed()
        jobs = self.workspace.jobs.all()
        self.emit(JobsChanged(tuple(Job(job.id, job.command, job.outcome) for job in jobs)))

    def _files_may_have_changed(self) -> None:
        if editor := self.workspace.editor:
            self._start(editor.files_changed, ())

    def _keep_grants(self) -> None:
        self.session.keep_state("grants", self.gate.state())

    def set_mode(self, mode: Mode) -> None:
        self.gate.set_mode(mode)
        self.session.keep_state("mode", mode)
        jobs = [job.id for job in self.workspace.jobs.all() if job.is_running]
        if mode == "plan" and jobs:
            text = f"What was started before can still write the project: {', '.join(jobs)}."
            self.emit(Notice("warning", text))

    def inspect(self, tool_use_id: str) -> None:
        """Emit the whole input and result of a tool use."""
        self._start(self._inspect, tool_use_id)

    async def _inspect(self, tool_use_id: str) -> None:
        try:
            use, result = await to_thread.run_sync(self.session.find_tool_use, tool_use_id)
        except SessionError as error:
            self.emit(Notice("warning", f"The tool use cannot be shown: {error}"))
            return
        if use:
            shown = _text_of(result.content) if result else "It has no result yet."
            data = msgspec.json.format(msgspec.json.encode(use.input)).decode()
            self.emit(ToolUseShown(use.id, use.name, data, shown))

    def watch_job(self, job_id: str, *, is_on: bool) -> None:
        """Emit what the job has written, and writes from now on; or do no longer."""
        if scope := self._watched.pop(job_id, None):
            scope.cancel()
        if is_on:
            self._start(self._watch_job, job_id)

    async def _watch_job(self, job_id: str) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with suppress(ToolError), anyio.CancelScope() as scope:
            job = self.workspace.jobs.find(job_id)
            self._watched[job_id] = scope
            offset = max(0, job.log.total_bytes - MAX_REPLAYED_BYTES)
            while True:
                await job.wait_for_bytes(offset)
                if not (chunk := job.log.read(offset, MAX_CHUNK_BYTES)):
                    return
                offset += len(chunk)
                self.emit(JobOutput(job_id, decode(chunk)))
                await anyio.sleep(WATCH_PAUSE_S)

    def stop_job(self, job_id: str) -> None:
        self._start(self._stop_job, job_id)

    async def _stop_job(self, job_id: str) -> None:
        with suppress(ToolError):
            await self.workspace.jobs.find(job_id).stop()

    # --- the sandbox ---------------------------------------------------------------------------------------------------

    def _emit_sandbox(self) -> None:
        self.emit(SandboxChanged(*self.sandbox.facts))

    def _show_denied(self, denial: Denial) -> None:
        self.emit(AccessDenied(denial.operation, denial.target, denial.reason))

    async def _offer_programs(self, command: Command, denials: Sequence[Denial]) -> Grant:
        return (await self.gate.offers.offer(command.text, command.id, "run", denials)).grant

    def _emit_sandbox_event(self, event: SessionEvent) -> None:
        match event:
            case Denial():
                will_be_told = self.workspace.jobs.denied(event)
                if self.commands.are_running or not will_be_told:
                    self._show_denied(event)
            case GuardEvent(kind, path, reason, kept_at):
                self.emit(GuardActed(kind, printable(path), reason, printable(kept_at)))
            case ProjectReplaced(project):
                self.emit(Notice("warning", PROJECT_REPLACED.format(project=printable(project))))
            case DiskFull(path, free_bytes):
                left = f"{free_bytes / 1e6:,.0f} MB left"
                self.emit(
                    Notice(
                        "warning",
                        f"Commands were stopped: the disk of {path} is nearly full ({left}).",
                    )
                )

    async def _sync(self) -> None:
        self.session.log.write_again()
        await self.session.log.synced()

    def _report_write_error(self) -> None:
        error = self.session.log.write_error
        if error and error != self._last_write_error:
            self.emit(
                Notice(
                    "warning",
                    f"The session's log cannot be written ({error}). The conversation goes on in memory.",
                )
            )
        self._last_write_error = error


def _text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        block.text if isinstance(block, TextBlock) else "[an image]" for block in content
    )
