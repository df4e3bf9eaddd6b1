"""The sessions that one client of a server watches. They stay open when it disconnects."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec

import sanderling
from sanderling.acp.connection import Connection
from sanderling.acp.envelope import decoded
from sanderling.acp.errors import INVALID_REQUEST, RpcError
from sanderling.acp.hands import OUTPUT, ToolOutput
from sanderling.acp.ours import OURS, After, OfAgent, Position, meta_of, ours_in
from sanderling.acp.sessions import NewSessionRequest, OldSessionRequest
from sanderling.acp_agent.client import Client
from sanderling.acp_agent.live import LiveSession
from sanderling.acp_agent.opening import wanted_again, wanted_new
from sanderling.acp_agent.own_sessions import Opened
from sanderling.serve.hands import check_client
from sanderling.serve.house import House, Served
from sanderling.serve.watching import Watcher

MAX_SESSIONS = 64


class ServedSessions:
    """The sessions that one client watches. `cut` ends its connection."""

    def __init__(self, house: House, cut: Callable[[], None]) -> None:
        self._house = house
        self._cut = cut
        self._connection: Connection | None = None
        self._client = Client()
        self.have_begun = anyio.Event()
        self._watching: dict[str, tuple[Served, Watcher]] = {}

    @property
    def of_agent(self) -> OfAgent:
        return OfAgent(
            sanderling.__version__,
            resume=1,
            tools=self._house.tools_of,
            sandbox=self._house.sandbox,
            cwd=os.getcwd(),
        )

    @property
    def _is_here(self) -> bool:
        return self._house.tools_of == "server"

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        return {OUTPUT: self._take_output}

    def _take_output(self, params: msgspec.Raw) -> None:
        told = decoded(params, ToolOutput)
        watching = self._watching.get(told.session_id)
        if watching and (hands := watching[0].hands):
            hands.take_output(told)

    def begin(self, connection: Connection, client: Client) -> None:
        self._connection, self._client = connection, client
        self.have_begun.set()

    async def new(self, asked: NewSessionRequest) -> Opened:
        self._check_number()
        if not self._is_here:
            check_client(self._client)
        wanted = wanted_new(asked, self._house.layers(), is_here=self._is_here)
        served = await self._house.open(wanted)
        watcher = self._watch(served)
        watcher.next = 1
        return self._opened(served, watcher)

    async def again(self, asked: OldSessionRequest, *, is_told: bool) -> Opened:
        after = ours_in(asked.meta, After)
        served = self._house.find(asked.session_id)
        if asked.session_id not in self._watching:
            self._check_number()
        if served is None:
            wanted = await wanted_again(asked, self._house.layers(), is_here=self._is_here)
            served = await self._house.open(wanted)
        watcher = self._watch(served)
        if is_told:
            await served.live.replay(watcher.tell_earlier)
            await watcher.tell_all()
            return self._opened(served, watcher)
        if not after.life:
            return self._opened(served, watcher)
        if not served.watched.knows(after.life, after.after):
            position = Position(served.watched.life, is_continued=False)
            return Opened(served.live, _merged(served.live.told, meta_of(position)))
        watcher.next = after.after + 1
        return self._opened(served, watcher, is_continued=True)

    def _watch(self, served: Served) -> Watcher:
        if self._connection is None or self._connection.is_over:
            raise RpcError(INVALID_REQUEST, "the connection has ended")
        self._let_go(served.live.id)
        watcher = Watcher(served.watched, self._connection, self._client, self._cut)
        served.watched.add(watcher)
        self._watching[served.live.id] = served, watcher
        return watcher

    def _opened(
        self, served: Served, watcher: Watcher, *, is_continued: bool | None = None
    ) -> Opened:
        """Return the response for a session. Its updates follow the response."""
        now = served.live.prompts.now
        running = now.prompt_id if now and now.is_submitted else ""
        position = Position(served.watched.life, watcher.next - 1, is_continued, running)
        self._house.tasks.start_soon(_begin, watcher)
        return Opened(served.live, _merged(served.live.told, meta_of(position)))

    def _check_number(self) -> None:
        if len(self._watching) >= MAX_SESSIONS:
            raise RpcError(
                INVALID_REQUEST,
                f"a connection can have at most {MAX_SESSIONS} sessions open; close one first",
            )

    def find(self, session_id: str) -> LiveSession | None:
        watching = self._watching.get(session_id)
        if watching and not watching[0].live.ended.is_set():
            return watching[0].live
        return None

    def sends(self, live: LiveSession, prompt_id: str, notes: Sequence[str]) -> None:
        if watching := self._watching.get(live.id):
            if hands := watching[0].hands:
                hands.begin(self._client, notes)
            watching[1].own_prompts.add(prompt_id)

    async def has_told(self, live: LiveSession) -> None:
        if watching := self._watching.get(live.id):
            await watching[1].has_all()

    async def close(self, session_id: str, *, is_for_all: bool = False) -> None:
        self._let_go(session_id)
        served = self._house.find(session_id)
        if served and (is_for_all or not served.watched.is_there):
            await self._house.close(session_id)

    def end(self) -> None:
        for session_id in tuple(self._watching):
            self._let_go(session_id)

    def _let_go(self, session_id: str) -> None:
        if watching := self._watching.pop(session_id, None):
            served, watcher = watching
            served.watched.remove(watcher)


async def _begin(watcher: Watcher) -> None:
    watcher.begin()


def _merged(*metas: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for meta in metas:
        said |= meta[OURS]
    return {OURS: said}
