"""The audience of a session: whoever is told what happens in it, and asked. Of `sanderling acp` that is the one client."""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from sanderling.acp.connection import Connection
from sanderling.acp.updates import SessionNotification, SessionUpdate
from sanderling.acp_agent.client import Client

UPDATE = "session/update"

Ability = Callable[[Client], bool]
T = TypeVar("T")


class Audience(Protocol):
    @property
    def client(self) -> Client:
        """A client that can be told all that any of them can be."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether a client is connected."""
        ...

    def tell(self, update: SessionUpdate) -> None:
        """Tell `update`, once the client knows of the session."""
        ...

    def tell_prompt(self, update: SessionUpdate) -> None:
        """Tell the words of the prompt that is being answered, to whoever has not sent it."""
        ...

    def accept(self, prompt_id: str) -> None:
        """Tell that a prompt is in the log."""
        ...

    def can(self, ability: Ability) -> bool:
        """Say whether somebody has an ability, or may come who has it."""
        ...

    async def ask(self, method: str, params: object, kind: type[T], ability: Ability) -> T:
        """
        Ask whoever has the `ability`, and return the first answer.

        Raises:
            RpcError: it is refused, or is something else.
            ClosedError: nobody is there, and nobody will be.
        """
        ...


class OneClient:
    """The client of a connection, alone. What happens before it knows of the session is told then."""

    is_there = True  # its sessions end with its connection

    def __init__(self, session_id: str, connection: Connection, client: Client) -> None:
        self.client = client
        self._session_id = session_id
        self._connection = connection
        self._early: deque[SessionUpdate] | None = deque()

    async def announce(self) -> None:
        """Tell what was held back."""
        held, self._early = self._early or (), None
        for update in held:
            self._send(update)

    def tell(self, update: SessionUpdate) -> None:
        if self._early is None:
            self._send(update)
        else:
            self._early.append(update)

    async def tell_earlier(self, update: SessionUpdate) -> None:
        """Tell what was before all that is held back."""
        self._send(update)

    def _send(self, update: SessionUpdate) -> None:
        told = SessionNotification(session_id=self._session_id, update=update)
        self._connection.notify(UPDATE, told)

    def tell_prompt(self, update: SessionUpdate) -> None: ...

    def accept(self, prompt_id: str) -> None:
        if self.client.is_ours:
            accept(self._connection, self._session_id, prompt_id)

    def can(self, ability: Ability) -> bool:
        return ability(self.client)

    async def ask(self, method: str, params: object, kind: type[T], ability: Ability) -> T:  # noqa: ARG002
        return await self._connection.request(method, params, kind)


def accept(connection: Connection, session_id: str, prompt_id: str) -> None:
    from sanderling.acp.ours import PROMPT_ACCEPTED, PromptAccepted

    told = PromptAccepted(session_id=session_id, prompt_id=prompt_id)
    connection.notify(PROMPT_ACCEPTED, told)
