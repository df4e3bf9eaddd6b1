"""A wake-up call for any number of tasks."""

import anyio


class ChangeSignal:
    """
    Wakes every waiting task when `notify` is called.

    The notifier replaces the event, never the waiter. We had it the other way round in four places: each waiter made a new event, so the
    second of two waiters replaced the first one's event, and the first one slept forever. A waiter that checks a condition, finds it
    false and calls `wait` without another `await` in between misses nothing.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        event, self._event = self._event, anyio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()
