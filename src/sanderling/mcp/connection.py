"""One connection to a server: its offers, our requests to it, and its questions."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec

from sanderling.mcp import CONNECT_S, DISCOVER_S
from sanderling.mcp.offers import (
    RemotePrompt,
    RemoteTool,
    listen,
    remote_prompts,
    remote_resources,
    remote_tools,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    import mcp_types
    from mcp.client._transport import TransportStreams

    from mcp import Client

CHANGE_S = 0.2

log = logging.getLogger(__name__)
T = TypeVar("T")

Question = Callable[["mcp_types.ElicitRequestParams"], Awaitable[Any]]
"""Shows a server's question to the user, and returns the answer for the SDK."""


class Patience:
    """The timeout for one server. Its questions to the user belong to our requests, and end with the last of them."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._requests: set[anyio.CancelScope] = set()
        self._questions: set[anyio.CancelScope] = set()

    @contextmanager
    def limited(self) -> Generator[None]:
        """
        Limit a request in this context.

        Raises:
            TimeoutError: it took too long.
        """
        scope = anyio.CancelScope(deadline=self._deadline())
        self._requests.add(scope)
        try:
            with scope:
                yield
        finally:
            self._requests.discard(scope)
            if not self._requests:
                for question in self._questions:
                    question.cancel()
        if scope.cancelled_caught:
            raise TimeoutError

    @contextmanager
    def asking(self) -> Generator[bool]:
        """Ask the user in this context, which ends with the last open request; yield True if one is open."""
        with anyio.CancelScope() as scope:
            self._questions.add(scope)
            self._set_deadlines()
            try:
                yield bool(self._requests)
            finally:
                self._questions.discard(scope)
                self._set_deadlines()

    def _set_deadlines(self) -> None:
        for request in self._requests:
            request.deadline = self._deadline()

    def _deadline(self) -> float:
        return float("inf") if self._questions else anyio.current_time() + self._limit_s


class ServerOffers(msgspec.Struct, frozen=True):
    """
    The tools, prompts and resources of a server; resources are URIs and templates of URIs.

    `problems` says which tools cannot be used, or not as the server describes them.
    """

    tools: tuple[RemoteTool, ...] = ()
    prompts: tuple[RemotePrompt, ...] = ()
    resources: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class McpConnection:
    """A connection over `transport` to a server that was started on `terms`. Without `ask` the server learns that it cannot ask."""

    def __init__(
        self,
        transport: "AbstractAsyncContextManager[TransportStreams]",
        mode: str,
        timeout_s: float,
        ask: Question | None,
        terms: object,
    ) -> None:
        from mcp import Client

        self.terms = terms
        self.has_agreed = False  # on the version of the protocol
        self.client = Client(
            transport,
            mode=mode,
            cache=None,
            message_handler=self._hear,
            elicitation_callback=self._answer if ask else None,
        )
        self._patience = Patience(timeout_s)
        self._ask = ask
        self._has_changed = anyio.Event()  # set when the server changes its offers

    @property
    def era(self) -> str:
        return self.client.protocol_version

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Connect, and disconnect at the end of this context."""
        from mcp.client import session

        setattr(session, "DISCOVER_TIMEOUT_SECONDS", DISCOVER_S)  # noqa: B010 - it has no parameter for it
        async with self.client:
            self.has_agreed = True
            # A server's schema could keep us busy for ever (`pattern`), so results are not validated: the model judges them.
            setattr(self.client.session, "validate_tool_result", _accept)  # noqa: B010
            yield

    async def request(self, make: "Callable[[Client], Awaitable[T]]") -> T:
        """
        Return the result of `make`, which calls the server.

        Raises:
            TimeoutError: it has not answered in time.
        """
        with self._patience.limited():
            return await make(self.client)

    async def _answer(
        self,
        context: object,  # noqa: ARG002
        params: "mcp_types.ElicitRequestParams",
    ) -> "mcp_types.ElicitResult | mcp_types.ErrorData":
        """Answer a server's question, which must come during one of our requests."""
        from mcp_types import ElicitResult

        with self._patience.asking() as is_in_request:
            if self._ask and is_in_request:
                return await self._ask(params)
        return ElicitResult(action="cancel")

    async def tools(self) -> tuple[tuple[RemoteTool, ...], tuple[str, ...]]:
        """Fetch the tools; return them, and what of them cannot be used."""
        has_tools = self.client.server_capabilities.tools
        return await remote_tools(self.client) if has_tools else ((), ())

    async def follow(
        self, name: str, offers: ServerOffers, report: Callable[[ServerOffers], None]
    ) -> None:
        """Report the prompts and resources, and everything again whenever it changes. Never return."""
        tools = self.client.server_capabilities.tools
        async with anyio.create_task_group() as tasks:
            if tools and tools.list_changed:
                tasks.start_soon(listen, self.client, self._note_change)
            while True:
                offers = await self._with_the_rest(name, offers)
                report(offers)
                await self._has_changed.wait()
                await anyio.sleep(CHANGE_S)  # changes that come together cause one request
                self._has_changed = anyio.Event()
                with anyio.fail_after(CONNECT_S):
                    tools, problems = await self.tools()
                offers = msgspec.structs.replace(offers, tools=tools, problems=problems)
                report(offers)

    async def _with_the_rest(self, name: str, offers: ServerOffers) -> ServerOffers:
        """Fetch the prompts and resources. The server is ready without them, and some claim to have what they do not."""
        can = self.client.server_capabilities
        prompts, resources = tuple[RemotePrompt, ...](), tuple[str, ...]()
        with anyio.move_on_after(CONNECT_S):
            try:
                prompts = await remote_prompts(self.client, name) if can.prompts else ()
            except Exception as error:  # noqa: BLE001  anything that the SDK raises for a server's answer
                log.info("the tool server %s does not list its prompts: %r", name, error)
            try:
                resources = await remote_resources(self.client) if can.resources else ()
            except Exception as error:  # noqa: BLE001
                log.info("the tool server %s does not list its resources: %r", name, error)
        return msgspec.structs.replace(offers, prompts=prompts, resources=resources)

    async def _hear(self, message: object) -> None:
        import mcp_types as types

        changed = types.PromptListChangedNotification | types.ResourceListChangedNotification
        if isinstance(message, types.ToolListChangedNotification | changed):
            self._note_change()

    def _note_change(self) -> None:
        self._has_changed.set()


async def _accept(*_: object) -> None: ...
