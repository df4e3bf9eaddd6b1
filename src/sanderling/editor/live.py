"""A session that is open in the host: its agent, and its frames on their way to the screen."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio import to_thread

from sanderling.config.layers import Layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.editor.bridge import Bridge
from sanderling.editor.buffers import NeovimBuffers
from sanderling.editor.code import NeovimCode
from sanderling.editor.debug_tools import DebugTools
from sanderling.editor.extensions import Extensions
from sanderling.editor.frames import FrameQueue
from sanderling.editor.lua_callbacks import LuaCallbacks
from sanderling.editor.lua_tools import LuaTools
from sanderling.errors import SanderlingError, WorktreeError
from sanderling.protocol.actions import (
    Action,
    OpenSession,
    RunCommand,
    SetModel,
    SteerTurn,
    SubmitPrompt,
)
from sanderling.protocol.events import (
    CommandEnded,
    CommandsRunning,
    CommandStarted,
    ErrorOccurred,
    Event,
    PromptsReturned,
    SessionInUse,
    TurnEnded,
)
from sanderling.protocol.requests import SessionRequest
from sanderling.session.log import SessionInUseError

Reply = Callable[[dict[str, Any]], None]

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from sanderling.protocol.agent import Agent

DEFECT = "An internal error stopped this session."
ENDED = "The session ended before it could answer."
DEFECT_REMEDY = "The next prompt reopens it from its log. The host's log has the details: :checkhealth sanderling."

log = logging.getLogger(__name__)


class EditorSession:
    """Serves one session from its opening on. Actions and requests wait until it is open."""

    def __init__(
        self,
        session_id: str,
        opening: OpenSession,
        layers: Layers,
        bridge: Bridge,
        *,
        buffers: NeovimBuffers,
        extensions: Extensions,
        is_again: bool = False,
    ) -> None:
        self.id = session_id
        self.opening = opening
        self._is_again = is_again  # an earlier attempt failed and was reported
        self._layers = layers
        self._bridge = bridge
        self._buffers = buffers
        self._extensions = extensions
        self._frames = FrameQueue(session_id)
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._early: list[Action | tuple[SessionRequest, Reply]] = []
        self._tasks: TaskGroup | None = None  # once it is open, or refused
        self._agent: Agent | None = None  # None until it is open
        self._refusal: SanderlingError | None = None
        self.ended = anyio.Event()

    @property
    def is_refused(self) -> bool:
        return self._refusal is not None

    def act(self, action: Action) -> None:
        if self._agent:
            self._agent.act(action)
        elif self._refusal:
            self._answer_refused(action, self._refusal)
        else:
            self._early.append(action)

    def ask(self, request: SessionRequest, reply: Reply) -> None:
        """Answer `request` once the session is open."""
        if self._tasks:
            self._tasks.start_soon(self._answer, request, reply)
        else:
            self._early.append((request, reply))

    def close(self) -> None:
        """End the turn as a stopped one, then the session."""
        if self._agent:
            self._agent.close()
        else:
            self._scope.cancel()

    def acknowledge(self, seq: int) -> None:
        self._frames.acknowledge(seq)
        self._changed.set()

    @property
    def reopening(self) -> OpenSession:
        """The action that reopens it for a screen that already shows its history."""
        return msgspec.structs.replace(self.opening, wants_history=False)

    def show_defect(self) -> None:
        """Report that the session crashed, after everything that still has to be drawn."""
        self.emit(ErrorOccurred("internal", DEFECT, DEFECT_REMEDY))
        self.emit(CommandsRunning(0))
        self.emit(TurnEnded("error"))
        while self._frames.has_waiting:
            self._send_frame()

    async def run(self) -> None:
        """Serve the session until it is closed. If it cannot be opened, only report that."""
        try:
            await self._run()
        finally:
            for asked in self._early:
                if isinstance(asked, tuple):
                    asked[1]({"error": ENDED})
            self.ended.set()

    async def _run(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._draw)
                await self._open()
                self._tasks = tasks
                while self._early:
                    match self._early.pop(0):
                        case (request, reply):
                            self.ask(request, reply)
                        case action:
                            self.act(action)
                if self._agent:
                    await self._agent.serve()
                    self._scope.cancel()

    # --- opening -------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        options = SessionOptions(
            editor=self._buffers,
            code=NeovimCode(self._bridge),
            is_shown=True,
            has_history=self.opening.wants_history,
            can_ask=True,
            agent=self.opening.agent,
            worktree=self.opening.worktree or None,
            callbacks=LuaCallbacks(self._extensions, self.id, self.opening.project, self.emit),
            more_tools=(
                LuaTools(self._extensions, self.id, self.emit),
                DebugTools(self._bridge, self._extensions),
            ),
        )
        try:
            layers = await to_thread.run_sync(self._layers.read_again)
            opened = await open_conversation(
                self.id, self.opening.project, layers, self.emit, options
            )
        except SanderlingError as error:
            self._refuse(error)
        else:
            self._agent = opened.agent

    def _refuse(self, error: SanderlingError) -> None:
        """Record why the session cannot be opened. Actions are answered with the reason, and the host tries again."""
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
        elif isinstance(error, WorktreeError):
            remedy = "The session needs its worktree. Fix it, then send the prompt again, or close the session: :Agent close."
        self.emit(ErrorOccurred("internal", str(error), remedy))
        self.emit(TurnEnded("error"))

    def _answer_refused(self, action: Action, refusal: SanderlingError) -> None:
        match action:
            case SubmitPrompt(prompt) | SteerTurn(prompt):
                self._emit_refusal(refusal)
                self.emit(PromptsReturned((prompt,)))
            case RunCommand(command_id, command):
                self.emit(CommandStarted(command_id, command))
                self.emit(CommandEnded(command_id, f"Did not start: {refusal}"))
            case SetModel():
                self._emit_refusal(refusal)
            case _:
                pass

    async def _answer(self, request: SessionRequest, reply: Reply) -> None:
        """Answer `request`, and call `reply` whatever happens."""
        answer: dict[str, Any] = {"error": ENDED}
        try:
            if self._agent:
                answer = msgspec.to_builtins(await self._agent.answer(request))
            else:
                answer = {"error": str(self._refusal)}
        except SanderlingError as error:
            answer = {"error": str(error)}
        finally:
            reply(answer)

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
