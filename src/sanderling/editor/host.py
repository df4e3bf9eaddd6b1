"""The Neovim host: routes requests from Neovim to their sessions. Each session is a task."""

import gc
import logging
import math
import os
from collections.abc import Mapping
from functools import partial
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.config import Settings, make_private
from sanderling.config.file import setup_layer
from sanderling.config.layers import Layers
from sanderling.editor.background_requests import BackgroundRequests
from sanderling.editor.bridge import Bridge
from sanderling.editor.buffers import NeovimBuffers
from sanderling.editor.extensions import Extensions
from sanderling.editor.live import EditorSession
from sanderling.editor.requests import answer
from sanderling.errors import ConfigError
from sanderling.protocol.actions import (
    Action,
    CloseSession,
    NoteUsage,
    OpenSession,
    RunCommand,
    SetModel,
    SetTitle,
    SteerTurn,
    SubmitPrompt,
)
from sanderling.protocol.messages import Usage
from sanderling.protocol.requests import (
    PriceRewrites,
    RemoveWorktree,
    RenameSession,
    Request,
    Rewrite,
    SessionRequest,
)
from sanderling.text import with_printable

MAX_LOG_BYTES = 1_000_000
CLOSING_S = 5.0  # for sessions to end
EXIT_DEFECT = 70  # sysexits.h: an internal software error
DEFECT = "Internal error ({}). :Agent log shows the details."

log = logging.getLogger(__name__)


