"""A bounded queue of updates that were received but not shown yet."""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from sanderling.acp.wire.change_signal import ChangeSignal

MAX_BYTES = 64 << 20
MAX_COUNT = 50_000
PAUSE_BYTES, PAUSE_S = 1 << 20, 0.004
"""Pause after this much input: a flood of updates would otherwise block the editor."""


class UpdateQueue:
    """The updates of one connection, in order."""

    def __init__(self) -> None:
        self._waiting: deque[msgspec.Raw] = deque()
        self._bytes = 0
        self._taken = 0
        self._come = 0
        self._is_closed = False
        self._changed = ChangeSignal()

    def add(self, update: msgspec.Raw) -> bool:
        """Add an update; return False if the queue is over its limit."""
        self._come += 1
        self._bytes += len(bytes(update))
        self._waiting.append(update)
        self._changed.notify()
        return len(self._waiting) <= MAX_COUNT and self._bytes <= MAX_BYTES

    async def show(self, take: Callable[[msgspec.Raw], Awaitable[None]]) -> None:
        """Pass updates to `take`, one after the other, until cancelled."""
        since_pause = 0
        while True:
            while not self._waiting:
                await self._changed.wait()
            update = self._waiting[0]
            size = len(bytes(update))
            await take(
                update
            )  # removed afterwards: if `take` is cancelled, the update stays in the queue
            self._waiting.popleft()
            self._bytes -= size
            self._taken += 1
            self._changed.notify()
            since_pause += size
            if since_pause > PAUSE_BYTES:
                since_pause = 0
                await anyio.sleep(PAUSE_S)

    async def all_shown(self) -> None:
        """Wait until all updates received so far are shown, or the queue is closed."""
        last = self._come
        while self._taken < last and not self._is_closed:
            await self._changed.wait()

    def close(self) -> None:
        self._is_closed = True
        self._changed.notify()
