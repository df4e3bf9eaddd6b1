"""A child at work: its events become its state on its parent's screen, and in the end its report."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from math import isfinite
from time import monotonic
from typing import Literal, NamedTuple, cast

import anyio
import msgspec

from sanderling.conversation.budget import Budget
from sanderling.conversation.children.conversation import ChildConversation
from sanderling.conversation.children.report import Report, cut, merged, references_in, said
from sanderling.conversation.children.running import RunningChild
from sanderling.conversation.services import SessionServices
from sanderling.errors import SanderlingError
from sanderling.project.roles import Role, is_read_only
from sanderling.protocol import events
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ChildChanged, ChildState
from sanderling.protocol.messages import StopReason, Usage
from sanderling.session.ledger import prompt_tokens
from sanderling.session.records import LoggedChild
from sanderling.text import duration, shortened
from sanderling.tools.children import Task

log = logging.getLogger(__name__)

COUNTERS_S = 0.2  # between two events about its counters
END_S = 3.0  # for the end of its turn, once it is stopped
MAX_ACTIVITY_CHARS = 120
WRAP_UP_AT = 0.8
WRAP_UP = (
    "[You have used {share:.0%} of your budget. Wrap up now: finish what is begun, and report what you have and what is left."
    " When it is used up, you are not called again.]"
)
STOPPED = "The user stopped it."
WITH_PARENT = "The user stopped the turn that had started it."
LATE = "It had not ended after {time}."
CRASHED = "Sanderling failed in it: {error}."
DENIED = "All its calls were denied."

_STATES: dict[StopReason, ChildState] = {
    "end_turn": "done",
    "error": "error",
    "refusal": "error",
    "budget": "budget",
    "max_calls": "budget",
}
_RUNNING = ("queued", "running", "waiting")


class ChildStart(NamedTuple):
    """How a child begins. `fork_at`: its history is its parent's up to the message with this tool call."""

    id: str
    role: Role
    title: str
    model: str = ""
    fork_at: str = ""
    in_worktree: bool = False

    @property
    def is_read_only(self) -> bool:
        return is_read_only(self.role)


OpenChild = Callable[
    [ChildStart, Budget, Callable[[events.Event], None]], Awaitable[ChildConversation]
]


