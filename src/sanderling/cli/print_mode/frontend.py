"""The print frontend: it reads the events of one turn, denies its questions, and reports on both output streams."""

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import msgspec

from sanderling.cli.print_mode.result import (
    DONE,
    LIFTED,
    MISFIT,
    Failure,
    Result,
    ResultBuilder,
)
from sanderling.cli.print_mode.schema import MisfitError
from sanderling.cli.streams import ThreadedStdout, say, say_untrusted
from sanderling.json_lines import for_terminal
from sanderling.protocol.actions import Action, AnswerApproval, CloseSession, SubmitPrompt
from sanderling.protocol.events import (
    AccessDenied,
    ApprovalRequested,
    ChildChanged,
    ChildState,
    CompactionStarted,
    ErrorOccurred,
    Event,
    GuardActed,
    JobsChanged,
    Notice,
    RetryScheduled,
    SandboxChanged,
    ToolEnded,
    ToolStarted,
    TrustNeeded,
    TurnEnded,
)
from sanderling.protocol.messages import Prompt
from sanderling.protocol.modes import Mode
from sanderling.text import counted, duration

if TYPE_CHECKING:
    from sanderling.cli.print_mode.schema import AnswerSchema

STREAM_VERSION = 1
OutputFormat = Literal["text", "json", "stream-json"]
UNANSWERED = (
    "Questions cannot be answered: this runs from a script. Do what you can without it, and report at the end what could not"
    " be done{remedy}."
)
ALLOWED_BY = {  # by the operation that the sandbox refused
    "read": "sandbox.read in config.toml",
    "execute": "sandbox.read in config.toml",
    "write": "sandbox.write in config.toml",
    "connect": "--net on",
    "resolve": "--net on",
}
ALLOW_IT = "allow it in Neovim first, by answering `always`"
STOP_WORDS = {
    "refusal": "the model refused to answer",
    "context_full": "the model's context window is full",
}


class StreamHead(msgspec.Struct, tag="stream", frozen=True):
    """The first line of `stream-json`. Each of the following lines is an event (`events.py`), the last one the result."""

    version: int
    session_id: str
    model: str


