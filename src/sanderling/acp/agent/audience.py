"""The clients of a session, which get its updates and questions. `sanderling acp` has exactly one."""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from sanderling.acp.agent.client import Client
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.updates import SessionNotification, SessionUpdate

UPDATE = "session/update"

Ability = Callable[[Client], bool]
T = TypeVar("T")


class Audience(Protocol):
    @property
    def client(self) -> Client:
        """A client with the abilities of all of them."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether a client is connected."""
        ...

    def tell(self, update: SessionUpdate) -> None:
        """Send `update`, as soon as the client knows the session."""
        ...

    def tell_prompt(self, update: SessionUpdate) -> None:
        """Send the text of the current prompt to clients that did not send it."""
        ...

    def accept(self, prompt_id: str) -> None:
        """Report that a prompt is in the log."""
        ...

    def can(self, ability: Ability) -> bool:
        """Return whether a client has the ability, or one may still connect that has it."""
        ...

    async def ask(self, method: str, params: object, kind: type[T], ability: Ability) -> T:
        """
        Ask the clients that have the `ability`; return the first answer.

        Raises:
            RpcError: the client returned an error or an invalid result.
            ClosedError: no client is connected, and none will connect.
        """
        ...


class OneClient:
    """A connection's only client. Updates are held back until it knows the session."""

    is_there = True  # its sessions end with its connection

    def __init__(self, session_id: str, connection: AcpConnection, client: Client) -> None:
        self.client = client
        self._session_id = session_id
        self._connection = connection
        self._early: deque[SessionUpdate] | None = deque()

    async def announce(self) -> None:
        """Send the updates that were held back."""
        held, self._early = self._early or (), None
        for update in held:
            self._send(update)

    def tell(self, update: SessionUpdate) -> None:
        if self._early is None:
            self._send(update)
        else:
            self._early.append(update)

    async def tell_earlier(self, update: SessionUpdate) -> None:
        """Send an update of the history, before those that are held back."""
        self._send(update)

    def _send(self, update: SessionUpdate) -> None:
        notification = SessionNotification(session_id=self._session_id, update=update)
        self._connection.notify(UPDATE, notification)

    def tell_prompt(self, update: SessionUpdate) -> None: ...

    def accept(self, prompt_id: str) -> None:
        if self.client.is_ours:
            accept(self._connection, self._session_id, prompt_id)

    def can(self, ability: Ability) -> bool:
        return ability(self.client)

    async def ask(self, method: str, params: object, kind: type[T], ability: Ability) -> T:  # noqa: ARG002
        return await self._connection.request(method, params, kind)


def accept(connection: AcpConnection, session_id: str, prompt_id: str) -> None:
    from sanderling.acp.wire.ours import PROMPT_ACCEPTED, PromptAccepted

    notification = PromptAccepted(session_id=session_id, prompt_id=prompt_id)
    connection.notify(PROMPT_ACCEPTED, notification)
