"""
One server: a task that connects to it, keeps the connection, and connects again when that has ended.

The task owns the connection from its beginning to its end, as the SDK's scopes demand. Whoever calls a tool does so from a task of
its own, waits until the server is ready, and is told why when it is not. What goes wrong ends the connection and nothing else.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import anyio
import msgspec
from anyio import to_thread

from sanderling.mcp import CONNECT_S
from sanderling.mcp.log import ServerLog
from sanderling.mcp.offers import RemotePrompt, remote_prompts, remote_resources
from sanderling.mcp.patience import Patience
from sanderling.mcp.problems import LoginNeededError, ServerError, lasting, why
from sanderling.mcp.remote import RemoteTool, listen, remote_tools
from sanderling.mcp.sdk import load_sdk
from sanderling.mcp.servers import McpServer

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    import mcp_types
    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult

    from mcp import Client

CHANGE_S = 0.2
END_S = 2.0  # in which it is known why a connection has ended: the server is given a second for it
CONNECTION_CLOSED = -32000  # the code of the SDK's error
MAX_FAILURES = 5  # in a row; then a person has to look at it
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
SETTLED_S = 60.0  # who was ready for so long begins anew with its failures

T = TypeVar("T")
State = Literal["waiting", "starting", "ready", "restarting", "failed", "stopped"]
"""`waiting`: it is started in a moment, when nothing else is to be done. `stopped`: by the person, or by the settings."""

OpenTransport = Callable[[ServerLog], "AbstractAsyncContextManager[TransportStreams]"]

Question = Callable[["mcp_types.ElicitRequestParams"], Awaitable[Any]]
"""Puts what the server wants to know before the person, and returns what the SDK takes for an answer."""

log = logging.getLogger(__name__)


class Status(msgspec.Struct, frozen=True):
    """
    The status of a server; `why` is the reason for what is wrong with it, if something is.

    `is_lasting`: that changes only when a person changes something; `needs_login`: when they log in.
    """

    state: State
    why: str = ""
    is_lasting: bool = False
    needs_login: bool = False


class Offers(msgspec.Struct, frozen=True):
    """The tools, prompts and resources of a server; resources by their URIs, with the templates of others."""

    tools: tuple[RemoteTool, ...] = ()
    prompts: tuple[RemotePrompt, ...] = ()
    resources: tuple[str, ...] = ()


class Connection(NamedTuple):
    """A connection that stands: the SDK's client, the `era` of the protocol, and the terms on which the server was started."""

    client: "Client"
    era: str
    terms: object


class Surroundings(NamedTuple):
    """
    The surroundings of a server. `open_transport` starts it, or finds it where it is; `on_change` is called when it is another than before.

    `ask` puts its questions before the person; without that, it is told that it cannot ask any. `terms` are those on which it is
    started: when they have changed, it ends, and that is no failure.
    """

    open_transport: OpenTransport
    on_change: "Callable[[Server], None]" = lambda _: None
    ask: Question | None = None
    terms: Callable[[], object] = lambda: None