class PrintFrontend:
    """Prints the events of one turn. `act` takes the answers to questions, and closes the session after the turn."""

    def __init__(
        self,
        stdout: ThreadedStdout,
        output_format: OutputFormat,
        mode: Mode,
        *,
        is_quiet: bool,
        act: Callable[[Action], None],
        schema: "AnswerSchema | None" = None,
    ) -> None:
        self._stdout = stdout
        self._format: OutputFormat = output_format
        self._mode: Mode = mode
        self._is_quiet = is_quiet
        self._act = act
        self._schema = schema
        self._is_repaired = False
        self.is_over_time = False
        self._builder = ResultBuilder()
        self._result: Result | None = None
        self._running_jobs: tuple[str, ...] = ()
        self._children = dict[str, ChildState]()
        self._has_used_tools = False
        self._held: list[Event] = []

    def begin(self, session_id: str, model: str, worktree: str = "") -> None:
        self._session_id, self._model, self._worktree = session_id, model, worktree
        self._started_at = time.monotonic()
        if self._format == "stream-json":
            self._print_json(StreamHead(STREAM_VERSION, session_id, model))

    def take(self, event: Event) -> None:
        if self._result:  # after the result, only the guard's actions matter
            if isinstance(event, GuardActed):
                self._report(event)
            return
        if self._format == "stream-json":
            self._print_json(event)
        before = len(self._builder.denials)
        self._builder.take(event)
        if isinstance(event, ToolEnded):  # a rule or the mode denied it without a question
            for denied in self._builder.denials[before:]:
                self._note(f"denied: {denied.tool} {denied.title}: {denied.reason}")
        self._report_in_time(event)
        match event:
            case ApprovalRequested():
                self._deny(event)
            case TurnEnded():
                if not self._is_to_be_repaired():
                    self.end()
                    self._act(CloseSession())
            case _:
                pass

    def end(self) -> Result:
        """Print the result, once. The turn has ended or is given up."""
        if self._result is None:
            duration_s = time.monotonic() - self._started_at
            result = self._builder.result(self._session_id, self._model, duration_s)
            worktree = self._worktree or msgspec.UNSET
            self._result = self._judged(msgspec.structs.replace(result, worktree=worktree))
            if self._format != "text":
                self._print_json(self._result)
            elif self._result.stop_reason not in ("cancelled", "max_time"):
                self._print_text(self._result)
            self._report_end(self._result)
        return self._result

    def _print_text(self, result: Result) -> None:
        if self._schema and result.output is not msgspec.UNSET:
            self._stdout.write(for_terminal(result.output) + "\n")
        elif result.text and not self._schema:
            self._stdout.write(f"{result.text}\n")

    def _is_to_be_repaired(self) -> bool:
        """Ask once for a better answer if this one does not fit the schema."""
        if not self._schema or self._is_repaired or self._builder.stop_reason != "end_turn":
            return False
        try:
            self._schema.value_of(self._builder.text)
        except MisfitError as misfit:
            self._is_repaired = True
            self._note(f"the answer does not fit the schema; asking once more:\n{misfit}")
            self._builder.begin_again()
            self._act(SubmitPrompt(Prompt(uuid4().hex, self._schema.repair(misfit))))
            return True
        return False

    def _judged(self, result: Result) -> Result:
        """Return the result with the value of its answer, or with the reason why it has no value."""
        if self.is_over_time and result.stop_reason == "cancelled":
            return msgspec.structs.replace(result, stop_reason="max_time")
        if not self._schema or result.stop_reason not in DONE:
            return result
        try:
            return msgspec.structs.replace(result, output=self._schema.value_of(result.text))
        except MisfitError as misfit:
            failure = Failure(MISFIT, f"The answer does not fit the schema:\n{misfit}", "")
            say(failure.message)
            return msgspec.structs.replace(result, is_error=True, error=failure)

    def _print_json(self, value: msgspec.Struct) -> None:
        self._stdout.write(for_terminal(value) + "\n")

    # --- questions -----------------------------------------------------------------------------------------------------

    def _deny(self, question: ApprovalRequested) -> None:
        if question.kind == "server":
            self._note(f"not started: the project's tool server '{question.tool}': {ALLOW_IT}")
            self._act(AnswerApproval(question.id, "deny"))
            return
        remedy = self._remedy(question)
        reason = UNANSWERED.format(remedy=f"; {remedy} would allow it" if remedy else "")
        whose = f"{question.child}: " if question.child else ""
        if question.kind == "grant":
            refused = ", ".join(question.subject.splitlines())
            self._note(
                f"denied: {whose}{question.tool} {question.title}: the sandbox refused: {refused}"
            )
        elif question.kind != "limit":  # a notice has reported that
            self._note(f"denied: {whose}{question.tool} {question.title}: {question.reason}")
        if remedy:
            self._note(f"  {remedy} allows it")
        self._act(AnswerApproval(question.id, "deny", reason, is_unattended=True))

    def _remedy(self, question: ApprovalRequested) -> str:
        """Return the flag or the setting that would have allowed it; "" if only an answer can."""
        if question.kind == "limit":
            return LIFTED[question.tool] if question.tool in LIFTED else ""  # noqa: SIM401 - this narrows
        if question.kind == "grant":
            operations = [line.split(" ")[0] for line in question.subject.splitlines()]
            return " and ".join(
                dict.fromkeys(ALLOWED_BY[each] for each in operations if each in ALLOWED_BY)
            )
        flags: list[str] = []
        if question.choices == ("once",):  # a hook asked, and would ask again
            return ""
        if question.rule:
            flags.append(f"--allow {shlex.quote(question.rule.removeprefix('allow '))}")
        if self._mode == "ask" and question.tool in ("bash", "edit", "write"):
            flags.append("--mode auto")
        return " or ".join(flags)

    # --- standard error ------------------------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        if not self._is_quiet:
            say(text)

    def _report_in_time(self, event: Event) -> None:
        """Report an event. What matters only to commands waits for the first tool use, because the sandbox opens ahead of any."""
        if isinstance(event, (ToolStarted, ToolEnded)):
            self._has_used_tools = True
            for held in self._held:
                self._report(held)
            self._held.clear()
        match event:
            case GuardActed(kind="replaced"):
                pass  # it concerns the sandbox itself: the change came from outside
            case SandboxChanged() if not self._has_used_tools:
                self._held.append(event)
            case _:
                self._report(event)

    def _report(self, event: Event) -> None:
        match event:
            case Notice(level, text):
                self._note(f"warning: {text}" if level == "warning" else text)
            case ErrorOccurred(_, message, remedy):
                say(f"{message} {remedy}".rstrip())
            case RetryScheduled(attempt, attempts, delay_s, reason):
                self._note(f"{reason} Retry {attempt}/{attempts} in {duration(delay_s)}.")
            case TrustNeeded(paths):
                if not self._is_quiet:
                    say_untrusted(paths)
            case SandboxChanged(problem=problem) if problem:
                self._note(f"warning: commands cannot run: {problem}")
            case AccessDenied(operation, target, rule):
                self._note(f"denied: {operation} {target} ({rule})")
            case GuardActed(kind, path, reason):
                self._note(f"guard: {kind}: {path}: {reason}")
            case CompactionStarted():
                self._note("compacting the conversation: the model's context window is full")
            case ChildChanged():
                self._report_child(event)
            case JobsChanged(jobs):
                self._running_jobs = tuple(job.command for job in jobs if not job.outcome)
            case _:
                pass

    def _report_child(self, child: ChildChanged) -> None:
        """Report that a child session starts, and how it has ended."""
        before, self._children[child.id] = self._children.get(child.id), child.state
        if child.state == "running" and before in (None, "queued"):
            self._note(f"{child.name} starts: {child.task}")
        elif child.state not in ("queued", "running", "waiting") and before != child.state:
            calls = counted(child.calls, "model call")
            cost = f", ${child.cost_usd:.4f}" if child.cost_usd else ""
            self._note(f"{child.name}: {child.state}, {calls}, {child.tokens:,} tokens{cost}")

    def _report_end(self, result: Result) -> None:
        if result.stop_reason in STOP_WORDS:
            say(STOP_WORDS[result.stop_reason])
        elif not (result.is_error or result.text.strip()):
            say("the model's answer is empty")
        for command in self._running_jobs:
            self._note(f"stopped at the end of the turn: {command}")
