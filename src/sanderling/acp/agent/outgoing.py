"""Sends a session's updates to its audience, and growing output at limited intervals."""

from collections.abc import Iterable

import anyio

from sanderling.acp.agent.audience import Audience
from sanderling.acp.agent.event_translator import EventTranslator
from sanderling.acp.agent.tasks import TaskStarter
from sanderling.acp.wire.updates import SessionUpdate

ROLL_S = 0.1  # between two updates of growing output


class Updates:
    """Sends the updates of one session."""

    def __init__(self, audience: Audience, tasks: TaskStarter, translator: EventTranslator) -> None:
        self._audience = audience
        self._tasks = tasks
        self._translator = translator

    def send_all(self, updates: Iterable[SessionUpdate]) -> None:
        for update in updates:
            self._audience.tell(update)

    def send(self, update: SessionUpdate) -> None:
        self._audience.tell(update)

    def roll_later(self) -> None:
        if self._translator.rolling and not self._translator.is_rolling:
            self._translator.is_rolling = True
            self._tasks.start_soon(self._roll)

    async def _roll(self) -> None:
        await anyio.sleep(ROLL_S)
        self._translator.is_rolling = False
        self.roll_now()

    def roll_now(self) -> None:
        self.send_all(self._translator.rolled())
