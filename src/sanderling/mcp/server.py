"""
One server: a task that connects to it, keeps the connection, and connects again when that has ended.

The task owns the connection from its beginning to its end, as the SDK's scopes demand. Whoever calls a tool does so from a task of
its own, waits until the server is ready, and is told why when it is not. What goes wrong ends the connection and nothing else.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import msgspec
from anyio import to_thread

from sanderling.mcp.log import ServerLog
from sanderling.mcp.problems import ServerError, why
from sanderling.mcp.remote import RemoteTool, listen, remote_tools
from sanderling.mcp.sdk import load_sdk
from sanderling.mcp.servers import McpServer

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult

    from mcp import Client

CONNECT_S = 10.0
CHANGE_S = 0.2
END_S = 2.0  # in which it is known why a connection has ended: the server is given a second for it
CONNECTION_CLOSED = -32000  # the code of the SDK's error
MAX_FAILURES = 5  # in a row; then a person has to look at it
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
SETTLED_S = 60.0  # who was ready for so long begins anew with its failures

State = Literal["waiting", "starting", "ready", "restarting", "failed", "stopped"]
"""`waiting`: it is started in a moment, when nothing else is to be done. `stopped`: by the person, or by the settings."""

OpenTransport = Callable[[ServerLog], "AbstractAsyncContextManager[TransportStreams]"]

log = logging.getLogger(__name__)


class Status(msgspec.Struct, frozen=True):
    """The status of a server; `why` is the reason for what is wrong with it, if something is."""

    state: State
    why: str = ""


class Connection(NamedTuple):
    """A connection that stands: the SDK's client, the `era` of the protocol, and the terms on which the server was started."""

    client: "Client"
    era: str
    terms: object