class EditorHost:
    """
    The host behind the rplugin class. Its methods are called from RPC handlers: they enqueue and return.

    A crash in a session's task ends that session: Neovim shows it in the chat, the log has the traceback, and the next request reopens
    the session from disk. A crash of the host itself ends the process; the next prompt starts a new one.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self._layers: Layers | None = None
        self._buffers = NeovimBuffers(bridge)
        self._extensions = Extensions(bridge)
        self._background = BackgroundRequests(bridge, self._note_usage)
        self._sessions: dict[str, EditorSession] = {}
        self._ending: dict[str, EditorSession] = {}
        self._crashed: dict[str, OpenSession] = {}  # by a crash; how to reopen them
        self._inbox, self._asked = anyio.create_memory_object_stream[
            tuple[str, Action] | tuple[int, Request]
        ](math.inf)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take Neovim's options from setup(), for sessions opened from now on. The first call starts serving."""
        given = with_printable(options)
        try:
            layers = Layers(
                state_dir=given["state_dir"],
                log_file=given.get("log_file", ""),
                setup=setup_layer(given["options"]),
            )
        except ConfigError as error:
            self.bridge.notify("require('sanderling.host').refused(...)", str(error))
            return
        is_serving = self._layers is not None
        self._layers = layers
        if not is_serving:
            make_private(Settings(layers.state_dir))
            start_log(layers.log_file)
            log.info("host %d started", os.getpid())
            self.bridge.start(self.serve, self._end)

    def declare(self, declared: Mapping[str, Any]) -> None:
        """Take the tools and callbacks that Neovim has in Lua."""
        self._extensions.declare(with_printable(declared))

    def act(self, session_id: str, action: Mapping[str, Any]) -> None:
        self._inbox.send_nowait((session_id, msgspec.convert(with_printable(action), Action)))

    def request(self, request_id: int, request: Mapping[str, Any]) -> None:
        """Handle `request`; the answer is sent to Neovim under the same id."""
        self._inbox.send_nowait((request_id, msgspec.convert(with_printable(request), Request)))

    def _note_usage(self, session_id: str, model: str, usage: Usage) -> None:
        """Add an inline edit's token usage to its session, if that is open."""
        if self._is_served(session_id):
            self._sessions[session_id].act(NoteUsage(model, usage))

    def stop_request(self, request_id: int) -> None:
        self._background.stop(request_id)

    def acknowledge(self, session_id: str, seq: int) -> None:
        if live := self._sessions.get(session_id):
            live.acknowledge(seq)

    async def serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for asked in self._asked:
                match asked:
                    case (str() as session_id, action):
                        self._route(session_id, action, tasks)
                    case (int() as request_id, request) if isinstance(request, SessionRequest):
                        self._ask(request_id, request, tasks)
                    case (request_id, request):
                        tasks.start_soon(self._answer_alone, request_id, request)

    def _route(self, session_id: str, action: Any, tasks: TaskGroup) -> None:
        if not isinstance(action, OpenSession | CloseSession):
            self._reopen_crashed(session_id, tasks)
        live = self._sessions.get(session_id)
        match action:
            case OpenSession():
                if live is None:
                    self._open(session_id, action, tasks)
            case _ if live is None:
                log.warning(
                    "%s for session %s, which is not open", type(action).__name__, session_id
                )
            case CloseSession():
                self._close(session_id)
            case SubmitPrompt() | SteerTurn() | RunCommand() | SetModel() if live.is_refused:
                self._close(session_id)  # the cause may have been corrected
                self._open(session_id, live.opening, tasks, is_again=True).act(action)
            case _:
                live.act(action)

    def _reopen_crashed(self, session_id: str, tasks: TaskGroup) -> None:
        if opening := self._crashed.pop(session_id, None):
            self._open(session_id, opening, tasks)

    def _ask(self, request_id: int, request: SessionRequest, tasks: TaskGroup) -> None:
        self._reopen_crashed(request.session_id, tasks)
        reply = partial(self._reply, request_id)
        if live := self._sessions.get(request.session_id):
            live.ask(request, reply)
        else:
            reply({"error": "The session is not open."})

    def _open(
        self, session_id: str, opening: OpenSession, tasks: TaskGroup, *, is_again: bool = False
    ) -> EditorSession:
        assert self._layers is not None
        live = EditorSession(
            session_id,
            opening,
            self._layers,
            self.bridge,
            buffers=self._buffers,
            extensions=self._extensions,
            is_again=is_again,
        )
        self._sessions[session_id] = live
        before = self._ending.get(session_id)
        has_ended = before.ended if before else None
        tasks.start_soon(self._serve_session, live, has_ended, tasks)
        return live

    def _close(self, session_id: str) -> None:
        live = self._sessions.pop(session_id)
        live.close()
        self._ending[session_id] = live

    async def _serve_session(
        self, live: EditorSession, before_ended: anyio.Event | None, tasks: TaskGroup
    ) -> None:
        """Serve `live`, after the session that was closed before it has released the lock of the log."""
        if before_ended:
            await before_ended.wait()
        try:
            await live.run()
        except Exception as defect:
            log.critical("session %s crashed", live.id, exc_info=defect)
            if self._sessions.get(live.id) is live:
                del self._sessions[live.id]
                self._crashed[live.id] = live.reopening
            live.show_defect()
        if self._ending.get(live.id) is live:
            del self._ending[live.id]
        tasks.start_soon(give_back)  # when nothing here refers to it any more

    async def _answer_alone(self, request_id: Any, request: Any) -> None:
        """Answer a request that concerns no open session. A crash fails only that request: the sessions continue."""
        try:
            await self._answer(request_id, request)
        except Exception as defect:
            log.critical("%s crashed", type(request).__name__, exc_info=defect)
            self._reply(request_id, {"error": DEFECT.format(type(defect).__name__)})

    async def _answer(self, request_id: Any, request: Any) -> None:
        match request:
            case Rewrite() | PriceRewrites():
                assert self._layers is not None
                await self._background.serve(request_id, request, self._layers)
                return
            case RenameSession(session_id, title) if self._is_served(session_id):
                self._sessions[session_id].act(SetTitle(title))
                result: dict[str, Any] = {}
            case _:
                if isinstance(request, RemoveWorktree):
                    await self._wait_for_closing()
                settings = await to_thread.run_sync(self._settings)
                result = await answer(request, settings, set(self._sessions))
        self._reply(request_id, result)

    async def _wait_for_closing(self) -> None:
        """Wait until the sessions that are being closed have ended, and no longer use their worktrees."""
        with anyio.move_on_after(CLOSING_S):
            for live in [*self._ending.values()]:
                await live.ended.wait()

    def _settings(self) -> Settings:
        """Return the user's current settings. Mistakes in them are reported when a session opens."""
        assert self._layers is not None
        try:
            return self._layers.read_again().settings()
        except ConfigError:
            return Settings(self._layers.state_dir)

    def _reply(self, request_id: int, answer: dict[str, Any]) -> None:
        self.bridge.notify("require('sanderling.host').answered(...)", request_id, answer)

    def _is_served(self, session_id: str) -> bool:
        live = self._sessions.get(session_id)
        return live is not None and not live.is_refused

    def _end(self, error: BaseException | None) -> None:
        log.critical("the host crashed", exc_info=error)
        os._exit(EXIT_DEFECT)


class PrivateLogHandler(RotatingFileHandler):
    """A rotating log whose files only their owner can read."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()


def start_log(log_file: str) -> None:
    """Write the package's log to `log_file`, at most twice `MAX_LOG_BYTES`; to stderr if that is impossible."""
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


async def give_back() -> None:
    """
    Release the memory of closed sessions. Blocks the loop for some ms; the larger part runs in a thread.

    A session's objects refer to each other, so only a collection frees them. It is short, because everything loaded at the start is
    frozen. Without it the last few sessions stayed for hours, and with them 70 MB after five of 120 rounds.
    """
    gc.collect()
    await to_thread.run_sync(_trim)


def _trim() -> None:
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
    if trim:
        trim(0)
