"""Replays a session's history to a client. The agent returns pages from newest to oldest; they are sent oldest first."""

from collections.abc import Awaitable, Callable, Iterator

import anyio

from sanderling.acp.agent.event_translator import EventTranslator
from sanderling.acp.wire.updates import SessionUpdate
from sanderling.protocol.actions import FROM_END, ShowEarlier
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import Event, HistoryShown, TurnStarted

PAGE_S = 30.0  # per page; a warning reports a page that cannot be read


class EarlierHistory:
    """The history pages of one session, replayed to one client at a time."""

    def __init__(self) -> None:
        self._pages: list[HistoryShown] = []
        self._has_come = anyio.Event()
        self._lock = anyio.Lock()

    def take(self, page: HistoryShown) -> None:
        self._pages.append(page)
        self._has_come.set()

    async def replay(
        self,
        agent: Agent,
        translator: EventTranslator,
        tell: Callable[[SessionUpdate], Awaitable[None]],
    ) -> None:
        """Send the whole history, oldest first."""
        async with self._lock:
            try:
                await self._get_all(agent)
                for page in reversed(self._pages):
                    for event in page.events:
                        for update in _told_again(event, translator):
                            await tell(update)
            finally:
                self._pages.clear()

    async def _get_all(self, agent: Agent) -> None:
        self._pages.clear()
        before = FROM_END
        with anyio.CancelScope() as scope:
            while not self._pages or self._pages[-1].has_earlier:
                count, self._has_come = len(self._pages), anyio.Event()
                scope.deadline = anyio.current_time() + PAGE_S
                agent.act(ShowEarlier(before))
                while len(self._pages) == count:
                    await self._has_come.wait()
                before = self._pages[-1].start


def _told_again(event: Event, translator: EventTranslator) -> Iterator[SessionUpdate]:
    if isinstance(event, TurnStarted):
        yield translator.prompt(event.prompt)
    else:
        yield from translator.updates(event)
