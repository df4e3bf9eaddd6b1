"""The host's tasks: actions from Neovim go to their session's orchestrator, its events go back as frames."""

import logging
import math
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from sanderling.config import Settings, has_api_key, load_settings
from sanderling.editor.bridge import Bridge
from sanderling.editor.buffers import NeovimBuffers
from sanderling.editor.frames import FrameQueue
from sanderling.errors import ConfigError, ProviderError, SanderlingError, printable
from sanderling.events import (
    Action,
    AnswerApproval,
    CancelTurn,
    CloseSession,
    CommandEnded,
    CommandStarted,
    ErrorOccurred,
    Event,
    InspectToolUse,
    NetworkMode,
    Notice,
    OpenSession,
    Prompt,
    RunCommand,
    SessionOpened,
    SetMode,
    SetNetwork,
    SetSandbox,
    StopJob,
    SubmitPrompt,
    TurnEnded,
    TurnStarted,
    WatchJob,
)
from sanderling.orchestrator import Orchestrator
from sanderling.providers import Provider
from sanderling.providers.anthropic import AnthropicProvider
from sanderling.providers.scripted import (
    ScriptedProvider,
    copy_sample,
    load_demo,
    load_script,
)
from sanderling.rules import load_rules
from sanderling.sandbox.session import policy_for
from sanderling.session import Session

MAX_LOG_BYTES = 1_000_000
NO_KEY_NOTICE = (
    "There is no API key, so the demo model answers: it replays a script.\n"
    "Set ANTHROPIC_API_KEY in the environment that starts Neovim to talk to Claude."
)
EXIT_DEFECT = 70  # sysexits.h: an internal software error

log = logging.getLogger(__name__)


class EditorHost:
    """
    What the rplugin class hands over to. Its methods are called from RPC handlers: they enqueue and return.

    A defect in a task ends the process, loudly: Neovim says so in the chat, the log has the traceback, and the next prompt
    starts a new host, which reads the conversation back from disk.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.settings: Settings | None = None
        self._buffers = NeovimBuffers(bridge)
        self._sessions: dict[str, LiveSession] = {}
        self._inbox, self._actions = anyio.create_memory_object_stream[tuple[str, Action]](math.inf)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take the settings, for sessions opened from now on; the first time, start to serve."""
        try:
            settings = load_settings(_printable(options))
        except ConfigError as error:
            self.bridge.notify("require('sanderling.host').refused(...)", str(error))
            return
        is_serving = self.settings is not None
        self.settings = settings
        if not is_serving:
            start_log(settings.log_file)
            log.info("host %d started", os.getpid())
            self.bridge.start(self.serve, self._end)

    def act(self, session_id: str, action: Mapping[str, Any]) -> None:
        self._inbox.send_nowait((session_id, msgspec.convert(_printable(action), Action)))

    def acknowledge(self, session_id: str, seq: int) -> None:
        if live := self._sessions.get(session_id):
            live.acknowledge(seq)

    async def serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for session_id, action in self._actions:
                self._route(session_id, action, tasks)

    def _route(self, session_id: str, action: Action, tasks: TaskGroup) -> None:
        live = self._sessions.get(session_id)
        match action:
            case OpenSession(project):
                if live is None:
                    self._open(session_id, project, tasks)
            case _ if live is None:
                log.warning(
                    "%s for session %s, which is not open", type(action).__name__, session_id
                )
            case SubmitPrompt(prompt):
                live.submit(prompt)
            case RunCommand(command_id, command):
                live.run_command(command_id, command)
            case SetNetwork(mode):
                live.set_network(mode)
            case SetSandbox(is_on):
                live.switch_sandbox(is_on=is_on)
            case CancelTurn():
                live.cancel()
            case SetMode() | AnswerApproval() | InspectToolUse() | WatchJob() | StopJob():
                live.act(action)
            case CloseSession():
                live.close()
                del self._sessions[session_id]

    def _open(self, session_id: str, project: str, tasks: TaskGroup) -> None:
        assert self.settings is not None
        live = self._sessions[session_id] = LiveSession(session_id, self.bridge)
        try:
            live.sample = copy_sample() if is_demo(self.settings) else ""
            provider = make_provider(self.settings, live.sample)
            session = Session.open(self.settings.session_dir, session_id, project)
            rules = load_rules(self.settings.permissions, session.project)
        except SanderlingError as error:
            log.warning("session %s does not open: %s", session_id, error)
            live.refuse(error)
        else:
            policy = policy_for(self.settings, session.project)
            if live.sample:
                policy = replace(policy, write_paths=(*policy.write_paths, live.sample))
            live.orchestrator = Orchestrator(
                session, provider, live.emit, policy, rules=rules, editor=self._buffers
            )
            if self.settings.provider == "auto" and not has_api_key() and not session.history:
                live.emit(Notice("info", NO_KEY_NOTICE))
        tasks.start_soon(live.run)

    def _end(self, error: BaseException | None) -> None:
        log.critical("the host ends: a defect", exc_info=error)
        os._exit(EXIT_DEFECT)