class Server:
    """
    The server `name`. `open_transport` starts it, or finds it where it is; `on_change` is called when `status` or `tools` changed.

    `options` are for the SDK's `Client`; `terms` are those on which it is started: when they have changed, it ends, and that is no failure.
    """

    def __init__(
        self,
        name: str,
        declared: McpServer,
        open_transport: OpenTransport,
        on_change: Callable[["Server"], None] = lambda _: None,
        *,
        options: Mapping[str, Any] | None = None,
        terms: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.declared = declared
        self.log = ServerLog()
        self.status = Status("waiting" if declared.enabled else "stopped")
        self.tools: tuple[RemoteTool, ...] = ()  # of the last connection
        self.connection: Connection | None = None
        self._open_transport = open_transport
        self._on_change = on_change
        self._options = options or {}
        self._terms = terms
        self._mode = "auto"
        self._failures = 0
        self._settled = anyio.Event()  # the state is another one than before
        self._has_changed = anyio.Event()  # what the server says of its tools
        self._wanted = anyio.Event()
        self._holding: anyio.CancelScope | None = None
        if declared.enabled:
            self._wanted.set()

    # --- the owner task ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected, until this is cancelled."""
        try:
            while True:
                await self._wanted.wait()
                if not self._failures:
                    self._set("starting")
                terms = self._terms()
                problem = await self._hold(terms)
                if not self._wanted.is_set():
                    self._set("stopped")
                elif problem and self._terms() == terms:
                    await self._back_off(problem)
        finally:
            self.connection = None

    async def _hold(self, terms: object) -> str:
        """Connect and keep the connection; return why it has ended, or "" if that was asked for."""
        ready_at = float("inf")
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + CONNECT_S) as self._holding:
                await to_thread.run_sync(load_sdk, abandon_on_cancel=True)
                async with self._client() as client:
                    # A schema of the server's could keep us busy for ever (`pattern`): what it returns is for the model to judge.
                    setattr(client.session, "validate_tool_result", _accept)  # noqa: B010
                    await self._look(client)
                    ready_at = anyio.current_time()
                    self._holding.deadline = float("inf")
                    self.connection = Connection(client, client.protocol_version, terms)
                    self._set("ready")
                    await self._follow(client)
        # Whatever a server makes of the SDK, or of our use of it, is the server's failure, and told as such.
        except Exception as error:  # noqa: BLE001
            log.info("the tool server %s: %r", self.name, type(error))
            problem = self.log.redacted(why(error))
        else:
            was_asked = (
                self._holding.cancelled_caught and anyio.current_time() < self._holding.deadline
            )
            problem = "" if was_asked else f"it was not ready within {CONNECT_S:.0f} s"
        finally:
            self.connection = self._holding = None
        if anyio.current_time() - ready_at > SETTLED_S or not problem:
            self._failures = 0
        elif ready_at == float("inf"):
            # Some servers end at a word of the other era, or say nothing any more.
            self._mode = "legacy" if self._mode == "auto" else "auto"
        return problem

    def _client(self) -> "Client":
        from mcp import Client

        options: dict[str, Any] = {"message_handler": self._hear, **self._options}
        return Client(self._open_transport(self.log), mode=self._mode, cache=None, **options)

    async def _look(self, client: "Client") -> None:
        self.tools = await remote_tools(client) if client.server_capabilities.tools else ()

    async def _follow(self, client: "Client") -> None:
        """Ask for the tools anew whenever the server says that they have changed, and never return."""
        async with anyio.create_task_group() as tasks:
            if client.server_capabilities.tools and client.server_capabilities.tools.list_changed:
                tasks.start_soon(listen, client, self._note_change)
            while True:
                await self._has_changed.wait()
                await anyio.sleep(CHANGE_S)  # what changes together is asked for together
                self._has_changed = anyio.Event()
                with anyio.fail_after(CONNECT_S):
                    await self._look(client)
                self._on_change(self)

    def _note_change(self) -> None:
        self._has_changed.set()

    async def _hear(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._note_change()

    async def _back_off(self, problem: str) -> None:
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._wanted = anyio.Event()
            self._set("failed", problem)
            return
        self._set("restarting", problem)
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (self._failures - 1))
        with anyio.CancelScope(deadline=anyio.current_time() + delay_s) as self._holding:
            await anyio.sleep_forever()
        self._holding = None

    def _set(self, state: State, why: str = "") -> None:
        status = Status(state, why)
        if status == self.status:
            return
        self.status = status
        settled, self._settled = self._settled, anyio.Event()
        settled.set()
        self._on_change(self)

    # --- for everybody else --------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Connect anew, also where it has failed or was stopped."""
        self._failures = 0
        self._wanted.set()
        self._set("starting")
        if self._holding:
            self._holding.cancel()

    def stop(self) -> None:
        """End the connection, and the server if it is ours, until `restart`."""
        self._wanted = anyio.Event()
        if self._holding:
            self._holding.cancel()
        else:
            self._set("stopped")

    async def begun(self) -> None:
        """Return when it is known how its first start has ended."""
        while self.status.state in ("waiting", "starting"):
            await self._settled.wait()

    def news(self) -> str:
        """Say to the person what has just become of it; "" if that is none of their concern."""
        match self.status:
            case Status("failed", why):
                return f"The tool server '{self.name}' has failed: {why}. Its tools cannot be used."
            case Status("restarting", why) if self._failures == 1:
                return f"The tool server '{self.name}' does not work: {why}. It is started again."
            case _:
                return ""

    async def settled(self) -> None:
        """Return when it is ready, or will not be without a person."""
        while self.status.state not in ("ready", "failed", "stopped"):
            await self._settled.wait()

    async def connected(self) -> Connection:
        """
        Return the connection, as soon as it stands.

        Raises:
            ServerError: it does not.
        """
        with anyio.move_on_after(CONNECT_S):
            await self.settled()
            while self.connection and self.connection.terms != self._terms():
                await self._settled.wait()  # it is being ended
                await self.settled()
        if self.connection is None or self.connection.terms != self._terms():
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
            ServerError: it cannot be called, refuses, does not answer in time, or ended meanwhile.
        """
        connection = await self.connected()
        try:
            with anyio.fail_after(self.declared.timeout_s):
                return await connection.client.call_tool(tool, arguments, None, on_progress)
        except TimeoutError as error:
            raise ServerError(f"it did not answer within {self.declared.timeout_s:g} s") from error
        except Exception as error:
            if getattr(error, "code", 0) == CONNECTION_CLOSED:
                raise ServerError(await self._why_ended()) from error
            raise ServerError(self.log.redacted(why(error))) from error

    async def _why_ended(self) -> str:
        """Say why the connection has ended, as soon as its task knows."""
        with anyio.move_on_after(END_S):
            while self.status.state == "ready":
                await self._settled.wait()
        reason = self.status.why or "what it may do was changed"
        return f"it ended meanwhile ({reason}): it may have done its work, or a part of it"


async def _accept(*_: object) -> None: ...
