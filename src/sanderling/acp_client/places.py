"""Places of guests: what a link needs of the session that it is in, and of what carries its connection."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from sanderling.acp.connection import Method, Reader
from sanderling.acp.outbox import Writer
from sanderling.acp.sessions import McpServer
from sanderling.acp.setup import AgentCapabilities, AuthMethod, ClientCapabilities


class Carrier(Protocol):
    """
    A carrier of the connection: the pipes of a process, here or elsewhere, or a socket.

    `is_outdated`: it was ended so that another one begins. `notice` and `warnings` are sentences for the person.
    """

    @property
    def stdin(self) -> Writer: ...
    @property
    def stdout(self) -> Reader: ...
    @property
    def is_outdated(self) -> bool: ...
    @property
    def notice(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...

    async def wait(self) -> str:
        """Wait for its end; return in words how that was."""
        ...

    def kill(self) -> None: ...

    def refusal(self) -> str:
        """Say, of one that has ended, why it would be of no use to try again; empty where it may be."""
        ...


class Place(Protocol):
    """The place of a guest in our session: what it needs of us."""

    @property
    def name(self) -> str: ...

    @property
    def cwd(self) -> str: ...

    def start(self) -> AbstractAsyncContextManager[Carrier]:
        """
        Run it in that context.

        Raises:
            SanderlingError: it cannot be started.
        """
        ...

    def methods(self) -> Mapping[str, Method]:
        """All that it may ask of us."""
        ...

    def begun(self, carrier: Carrier) -> None:
        """Take note that the guest runs."""
        ...

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that we have for it."""
        ...

    def told(self, meta: Mapping[str, Any]) -> None:
        """Take what the guest has said of a session beside what the protocol knows."""
        ...

    async def take(self, update: msgspec.Raw) -> None:
        """Show an update."""
        ...

    async def log_in(self, methods: Sequence[AuthMethod]) -> str:
        """Return the method by which the person wants to log in; empty: none."""
        ...

    def servers(self, capabilities: AgentCapabilities) -> list[McpServer]:
        """Return the tool servers that it is to start, as far as it can."""
        ...

    def options_changed(self) -> None: ...

    @property
    def session_id(self) -> str:
        """The guest's own id of the session, if there is one to go on with."""
        ...

    def session_begun(self, session_id: str, *, is_new: bool, why: str = "") -> None:
        """Take note that the guest's session is open; of a new one `why` says why the old one does not go on, if there was one."""
        ...
