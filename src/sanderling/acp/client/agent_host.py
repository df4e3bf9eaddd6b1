"""Interfaces that a link to an external agent needs: its session's side, and the transport of its connection."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from sanderling.acp.wire.connection import ByteReader, Method
from sanderling.acp.wire.outbox import Writer
from sanderling.acp.wire.sessions import McpServer
from sanderling.acp.wire.setup import AgentCapabilities, AuthMethod, ClientCapabilities


class Carrier(Protocol):
    """
    The transport of a connection: the pipes of a local or remote process, or a socket.

    `is_outdated`: it was ended so that a new one can replace it. `notice` and `warnings` are shown to the user.
    """

    @property
    def stdin(self) -> Writer: ...
    @property
    def stdout(self) -> ByteReader: ...
    @property
    def is_outdated(self) -> bool: ...
    @property
    def notice(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...

    async def wait(self) -> str:
        """Wait for its end; return a description of how it ended."""
        ...

    def kill(self) -> None: ...

    def refusal(self) -> str:
        """Return why a retry is useless, after it ended; "" if a retry may work."""
        ...


class AgentHost(Protocol):
    """The session's side of an external agent."""

    @property
    def name(self) -> str: ...

    @property
    def cwd(self) -> str: ...

    def start(self) -> AbstractAsyncContextManager[Carrier]:
        """
        Run the agent within the returned context.

        Raises:
            SanderlingError: it cannot be started.
        """
        ...

    def methods(self) -> Mapping[str, Method]:
        """Return the handlers of the agent's requests."""
        ...

    def begun(self, carrier: Carrier) -> None:
        """Note that the agent is running."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities:
        """The client capabilities to announce."""
        ...

    def take_meta(self, meta: Mapping[str, Any]) -> None:
        """Handle the `_meta` of a session response."""
        ...

    async def take(self, update: msgspec.Raw) -> None:
        """Show an update."""
        ...

    async def log_in(self, methods: Sequence[AuthMethod]) -> str:
        """Ask the user for a login method; return its ID, or "" if the user declined."""
        ...

    def servers(self, capabilities: AgentCapabilities) -> list[McpServer]:
        """Return the MCP servers that the agent should start, limited to the transports that it supports."""
        ...

    def options_changed(self) -> None: ...

    @property
    def session_id(self) -> str:
        """The agent's ID of the session to resume; "" for a new session."""
        ...

    def session_begun(self, session_id: str, *, is_new: bool, why: str = "") -> None:
        """Note that the agent's session is open. `why` says why a new one replaces the old one, if there was one."""
        ...
