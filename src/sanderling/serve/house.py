"""All sessions that are open on a server, whoever watches them."""

from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple

import anyio
from anyio.abc import TaskGroup

from sanderling.acp_agent.live import LiveSession
from sanderling.acp_agent.opening import Wanted, open_live
from sanderling.acp_agent.tasks import GuardedTasks
from sanderling.config.layers import Layers
from sanderling.serve.hands import Hands
from sanderling.serve.watching import Watched

IDLE_S = 3_600.0  # without anybody who watches, and without anything to do
MAX_IDLE = 64  # sessions of that kind; those that have been for longest end first
SWEEP_S = 30.0

ToolsOf = Literal["server", "client"]


class Served(NamedTuple):
    """A session that is open, and its audience. When it `is_gone`, its log can be had again. `hands` are the client's, for its tools."""

    live: LiveSession
    watched: Watched
    is_gone: anyio.Event
    hands: Hands | None


class House:
    """The sessions of a server. `layers` are the settings of now; sessions are tasks of `tasks`. `tools_of` says who runs tools."""

    def __init__(
        self, layers: Callable[[], Layers], tasks: TaskGroup, tools_of: ToolsOf = "server"
    ) -> None:
        self.layers = layers
        self.tools_of: ToolsOf = tools_of
        self.tasks = GuardedTasks(tasks)
        self.sandbox = ""  # in words, as soon as that is known
        self._open: dict[str, Served] = {}
        self._opening: dict[str, anyio.Lock] = {}
        self._ending: set[str] = set()
        self._idle_since: dict[str, float] = {}

    def find(self, session_id: str) -> Served | None:
        """The session, if it is open and stays so."""
        return None if session_id in self._ending else self._open.get(session_id)

    async def open(self, wanted: Wanted) -> Served:
        """
        The session that is `wanted`, opened now if it is not open.

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

    async def _begin(self, wanted: Wanted) -> Served:
        watched = Watched(wanted.session_id, self.tasks)
        hands = Hands(watched) if self.tools_of == "client" else None
        opening = open_live(wanted, watched, self.tasks, tools=hands)
        live = await _whatever_comes(opening)  # it is the house's, not that client's
        watched.on_left = live.rest_if_alone
        self.sweep_once(anyio.current_time())
        served = self._open[live.id] = Served(live, watched, anyio.Event(), hands)
        self.tasks.start_soon(self._forget, served)
        return served

    async def _forget(self, served: Served) -> None:
        await served.live.ended.wait()
        del self._open[served.live.id]
        self._ending.discard(served.live.id)
        self._idle_since.pop(served.live.id, None)
        served.is_gone.set()

    async def close(self, session_id: str) -> None:
        """End a session, and wait until its log can be had again."""
        if served := self._open.get(session_id):
            self._end(served)
            await served.is_gone.wait()

    def _end(self, served: Served) -> None:
        self._ending.add(served.live.id)
        served.live.close()

    async def close_all(self) -> None:
        """End all of them: turns are interrupted, and everything is on the disk."""
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
        """End sessions that nobody has watched for long, or that are too many, and in which nothing goes on: the log has them."""
        for session_id, served in self._open.items():
            if served.watched.is_there or _is_busy(served.live):
                self._idle_since.pop(session_id, None)
            elif session_id not in self._ending:
                self._idle_since.setdefault(session_id, now)
        surplus = len(self._idle_since) - MAX_IDLE
        for count, (session_id, since) in enumerate(tuple(self._idle_since.items())):
            if count < surplus or now - since >= IDLE_S:
                del self._idle_since[session_id]
                self._end(self._open[session_id])


def _is_busy(live: LiveSession) -> bool:
    """Say whether something goes on in a session."""
    is_answering = live.prompts.now is not None or live.prompts.is_in_turn
    return is_answering or live.options.has_jobs


async def _whatever_comes(opening: Coroutine[Any, Any, LiveSession]) -> LiveSession:
    """Wait until a session is open, also if whoever waits for it is cancelled."""
    opened: list[LiveSession] = []
    with anyio.CancelScope(shield=True):
        opened.append(await opening)
    return opened[0]