class LiveSession:
    """A session that is open in this host: its orchestrator, and its frames on their way to the screen."""

    def __init__(self, session_id: str, bridge: Bridge) -> None:
        self.frames = FrameQueue(session_id)
        self._bridge = bridge
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self.orchestrator: Orchestrator | None = None
        self.sample = ""  # where the demo model's tour works
        self._refusal: SanderlingError | None = None

    async def run(self) -> None:
        """Serve the session until it is closed; one that cannot be opened only says so."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._draw)
                if self.orchestrator:
                    await self._serve(self.orchestrator, tasks)

    async def _serve(self, orchestrator: Orchestrator, tasks: TaskGroup) -> None:
        provider, session = orchestrator.provider, orchestrator.session
        self.emit(SessionOpened(provider.model))
        tasks.start_soon(_prepare, provider)
        try:
            await orchestrator.serve()
        finally:
            session.close()
            if self.sample:
                shutil.rmtree(Path(self.sample).parent, ignore_errors=True)
            with anyio.CancelScope(shield=True):
                await provider.aclose()
        self._scope.cancel()

    def refuse(self, error: SanderlingError) -> None:
        """The session cannot be opened: every prompt is answered with the reason."""
        self._refusal = error
        self._emit_refusal(error)

    def _emit_refusal(self, error: SanderlingError) -> None:
        self.emit(
            ErrorOccurred(
                "internal", str(error), "Mend it, then begin a new conversation with :clear."
            )
        )
        self.emit(TurnEnded("error"))

    def submit(self, prompt: Prompt) -> None:
        if self._refusal:
            self.emit(TurnStarted(prompt))  # what was asked stays to be read
            self._emit_refusal(self._refusal)
        elif self.orchestrator:
            self.orchestrator.submit(prompt)

    def run_command(self, command_id: str, command: str) -> None:
        if self.orchestrator:
            self.orchestrator.commands.start(command_id, command)
        elif self._refusal:
            self.emit(CommandStarted(command_id, command))
            self.emit(CommandEnded(command_id, f"Did not start: {self._refusal}"))

    def set_network(self, mode: NetworkMode) -> None:
        if self.orchestrator:
            self.orchestrator.set_network(mode)

    def switch_sandbox(self, *, is_on: bool) -> None:
        if self.orchestrator:
            self.orchestrator.sandbox.switch(is_on=is_on)

    def act(self, action: SetMode | AnswerApproval | InspectToolUse | WatchJob | StopJob) -> None:
        if orchestrator := self.orchestrator:
            match action:
                case SetMode(mode):
                    orchestrator.set_mode(mode)
                case AnswerApproval():
                    orchestrator.approvals.answer(action)
                case InspectToolUse(tool_use_id):
                    orchestrator.inspect(tool_use_id)
                case WatchJob(job_id, is_on):
                    orchestrator.watch_job(job_id, is_on=is_on)
                case StopJob(job_id):
                    orchestrator.stop_job(job_id)

    def cancel(self) -> None:
        if self.orchestrator:
            self.orchestrator.cancel()

    def close(self) -> None:
        """Let the turn end as a stopped one, then end."""
        if self.orchestrator:
            self.orchestrator.close()
        else:
            self._scope.cancel()

    def emit(self, event: Event) -> None:
        self.frames.push(event)
        self._changed.set()

    def acknowledge(self, seq: int) -> None:
        self.frames.acknowledge(seq)
        self._changed.set()

    async def _draw(self) -> None:
        """Send frames as they fall due."""
        while True:
            delay_s = self.frames.delay_s(anyio.current_time())
            if delay_s is None:
                self._changed = anyio.Event()
                await self._changed.wait()
            elif delay_s > 0:
                await anyio.sleep(delay_s)
            else:
                frame = self.frames.take(anyio.current_time())
                self._bridge.notify(
                    "require('sanderling.host').receive(...)", msgspec.to_builtins(frame)
                )


async def _prepare(provider: Provider) -> None:
    """Ahead of the first prompt; what goes wrong is told by the turn that needs it."""
    with suppress(ProviderError):
        await provider.prepare()


def is_demo(settings: Settings) -> bool:
    """Whether the demo model answers: it was asked for, or there is no key for another."""
    return settings.provider == "demo" or (settings.provider == "auto" and not has_api_key())


def make_provider(settings: Settings, sample: str = "") -> Provider:
    """
    The provider that the settings ask for; `auto` is Claude with an API key and the demo model without one.

    `sample` is the directory of the demo model's own project.

    Raises:
        ConfigError: the script cannot be used.
    """
    match settings.provider:
        case "scripted":
            return ScriptedProvider(load_script(Path(settings.script).expanduser()))
        case _ if is_demo(settings):
            return ScriptedProvider(load_demo(sample), "demo")
        case _:
            return AnthropicProvider(settings)


class PrivateLogHandler(RotatingFileHandler):
    """Its files are for their owner only."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()


def start_log(log_file: str) -> None:
    """Write the package's log to `log_file`, at most twice `MAX_LOG_BYTES`; to stderr where that cannot be."""
    handler: logging.Handler = logging.StreamHandler()
    problem = ""
    if log_file:
        try:
            Path(log_file).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handler = PrivateLogHandler(
                log_file, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8"
            )
        except OSError as error:
            problem = str(error)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    )
    package_log = logging.getLogger("sanderling")
    package_log.addHandler(handler)
    package_log.setLevel(logging.INFO)
    if problem:
        log.warning("the log goes to stderr: %s", problem)


def _printable(value: Any) -> Any:
    """`value` with its strings made printable: what is not UTF-8 in Neovim comes as halves of surrogate pairs."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
