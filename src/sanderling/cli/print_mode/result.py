"""The result of a turn, built from its events."""

from typing import Any, Literal

import msgspec

from sanderling.protocol.events import (
    AccessDenied,
    AnswerRestarted,
    ApprovalRequested,
    BlockEnded,
    ChildChanged,
    ErrorOccurred,
    Event,
    Limit,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UsageUpdated,
)
from sanderling.protocol.messages import StopReason, Usage
from sanderling.text import printable

EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_DENIED, EXIT_LIMIT, EXIT_MISFIT = range(6)
LIFTED: dict[Limit, str] = {
    "calls": "--max-turns N",
    "budget": "budget_usd in config.toml",
    "children": "tree_tokens of [delegate] in config.toml",
}
"""The limits that a flag or a setting raises, and which. At the others the turn is given up, and nothing was denied."""
MISFIT = "schema"  # the kind of error
DONE = frozenset[StopReason](("end_turn", "stop_sequence"))


class DeniedCall(msgspec.Struct, frozen=True):
    tool: str
    title: str
    reason: str


class Failure(msgspec.Struct, frozen=True):
    kind: str
    message: str
    remedy: str


class Result(msgspec.Struct, tag="result", frozen=True, kw_only=True):
    """
    The result that `--output-format json` prints, and `stream-json` as its last line.

    `usage`, `cost_usd` and `model_calls` are for this run and its child sessions. Without a known price there is no `cost_usd`. `output` is the answer's value if
    a schema was given and the answer fits it. `worktree` is the name of the worktree in which the session works, if it has one.
    """

    session_id: str
    text: str
    output: Any = msgspec.UNSET
    stop_reason: StopReason | Literal["max_time"]
    is_error: bool
    error: Failure | msgspec.UnsetType = msgspec.UNSET
    model: str
    model_calls: int
    usage: dict[str, int]
    cost_usd: float | msgspec.UnsetType = msgspec.UNSET
    duration_ms: int
    denials: tuple[DeniedCall, ...]
    worktree: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def exit_status(self) -> int:
        if self.error:
            return EXIT_MISFIT if self.error.kind == MISFIT else EXIT_ERROR
        has_asked = any(denied.tool == "budget" for denied in self.denials)
        if self.stop_reason == "max_time" or (self.stop_reason == "budget" and not has_asked):
            return EXIT_LIMIT
        if self.denials:
            return EXIT_DENIED
        return EXIT_ERROR if self.is_error else EXIT_DONE


class ResultBuilder:
    """Builds a result from the events of a turn."""

    def __init__(self) -> None:
        self.stop_reason: StopReason | None = None
        self.failure: Failure | None = None
        self.denials: list[DeniedCall] = []
        self._own_calls = 0
        self._calls_of_children = dict[str, int]()
        self._texts: dict[int, list[str]] = {}  # by block, since the last tool use
        self._usage = UsageUpdated(Usage(), Usage())
        self._earlier = UsageUpdated(Usage(), Usage())  # of this run's turns before
        self._running: dict[str, ToolStarted] = {}
        self._asked: set[str] = set()
        self._is_answering = False
        self._is_given_up = False

    def take(self, event: Event) -> None:
        match event:
            case TextDelta(block_id, text):
                self._note_answer()
                self._texts.setdefault(block_id, []).append(text)
            case ThinkingDelta() | BlockEnded():
                self._note_answer()
            case AnswerRestarted(first):
                self._texts = {n: texts for n, texts in self._texts.items() if n < first}
                self._is_answering = False
            case ToolStarted():
                self._running[event.id] = event
                self._texts.clear()
                self._is_answering = False
            case ToolEnded():
                self._note_denied_use(self._running.pop(event.id), event)
            case ApprovalRequested():
                self._note_question(event)
            case ChildChanged():
                self._calls_of_children[event.id] = event.calls
            case AccessDenied(operation, target, rule):
                self._deny("sandbox", f"{operation} {target}", rule)
            case UsageUpdated():
                self._usage = event
            case ErrorOccurred(kind, message, remedy):
                self.failure = Failure(kind, message, remedy)
            case TurnEnded(stop_reason):
                self.stop_reason = stop_reason
            case _:
                pass

    @property
    def model_calls(self) -> int:
        return self._own_calls + sum(self._calls_of_children.values())

    @property
    def text(self) -> str:
        """The answer since the last tool use."""
        return printable("\n\n".join(map("".join, self._texts.values())).strip("\n"))

    def begin_again(self) -> None:
        """Begin another turn of the same run."""
        used, earlier = self._usage, self._earlier
        self._earlier = msgspec.structs.replace(
            used,
            turn=earlier.turn + used.turn,
            turn_cost_usd=earlier.turn_cost_usd + used.turn_cost_usd,
        )
        self._usage = msgspec.structs.replace(used, turn=Usage(), turn_cost_usd=0.0)
        self.stop_reason, self._is_answering = None, False
        self._texts.clear()

    def _note_answer(self) -> None:
        self._own_calls += not self._is_answering
        self._is_answering = True

    def _note_question(self, question: ApprovalRequested) -> None:
        """Record a question as denied, because print mode cannot answer it."""
        if question.kind == "limit" and question.tool not in LIFTED:
            self._is_given_up = True
        elif question.kind == "grant":
            for refused in question.subject.splitlines():
                self._deny("sandbox", refused, f"{question.tool} {question.title}")
        elif question.kind != "server":
            self._asked.add(question.id)
            self._deny(question.tool, question.title, question.reason)

    def _note_denied_use(self, started: ToolStarted, ended: ToolEnded) -> None:
        """Record a use that a rule or the mode denied without a question."""
        if ended.is_denied and ended.id not in self._asked:
            self._deny(started.tool, started.title, ended.detail)

    def _deny(self, tool: str, title: str, reason: str) -> None:
        denied = DeniedCall(tool, title, reason)
        if denied not in self.denials:
            self.denials.append(denied)

    def result(self, session_id: str, model: str, duration_s: float) -> Result:
        """Return the result of the turn, which has ended or was stopped."""
        stop_reason = self.stop_reason or "cancelled"
        usage = self._earlier.turn + self._usage.turn
        cost_usd = self._earlier.turn_cost_usd + self._usage.turn_cost_usd
        return Result(
            session_id=session_id,
            text=self.text,
            stop_reason=stop_reason,
            is_error=stop_reason not in DONE or self._is_given_up,
            error=self.failure or msgspec.UNSET,
            model=model,
            model_calls=self.model_calls,
            usage=_counts(usage),
            cost_usd=round(cost_usd, 6) if self._usage.is_priced else msgspec.UNSET,
            duration_ms=round(duration_s * 1000),
            denials=tuple(self.denials),
        )


def _counts(usage: Usage) -> dict[str, int]:
    counts = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    if not usage.web_searches:
        del counts["web_searches"]
    return counts