class Child:
    """
    One child of the session `parent`.

    `budget` is reserved from its parent's. `open_child` opens its conversation, with the function that takes its events.
    """

    def __init__(
        self,
        parent: SessionServices,
        start: ChildStart,
        task: Task,
        tool_use_id: str,
        *,
        name: str,
        budget: Budget,
        open_child: OpenChild,
    ) -> None:
        self.start = start
        self._parent = parent
        self._task = task
        self._open_child = open_child
        self._tool_use_id = tool_use_id
        self._budget = budget
        self._name = name
        self._running = RunningChild(self._take)
        self._conversation: ChildConversation | None = None
        self._ended = anyio.Event()
        self._served = anyio.Event()
        self._stopping = anyio.Event()
        self._has_slot = False
        self._why = self._failure = self._warning = ""
        self._is_late = False
        self._reason: StopReason | None = None
        self._state: ChildState = "queued"
        self._activity = ""
        self._asking = set[str]()
        self._waiting = ExitStack()
        self._calls = self._tokens = 0
        self._cost_usd: float | None = 0.0
        self._used = self._denied = 0  # tool calls
        self._changed: list[events.ChangedLines] = []
        self._first_message = 0
        self._is_asked_to_wrap_up = False
        self._shown_at = 0.0
        self._has_news = anyio.Event()

    @property
    def id(self) -> str:
        return self.start.id

    def stop(self, why: str = STOPPED) -> None:
        self._why = self._why or why
        self._stopping.set()

    def answer(self, answer: AnswerApproval) -> None:
        if self._conversation:
            own_id = answer.id.removeprefix(f"{self.id}/")
            self._conversation.act(msgspec.structs.replace(answer, id=own_id))

    # --- its life ------------------------------------------------------------------------------------------------------

    async def run(self, slots: anyio.CapacityLimiter) -> None:
        """Run the task as soon as there is a slot. `report` returns the result, also after a cancellation."""
        self._show()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._show_counters)
                if await self._take_slot(slots):
                    await self._work()
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            self._why = self._why or WITH_PARENT
            raise
        finally:
            if self._has_slot:
                slots.release_on_behalf_of(self)
            self._budget.close()
            self._end()

    async def _take_slot(self, slots: anyio.CapacityLimiter) -> bool:
        """Wait until fewer children run; return False if this one is stopped before."""
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                await self._stopping.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            await slots.acquire_on_behalf_of(self)
            self._has_slot = True
            tasks.cancel_scope.cancel()
        return not self._stopping.is_set()

    async def _work(self) -> None:
        try:
            conversation = await self._open_child(self.start, self._budget, self._running.emit)
        except SanderlingError as error:
            self._failure = str(error)
            return
        except Exception as error:  # a door: its parent must not end with it
            log.exception("the child %s cannot be opened", self.id)
            self._failure = CRASHED.format(error=_in_words(error))
            return
        self._conversation = conversation
        services = conversation.services
        self._first_message = len(services.session.history)
        services.calls.on_booked = self._book
        self._log("")
        # Not a task of the call: stopping the turn must not cut it off, but let it end.
        self._parent.tasks.start(self._serve, conversation)
        try:
            await self._parent.session.log.synced()
            self._set_state("running")
            conversation.begin(self._text())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_in_time, conversation)
                await self._ended.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(END_S, shield=True):
                if not self._ended.is_set():
                    conversation.cancel()
                    await self._ended.wait()
                conversation.close()
                await self._served.wait()

    async def _serve(self, conversation: ChildConversation) -> None:
        try:
            with self._running.running(conversation):
                await conversation.serve()
        except Exception as error:  # a door: its parent must not end with it
            log.exception("the child %s failed", self.id)
            self._failure = CRASHED.format(error=_in_words(error))
        finally:
            self._served.set()
            self._ended.set()

    async def _stop_in_time(self, conversation: ChildConversation) -> None:
        """Stop the turn when the time is up, or when the user stops it."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_clock)
            await self._stopping.wait()
            conversation.cancel()
            tasks.cancel_scope.cancel()

    async def _watch_clock(self) -> None:
        with self._budget.running():
            await self._budget.time_is_up()
        self._is_late = True
        self.stop(LATE.format(time=duration(self._budget.limit.seconds)))

    def _text(self) -> str:
        task = self._task
        files = "\n".join(f"* {each}" for each in task.files)
        return task.task.strip() + (f"\n\nFiles to begin with:\n{files}" if files else "")

    # --- its events ----------------------------------------------------------------------------------------------------

    def _take(self, event: events.Event) -> None:
        emit = self._parent.emit
        match event:
            case events.ApprovalRequested():
                self._asking.add(event.id)
                self._pause(is_waiting=True)
                shown_id = f"{self.id}/{event.id}"
                emit(
                    msgspec.structs.replace(
                        event, id=shown_id, child=self._name, worktree=self._worktree
                    )
                )
                self._set_state("waiting")
            case events.ApprovalSettled(approval_id):
                self._asking.discard(approval_id)
                emit(events.ApprovalSettled(f"{self.id}/{approval_id}"))
                if not self._asking:
                    self._pause(is_waiting=False)
                    self._set_state("running")
            case events.ToolStarted(_, name, title):
                self._wrap_up_in_time()
                self._activity = shortened(f"{name} {title}".strip(), MAX_ACTIVITY_CHARS)
                self._has_news.set()
            case events.ToolEnded():
                self._used += 1
                self._denied += event.is_denied
                self._changed += event.changed
            case events.ErrorOccurred(_, message):
                self._why = self._why or message
            case events.Notice("warning", text):
                self._warning = text  # a limit that is reached is reported so
            case events.TurnEnded(reason):
                self._reason = reason
                self._ended.set()
            case _:
                pass

    def _pause(self, *, is_waiting: bool) -> None:
        """Do not count the time in which the user thinks about a question."""
        if not is_waiting:
            self._waiting.close()
        elif len(self._asking) == 1:
            self._waiting.enter_context(self._budget.paused())

    def _book(self, model: str, usage: Usage) -> None:
        calls = self._parent.calls
        calls.note_child(self.id, model, usage)
        calls.show_usage()
        self._calls += 1
        self._tokens += prompt_tokens(usage) + usage.output_tokens
        cost = calls.prices.cost_usd(model, usage)
        known = self._cost_usd
        self._cost_usd = None if cost is None or known is None else known + cost
        self._has_news.set()

    def _wrap_up_in_time(self) -> None:
        """Ask the model once to come to an end, together with the results of its calls."""
        share = self._budget.share
        if share >= WRAP_UP_AT and not self._is_asked_to_wrap_up and self._conversation:
            self._is_asked_to_wrap_up = True
            self._conversation.services.notes.add(WRAP_UP.format(share=share))

    async def _show_counters(self) -> None:
        while True:
            await self._has_news.wait()
            await anyio.sleep(max(0.0, self._shown_at + COUNTERS_S - monotonic()))
            self._show()

    def _set_state(self, state: ChildState) -> None:
        if state != self._state:
            self._state = state
            self._show()

    def _show(self) -> None:
        if self._has_news.is_set():
            self._has_news = anyio.Event()
        self._shown_at = monotonic()
        limit = self._budget.limit.tokens
        self._parent.emit(
            ChildChanged(
                self.id,
                self._tool_use_id,
                self._name,
                title_of(self._task),
                self._state,
                self._activity if self._state in _RUNNING else "",
                self._calls,
                self._tokens,
                self._cost_usd or 0.0,
                int(limit) if isfinite(limit) else 0,
            )
        )

    # --- its end -------------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return what it has done so far. Looks at files."""
        state = self._final_state()
        session = self._conversation.services.session if self._conversation else None
        history = session.history[self._first_message :] if session else ()
        text = cut(said(history, is_done=state == "done"), self.id, is_done=state == "done")
        return Report(
            self.id,
            self._name,
            state,
            text,
            why=self._reason_for(state),
            references=references_in(text, (session or self._parent.session).work_dir),
            worktree=self._worktree,
            changed=merged(self._changed),
            tokens=self._tokens,
            cost_usd=self._cost_usd,
        )

    @property
    def _worktree(self) -> str:
        """The name of its own worktree, or ""."""
        if not (self._conversation and self.start.in_worktree):
            return ""
        return self._conversation.services.session.worktree

    def _final_state(self) -> ChildState:
        if self._is_late:
            return "timeout"
        if self._failure:
            return "error"
        state = _STATES.get(self._reason or "cancelled", "partial")
        return "denied" if state == "done" and 0 < self._used == self._denied else state

    def _reason_for(self, state: ChildState) -> str:
        match state:
            case "done":
                return ""
            case "denied":
                return DENIED
            case "budget":
                return self._why or self._warning
            case "partial" if self._reason == "cancelled":
                return self._why or STOPPED
            case _:
                return self._failure or self._why

    def _end(self) -> None:
        self._state = self._final_state()
        if self._conversation:
            self._log(self._state)
        self._show()

    def _log(self, state: ChildState | Literal[""]) -> None:
        task = title_of(self._task)
        record = LoggedChild(self.id, self._tool_use_id, self._name, task, state)
        self._parent.session.append(record)


def title_of(task: Task) -> str:
    return shortened(task.first_line, MAX_ACTIVITY_CHARS)


def _in_words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _in_words(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return f"{type(error).__name__}: {error}"
