"""A conversation: its turns, one after the other, and what the user does meanwhile."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio import to_thread

from sanderling.conversation.budget import BudgetSpentError
from sanderling.conversation.controls import Controls
from sanderling.conversation.hooked import PromptRefusedError
from sanderling.conversation.prompt import (
    check_images,
    mentions_session,
    prompt_message,
    with_sessions,
)
from sanderling.conversation.servers import NoServers
from sanderling.conversation.services import SessionServices
from sanderling.conversation.turn import Turn
from sanderling.conversation.undo.reviewing import Reviews
from sanderling.conversation.undo.undoing import Undoer
from sanderling.conversation.views import SessionViews
from sanderling.errors import ConfigError, ProviderError, SessionError
from sanderling.permissions.guarding import check_mentions
from sanderling.protocol import actions, events
from sanderling.protocol.messages import Prompt, StopReason
from sanderling.protocol.modes import Mode
from sanderling.protocol.requests import (
    Answer,
    ProposeAtEnd,
    Proposed,
    RepeatPrompt,
    SessionRequest,
)
from sanderling.sandbox.sandbox import VERIFYING, must_verify

if TYPE_CHECKING:
    from sanderling.conversation.learning import Learner

BUSY = "Stop the turn first: the model is working."
REMEMBERING = "Lines are being proposed already."
REMEMBERING_WAITS = "Lines are proposed when this turn has ended."
ROLE_WAITS = "The role changes at the end of this turn."
NOT_REPEATED = (
    "Only prompts to Sanderling's own agent, with the files on this machine, can be repeated."
)
LAST_WORDS_S = 1.0  # to release resources at the end


class OneTurn(Protocol):
    """What a conversation needs of a turn: it runs once and can be cancelled."""

    async def run(self, prompt: Prompt) -> StopReason: ...

    def cancel(self) -> None: ...


class Conversation:
    """
    The `Agent` of one session: its turns and commands.

    Args:
        resources: closed at the end.
        is_eager: prepare early what is needed soon.
        mode: overrides the session's remembered mode.
        role: the role of a new session, if not that of the settings.
        external: name of the external agent that answers, if any.

    Attributes:
        is_project_here: the project's files are on this machine, and commands run here.
    """

    is_project_here = True

    def __init__(
        self,
        services: SessionServices,
        resources: AsyncExitStack | None = None,
        *,
        is_eager: bool = True,
        mode: Mode | None = None,
        role: str = "",
        external: str = "",
    ) -> None:
        self.services = services
        self._undoer, self._reviews = Undoer(services), Reviews(services.workspace, services.emit)
        self.views = SessionViews(services, self._undoer, self._reviews, external)
        self.controls = Controls(services, self._reviews, self.declare_servers)
        self._is_eager = is_eager
        self._resources = resources or AsyncExitStack()
        # A scope while only a summary is written.
        self._turn: OneTurn | anyio.CancelScope | None = None
        self._next_role: str | None = None
        self._proposal: _Proposal | None = None
        self._is_remembering = False
        self._arrived = anyio.Event()
        self._is_closed = False
        services.restore(mode, role)
        self._first_mode: Mode = services.gate.mode
        self.begin_sandbox()

    def begin_sandbox(self) -> None:
        """Keep the sandbox open while the session is served."""
        manager = self.services.sandbox.manager
        self.services.tasks.start(manager.serve)
        if self._is_eager:
            self.services.tasks.start(self._find_level)

    async def _find_level(self) -> None:
        if await must_verify():
            self.services.emit(events.Notice("info", VERIFYING))
        await self.services.sandbox.manager.find_level()

    # --- the agent -----------------------------------------------------------------------------------------------------

    def act(self, action: actions.Action) -> None:  # noqa: C901, PLR0912, PLR0915 - one table
        services, controls = self.services, self.controls
        match action:
            case actions.SubmitPrompt(prompt):
                self.submit(prompt)
            case actions.SteerTurn(prompt):
                self.steer(prompt)
            case actions.EditWaiting(prompt_id, text):
                services.waiting.edit(prompt_id, text)
            case actions.ReleaseWaiting():
                services.waiting.release()
            case actions.CancelTurn():
                self.cancel()
            case actions.RetryNow():
                services.calls.retry_now()
            case actions.Rest():
                services.sandbox.manager.rest_soon()
            case actions.AnswerApproval():
                controls.answer(action)
            case actions.StopChild(child_id):
                controls.stop_child(child_id)
            case actions.RejectChanges() | actions.NoteReviewed() | actions.NoteUsage():
                controls.note_done(action)
            case actions.NoteSaved(path):
                services.workspace.changes.saved(path)
            case actions.Compact(focus):
                services.compactor.ask(focus)
                if services.settings.auto_remember:
                    self._propose(is_asked=False)
            case actions.Remember():
                self._ask_to_remember()
            case actions.UndoCompaction():
                self._unless_in_turn(services.compactor.undo)
            case (
                actions.UndoTurn() | actions.RedoTurn() | actions.Rewind() | actions.ApplyWorktree()
            ):
                self._unless_in_turn(partial(self._undoer.ask, action))
            case actions.RunCommand(command_id, command):
                services.commands.start(command_id, command)
            case actions.SetNetwork(mode):
                services.tasks.start(controls.set_network, mode)
            case actions.SetSandbox(is_on):
                services.gate.switch_sandbox(is_on=is_on)
            case actions.SetMode(mode):
                controls.set_mode(mode)
            case actions.SetRole(name):
                self._set_role(name)
            case actions.SetModel(model):
                controls.set_model(model)
            case actions.SetEffort(effort, is_once):
                controls.set_effort(effort, is_once=is_once)
            case actions.SetTitle(title):
                controls.set_title(title)
            case actions.TrustFiles(hashes):
                controls.trust_files(hashes)
            case actions.ControlToolServer(name, what):
                services.servers.control(name, what)
            case actions.ChangeRule(rule, new):
                controls.change_rule(rule, new)
            case actions.StopJob(job_id):
                services.tasks.start(controls.stop_job, job_id)
            case actions.CloseSession():
                self.close()
            case _:
                self.views.show(action)
        self._arrived.set()

    async def answer(self, request: SessionRequest) -> Answer:
        if isinstance(request, RepeatPrompt) and (self.views.external or not self.is_project_here):
            raise SessionError(NOT_REPEATED)
        if isinstance(request, ProposeAtEnd) and not self.views.external:
            return await self._propose_at_end()
        return await self.views.answer(request)

    async def _propose_at_end(self) -> Proposed:
        if self._turn or self.services.waiting:
            self.cancel()
        proposal = self._propose(is_asked=False)
        self._arrived.set()
        await proposal.is_done.wait()
        return Proposed()

    def _propose(self, *, is_asked: bool) -> "_Proposal":
        self._proposal = self._proposal or _Proposal()
        self._proposal.is_asked |= is_asked
        return self._proposal

    def close(self) -> None:
        """Stop the turn; `serve` returns when it has ended. Pending prompts are in the log for the next time."""
        self._is_closed = True
        if self._turn:
            self._turn.cancel()
        self._arrived.set()

    async def serve(self) -> None:
        """Run a turn for each prompt, and the user's commands at the same time, until closed."""
        self.declare_servers()
        try:
            async with self.services.tasks.running():
                if self._is_eager:
                    self.services.tasks.start(self._prepare)
                await self._serve_prompts()
                await self.services.hooks.end()
        finally:
            with anyio.move_on_after(LAST_WORDS_S, shield=True):
                await self._resources.aclose()

    def declare_servers(self) -> None:
        self.services.declare_servers()

    async def _prepare(self) -> None:
        """Prepare the provider. Errors are reported by the turn that needs it."""
        # The header of the first skill loads a parser.
        await to_thread.run_sync(self.services.project.skills.all)
        with suppress(ProviderError):
            await self.services.provider.prepare()
            if not self._turn and isinstance(self.services.servers, NoServers):
                await self.services.calls.prewarm()  # later tools would begin the request
        if not self._turn:  # a turn starts the tool servers itself, after its request
            self.services.servers.begin()
        await to_thread.run_sync(_repair_worktrees, self.services)

    # --- turns ---------------------------------------------------------------------------------------------------------

    async def _serve_prompts(self) -> None:
        services = self.services
        if services.gate.mode == self._first_mode != "ask":
            services.emit(events.ModeChanged(services.gate.mode))
        await services.gate.grant_again()
        if services.session.is_resumed:
            await self._undoer.finish_interrupted()
            await self._reviews.show_waiting()
        while not self._is_closed:
            if services.compactor.is_asked:
                await self._summarize()
            elif proposal := self._proposal:
                await self._learn(proposal)
            elif self._undoer.is_asked:
                await self._undo()
            elif prompt := self.next_prompt():
                await self.run_turn(prompt)
            else:
                self._arrived = anyio.Event()
                await self._arrived.wait()

    def next_prompt(self) -> Prompt | None:
        return self.services.waiting.take_next()

    async def run_turn(self, prompt: Prompt) -> None:
        """Answer `prompt`, if it can be sent."""
        services, asked = self.services, None
        with anyio.CancelScope() as scope, self._active(scope):
            try:
                asked = await self.expanded(prompt)
            except ConfigError as error:
                self._refuse(prompt, str(error))
                return
        if asked is None:  # stopped before it was sent
            self.services.emit(events.PromptsReturned((prompt,)))
            self.services.emit(events.TurnEnded("cancelled"))
            return
        if not prompt_message(asked).content:
            self._refuse(prompt, "The prompt is empty: nothing was sent.")
            return
        if not (asked := await self._checked_by_hooks(prompt, asked)):
            return
        turn = self.make_turn()
        with self._active(turn):
            stop_reason = await turn.run(asked)
        if (worktree := services.worktree) and (problem := await worktree.keep()):
            services.warn(problem)
        if self._is_eager:
            self.services.servers.begin()  # a short turn has not started them
        await self._show_end(stop_reason)

    async def _checked_by_hooks(self, prompt: Prompt, asked: Prompt) -> Prompt | None:
        """Run the hooks before a turn. Return the prompt to send; None if a hook refused it, or the user stopped it meanwhile."""
        services = self.services
        with anyio.CancelScope() as scope, self._active(scope):
            await services.hooks.begin_turn(is_resumed=services.session.is_resumed)
            try:
                return await services.hooks.before_prompt(asked)
            except PromptRefusedError as refused:
                self._refuse(prompt, str(refused))
                return None
        services.emit(events.PromptsReturned((prompt,)))
        services.emit(events.TurnEnded("cancelled"))
        return None

    def make_turn(self) -> OneTurn:
        return Turn(self.services, is_eager=self._is_eager)

    async def expanded(self, prompt: Prompt) -> Prompt:
        """
        Expand the prompt: its slash command, from a file or a tool server, and the sessions, resources, PDFs and notebooks that it mentions.

        Raises:
            ConfigError: a part is not available.
        """
        servers = self.services.servers
        self._check_mentions(prompt)
        if mentions_session(prompt):
            session_dir = self.services.settings.session_dir
            prompt = await to_thread.run_sync(with_sessions, prompt, session_dir)
        if "@" in prompt.text:
            from sanderling.tools.mentioned import with_documents  # only for mentions

            prompt = await with_documents(prompt, self.services.workspace, self._check_mentions)
        if prompt.sent:  # already expanded before it waited
            return prompt
        try:
            asked = await self.with_command(prompt)
        except ConfigError:
            if not servers.begins_with_prompt(prompt.text):
                raise
            asked = prompt
        return await servers.put_in(asked)

    async def with_command(self, prompt: Prompt) -> Prompt:
        """
        Return the prompt with its slash command expanded.

        Raises:
            ConfigError: the command is unknown, or cannot be used so.
        """
        asked = self.services.project.asked(prompt)
        if asked is None:
            return prompt
        if not (asked.needs_work and self.is_project_here):
            return asked.put_into(prompt, asked.text)
        from sanderling.conversation.command_files import CommandFiles  # rarely needed

        return await CommandFiles(self.services.workspace, self._check_mentions).expand(
            prompt, asked
        )

    def _check_mentions(self, prompt: Prompt) -> None:
        if prompt.selections:
            check_images(prompt)
            check_mentions(prompt, self.services.session.work_dir, self.services.gate.may_read())

    def _refuse(self, prompt: Prompt, reason: str) -> None:
        self.services.emit(events.TurnStarted(prompt))
        self.services.emit(events.ErrorOccurred("invalid_request", reason, ""))
        self.services.waiting.hold()
        self.services.memory.keep()
        self.services.emit(events.TurnEnded("error"))

    async def _summarize(self) -> None:
        """Summarize between turns, as the user requested."""
        with anyio.CancelScope() as scope, self._active(scope):
            try:
                await self.services.compactor.summarize_as_asked(is_in_turn=False)
            except BudgetSpentError:
                await self._show_end("budget")
                return
        await self._show_end("cancelled" if scope.cancelled_caught else "end_turn")

    def _ask_to_remember(self) -> None:
        if self._proposal or self._is_remembering:
            self.services.emit(events.Notice("info", REMEMBERING))
        elif self._turn:
            self.services.emit(events.Notice("info", REMEMBERING_WAITS))
        if not self._is_remembering:
            self._propose(is_asked=True)

    async def _learn(self, proposal: "_Proposal") -> None:
        """Propose lines for the instructions between turns. Without a correction, only a user who asked for it sees anything."""
        from sanderling.conversation.learning import Learner  # only when it is needed

        self._proposal, self._is_remembering = None, True
        learner, stop_reason = Learner(self.services), None
        try:
            found = await learner.find(is_asked=proposal.is_asked)
            if found or proposal.is_asked:
                stop_reason = await self._propose_from(learner, found)
        finally:
            self._is_remembering = False  # before the end is shown: the user can ask again then
            proposal.is_done.set()
        if stop_reason:
            await self._show_end(stop_reason)

    async def _propose_from(self, learner: "Learner", found: Sequence[str]) -> StopReason:
        self.services.emit(events.RememberingStarted())
        with anyio.CancelScope() as scope, self._active(scope):
            try:
                await learner.propose(found)
            except BudgetSpentError:
                return "budget"
        return "cancelled" if scope.cancelled_caught else "end_turn"

    async def _undo(self) -> None:
        """Undo, redo or rewind between turns, as the user requested."""
        before = await self._reviews.waiting()
        await self._undoer.run()
        await self._reviews.show_waiting(before)
        self.services.memory.keep()
        await self.services.memory.sync()
        self.services.memory.report_problem()

    @contextmanager
    def _active(self, turn: OneTurn | anyio.CancelScope) -> Generator[None]:
        """Let `cancel` stop `turn` in this context, and hold back the output of commands."""
        self._turn, self.services.waiting.is_in_turn = turn, True
        self.services.commands.hold()
        try:
            yield
        finally:
            self._turn, self.services.waiting.is_in_turn = None, False

    def _set_role(self, name: str) -> None:
        """Change the role, or note the change for the end of the turn, because a turn has one role."""
        self._next_role = None
        if not self._turn:
            self.controls.set_role(name)
        elif name != self.services.role.shown().name:
            self._next_role = name
            self.services.emit(events.Notice("info", ROLE_WAITS))

    async def _show_end(self, stop_reason: StopReason) -> None:
        services = self.services
        services.memory.report_problem()
        services.tell_untrusted()  # a short turn has not reported it
        services.tell_new_commands()
        if self._next_role is not None:
            self.controls.set_role(self._next_role)
            self._next_role = None
        services.emit(events.TurnEnded(stop_reason))
        services.memory.keep()
        if services.titler and services.titler.is_due and stop_reason == "end_turn":
            services.tasks.start(services.titler.title)
        services.commands.show_held()
        await services.memory.sync()
        services.memory.report_problem()

    def submit(self, prompt: Prompt) -> None:
        self.services.waiting.queue(prompt)
        self._arrived.set()

    def steer(self, prompt: Prompt) -> None:
        """Send `prompt` at the next tool boundary; if there is no turn, start one."""
        try:
            self._check_mentions(prompt)
        except ConfigError as error:
            self.services.warn(str(error))
            self.services.emit(events.PromptsReturned((prompt,)))
            return
        is_seen = self.services.hooks.see_prompts()
        is_command = prompt.text.startswith("/")
        is_of_server = self.services.servers.are_in(prompt.text)
        if is_seen or is_command or is_of_server or _mentions_document(prompt):
            self.services.tasks.start(self._steer_expanded, prompt)
        else:
            self.services.waiting.steer(prompt)
            self._arrived.set()

    async def _steer_expanded(self, prompt: Prompt) -> None:
        """Steer with what the prompt stands for and mentions, or as it is if that is not available."""
        try:
            prompt = await self.expanded(prompt)
        except ConfigError as error:
            self.services.warn(str(error))
        try:
            checked = await self.services.hooks.before_prompt(prompt)
        except PromptRefusedError as refused:
            self.services.warn(str(refused))
            self.services.emit(events.PromptsReturned((prompt,)))
            return
        self.services.waiting.steer(checked)
        self._arrived.set()

    def cancel(self) -> None:
        """Stop the turn and return the pending prompts; if there are neither, stop the newest command."""
        returned = self.services.waiting.take_all()
        is_dropped = self.services.compactor.drop_asked() or self._proposal is not None
        if self._proposal:
            self._proposal.is_done.set()
            self._proposal = None
        if returned:
            self.services.emit(events.PromptsReturned(returned))
        if self._turn:
            self._turn.cancel()
        elif returned:
            self.services.emit(events.TurnEnded("cancelled"))
        elif not is_dropped:
            self.services.commands.stop_newest()

    def _unless_in_turn(self, change: Callable[[], None]) -> None:
        """Run `change`, which changes the history, unless a turn is running."""
        if self._turn:
            self.services.warn(BUSY)
        else:
            change()


class _Proposal:
    """A proposal of instructions to be made between turns; `is_asked`: the user has asked for it."""

    def __init__(self) -> None:
        self.is_asked = False
        self.is_done = anyio.Event()


def _repair_worktrees(services: SessionServices) -> None:
    if Path(services.settings.state_dir, "worktrees").is_dir():
        from sanderling.conversation.worktree import repair  # only with worktrees

        repair(services.session, services.settings)


def _mentions_document(prompt: Prompt) -> bool:
    if "@" not in prompt.text:
        return False
    from sanderling.tools.mentioned import has_documents  # only for mentions

    return has_documents(prompt.text)
