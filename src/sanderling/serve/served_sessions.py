"""The sessions that one client of a server watches. They stay open when it disconnects."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec

import sanderling
from sanderling.acp.agent.client import Client
from sanderling.acp.agent.live import AgentSession
from sanderling.acp.agent.opening import wanted_again, wanted_new
from sanderling.acp.agent.own_sessions import OpenedSession
from sanderling.acp.wire.client_tools import OUTPUT, ToolOutput
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import INVALID_REQUEST, RpcError
from sanderling.acp.wire.ours import OURS, After, OfAgent, Position, meta_of, ours_in
from sanderling.acp.wire.sessions import NewSessionRequest, OldSessionRequest
from sanderling.serve.broadcast import Watcher
from sanderling.serve.registry import RegisteredSession, SessionRegistry
from sanderling.serve.tool_proxy import check_client

MAX_SESSIONS = 64


class ServedSessions:
    """The sessions that one client watches. `cut` ends its connection."""

    def __init__(self, registry: SessionRegistry, cut: Callable[[], None]) -> None:
        self._registry = registry
        self._cut = cut
        self._connection: AcpConnection | None = None
        self._client = Client()
        self.have_begun = anyio.Event()
        self._watching: dict[str, tuple[RegisteredSession, Watcher]] = {}

    @property
    def of_agent(self) -> OfAgent:
        return OfAgent(
            sanderling.__version__,
            resume=1,
            tools=self._registry.tools_of,
            sandbox=self._registry.sandbox,
            cwd=os.getcwd(),
        )

    @property
    def _is_here(self) -> bool:
        return self._registry.tools_of == "server"

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        return {OUTPUT: self._take_output}

    def _take_output(self, params: msgspec.Raw) -> None:
        output = decoded(params, ToolOutput)
        watching = self._watching.get(output.session_id)
        if watching and (tool_proxy := watching[0].tool_proxy):
            tool_proxy.take_output(output)

    def begin(self, connection: AcpConnection, client: Client) -> None:
        self._connection, self._client = connection, client
        self.have_begun.set()

    async def new(self, request: NewSessionRequest) -> OpenedSession:
        self._check_number()
        if not self._is_here:
            check_client(self._client)
        wanted = wanted_new(request, self._registry.layers(), is_here=self._is_here)
        served = await self._registry.open(wanted)
        watcher = self._watch(served)
        watcher.next = 1
        return self._opened(served, watcher)

    async def again(self, request: OldSessionRequest, *, is_told: bool) -> OpenedSession:
        after = ours_in(request.meta, After)
        served = self._registry.find(request.session_id)
        if request.session_id not in self._watching:
            self._check_number()
        if served is None:
            wanted = await wanted_again(request, self._registry.layers(), is_here=self._is_here)
            served = await self._registry.open(wanted)
        watcher = self._watch(served)
        if is_told:
            await served.live.replay(watcher.tell_earlier)
            await watcher.tell_all()
            return self._opened(served, watcher)
        if not after.life:
            return self._opened(served, watcher)
        if not served.broadcast.knows(after.life, after.after):
            position = Position(served.broadcast.life, is_continued=False)
            return OpenedSession(served.live, _merged(served.live.session_meta, meta_of(position)))
        watcher.next = after.after + 1
        return self._opened(served, watcher, is_continued=True)

    def _watch(self, served: RegisteredSession) -> Watcher:
        if self._connection is None or self._connection.is_over:
            raise RpcError(INVALID_REQUEST, "the connection has ended")
        self._let_go(served.live.id)
        watcher = Watcher(served.broadcast, self._connection, self._client, self._cut)
        served.broadcast.add(watcher)
        self._watching[served.live.id] = served, watcher
        return watcher

    def _opened(
        self, served: RegisteredSession, watcher: Watcher, *, is_continued: bool | None = None
    ) -> OpenedSession:
        """Return the response for a session. Its updates follow the response."""
        now = served.live.prompts.now
        running = now.prompt_id if now and now.is_submitted else ""
        position = Position(served.broadcast.life, watcher.next - 1, is_continued, running)
        self._registry.tasks.start_soon(_begin, watcher)
        return OpenedSession(served.live, _merged(served.live.session_meta, meta_of(position)))

    def _check_number(self) -> None:
        if len(self._watching) >= MAX_SESSIONS:
            raise RpcError(
                INVALID_REQUEST,
                f"a connection can have at most {MAX_SESSIONS} sessions open; close one first",
            )

    def find(self, session_id: str) -> AgentSession | None:
        watching = self._watching.get(session_id)
        if watching and not watching[0].live.ended.is_set():
            return watching[0].live
        return None

    def sends(self, live: AgentSession, prompt_id: str, notes: Sequence[str]) -> None:
        if watching := self._watching.get(live.id):
            if tool_proxy := watching[0].tool_proxy:
                tool_proxy.begin(self._client, notes)
            watching[1].own_prompts.add(prompt_id)

    async def has_told(self, live: AgentSession) -> None:
        if watching := self._watching.get(live.id):
            await watching[1].has_all()

    async def close(self, session_id: str, *, is_for_all: bool = False) -> None:
        self._let_go(session_id)
        served = self._registry.find(session_id)
        if served and (is_for_all or not served.broadcast.is_there):
            await self._registry.close(session_id)

    def end(self) -> None:
        for session_id in tuple(self._watching):
            self._let_go(session_id)

    def _let_go(self, session_id: str) -> None:
        if watching := self._watching.pop(session_id, None):
            served, watcher = watching
            served.broadcast.remove(watcher)


async def _begin(watcher: Watcher) -> None:
    watcher.begin()


def _merged(*metas: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for meta in metas:
        said |= meta[OURS]
    return {OURS: said}
