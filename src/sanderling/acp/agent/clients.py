"""The clients of a session: their capabilities, and how they get its updates and questions."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.ours import OURS, PROMPT_ACCEPTED, OfClient, PromptAccepted, ours_in
from sanderling.acp.wire.setup import (
    ClientCapabilities,
    ClientSessionCapabilities,
    ElicitationCapabilities,
    FileCapabilities,
    InitializeRequest,
)
from sanderling.acp.wire.updates import SessionNotification, SessionUpdate

UPDATE = "session/update"
TERMINAL_OUTPUT = "terminal_output"
"""Key of `_meta` with which a client announces that it streams command output of the agent's own terminals."""

LABEL_BY_KIND = ("codecompanion",)
"""
Names of clients, in lower case, that label permission options by kind instead of by name.

CodeCompanion shows "Allow always" for each `allow_always`, and a key next to its diff selects the last one, which for us is the widest
rule: the user would store what they never saw.
"""

T = TypeVar("T")


class Client:
    """The client of a connection. Before `initialize` it has no capabilities."""

    def __init__(self, said: InitializeRequest | None = None) -> None:
        can = (said and said.client_capabilities) or ClientCapabilities()
        files, session = can.fs or FileCapabilities(), can.session or ClientSessionCapabilities()
        asks = can.elicitation or ElicitationCapabilities()
        meta: dict[str, Any] = can.meta or {}
        name = said.client_info.name if said and said.client_info else ""
        self.shows_option_names = not name.lower().startswith(LABEL_BY_KIND)
        self.is_ours, self.ours = OURS in meta, ours_in(meta, OfClient)
        self.reads_files = files.read_text_file
        self.writes_files = files.write_text_file
        self.has_terminals = can.terminal
        self.takes_notices = session.notices is not None
        self.takes_compaction = session.compaction is not None
        self.takes_booleans = bool(session.config_options and session.config_options.boolean)
        self.fills_in_forms = asks.form is not None
        self.opens_links = asks.url is not None
        self.logs_in_terminals = bool(can.auth and can.auth.terminal)
        self.shows_output = meta.get(TERMINAL_OUTPUT) is True
        self.reads_calls = not self.is_ours  # ours shows the title and the content


Ability = Callable[[Client], bool]


class Audience(Protocol):
    @property
    def client(self) -> Client:
        """A client with the abilities of all of them."""
        ...

    @property
    def is_there(self) -> bool: ...

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
        """Send an update of the history, before the updates that are held back."""
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
    notification = PromptAccepted(session_id=session_id, prompt_id=prompt_id)
    connection.notify(PROMPT_ACCEPTED, notification)
