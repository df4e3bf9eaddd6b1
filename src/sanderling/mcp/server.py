"""
One server: a task that connects to it, keeps the connection, and connects again when it ends.

The task owns the connection from its beginning to its end, as the SDK's scopes require. Tool calls run in their callers' tasks. They wait
until the server is ready, and fail with the reason if it is not. A failure ends only the connection.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from sanderling.mcp import CONNECT_S
from sanderling.mcp.connection import McpConnection, Question, ServerOffers
from sanderling.mcp.offers import RemoteTool
from sanderling.mcp.problems import LoginNeededError, ServerError, lasting, why
from sanderling.mcp.sdk import load_sdk
from sanderling.mcp.servers import McpServer
from sanderling.protocol.events import ToolServerState
from sanderling.text import visible_prose
from sanderling.tools.commands.server_log import ServerLog

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult

    from mcp import Client

END_S = 2.0  # time to learn why a connection has ended: the server gets one second to exit
CONNECTION_CLOSED = -32000  # the code of the SDK's error
FIRST_SHARE = 2 / 3  # of the time to start, for the first of two modes
MAX_SHOWN_PROBLEMS = 2
MAX_FAILURES = 5  # in a row; then the user has to act
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
SETTLED_S = 60.0  # being ready for so long resets the number of failures

T = TypeVar("T")
OpenTransport = Callable[[ServerLog], "AbstractAsyncContextManager[TransportStreams]"]

log = logging.getLogger(__name__)


class ServerStatus(msgspec.Struct, frozen=True):
    """
    The status of a server; `why` is the reason if something is wrong with it.

    `is_permanent`: it changes only when the user changes something. `needs_login`: it changes when the user logs in.
    """

    state: ToolServerState
    why: str = ""
    is_permanent: bool = False
    needs_login: bool = False


class ServerAccess(NamedTuple):
    """
    The access to a server. `open_transport` starts it or connects to it; `on_change` is called whenever its state changes.

    `ask` shows its questions to the user; without it, the server learns that it cannot ask. `terms` are the conditions of its start: when
    they change, the server is ended, which does not count as a failure.
    """

    open_transport: OpenTransport
    on_change: "Callable[[Server], None]" = lambda _: None
    ask: Question | None = None
    terms: Callable[[], object] = lambda: None


class Server:
    """The server `name`: its declaration, its state, and what it offers."""

    def __init__(self, name: str, declared: McpServer, access: ServerAccess) -> None:
        self.name = name
        self.declared = declared
        self.log = ServerLog()
        self.status = ServerStatus("waiting" if declared.enabled else "stopped")
        self.offers: ServerOffers = ServerOffers()  # of the last connection
        self.connection: McpConnection | None = None
        self._access = access
        self._mode = "auto"
        self._failures = 0
        self._stopped_for = ""
        self._waited_for = ""
        self._settled = anyio.Event()  # set, and replaced, whenever the state changes
        self._wanted = anyio.Event()
        self._holding: anyio.CancelScope | None = None
        if declared.enabled:
            self._wanted.set()

    @property
    def tools(self) -> tuple[RemoteTool, ...]:
        return self.offers.tools

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                if not self._failures:
                    self._set(ServerStatus("starting"))
                terms = self._access.terms()
                problem = await self._hold(terms)
                if not self._wanted.is_set():
                    self._set(ServerStatus("stopped", self._stopped_for))
                elif problem and self._access.terms() == terms:
                    await self._back_off(problem)
        finally:
            self.connection = None

    async def _hold(self, terms: object) -> ServerStatus | None:
        """Connect and keep the connection; return why it has ended, or None if that was requested."""
        ready_at = float("inf")
        limit_s = self.declared.start_s

        def get_ready(connection: McpConnection) -> None:
            nonlocal ready_at
            ready_at = anyio.current_time()
            holding.deadline = float("inf")
            self.connection = connection

        try:
            with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as holding:
                self._holding = holding
                await to_thread.run_sync(load_sdk, abandon_on_cancel=True)
                await self._connect(terms, get_ready)
        # Anything that a server makes the SDK raise, or our use of it, is a failure of the server.
        except Exception as error:  # noqa: BLE001
            log.info("the tool server %s: %r", self.name, type(error))
            found = lasting(error)
            needs_login = isinstance(found, LoginNeededError)
            words = self.log.redacted(why(error))
            problem = ServerStatus(
                "failed", words, is_permanent=bool(found), needs_login=needs_login
            )
        else:
            was_asked = holding.cancelled_caught and anyio.current_time() < holding.deadline
            words = f"not ready after {limit_s:g} s: no answer to {self._waited_for}"
            if not was_asked and (said := self.log.reason()):
                words += f"; its log ends with: {said}"
            problem = None if was_asked else ServerStatus("failed", words)
        finally:
            self.connection = self._holding = None
        if anyio.current_time() - ready_at > SETTLED_S or not problem:
            self._failures = 0
        return problem

    async def _connect(self, terms: object, get_ready: Callable[[McpConnection], None]) -> None:
        """
        Connect, in the other mode if that fails before a version is agreed on. Never return.

        The first request of the newer protocol is `server/discover`. By its section on backward compatibility (2026-07-28, stdio), any
        error but UnsupportedProtocolVersion, or no answer within a reasonable time, means an older server. The SDK then continues with
        `initialize` in the same process. That does not help if the process has ended or hangs: then it is started again, with
        `initialize` as its first request.
        """
        self._waited_for = "initialize"
        share = anyio.current_time() + self.declared.start_s * FIRST_SHARE
        connection = self._new_connection(terms)
        with anyio.CancelScope(deadline=share) as scope:
            try:
                await self._keep(connection, scope, get_ready)
            except Exception as error:
                if connection.has_agreed or lasting(error):
                    raise
                log.info("the tool server %s, in mode %s: %r", self.name, self._mode, type(error))
        self._mode = "legacy" if self._mode == "auto" else "auto"
        with anyio.CancelScope() as scope:
            await self._keep(self._new_connection(terms), scope, get_ready)

    async def _keep(
        self,
        connection: McpConnection,
        scope: anyio.CancelScope,
        get_ready: Callable[[McpConnection], None],
    ) -> None:
        """Open the connection and keep it; `scope` loses its deadline as soon as a version is agreed on."""
        async with connection.opened():
            scope.deadline = float("inf")
            self._waited_for = "tools/list"
            tools, problems = await connection.tools()
            self.offers = replace(self.offers, tools=tools, problems=problems)
            get_ready(connection)
            self._set(ServerStatus("ready", _in_short(problems)))
            await connection.follow(self.name, self.offers, self._take)

    def _new_connection(self, terms: object) -> McpConnection:
        transport = self._access.open_transport(self.log)
        return McpConnection(transport, self._mode, self.declared.call_s, self._access.ask, terms)

    def _take(self, offers: ServerOffers) -> None:
        if offers != self.offers:
            self.offers = offers
            self.status = replace(self.status, why=_in_short(offers.problems))
            self._access.on_change(self)

    async def _back_off(self, problem: ServerStatus) -> None:
        self._failures += 1
        if self._failures >= MAX_FAILURES or problem.is_permanent:
            self._wanted = anyio.Event()
            self._set(problem)
            return
        self._set(ServerStatus("restarting", problem.why))
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (self._failures - 1))
        with anyio.CancelScope(deadline=anyio.current_time() + delay_s) as self._holding:
            await anyio.sleep_forever()
        self._holding = None
        if not self._wanted.is_set():
            self._set(ServerStatus("stopped", self._stopped_for))

    def _set(self, status: ServerStatus) -> None:
        if status == self.status:
            return
        self.status = status
        settled, self._settled = self._settled, anyio.Event()
        settled.set()
        self._access.on_change(self)

    def restart(self) -> None:
        """Connect again, even after a failure or a stop."""
        self._failures = 0
        self._wanted.set()
        self._set(ServerStatus("starting"))
        if self._holding:
            self._holding.cancel()

    def stop(self, why: str = "") -> None:
        """End the connection, and the server's process if there is one, until `restart`."""
        self._stopped_for = why
        if self._wanted.is_set():  # otherwise its task is waiting for this event
            self._wanted = anyio.Event()
        if self._holding:
            self._holding.cancel()
        else:
            self._set(ServerStatus("stopped", why))

    def change(self, declared: McpServer, access: ServerAccess) -> None:
        """Use this declaration and access from the next start on."""
        self.declared, self._access = declared, access

    async def begun(self) -> None:
        """Wait until the result of its first start is known."""
        while self.status.state in ("waiting", "starting"):
            await self._settled.wait()

    def news(self) -> str:
        """Return a message about its latest change; empty if that does not concern the user."""
        match self.status:
            case ServerStatus("ready", why) if why:
                return f"MCP server {self.name} works in part: {why}."
            case ServerStatus("failed", why):
                return f"MCP server {self.name} failed: {why}. Its tools are not available."
            case ServerStatus("restarting", why) if self._failures == 1:
                return f"MCP server {self.name}: {why}, restarting."
            case _:
                return ""

    async def settled(self) -> None:
        """Wait until it is ready, or will not be without the user."""
        while self.status.state not in ("ready", "failed", "stopped"):
            await self._settled.wait()

    async def connected(self) -> McpConnection:
        """
        Return the connection, as soon as there is one.

        Raises:
            ServerError: it is not connected.
        """
        if self.status.state == "failed" and self.declared.url and not self.status.is_permanent:
            self.restart()  # the network may be back
        with anyio.move_on_after(CONNECT_S):
            await self.settled()
            while self.connection and self.connection.terms != self._access.terms():
                await self._settled.wait()  # it is being closed
                await self.settled()
        if self.connection is None or self.connection.terms != self._access.terms():
            state, reason = self.status.state, self.status.why
            raise ServerError(
                f"it is {'not ready' if state == 'starting' else state}{reason and ': '}{reason}"
            )
        return self.connection

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: "ProgressFnT | None" = None
    ) -> "CallToolResult":
        """
        Call one of its tools.

        Raises:
            ServerError: as `request`.
        """
        return await self.request(
            lambda client: client.call_tool(tool, arguments, None, on_progress)
        )

    async def request(self, make: "Callable[[Client], Awaitable[T]]") -> T:
        """
        Return the result of `make`, which calls the server.

        Raises:
            ServerError: it is not connected, refuses, does not answer in time, or ended meanwhile.
        """
        connection = await self.connected()
        try:
            return await connection.request(make)
        except TimeoutError as error:
            raise ServerError(f"it did not answer within {self.declared.call_s:g} s") from error
        except Exception as error:
            if getattr(error, "code", 0) == CONNECTION_CLOSED and (
                reason := await self._why_ended(connection)
            ):
                raise ServerError(reason) from error
            raise ServerError(self.log.redacted(why(error))) from error

    async def _why_ended(self, connection: McpConnection) -> str:
        """Return why the connection has ended, once its task knows; empty if it is still open, because the error is the server's own."""
        with anyio.move_on_after(END_S):
            while self.connection is connection:
                await self._settled.wait()
        if self.connection is connection:
            return ""
        reason = self.status.why if self.status.state != "ready" else ""
        reason = reason or "its permissions have changed"
        return f"it ended meanwhile ({reason}); its work may be done, or partly done"


def _in_short(problems: Sequence[str]) -> str:
    more = len(problems) - MAX_SHOWN_PROBLEMS
    shown = (*problems[:MAX_SHOWN_PROBLEMS], *([f"and {more} more"] if more > 0 else []))
    return visible_prose("; ".join(shown))