class Server:
    """The server `name`: as it was `declared`, as it is now, and what it offers."""

    def __init__(self, name: str, declared: McpServer, surroundings: Surroundings) -> None:
        self.name = name
        self.declared = declared
        self.log = ServerLog()
        self.status = Status("waiting" if declared.enabled else "stopped")
        self.offers = Offers()  # of the last connection
        self.connection: Connection | None = None
        self._patience = Patience(declared.timeout_s)
        self._surroundings = surroundings
        self._mode = "auto"
        self._failures = 0
        self._stopped_for = ""
        self._settled = anyio.Event()  # the state is another one than before
        self._has_changed = anyio.Event()  # what the server says of its tools
        self._wanted = anyio.Event()
        self._holding: anyio.CancelScope | None = None
        if declared.enabled:
            self._wanted.set()

    @property
    def tools(self) -> tuple[RemoteTool, ...]:
        return self.offers.tools

    # --- the owner task ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected, until this is cancelled."""
        try:
            while True:
                await self._wanted.wait()
                if not self._failures:
                    self._set(Status("starting"))
                terms = self._surroundings.terms()
                problem = await self._hold(terms)
                if not self._wanted.is_set():
                    self._set(Status("stopped", self._stopped_for))
                elif problem and self._surroundings.terms() == terms:
                    await self._back_off(problem)
        finally:
            self.connection = None

    async def _hold(self, terms: object) -> Status | None:
        """Connect and keep the connection; return why it has ended, or None if that was asked for."""
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
                    self._set(Status("ready"))
                    await self._follow(client)
        # Whatever a server makes of the SDK, or of our use of it, is the server's failure, and told as such.
        except Exception as error:  # noqa: BLE001
            log.info("the tool server %s: %r", self.name, type(error))
            found = lasting(error)
            needs_login = isinstance(found, LoginNeededError)
            words = self.log.redacted(why(error))
            problem = Status("failed", words, is_lasting=bool(found), needs_login=needs_login)
        else:
            was_asked = (
                self._holding.cancelled_caught and anyio.current_time() < self._holding.deadline
            )
            words = f"it was not ready within {CONNECT_S:.0f} s"
            problem = None if was_asked else Status("failed", words)
        finally:
            self.connection = self._holding = None
        if anyio.current_time() - ready_at > SETTLED_S or not problem:
            self._failures = 0
        elif ready_at == float("inf") and not problem.is_lasting:
            # Some servers end at a word of the other era, or say nothing any more.
            self._mode = "legacy" if self._mode == "auto" else "auto"
        return problem

    def _client(self) -> "Client":
        from mcp import Client

        return Client(
            self._surroundings.open_transport(self.log),
            mode=self._mode,
            cache=None,
            message_handler=self._hear,
            elicitation_callback=self._answer if self._surroundings.ask else None,
        )

    async def _answer(
        self,
        context: object,  # noqa: ARG002
        params: "mcp_types.ElicitRequestParams",
    ) -> "mcp_types.ElicitResult | mcp_types.ErrorData":
        """Answer a question of the server's, which comes with a request of ours, or not at all."""
        from mcp_types import ElicitResult

        ask = self._surroundings.ask
        with self._patience.asking() as is_in_request:
            if ask and is_in_request:
                return await ask(params)
        return ElicitResult(action="cancel")

    async def _look(self, client: "Client") -> None:
        tools = await remote_tools(client) if client.server_capabilities.tools else ()
        self.offers = msgspec.structs.replace(self.offers, tools=tools)

    async def _follow(self, client: "Client") -> None:
        """Ask for what it offers whenever the server says that this has changed, and never return."""
        async with anyio.create_task_group() as tasks:
            if client.server_capabilities.tools and client.server_capabilities.tools.list_changed:
                tasks.start_soon(listen, client, self._note_change)
            while True:
                await self._look_further(client)
                await self._has_changed.wait()
                await anyio.sleep(CHANGE_S)  # what changes together is asked for together
                self._has_changed = anyio.Event()
                with anyio.fail_after(CONNECT_S):
                    await self._look(client)
                self._surroundings.on_change(self)

    def _note_change(self) -> None:
        self._has_changed.set()

    async def _hear(self, message: object) -> None:
        import mcp_types as types

        changed = types.PromptListChangedNotification | types.ResourceListChangedNotification
        if isinstance(message, types.ToolListChangedNotification | changed):
            self._note_change()

    async def _look_further(self, client: "Client") -> None:
        """Find out what else it offers. It is ready without that, and some say that they offer what they do not."""
        can = client.server_capabilities
        prompts, resources = tuple[RemotePrompt, ...](), tuple[str, ...]()
        with anyio.move_on_after(CONNECT_S):
            with suppress(Exception):
                prompts = await remote_prompts(client, self.name) if can.prompts else ()
            with suppress(Exception):
                resources = await remote_resources(client) if can.resources else ()
        offers = Offers(self.tools, prompts, resources)
        if offers != self.offers:
            self.offers = offers
            self._surroundings.on_change(self)

    async def _back_off(self, problem: Status) -> None:
        self._failures += 1
        if self._failures >= MAX_FAILURES or problem.is_lasting:
            self._wanted = anyio.Event()
            self._set(problem)
            return
        self._set(Status("restarting", problem.why))
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (self._failures - 1))
        with anyio.CancelScope(deadline=anyio.current_time() + delay_s) as self._holding:
            await anyio.sleep_forever()
        self._holding = None
        if not self._wanted.is_set():
            self._set(Status("stopped", self._stopped_for))

    def _set(self, status: Status) -> None:
        if status == self.status:
            return
        self.status = status
        settled, self._settled = self._settled, anyio.Event()
        settled.set()
        self._surroundings.on_change(self)

    # --- for everybody else --------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Connect anew, also where it has failed or was stopped."""
        self._failures = 0
        self._wanted.set()
        self._set(Status("starting"))
        if self._holding:
            self._holding.cancel()

    def stop(self, why: str = "") -> None:
        """End the connection, and the server if it is ours, until `restart`."""
        self._stopped_for = why
        if self._wanted.is_set():  # else its task waits for this very event
            self._wanted = anyio.Event()
        if self._holding:
            self._holding.cancel()
        else:
            self._set(Status("stopped", why))

    def change(self, declared: McpServer, surroundings: Surroundings) -> None:
        """Be the server that is declared now, from its next start on."""
        self.declared, self._surroundings = declared, surroundings
        self._patience = Patience(declared.timeout_s)

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
        if self.status.state == "failed" and self.declared.url and not self.status.is_lasting:
            self.restart()  # the network may be there again
        with anyio.move_on_after(CONNECT_S):
            await self.settled()
            while self.connection and self.connection.terms != self._surroundings.terms():
                await self._settled.wait()  # it is being ended
                await self.settled()
        if self.connection is None or self.connection.terms != self._surroundings.terms():
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
        Return what `make` asks the server for.

        Raises:
            ServerError: it cannot be asked, refuses, does not answer in time, or ended meanwhile.
        """
        connection = await self.connected()
        try:
            with self._patience.limited():
                return await make(connection.client)
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
