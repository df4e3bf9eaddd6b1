"""The open sessions of a server."""

from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple

import anyio
from anyio.abc import TaskGroup

from sanderling.acp.agent.live import AgentSession
from sanderling.acp.agent.opening import OpeningRequest, open_live
from sanderling.acp.agent.tasks import GuardedTasks
from sanderling.config.layers import Layers
from sanderling.serve.broadcast import Broadcast
from sanderling.serve.tool_proxy import ClientToolProxy

IDLE_S = 3_600.0  # idle: without a client and without work
MAX_IDLE = 64  # idle sessions; beyond this, those that have been idle longest are closed
SWEEP_S = 30.0

ToolsOf = Literal["server", "client"]


class RegisteredSession(NamedTuple):
    """An open session with its audience. `is_gone` is set when its log is released. `tool_proxy` runs tools on the client, if clients do."""

    live: AgentSession
    broadcast: Broadcast
    is_gone: anyio.Event
    tool_proxy: ClientToolProxy | None


class SessionRegistry:
    """The sessions of a server. `layers` returns the current settings; sessions run in `tasks`. `tools_of` says who runs tools."""

    def __init__(
        self, layers: Callable[[], Layers], tasks: TaskGroup, tools_of: ToolsOf = "server"
    ) -> None:
        self.layers = layers
        self.tools_of: ToolsOf = tools_of
        self.tasks = GuardedTasks(tasks)
        self.sandbox = ""  # in words, once it is known
        self._open: dict[str, RegisteredSession] = {}
        self._opening: dict[str, anyio.Lock] = {}
        self._ending: set[str] = set()
        self._idle_since: dict[str, float] = {}

    def find(self, session_id: str) -> RegisteredSession | None:
        """Return the session if it is open and not being closed."""
        return None if session_id in self._ending else self._open.get(session_id)

    async def open(self, wanted: OpeningRequest) -> RegisteredSession:
        """
        Return the session, and open it if necessary.

        Raises:
            RpcError, SanderlingError: it cannot be opened.
        """
        lock = self._opening.setdefault(wanted.session_id, anyio.Lock())
        try:
            async with lock:
                if wanted.session_id in self._ending:
                    await self.close(wanted.session_id)
                return self._open.get(wanted.session_id) or await self._begin(wanted)
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._opening.pop(wanted.session_id, None)

    async def _begin(self, wanted: OpeningRequest) -> RegisteredSession:
        broadcast = Broadcast(wanted.session_id, self.tasks)
        tool_proxy = ClientToolProxy(broadcast) if self.tools_of == "client" else None
        opening = open_live(wanted, broadcast, self.tasks, tools=tool_proxy)
        # The session belongs to the server, so a client that leaves does not stop this.
        live = await _whatever_comes(opening)
        broadcast.on_left = live.rest_if_alone
        self.sweep_once(anyio.current_time())
        served = self._open[live.id] = RegisteredSession(live, broadcast, anyio.Event(), tool_proxy)
        self.tasks.start_soon(self._forget, served)
        return served

    async def _forget(self, served: RegisteredSession) -> None:
        await served.live.ended.wait()
        del self._open[served.live.id]
        self._ending.discard(served.live.id)
        self._idle_since.pop(served.live.id, None)
        served.is_gone.set()

    async def close(self, session_id: str) -> None:
        """Close a session; wait until its log is released."""
        if served := self._open.get(session_id):
            self._end(served)
            await served.is_gone.wait()

    def _end(self, served: RegisteredSession) -> None:
        self._ending.add(served.live.id)
        served.live.close()

    async def close_all(self) -> None:
        """Close all sessions: turns are interrupted, and everything is saved."""
        sessions = tuple(self._open.values())
        for served in sessions:
            self._end(served)
        for served in sessions:
            await served.is_gone.wait()

    async def sweep(self) -> None:
        while True:
            await anyio.sleep(SWEEP_S)
            self.sweep_once(anyio.current_time())

    def sweep_once(self, now: float) -> None:
        """Close idle sessions: unwatched for too long, or beyond the limit. They can be reopened from the log."""
        for session_id, served in self._open.items():
            if served.broadcast.is_there or _is_busy(served.live):
                self._idle_since.pop(session_id, None)
            elif session_id not in self._ending:
                self._idle_since.setdefault(session_id, now)
        surplus = len(self._idle_since) - MAX_IDLE
        for count, (session_id, since) in enumerate(tuple(self._idle_since.items())):
            if count < surplus or now - since >= IDLE_S:
                del self._idle_since[session_id]
                self._end(self._open[session_id])


def _is_busy(live: AgentSession) -> bool:
    is_answering = live.prompts.now is not None or live.prompts.is_in_turn
    return is_answering or live.options.has_jobs


async def _whatever_comes(opening: Coroutine[Any, Any, AgentSession]) -> AgentSession:
    """Wait until the session is open, even if the caller is cancelled."""
    opened: list[AgentSession] = []
    with anyio.CancelScope(shield=True):
        opened.append(await opening)
    return opened[0]
