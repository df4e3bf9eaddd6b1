"""A session that is open: what the client asks becomes actions, what happens becomes updates."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import anyio
from anyio.abc import TaskGroup

from sanderling.acp.config_options import ConfigOption
from sanderling.acp.connection import Connection
from sanderling.acp.errors import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_REQUEST, RpcError
from sanderling.acp.updates import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    SessionUpdate,
)
from sanderling.acp_agent.client import Client
from sanderling.acp_agent.options import Options
from sanderling.acp_agent.outgoing import Updates
from sanderling.acp_agent.own_commands import OwnCommands, is_ours
from sanderling.acp_agent.questions import Questions, call_of
from sanderling.acp_agent.telling import Teller
from sanderling.errors import ProviderError, SanderlingError
from sanderling.protocol.actions import CancelTurn, ShowEarlier, SubmitPrompt
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    ErrorOccurred,
    Event,
    HistoryShown,
    ModeChanged,
    PromptsReturned,
    SandboxChanged,
    SessionOpened,
    TurnEnded,
    TurnStarted,
    WaitingChanged,
)
from sanderling.protocol.messages import Prompt, StopReason
from sanderling.protocol.requests import ListModels, Models
from sanderling.session.session import derived_title

SETTLE_S = 3.0  # for an option that does not change at once
STOP_REASONS: dict[StopReason, str] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "max_tokens": "max_tokens",
    "context_full": "max_tokens",
    "max_calls": "max_turn_requests",
    "budget": "max_turn_requests",
    "refusal": "refusal",
    "cancelled": "cancelled",
    "interrupted": "cancelled",
}
NO_KEY = frozenset(("no_key", "auth"))

log = logging.getLogger(__name__)


class _Asked:
    """A prompt that is being answered."""

    def __init__(self) -> None:
        self.prompt_id = ""
        self.has_begun = False
        self.is_cancelled = False
        self.error: ErrorOccurred | None = None
        self.stop_reason: StopReason | None = None
        self.ended = anyio.Event()

    def end(self, stop_reason: StopReason) -> None:
        self.stop_reason = stop_reason
        self.ended.set()

    def result(self) -> str:
        """
        The stop reason as the protocol has it.

        Raises:
            RpcError: the turn has failed.
        """
        if self.is_cancelled:
            return "cancelled"
        stop_reason = self.stop_reason or "error"
        if stop_reason in STOP_REASONS:
            return STOP_REASONS[stop_reason]
        error = self.error or ErrorOccurred("internal", "The turn has failed.", "")
        code = AUTH_REQUIRED if error.kind in NO_KEY else INTERNAL_ERROR
        words = f"{error.message} {error.remedy}".rstrip()
        raise RpcError(code, words, {"kind": error.kind, "remedy": error.remedy})


class LiveSession:
    """One session. What happens before the client knows of it is told when it does."""

    def __init__(
        self,
        session_id: str,
        project: str,
        connection: Connection,
        client: Client,
        tasks: TaskGroup,
    ) -> None:
        self.id = session_id
        self.project = project
        self.ended = anyio.Event()
        self.options = Options("")
        self._tasks = tasks
        self._teller = Teller(project, client)
        self._updates = Updates(session_id, connection, tasks, self._teller)
        self._questions = Questions(session_id, connection, client)
        self._open_questions: dict[str, anyio.CancelScope] = {}
        self._agent: Agent | None = None
        self._asked: _Asked | None = None
        self._pages: list[HistoryShown] = []
        self._changed = anyio.Event()

    @property
    def told(self) -> dict[str, Any]:
        """The sandbox, for whoever wants to know it."""
        sandbox = self.options.sandbox
        said = {"level": sandbox.level, "network": sandbox.network, "missing": sandbox.missing}
        return {"sanderling": {"sandbox": said}}

    # --- opening and ending --------------------------------------------------------------------------------------------

    def begin(self, agent: Agent, model: str) -> None:
        """Serve the agent until it is closed."""
        self._agent = agent
        self.options.model = self.options.model or model
        self._tasks.start_soon(self._serve, agent)

    async def _serve(self, agent: Agent) -> None:
        try:
            await agent.serve()
        except Exception as defect:  # the session ends, loudly; the others go on
            log.critical("session %s ends: a defect", self.id, exc_info=defect)
            self._take_error(ErrorOccurred("internal", "The session has ended: a defect.", ""))
        finally:
            self._agent = None
            if self._asked:
                self._asked.end("error")
            self.ended.set()

    def close(self) -> None:
        if self._asked:
            self._asked.is_cancelled = True
        if self._agent:
            self._agent.close()

    def announce_soon(self) -> None:
        """Tell what was held back, as soon as the client has its answer."""
        self._tasks.start_soon(self._updates.announce)

    async def replay(self) -> None:
        """Tell all that was said before, oldest first; what a session is like now is told afterwards."""
        while self._pages and self._pages[-1].has_earlier and self._agent:
            count, self._changed = len(self._pages), anyio.Event()
            self._agent.act(ShowEarlier(self._pages[-1].start))
            while len(self._pages) == count and self._agent:
                await self._changed.wait()
                self._changed = anyio.Event()
        for page in reversed(self._pages):
            for event in page.events:
                self._updates.send_all(_told_again(self._teller, event), is_now=True)
        self._pages.clear()

    # --- what the client asks --------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        """
        Have the next prompt be the one that is answered.

        Raises:
            RpcError: another one is.
        """
        if self._asked:
            raise RpcError(INVALID_REQUEST, "a prompt is being answered in this session: cancel it")
        self._asked = _Asked()

    def release(self) -> None:
        self._asked = None

    async def ask(self, prompt: Prompt) -> str:
        """
        Have `prompt` answered; return the reason why that has ended.

        Raises:
            RpcError: it could not be answered.
        """
        asked = self._asked
        assert asked
        if self._agent is None:
            raise RpcError(INTERNAL_ERROR, "the session has ended: load it again")
        if asked.is_cancelled:  # before it was sent
            return "cancelled"
        asked.prompt_id = prompt.id
        own = OwnCommands(self._agent, self.id, self._answer, self._questions, self._next_news)
        if is_ours(prompt.text):
            asked.has_begun = True  # no turn begins for it
            await own.run(prompt.text, asked.ended)
            asked.end(asked.stop_reason or "end_turn")
        else:
            self._agent.act(SubmitPrompt(prompt))
            await asked.ended.wait()
        self._settle(prompt)
        return asked.result()

    async def _next_news(self) -> None:
        self._changed = anyio.Event()
        await self._changed.wait()

    def _answer(self, text: str) -> None:
        self._updates.send(self._teller.answer(text))

    def _settle(self, prompt: Prompt) -> None:
        """Tell what ends with a turn."""
        self._updates.roll_now()
        self._updates.send_all(self._teller.end_compaction("cancelled"))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if self.options.title:
            self._updates.send(SessionInfoUpdate(updated_at=now))
        else:
            self.options.title = derived_title(prompt)
            self._updates.send(SessionInfoUpdate(title=self.options.title, updated_at=now))

    def cancel(self) -> None:
        """Stop the turn, if one goes on."""
        if self._asked and not self._asked.is_cancelled:
            self._asked.is_cancelled = True
            if self._agent and self._asked.prompt_id:
                self._agent.act(CancelTurn())

    async def set_option(self, option: str, value: str | bool) -> list[ConfigOption]:
        """
        Give an option a value; return all of them.

        Raises:
            RpcError: there is no such option or value, or it cannot be had.
        """
        action = self.options.action(option, value)
        if self._agent is None:
            raise RpcError(INTERNAL_ERROR, "the session has ended: load it again")
        self._agent.act(action)
        with anyio.move_on_after(SETTLE_S):
            while option == "network" and self.options.sandbox.network != value:
                self._changed = anyio.Event()
                await self._changed.wait()
        self.options.check(option, value)
        return self.options.shown()

    async def list_models(self) -> None:
        """Find out which models can be chosen without asking any provider."""
        with suppress(SanderlingError, ProviderError):
            if self._agent:
                answer = await self._agent.answer(ListModels(self.id, "known"))
                if isinstance(answer, Models):
                    self.options.models = [name for name in answer.models if not name.endswith(":")]

    # --- what happens --------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Take an event of the agent's."""
        if self.options.take(event) and self._agent:  # before, the client is told with the session
            self._tell_options(event)
        match event:
            case SessionOpened(model, title):
                self.options.model, self.options.title = model, title
            case HistoryShown():
                self._pages.append(event)
            case TurnStarted(prompt):
                self._take_start(prompt)
            case TurnEnded(stop_reason):
                self._take_end(stop_reason)
            case ErrorOccurred():
                self._take_error(event)
            case WaitingChanged(queued=queued, is_held=True):
                self._take_held(queued)
            case PromptsReturned(prompts):
                self._take_returned(prompts)
            case ApprovalRequested():
                self._tasks.start_soon(self._ask_person, event)
            case ApprovalSettled(question_id):
                if scope := self._open_questions.get(question_id):
                    scope.cancel()
            case _:
                self._updates.send_all(self._teller.updates(event))
                self._updates.roll_later()
        self._changed.set()

    def show_terminal(self, line: str, terminal_id: str) -> None:
        """A command runs in a terminal of the client's."""
        self._updates.send_all(self._teller.terminal(line, terminal_id))

    def _tell_options(self, event: Event) -> None:
        if isinstance(event, ModeChanged):
            self._updates.send(CurrentModeUpdate(current_mode_id=event.mode))
        meta = self.told if isinstance(event, SandboxChanged) else None
        self._updates.send(ConfigOptionUpdate(config_options=self.options.shown(), meta=meta))

    def _take_start(self, prompt: Prompt) -> None:
        if self._asked and prompt.id == self._asked.prompt_id:
            self._asked.has_begun = True
        else:  # one that waited, from another face
            self._updates.send(self._teller.prompt(prompt))

    def _take_end(self, stop_reason: StopReason) -> None:
        if self._asked and (self._asked.has_begun or self._asked.is_cancelled):
            self._asked.end(stop_reason)

    def _take_error(self, event: ErrorOccurred) -> None:
        if self._asked:
            self._asked.error = event
        else:
            words = f"{event.message} {event.remedy}".rstrip()
            self._updates.send_all(self._teller.say("error", words))

    def _take_held(self, queued: tuple[Prompt, ...]) -> None:
        """End what is asked if it is not sent because a prompt before it has failed."""
        asked = self._asked
        is_ours = asked is not None and asked.prompt_id in {each.id for each in queued}
        if asked and is_ours and asked.error and not asked.has_begun and self._agent:
            self._agent.act(CancelTurn())

    def _take_returned(self, prompts: tuple[Prompt, ...]) -> None:
        if self._asked and self._asked.prompt_id in {each.id for each in prompts}:
            self._asked.has_begun = True  # the end that follows is its own

    async def _ask_person(self, question: ApprovalRequested) -> None:
        with anyio.CancelScope() as scope:
            self._open_questions[question.id] = scope
            self._updates.send_all(self._teller.asked(call_of(question), is_open=True))
            action = await self._questions.ask(question)
            if isinstance(action, CancelTurn):
                self.cancel()
            if self._agent:
                self._agent.act(action)
        self._open_questions.pop(question.id, None)
        self._updates.send_all(self._teller.asked(call_of(question), is_open=False))


def _told_again(teller: Teller, event: Event) -> Iterable[SessionUpdate]:
    if isinstance(event, TurnStarted):
        return (teller.prompt(event.prompt),)
    return teller.updates(event)
