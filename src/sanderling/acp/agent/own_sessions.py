"""Sessions of the client of `sanderling acp`, which end with its connection."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import sanderling
from sanderling.acp.agent.audience import OneClient
from sanderling.acp.agent.client import Client
from sanderling.acp.agent.editor import ClientEditor
from sanderling.acp.agent.live import AgentSession
from sanderling.acp.agent.model_proxy import ModelProxyClient, with_clients_models
from sanderling.acp.agent.opening import OpeningRequest, open_live, wanted_again, wanted_new
from sanderling.acp.agent.tasks import TaskStarter
from sanderling.acp.agent.terminals import ClientTerminals
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.errors import INVALID_REQUEST, RpcError, not_found
from sanderling.acp.wire.ours import OfAgent
from sanderling.acp.wire.sessions import NewSessionRequest, OldSessionRequest
from sanderling.config.layers import Layers

MAX_OPEN = 100


class OpenedSession(NamedTuple):
    """An open session, and the `_meta` of the response that opens it."""

    live: AgentSession
    meta: dict[str, Any]


class Sessions(Protocol):
    """The open sessions of one client."""

    @property
    def of_agent(self) -> OfAgent:
        """The agent's description for Sanderling's clients."""
        ...

    def begin(self, connection: AcpConnection, client: Client) -> None:
        """Start serving `client`."""
        ...

    async def new(self, request: NewSessionRequest) -> OpenedSession:
        """
        Create a session.

        Raises:
            RpcError: the request is invalid or cannot be met.
            SanderlingError: the session cannot be opened.
        """
        ...

    async def again(self, request: OldSessionRequest, *, is_told: bool) -> OpenedSession:
        """
        Reopen a session. If `is_told`, send its history to the client first.

        Raises:
            RpcError: the request is invalid or cannot be met.
            SanderlingError: the session cannot be opened.
        """
        ...

    def find(self, session_id: str) -> AgentSession | None:
        """Return the session if the client has it open."""
        ...

    def sends(self, live: AgentSession, prompt_id: str, notes: Sequence[str]) -> None:
        """
        Note that the client sent a prompt, with `notes` for the model.

        Raises:
            RpcError: the client may not send one.
        """
        ...

    async def has_told(self, live: AgentSession) -> None:
        """Wait until all updates so far were sent to the client."""
        ...

    async def close(self, session_id: str, *, is_for_all: bool = False) -> None:
        """Close the client's session, or every client's if `is_for_all`. Wait until its log is released."""
        ...

    def end(self) -> None:
        """Release all sessions: the client has disconnected."""
        ...


def found(sessions: Sessions, session_id: str) -> AgentSession:
    """
    Return the session that the client has open.

    Raises:
        RpcError: it is not open.
    """
    if live := sessions.find(session_id):
        return live
    raise not_found(f"the session {session_id!r} is not open")


class OwnSessions:
    """The sessions of the only client of `sanderling acp`."""

    def __init__(self, layers: Callable[[], Layers], tasks: TaskStarter) -> None:
        self.of_agent = OfAgent(sanderling.__version__, cwd=os.getcwd())
        self._layers = layers
        self._tasks = tasks
        self._connection: AcpConnection | None = None
        self._client = Client()
        self.keys = ModelProxyClient()
        self._open: dict[str, AgentSession] = {}
        self._opening = 0  # counted too: otherwise requests sent at once would all pass the limit

    def begin(self, connection: AcpConnection, client: Client) -> None:
        self._connection, self._client = connection, client
        self.keys.connection = connection

    def _settings(self) -> Layers:
        models = self._client.ours.models
        return with_clients_models(self._layers(), models) if models else self._layers()

    async def new(self, request: NewSessionRequest) -> OpenedSession:
        live, audience = await self._live(wanted_new(request, self._settings()))
        self._tasks.start_soon(audience.announce)
        return OpenedSession(live, live.session_meta)

    async def again(self, request: OldSessionRequest, *, is_told: bool) -> OpenedSession:
        wanted = await wanted_again(request, self._settings())
        await self.close(request.session_id)
        live, audience = await self._live(wanted)
        if is_told:
            await live.replay(audience.tell_earlier)
        self._tasks.start_soon(audience.announce)
        return OpenedSession(live, live.session_meta)

    async def _live(self, wanted: OpeningRequest) -> tuple[AgentSession, OneClient]:
        assert self._connection
        audience = OneClient(wanted.session_id, self._connection, self._client)
        editor = ClientEditor(wanted.session_id, self._connection, self._client)
        is_elsewhere = wanted.layers.settings().acp_terminals == "editor"
        if len(self._open) + self._opening >= MAX_OPEN:
            raise RpcError(INVALID_REQUEST, f"{MAX_OPEN} sessions are open: close one first")
        self._opening += 1
        try:
            live = await open_live(
                wanted,
                audience,
                self._tasks,
                editor if self._client.reads_files else None,
                partial(ClientTerminals, wanted.session_id, self._connection, self._tasks)
                if is_elsewhere and self._client.has_terminals
                else None,
                model_proxy=self.keys if self._client.ours.models else None,
            )
        finally:
            self._opening -= 1
        self._open[live.id] = live
        return live, audience

    def find(self, session_id: str) -> AgentSession | None:
        return self._open.get(session_id)

    def sends(self, live: AgentSession, prompt_id: str, notes: Sequence[str]) -> None: ...

    async def has_told(self, live: AgentSession) -> None: ...

    async def close(self, session_id: str, *, is_for_all: bool = False) -> None:  # noqa: ARG002
        if live := self._open.pop(session_id, None):
            live.close()
            await live.ended.wait()

    def end(self) -> None:
        self.keys.end()
        for live in self._open.values():
            live.close()

    async def ended(self) -> None:
        for live in tuple(self._open.values()):
            await live.ended.wait()
