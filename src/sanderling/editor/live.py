"""A session that is open in the host: its conversation, and its frames on their way to the screen."""

import logging
import shutil
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.config import Settings, settings_report
from sanderling.conversation.conversation import Conversation
from sanderling.editor.bridge import Bridge
from sanderling.editor.buffers import NeovimBuffers
from sanderling.editor.frames import FrameQueue
from sanderling.errors import ConfigError, ProviderError, SanderlingError
from sanderling.permissions.store import load_rules
from sanderling.project.trust.settings import project_settings
from sanderling.project.trust.trust import Trust
from sanderling.protocol.actions import (
    Action,
    AnswerApproval,
    CancelTurn,
    Compact,
    EditWaiting,
    InspectToolUse,
    ListModels,
    OpenSession,
    ReleaseWaiting,
    RetryNow,
    RunCommand,
    SetMode,
    SetModel,
    SetNetwork,
    SetSandbox,
    SetTitle,
    ShowEarlier,
    ShowSettings,
    ShowTrust,
    ShowUsage,
    SteerTurn,
    StopJob,
    SubmitPrompt,
    TrustFiles,
    UndoCompaction,
    WatchJob,
)
from sanderling.protocol.events import (
    CommandEnded,
    CommandsRunning,
    CommandStarted,
    ErrorOccurred,
    Event,
    Notice,
    ReportShown,
    SessionInUse,
    SessionOpened,
    SlashCommandsChanged,
    TurnEnded,
    TurnStarted,
)
from sanderling.providers import Provider
from sanderling.providers.choice import choose, make_provider
from sanderling.providers.scripted import copy_sample
from sanderling.sandbox.confinement import policy_for
from sanderling.session.log import SessionInUseError
from sanderling.session.pages import Pages
from sanderling.session.session import Session

NO_KEY_NOTICE = (
    "There is no API key, so the demo model answers: it replays a script.\n"
    "Type /login, or set ANTHROPIC_API_KEY in the environment that starts Neovim, to talk to Claude."
)

DEFECT = "Something went wrong in this session, and it has stopped."
DEFECT_REMEDY = "The next prompt opens it again from its log. The host's log has the details: :checkhealth sanderling."

log = logging.getLogger(__name__)


