"""An open session: turns the client's requests into actions and the agent's events into updates."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import anyio

from sanderling.acp.agent.clients import Audience
from sanderling.acp.agent.earlier import EarlierHistory
from sanderling.acp.agent.event_translator import EventTranslator
from sanderling.acp.agent.options import ConfigOptions
from sanderling.acp.agent.own_commands import OwnCommands, is_ours
from sanderling.acp.agent.questions import (
    ClientQuestions,
    call_of,
    childs_call,
    childs_call_settled,
)
from sanderling.acp.agent.tasks import TaskStarter
from sanderling.acp.agent.tracked_prompts import TrackedPrompt, TrackedPrompts
from sanderling.acp.wire.change_signal import ChangeSignal
from sanderling.acp.wire.errors import INTERNAL_ERROR, RpcError
from sanderling.acp.wire.ours import TurnOver, meta_of
from sanderling.acp.wire.sessions import ConfigOption
from sanderling.acp.wire.updates import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    SessionUpdate,
)
from sanderling.errors import ProviderError, SanderlingError
from sanderling.protocol.actions import (
    CancelTurn,
    ChangeRule,
    ReleaseWaiting,
    Rest,
    SubmitPrompt,
)
from sanderling.protocol.agent import Agent, OpenedAgent
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    ErrorOccurred,
    Event,
    HistoryShown,
    JobsChanged,
    ModeChanged,
    PromptsReturned,
    SandboxChanged,
    SessionOpened,
    SlashCommandsChanged,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
    WaitingChanged,
)
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import (
    Efforts,
    ListEfforts,
    ListModels,
    ListRoles,
    ListRules,
    Models,
    Roles,
    RulesPage,
)
from sanderling.session.titles import title_of

ROLL_S = 0.1  # between two updates of growing output
ENDED = "the session has ended; load it again"
SETTLE_S = 3.0  # for an option that takes time to change

log = logging.getLogger(__name__)


class AgentSession:
    """An open session. Updates are held back until the client knows the session."""

    def __init__(
        self,
        session_id: str,
        project: str,
        audience: Audience,
        tasks: TaskStarter,
    ) -> None:
        self.id = session_id
        self.project = project
        self.ended = anyio.Event()
        client = audience.client  # a Sanderling client cannot switch off the remote sandbox
        has_switch = client.takes_booleans and not client.is_ours
        self.options = ConfigOptions("", has_switch=has_switch, is_ours=client.is_ours)
        self.prompts = TrackedPrompts()
        self._tasks = tasks
        self._audience = audience
        self._translator = EventTranslator(project, audience.client)
        self._is_rolling = False
        self._questions = ClientQuestions(session_id, audience)
        self._open_questions: dict[str, anyio.CancelScope] = {}
        self._agent: Agent | None = None
        self._earlier = EarlierHistory()
        self.is_resumed = False
        self._changed = ChangeSignal()

    @property
    def session_meta(self) -> dict[str, Any]:
        sandbox = self.options.sandbox
        said = {"level": sandbox.level, "network": sandbox.network, "missing": sandbox.missing}
        return {"sanderling": {"sandbox": said}}

    # --- opening and ending --------------------------------------------------------------------------------------------

    def begin(self, opened: OpenedAgent) -> None:
        self._agent, self.is_resumed = opened.agent, opened.is_resumed
        self.prompts.ends, self.prompts.waiting = opened.ends, opened.waiting
        self.options.model = self.options.model or opened.model
        self._tasks.start_soon(self._serve, opened.agent)

    async def _serve(self, agent: Agent) -> None:
        try:
            await agent.serve()
        except Exception as defect:  # this session ends with an error; other sessions continue
            log.critical("session %s crashed", self.id, exc_info=defect)
            self._take_error(
                ErrorOccurred("internal", "The session ended because of an internal error.", "")
            )
        finally:
            self._agent = None
            if tracked := self.prompts.now:
                tracked.end("error")
            self.ended.set()

    def close(self) -> None:
        if tracked := self.prompts.now:
            tracked.is_cancelled = True
        if self._agent:
            self._agent.close()

    def rest_if_alone(self) -> None:
        """Close the idle sandbox if no client is connected: other sessions need its processes, descriptors and inotify instances."""
        if self._agent and not self._audience.is_there:
            self._agent.act(Rest())

    async def replay(self, tell: Callable[[SessionUpdate], Awaitable[None]]) -> None:
        """Send the history from before the session was opened, oldest first."""
        if self._agent and self.is_resumed:
            translator = EventTranslator(self.project, self._audience.client)
            await self._earlier.replay(self._agent, translator, tell)

    # --- requests of the client --------------------------------------------------------------------------------------------

    def submit(self, prompt: Prompt) -> None:
        """
        Answer `prompt`, for which `prompts.now` is reserved.

        Raises:
            RpcError: the session has ended.
        """
        tracked = self.prompts.now
        assert tracked
        agent = self._running_agent()
        tracked.is_submitted = True
        self._tasks.start_soon(self._answer_prompt, agent, tracked, prompt)

    def accept(self, tracked: TrackedPrompt) -> None:
        tracked.is_accepted = True
        self._audience.accept(tracked.prompt_id)

    async def _answer_prompt(self, agent: Agent, tracked: TrackedPrompt, prompt: Prompt) -> None:
        """Answer `prompt`, even if its client has disconnected."""
        try:
            if not tracked.is_cancelled:
                await self._have_answered(agent, tracked, prompt)
        except SanderlingError as error:
            tracked.failure = error
        except Exception as defect:  # the client waits for `done`, so it must be set in any case
            log.critical("a prompt failed", exc_info=defect)
            tracked.failure = RpcError(INTERNAL_ERROR, f"internal error: {type(defect).__name__}")
        tracked.done.set()
        self.prompts.release()

    async def _have_answered(self, agent: Agent, tracked: TrackedPrompt, prompt: Prompt) -> None:
        tracked.prompt_id = prompt.id
        self._audience.tell_prompt(self._translator.prompt(prompt))
        if is_ours(prompt.text):
            tracked.has_begun = True  # own commands start no turn
            self.accept(tracked)
            own = OwnCommands(agent, self.id, self._answer, self._questions, self._next_news)
            await own.run(prompt.text, tracked.ended)
            tracked.end(tracked.stop_reason or "end_turn")
        else:
            agent.act(
                ReleaseWaiting() if prompt.id in self.prompts.waiting else SubmitPrompt(prompt)
            )
            self.accept(tracked)
            await tracked.ended.wait()
        self._settle(tracked, prompt)

    async def _next_news(self) -> None:
        await self._changed.wait()

    def _answer(self, text: str) -> None:
        self._audience.tell(self._translator.answer(text))

    def _settle(self, tracked: TrackedPrompt, prompt: Prompt) -> None:
        """Send the updates that follow the end of a turn."""
        self._roll_now()
        how = "cancelled" if tracked.outcome == "cancelled" else "failed"
        self._send_all(self._translator.end_compaction(how))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        over = meta_of(TurnOver(tracked.prompt_id, tracked.outcome))
        title = "" if self.options.title else title_of(prompt.text)
        if not title:
            self._audience.tell(SessionInfoUpdate(updated_at=now, meta=over))
        else:
            self.options.title = title
            self._audience.tell(
                SessionInfoUpdate(title=self.options.title, updated_at=now, meta=over)
            )

    def cancel(self) -> None:
        """Cancel the running turn, if there is one."""
        tracked = self.prompts.now
        if tracked and not tracked.is_cancelled:
            tracked.is_cancelled = True
            if self._agent and tracked.prompt_id:
                self._agent.act(CancelTurn())

    async def set_option(self, option: str, value: str | bool) -> list[ConfigOption]:
        """
        Set an option; return all options.

        Raises:
            RpcError: unknown option or invalid value, or the change failed.
        """
        action = self.options.action(option, value)
        self._running_agent().act(action)
        with anyio.move_on_after(SETTLE_S):
            while option in ("network", "sandbox") and self.options.now(option) != value:
                await self._changed.wait()
        self.options.check(option, value)
        if option == "model":
            await self._list_efforts()
        return self.options.shown()

    async def rules(self) -> RulesPage:
        """
        Return the rules in effect.

        Raises:
            RpcError: the session has ended.
        """
        page = await self._running_agent().answer(ListRules(self.id))
        assert isinstance(page, RulesPage)
        return page

    def change_rule(self, rule: str, new: str) -> None:
        if self._agent:
            self._agent.act(ChangeRule(rule, new))

    def _running_agent(self) -> Agent:
        if self._agent is None:
            raise RpcError(INTERNAL_ERROR, ENDED)
        return self._agent

    async def list_models(self) -> None:
        """Fill the list of models from what is known without a request to a provider."""
        with suppress(SanderlingError, ProviderError):
            if self._agent:
                answer = await self._agent.answer(ListModels(self.id, "known"))
                if isinstance(answer, Models):
                    self.options.models = [name for name in answer.models if not name.endswith(":")]
        await self._list_efforts()
        await self._list_roles()

    async def _show_new_roles(self) -> None:
        before = self.options.roles
        await self._list_roles()
        if self.options.roles != before:
            update = ConfigOptionUpdate(config_options=self.options.shown())
            self._audience.tell(update)

    async def _list_roles(self) -> None:
        with suppress(SanderlingError):
            if self._agent:
                answer = await self._agent.answer(ListRoles(self.id))
                if isinstance(answer, Roles):
                    self.options.roles = {each.name: each.description for each in answer.roles}

    async def _list_efforts(self) -> None:
        with suppress(SanderlingError):
            if self._agent:
                answer = await self._agent.answer(ListEfforts(self.id))
                if isinstance(answer, Efforts):
                    self.options.efforts = answer.efforts

    # --- events ------------------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:  # noqa: C901, PLR0912 - one table
        # Before there is an agent, the response to session/new has them.
        if self.options.take(event) and self._agent:
            self._tell_options(event)
        match event:
            case SessionOpened(model, title):
                self.options.model, self.options.title = model, title
            case HistoryShown():
                self._earlier.take(event)
            case UsageUpdated(turn=usage):
                self.prompts.count(usage)
                self._send_all(self._translator.updates(event))
            case TurnStarted(prompt):
                if not self.prompts.begin(prompt):  # a queued prompt of another frontend
                    self._audience.tell(self._translator.prompt(prompt))
            case TurnEnded(stop_reason):
                self.prompts.end(stop_reason)
                self.rest_if_alone()
            case ErrorOccurred():
                self._take_error(event)
            case WaitingChanged(queued=queued, is_held=True):
                if self._agent and self.prompts.is_held_back(queued):
                    self._agent.act(CancelTurn())
            case PromptsReturned(prompts):
                self.prompts.give_back(prompts)
            case JobsChanged(jobs):
                self.options.has_jobs = not all(job.outcome for job in jobs)
                self.rest_if_alone()
            case ApprovalRequested():
                self._tasks.start_soon(self._ask_person, event)
            case ApprovalSettled(question_id):
                if scope := self._open_questions.get(question_id):
                    scope.cancel()
            case _:
                if isinstance(event, SlashCommandsChanged) and self._agent:  # files were trusted
                    self._tasks.start_soon(self._show_new_roles)
                self._send_all(self._translator.updates(event))
                self._roll_later()
        self._changed.notify()

    def _send_all(self, updates: Iterable[SessionUpdate]) -> None:
        for update in updates:
            self._audience.tell(update)

    def _roll_later(self) -> None:
        if self._translator.rolling and not self._is_rolling:
            self._is_rolling = True
            self._tasks.start_soon(self._roll)

    async def _roll(self) -> None:
        await anyio.sleep(ROLL_S)
        self._is_rolling = False
        self._roll_now()

    def _roll_now(self) -> None:
        self._send_all(self._translator.rolled())

    def show_terminal(self, line: str, terminal_id: str) -> None:
        """Show in which of the client's terminals the command `line` runs."""
        self._send_all(self._translator.terminal(line, terminal_id))

    def _tell_options(self, event: Event) -> None:
        if isinstance(event, ModeChanged):
            self._audience.tell(CurrentModeUpdate(current_mode_id=event.mode))
        meta = self.session_meta if isinstance(event, SandboxChanged) else None
        self._audience.tell(ConfigOptionUpdate(config_options=self.options.shown(), meta=meta))

    def _take_error(self, error: ErrorOccurred) -> None:
        if not self.prompts.fail(error):
            words = f"{error.message} {error.remedy}".rstrip()
            self._send_all(self._translator.say("error", words))

    async def _ask_person(self, question: ApprovalRequested) -> None:
        with anyio.CancelScope() as scope:
            self._open_questions[question.id] = scope
            self._send_all(self._translator.asked(call_of(question), is_open=True))
            self._send_all(childs_call(question))
            action = await self._questions.ask(question)
            if isinstance(action, CancelTurn):
                self.cancel()
            if self._agent:
                self._agent.act(action)
        self._open_questions.pop(question.id, None)
        self._send_all(self._translator.asked(call_of(question), is_open=False))
        self._send_all(childs_call_settled(question))
