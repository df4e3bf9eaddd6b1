"""
The WebSocket server: authentication, connection limits and timeouts.

A request is checked by its head alone and refused without a message, so a client without the token learns nothing. Browser pages send an
origin and are refused unless it is allowed.
"""

import logging
import secrets
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import anyio
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from sanderling.acp.agent.frontend import AgentFrontend
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.proof import Proof
from sanderling.acp.wire.websocket import WebSocketStreams
from sanderling.serve.challenges import Challenges
from sanderling.serve.registry import SessionRegistry
from sanderling.serve.served_sessions import ServedSessions
from sanderling.serve.token import is_right

PATHS = ("/acp", "/")
MAX_MESSAGE_BYTES = 32 << 20
MAX_CONNECTIONS = 256
MAX_STRANGERS = 256  # unauthenticated connections; asyncio may accept up to 100 in one step
MAX_UNSENT_BYTES = 64 << 20  # of responses; updates are sent only as fast as the client reads
HANDSHAKE_S = 5.0
BEGIN_S = 30.0  # for `initialize` to arrive
PING_S = 20.0
CLOSE_S = 2.0
GOING_AWAY, AGAINST_POLICY = 1001, 1008

log = logging.getLogger(__name__)
at_door = logging.getLogger("websockets.sanderling")
at_door.setLevel(logging.CRITICAL)  # unauthenticated clients must not fill the log


class Door:
    """
    Admits clients that know the token.

    Args:
        origins: the origins of web pages that may connect.
        renew: returns the token that is valid now, given the last one.
    """

    def __init__(
        self, token: str, origins: frozenset[str], renew: Callable[[str], str] = str
    ) -> None:
        self._token = token
        self._renew = renew
        self._challenges = Challenges(token)
        self._origins = origins
        self._strangers: dict[ServerConnection, None] = {}  # in order of connecting
        self._guests = 0

    def knock(self, connection: ServerConnection) -> None:
        """Track an unauthenticated connection. If there are too many, drop the oldest."""
        self._strangers[connection] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            self.leave(oldest)
            oldest.transport.abort()

    def leave(self, connection: ServerConnection) -> None:
        self._strangers.pop(connection, None)

    def check(self, connection: ServerConnection, request: Request) -> Response | None:
        """Accept a connection, or return the refusal. A refused connection counts as unauthenticated until it is closed."""
        origins = request.headers.get_all("Origin")
        if any(origin not in self._origins for origin in origins):
            return _refusal(HTTPStatus.FORBIDDEN)
        if refusal := self._check_token(request.headers.get_all("Authorization")):
            return refusal
        if request.path.partition("?")[0] not in PATHS:
            return _refusal(HTTPStatus.NOT_FOUND)
        if self._guests >= MAX_CONNECTIONS:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        self.leave(connection)
        return None

    def _check_token(self, headers: list[str]) -> Response | None:
        if (token := self._renew(self._token)) != self._token:
            self._token, self._challenges = token, Challenges(token)
        proof = Proof.in_header(headers[0]) if len(headers) == 1 else None
        if proof and not proof.proof:
            return _refusal(
                HTTPStatus.UNAUTHORIZED, ("WWW-Authenticate", self._challenges.challenge(proof))
            )
        is_known = (
            self._challenges.is_answered_by(proof) if proof else is_right(headers, self._token)
        )
        return (
            None if is_known else _refusal(HTTPStatus.UNAUTHORIZED, ("WWW-Authenticate", "Bearer"))
        )

    async def admit(self, serving: Callable[[], Any]) -> None:
        self._guests += 1
        try:
            await serving()
        finally:
            self._guests -= 1


def _refusal(status: HTTPStatus, *headers: tuple[str, str]) -> Response:
    more = (("Content-Length", "0"), ("Connection", "close"))
    return Response(status.value, status.phrase, Headers((*headers, *more)), b"")


def _connection_kind(door: Door) -> type[ServerConnection]:
    """Return a connection class that registers its connections with `door`."""

    class AtDoor(ServerConnection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            door.knock(self)

        def connection_lost(self, exc: Exception | None) -> None:
            door.leave(self)
            super().connection_lost(exc)

    return AtDoor


async def open_server(registry: SessionRegistry, door: Door, listening: socket.socket) -> Server:
    """Start serving clients on the socket."""

    async def take(connection: ServerConnection) -> None:
        await door.admit(lambda: serve_client(registry, connection))

    def with_id(_: ServerConnection, __: Request, response: Response) -> None:
        response.headers["Acp-Connection-Id"] = secrets.token_hex(16)

    is_unix = listening.family == socket.AF_UNIX
    options: dict[str, Any] = {"unix": True} if is_unix else {}
    return await serve(
        take,
        sock=listening,
        process_request=door.check,
        process_response=with_id,
        create_connection=_connection_kind(door),
        compression=None,
        server_header=None,
        open_timeout=HANDSHAKE_S,
        close_timeout=CLOSE_S,
        ping_interval=PING_S,
        ping_timeout=PING_S,
        max_size=MAX_MESSAGE_BYTES,
        logger=at_door,
        **options,
    )


async def serve_client(registry: SessionRegistry, socket: ServerConnection) -> None:
    """Serve one client until it disconnects."""
    streams = WebSocketStreams(socket)
    sessions = ServedSessions(registry, socket.transport.abort)
    frontend = AgentFrontend(registry.layers, sessions)
    connection = AcpConnection(
        streams,
        streams,
        frontend.methods(),
        {**frontend.notifications(), **sessions.notifications()},
        on_end=sessions.end,
        grace_s=0,
        max_unsent_bytes=MAX_UNSENT_BYTES,
    )
    frontend.connect(connection)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_if_silent, sessions, socket)
            await connection.serve()
            tasks.cancel_scope.cancel()
    except Exception as defect:  # one client's connection must not end the others
        log.critical("a connection ends: a defect", exc_info=defect)


async def _end_if_silent(sessions: ServedSessions, socket: ServerConnection) -> None:
    """Close the connection of a client that does not send `initialize` in time."""
    with anyio.move_on_after(BEGIN_S):
        await sessions.have_begun.wait()
        return
    await socket.close(AGAINST_POLICY, f"no `initialize` within {BEGIN_S:.0f} s")


async def close_server(server: Server) -> None:
    server.close(code=GOING_AWAY, reason="the server ends")
    with anyio.move_on_after(CLOSE_S):
        await server.wait_closed()