class LiveSession:
    """Serves one session, from its opening on. What is asked of it before it is open waits."""

    def __init__(
        self,
        session_id: str,
        opening: OpenSession,
        settings: Settings,
        bridge: Bridge,
        buffers: NeovimBuffers,
        *,
        is_again: bool = False,
    ) -> None:
        self.id = session_id
        self.opening = opening
        self._is_again = is_again  # it did not open before, and that was told
        self._settings = settings
        self._bridge = bridge
        self._buffers = buffers
        self._frames = FrameQueue(session_id)
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._early: list[Action] = []
        self._tasks: TaskGroup | None = None  # once it is open, or refused
        self._orchestrator: Conversation | None = None
        self._sample = ""  # where the demo model's tour works
        self._refusal: SanderlingError | None = None
        self._pages: Pages | None = None
        self._paging = anyio.Lock()
        self.ended = anyio.Event()

    @property
    def is_refused(self) -> bool:
        return self._refusal is not None

    def act(self, action: Action) -> None:
        if self._tasks:
            self._do(action, self._tasks)
        else:
            self._early.append(action)

    def close(self) -> None:
        """Let the turn end as a stopped one, then end."""
        if self._orchestrator:
            self._orchestrator.close()
        else:
            self._scope.cancel()

    def acknowledge(self, seq: int) -> None:
        self._frames.acknowledge(seq)
        self._changed.set()

    @property
    def reopening(self) -> OpenSession:
        """The request that opens the session again, for a screen that shows what was said already."""
        return msgspec.structs.replace(self.opening, wants_history=False)

    def show_defect(self) -> None:
        """Say that the session has ended with a defect; what was still to be drawn is drawn before."""
        self.emit(ErrorOccurred("internal", DEFECT, DEFECT_REMEDY))
        self.emit(CommandsRunning(0))
        self.emit(TurnEnded("error"))
        while self._frames.has_waiting:
            self._send_frame()

    async def run(self) -> None:
        """Serve the session until it is closed; one that cannot be opened only says so."""
        try:
            await self._run()
        finally:
            self.ended.set()

    async def _run(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._draw)
                try:
                    conversation = await self._open()
                except SanderlingError as error:
                    self._refuse(error)
                else:
                    self._orchestrator = conversation
                    tasks.start_soon(self._serve, conversation)
                self._tasks = tasks
                for action in self._early:
                    self._do(action, tasks)

    # --- opening -------------------------------------------------------------------------------------------------------

    async def _open(self) -> Conversation:
        session = await self._read_session()
        try:
            return await self._orchestrate(session)
        except BaseException:
            session.close()
            raise

    async def _read_session(self) -> Session:
        """A long log takes a while to read: not on the loop."""
        return await to_thread.run_sync(
            Session.open, self._settings.session_dir, self.id, self.opening.project
        )

    async def _orchestrate(self, session: Session) -> Conversation:
        trust = Trust(self._settings.state_dir, session.project)
        settings = self._settings = project_settings(trust, self._settings)
        is_demo = choose(settings) == "demo"
        self._sample = copy_sample() if is_demo else ""
        provider = make_provider(settings, self._sample)
        policy = policy_for(settings, session.project)
        if self._sample:
            policy = policy._replace(write_paths=(*policy.write_paths, self._sample))
        rules = load_rules(settings.permissions, session.project)
        conversation = Conversation(
            session, provider, self.emit, policy, settings, rules=rules, editor=self._buffers
        )
        await self._show(conversation)
        is_without_key = settings.provider == "auto" and is_demo
        if is_without_key and not session.is_resumed:
            self.emit(Notice("info", NO_KEY_NOTICE))
        return conversation

    async def _show(self, conversation: Conversation) -> None:
        """Tell the screen all that it has to know of a session that begins or goes on."""
        session = conversation.session
        self.emit(SessionOpened(conversation.provider.model, session.title, session.is_resumed))
        if session.is_resumed and self.opening.wants_history:
            self._pages = Pages(session)
            await self._show_earlier(self._pages)
        if session.log.damaged_lines:
            count = session.log.damaged_lines
            lines = (
                "A line of the session's log is" if count == 1 else f"{count} lines of the log are"
            )
            self.emit(Notice("warning", f"{lines} damaged, and left out."))
        conversation.show_state()
        self.emit(SlashCommandsChanged(conversation.surroundings.commands()))

    def _refuse(self, error: SanderlingError) -> None:
        """The session cannot be opened: what is asked of it is answered with the reason, and the host tries it again."""
        log.warning("session %s does not open: %s", self.id, error)
        self._refusal = error
        if isinstance(error, SessionInUseError):
            self.emit(SessionInUse(self.id))
        if not self._is_again:
            self._emit_refusal(error)

    def _emit_refusal(self, error: SanderlingError) -> None:
        remedy = "Fix it, then send the prompt again; for options, call setup() again."
        if isinstance(error, SessionInUseError):
            remedy = "Close it there, or fork it: :AgentSessions."
        self.emit(ErrorOccurred("internal", str(error), remedy))
        self.emit(TurnEnded("error"))

    async def _serve(self, conversation: Conversation) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_prepare, conversation.provider)
            try:
                await conversation.serve()
            finally:
                conversation.session.close()
                if self._sample:
                    shutil.rmtree(Path(self._sample).parent, ignore_errors=True)
                with anyio.CancelScope(shield=True):
                    await conversation.provider.aclose()
            self._scope.cancel()

    # --- actions -------------------------------------------------------------------------------------------------------

    def _do(self, action: Action, tasks: TaskGroup) -> None:
        if self._orchestrator:
            self._act_on(self._orchestrator, action, tasks)
        elif self._refusal:
            self._answer_refused(action, self._refusal)

    def _answer_refused(self, action: Action, refusal: SanderlingError) -> None:
        match action:
            case SubmitPrompt(prompt) | SteerTurn(prompt):
                self.emit(TurnStarted(prompt))  # what was asked stays to be read
                self._emit_refusal(refusal)
            case RunCommand(command_id, command):
                self.emit(CommandStarted(command_id, command))
                self.emit(CommandEnded(command_id, f"Did not start: {refusal}"))
            case _:
                pass

    def _act_on(self, conversation: Conversation, action: Action, tasks: TaskGroup) -> None:
        match action:
            case SubmitPrompt(prompt):
                conversation.submit(prompt)
            case SteerTurn(prompt):
                conversation.steer(prompt)
            case EditWaiting(prompt_id, text):
                conversation.waiting.edit(prompt_id, text)
            case ReleaseWaiting():
                conversation.release()
            case CancelTurn():
                conversation.cancel()
            case RetryNow():
                conversation.calls.retry_now()
            case AnswerApproval():
                conversation.approvals.answer(action)
            case Compact(focus):
                conversation.compact(focus)
            case UndoCompaction():
                conversation.undo_compaction()
            case _:
                self._tell(conversation, action, tasks)

    def _tell(self, conversation: Conversation, action: Action, tasks: TaskGroup) -> None:
        match action:
            case ListModels():
                conversation.list_models()
            case ShowUsage():
                conversation.show_usage()
            case InspectToolUse(tool_use_id):
                conversation.inspect(tool_use_id)
            case WatchJob(job_id, is_on):
                conversation.watch_job(job_id, is_on=is_on)
            case ShowEarlier(before):
                if self._pages is None:  # the process that has shown the last ones is gone
                    self._pages = Pages(conversation.session, before)
                tasks.start_soon(self._show_earlier, self._pages)
            case ShowSettings():
                model = conversation.provider.model
                self.emit(ReportShown("Settings", settings_report(self._settings, model)))
            case ShowTrust():
                tasks.start_soon(self._show_trust, conversation)
            case TrustFiles(hashes):
                self._trust(conversation, hashes)
            case _:
                self._change(conversation, action)

    def _change(self, conversation: Conversation, action: Action) -> None:
        match action:
            case RunCommand(command_id, command):
                conversation.commands.start(command_id, command)
            case SetNetwork(mode):
                conversation.set_network(mode)
            case SetSandbox(is_on):
                conversation.sandbox.switch(is_on=is_on)
            case SetMode(mode):
                conversation.set_mode(mode)
            case SetModel(model):
                conversation.set_model(model)
            case SetTitle(title):
                conversation.set_title(title)
            case StopJob(job_id):
                conversation.stop_job(job_id)
            case _:
                pass  # opening and closing are the host's

    async def _show_earlier(self, pages: Pages) -> None:
        async with self._paging:  # one after the other
            try:
                self.emit(await to_thread.run_sync(pages.take))
            except SanderlingError as error:
                self.emit(Notice("warning", f"What was said before cannot be shown: {error}"))

    async def _show_trust(self, conversation: Conversation) -> None:
        self.emit(await to_thread.run_sync(conversation.surroundings.shown))

    def _trust(self, conversation: Conversation, hashes: dict[str, str]) -> None:
        try:
            conversation.surroundings.trust_files(hashes)
        except ConfigError as error:
            self.emit(Notice("warning", str(error)))
        else:
            self.emit(SlashCommandsChanged(conversation.surroundings.commands()))

    # --- the screen ----------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        self._frames.push(event)
        self._changed.set()

    async def _draw(self) -> None:
        """Send frames as they fall due."""
        while True:
            delay_s = self._frames.delay_s(anyio.current_time())
            if delay_s == 0:
                self._send_frame()
            elif delay_s and not self._frames.waits_for_request:
                await anyio.sleep(delay_s)
            else:
                self._changed = anyio.Event()
                with anyio.move_on_after(delay_s):
                    await self._changed.wait()

    def _send_frame(self) -> None:
        frame = self._frames.take(anyio.current_time())
        self._bridge.notify("require('sanderling.host').receive(...)", msgspec.to_builtins(frame))


async def _prepare(provider: Provider) -> None:
    """Ahead of the first prompt; what goes wrong is told by the turn that needs it."""
    with suppress(ProviderError):
        await provider.prepare()
