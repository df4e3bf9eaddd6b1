"""The turn loop: ask the model, show what it says as it says it, keep the history whole."""

import codecs
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Literal

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.approvals import Approvals
from sanderling.commands import Commands
from sanderling.errors import ProviderError, SandboxError, ToolError, printable
from sanderling.events import (
    AccessDenied,
    BlockEnded,
    ErrorOccurred,
    Event,
    GuardActed,
    Job,
    JobOutput,
    JobsChanged,
    Mode,
    NetworkMode,
    Notice,
    Prompt,
    ProviderStarting,
    SandboxChanged,
    StopReason,
    TextDelta,
    ThinkingDelta,
    TodoChanged,
    ToolUseShown,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
)
from sanderling.gate import Gate
from sanderling.messages import (
    ContentBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.permissions import Rule
from sanderling.prompt import prompt_message, system_prompt
from sanderling.providers import (
    BlockDone,
    ModelRequest,
    Provider,
    ReplyDone,
    TextPiece,
    ThinkingPiece,
    UsageReport,
)
from sanderling.rules import RuleStore
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.report import GuardEvent
from sanderling.sandbox.sandbox import SandboxEvent
from sanderling.sandbox.session import SessionSandbox
from sanderling.session import Session
from sanderling.tool_uses import INTERRUPTED, ToolUses
from sanderling.tools.base import Content
from sanderling.tools.catalog import TOOLS, tool_specs
from sanderling.tools.editor import Editor
from sanderling.tools.jobs import Jobs
from sanderling.tools.shell import Shell, ShellState
from sanderling.tools.workspace import Workspace

Task = Callable[[Any], Coroutine[Any, Any, None]]
MAX_CHUNK_BYTES = 64 * 1024
MAX_REPLAYED_BYTES = 1 << 20  # of what a job has written before somebody watches it
WATCH_PAUSE_S = 0.01
PARTIAL_INTERVAL_S = 0.25  # how much of a streaming answer a killed host may lose


class Orchestrator:
    """One session's turns and commands. `emit` takes the events; it must not block."""

    _tasks: TaskGroup | None = None

    def __init__(
        self,
        session: Session,
        provider: Provider,
        emit: Callable[[Event], None],
        policy: SandboxPolicy,
        *,
        rules: tuple[Rule, ...] = (),
        editor: Editor | None = None,
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
        )
        self.workspace = self._make_workspace(editor)
        self.approvals = Approvals(emit)
        store = RuleStore(str(session.path.parent.parent), session.project)
        self.gate = Gate(self.workspace, self.approvals, store, rules, emit)
        self._early: list[tuple[Task, Any]] = []
        self._system = system_prompt(session.project)
        self._waiting: deque[Prompt] = deque()
        self._arrived = anyio.Event()
        self._is_closed = False
        self._turn: anyio.CancelScope | None = None
        self._block_id = 0
        self._last_write_error = ""
        self._watched: dict[str, anyio.CancelScope] = {}

    def submit(self, prompt: Prompt) -> None:
        self._waiting.append(prompt)
        self._arrived.set()

    def cancel(self) -> None:
        """Stop the turn and drop the prompts that wait for its end or for their own beginning; else stop the newest command."""
        has_dropped = bool(self._waiting)
        self._waiting.clear()
        if self._turn:
            self._turn.cancel()
        elif has_dropped:
            self.emit(TurnEnded("cancelled"))
        else:
            self.commands.stop_newest()

    def close(self) -> None:
        """Stop the turn, as `cancel` does; `serve` returns when it has ended."""
        self._is_closed = True
        self.cancel()
        self._arrived.set()

    async def serve(self) -> None:
        """Run the turn of each prompt, one after the other, and beside them the person's commands, until closed."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self.sandbox.serve)
            for task, argument in self._early:
                tasks.start_soon(task, argument)
            await self._serve_prompts()
            tasks.cancel_scope.cancel()

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
            self.emit(Notice("warning", f"The network stays {self.sandbox.network}. {error}"))

    async def _serve_prompts(self) -> None:
        while not self._is_closed:
            if self._waiting:
                await self.run_turn(self._waiting.popleft())
            else:
                self._arrived = anyio.Event()
                await self._arrived.wait()

    async def run_turn(self, prompt: Prompt) -> None:
        self.emit(TurnStarted(prompt))
        if not prompt_message(prompt).content:
            self.emit(
                ErrorOccurred("invalid_request", "The prompt is empty: nothing was sent.", "")
            )
            self.emit(TurnEnded("error"))
            return
        message = prompt_message(prompt, self.commands.records(), self._notes(is_prompt=True))
        self.session.append_prompt(message, prompt)
        self._report_write_error()
        reply = Reply(self.session)
        stop_reason: StopReason = "cancelled"
        error_message = ""
        with anyio.CancelScope() as turn:
            self._turn = turn
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sync)
                tasks.start_soon(reply.log_as_it_grows)
                if self.provider.limits is None:
                    tasks.start_soon(self.provider.learn_limits)
                try:
                    stop_reason = await self._run_model_loop(reply)
                except ProviderError as error:
                    stop_reason, error_message = "error", error.message
                    self.emit(ErrorOccurred(error.kind, error.message, error.remedy))
                tasks.cancel_scope.cancel()
        self._turn = None
        if turn.cancel_called and stop_reason != "error":
            stop_reason = "cancelled"  # even in the last moment: what waited is dropped with it
        if uses := reply.keep():
            results = (ToolResult(use.id, INTERRUPTED, is_error=True) for use in uses)
            self.session.append_message(Message("user", tuple(results)))
        self.session.end_turn(stop_reason, reply.turn_usage, error_message)
        self._report_write_error()
        self.emit(TurnEnded(stop_reason))
        self.commands.show_held()
        await self._sync()
        self._report_write_error()

    # --- tools ---------------------------------------------------------------------------------------------------------

    def _make_workspace(self, editor: Editor | None) -> Workspace:
        """What the tools work on, as a session that is resumed has left it."""
        session = self.session
        workspace = Workspace(session.project, self.sandbox, editor)
        workspace.shell = Shell(session.project, self.sandbox, self.sandbox.scratch)
        workspace.jobs = Jobs(workspace.shell, self.sandbox, self._start, self._emit_jobs)
        workspace.todo.restore(session.state("todo") or [])
        workspace.todo.changed = self._keep_todo
        with suppress(msgspec.ValidationError):  # another version's
            if state := session.state("shell"):
                workspace.shell.restore(msgspec.convert(state, ShellState))
        return workspace

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

    def _notes(self, *, is_prompt: bool = False) -> list[str]:
        """What the model has to know besides, once: at the end of a message that is new, so that the cache of the others stays."""
        return [
            note
            for note in (self.gate.news(), self.workspace.todo.reminder(is_prompt=is_prompt))
            if note
        ]

    def set_mode(self, mode: Mode) -> None:
        self.gate.set_mode(mode)
        jobs = [job.id for job in self.workspace.jobs.all() if job.is_running]
        if mode == "plan" and jobs:
            text = f"What was started before can still write the project: {', '.join(jobs)}."
            self.emit(Notice("warning", text))

    def inspect(self, tool_use_id: str) -> None:
        """Emit the whole input and result of a tool use."""
        blocks = [block for message in self.session.history for block in message.content]
        for use in blocks:
            if isinstance(use, ToolUse) and use.id == tool_use_id:
                results = [
                    block.content
                    for block in blocks
                    if isinstance(block, ToolResult) and block.tool_use_id == tool_use_id
                ]
                shown = _text_of(results[-1]) if results else "It has no result yet."
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
        sandbox = self.sandbox
        level = "off" if sandbox.is_off else sandbox.level or ""
        self.emit(SandboxChanged(level, sandbox.network, sandbox.missing, sandbox.problem))

    def _emit_sandbox_event(self, event: SandboxEvent) -> None:
        match event:
            case Denial(operation, target, rule):
                will_be_told = self.workspace.jobs.denied(event)
                if self.commands.are_running or not will_be_told:
                    self.emit(AccessDenied(operation, target, rule))
            case GuardEvent(kind, path, reason, kept_at):
                self.emit(GuardActed(kind, printable(path), reason, printable(kept_at)))
            case DiskFull(path, free_bytes):
                left = f"{free_bytes / 1e6:,.0f} MB left"
                self.emit(
                    Notice(
                        "warning",
                        f"Commands were stopped: the disk of {path} is nearly full ({left}).",
                    )
                )

    async def _sync(self) -> None:
        await to_thread.run_sync(self.session.sync, abandon_on_cancel=True)

    async def _run_model_loop(self, reply: "Reply") -> StopReason:
        """Ask the model, run the tools that it wants, show it the results, until it wants none."""
        tool_uses = ToolUses(TOOLS, self.workspace, self.session, self.gate, self.emit)
        while True:
            stop_reason = await self._ask_model(reply)
            problems = reply.problems
            uses = reply.keep()
            if not uses:
                return stop_reason
            try:
                await tool_uses.run(uses, problems)
            finally:
                notes = map(TextBlock, self._notes())
                self.session.append_message(Message("user", (*tool_uses.results(), *notes)))
                self._keep_shell_state()
            repeated = tool_uses.take_repeated()
            if repeated and not await self.gate.ask_to_go_on(repeated):
                return "end_turn"

    async def _ask_model(self, reply: "Reply") -> StopReason:
        if not self.provider.is_ready:
            self.emit(ProviderStarting())
            await self.provider.prepare()
        request = ModelRequest(self._system, self.session.history, tool_specs())
        async with aclosing(self.provider.stream(request)) as stream:
            async for item in stream:
                match item:
                    case TextPiece(text):
                        reply.add("text", text)
                        self.emit(TextDelta(self._block_id, text))
                    case ThinkingPiece(text):
                        reply.add("thinking", text)
                        self.emit(ThinkingDelta(self._block_id, text))
                    case BlockDone(block, problem):
                        reply.finish_block(block, problem)
                        self.emit(BlockEnded(self._block_id))
                        self._block_id += 1
                    case UsageReport(usage):
                        reply.request_usage = usage
                        self._emit_usage(reply)
                    case ReplyDone(stop_reason):
                        return stop_reason
        raise ProviderError(
            "cut",
            "The answer was cut off: the connection closed before the model had finished.",
            "What arrived is kept. Send a prompt to go on.",
        )

    def _emit_usage(self, reply: "Reply") -> None:
        total = self.session.usage + reply.turn_usage
        limits = self.provider.limits
        window = limits.context_window_tokens if limits else 0
        self.emit(UsageUpdated(reply.request_usage, total, window))

    def _report_write_error(self) -> None:
        error = self.session.write_error
        if error and error != self._last_write_error:
            self.emit(
                Notice(
                    "warning",
                    f"The session's log cannot be written ({error}). The conversation goes on in memory.",
                )
            )
        self._last_write_error = error


class Reply:
    """What the model has said since the last message, whole blocks and the one it is writing."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.request_usage = Usage()
        self.problems: dict[str, str] = {}  # of its tool uses whose input cannot be read
        self._earlier_usage = Usage()
        self._blocks: list[ContentBlock] = []
        self._open_block: Literal["text", "thinking"] = "text"
        self._open_pieces: list[str] = []
        self._logged_pieces = 0

    @property
    def turn_usage(self) -> Usage:
        return self._earlier_usage + self.request_usage

    def add(self, block: Literal["text", "thinking"], piece: str) -> None:
        self._open_block = block
        self._open_pieces.append(piece)

    def finish_block(self, block: ContentBlock, problem: str = "") -> None:
        self._log_open_block()
        self._blocks.append(block)
        if isinstance(block, ToolUse) and problem:
            self.problems[block.id] = problem
        self._open_pieces, self._logged_pieces = [], 0

    def keep(self) -> list[ToolUse]:
        """Put what was said into the history as a message that the API accepts; return its tool uses."""
        open_text = "".join(self._open_pieces) if self._open_block == "text" else ""
        blocks = [block for block in (*self._blocks, TextBlock(open_text)) if _is_accepted(block)]
        while blocks and isinstance(blocks[-1], ThinkingBlock | RedactedThinkingBlock):
            blocks.pop()  # the API refuses a message that ends in a thought
        if blocks:
            self.session.append_message(Message("assistant", tuple(blocks)))
        self._earlier_usage, self.request_usage = self.turn_usage, Usage()
        self._blocks, self._open_pieces, self._logged_pieces = [], [], 0
        self.problems = {}
        return [block for block in blocks if isinstance(block, ToolUse)]

    async def log_as_it_grows(self) -> None:
        while True:
            await anyio.sleep(PARTIAL_INTERVAL_S)
            self._log_open_block()

    def _log_open_block(self) -> None:
        new = "".join(self._open_pieces[self._logged_pieces :])
        self._logged_pieces = len(self._open_pieces)
        if new:
            self.session.append_partial(self._open_block, new)


def _is_accepted(block: ContentBlock) -> bool:
    """The API refuses text without a visible character, and thoughts that it did not sign."""
    match block:
        case TextBlock(text):
            return bool(text.strip())
        case ThinkingBlock(signature=signature):
            return bool(signature)
        case _:
            return True


def _text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        block.text if isinstance(block, TextBlock) else "[an image]" for block in content
    )
