"""Updates of a session on their way to the client: held back until it knows of the session, and what rolls not too often."""

from collections import deque
from collections.abc import Iterable

import anyio
from anyio.abc import TaskGroup

from sanderling.acp.connection import Connection
from sanderling.acp.updates import SessionNotification, SessionUpdate
from sanderling.acp_agent.telling import Teller

ROLL_S = 0.1  # between two tellings of what a command puts out
UPDATE = "session/update"


class Updates:
    """The updates of one session."""

    def __init__(
        self, session_id: str, connection: Connection, tasks: TaskGroup, teller: Teller
    ) -> None:
        self._session_id = session_id
        self._connection = connection
        self._tasks = tasks
        self._teller = teller
        self._early: deque[SessionUpdate] | None = deque()

    async def announce(self) -> None:
        """Tell what was held back."""
        held, self._early = self._early or (), None
        for update in held:
            self.send(update)

    def send_all(self, updates: Iterable[SessionUpdate], *, is_now: bool = False) -> None:
        for update in updates:
            self.send(update, is_now=is_now)

    def send(self, update: SessionUpdate, *, is_now: bool = False) -> None:
        if self._early is None or is_now:
            told = SessionNotification(session_id=self._session_id, update=update)
            self._connection.notify(UPDATE, told)
        else:
            self._early.append(update)

    def roll_later(self) -> None:
        if self._teller.rolling and not self._teller.is_rolling:
            self._teller.is_rolling = True
            self._tasks.start_soon(self._roll)

    async def _roll(self) -> None:
        await anyio.sleep(ROLL_S)
        self._teller.is_rolling = False
        self.roll_now()

    def roll_now(self) -> None:
        self.send_all(self._teller.rolled())
