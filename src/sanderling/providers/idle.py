"""
How long nothing has arrived, counted while this process runs.

A deadline on a clock would be over after the process was stopped, or the machine slept, for longer than that: what has arrived
meanwhile, or arrives as soon as the network is back, would lose against it. So silence is counted in ticks; one that comes late
counts as two, and is never the one that ends the wait.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from sanderling.errors import ProviderError

MAX_TICK_S = 1.0
KEEPS_WHAT_CAME = "What arrived is kept. A new prompt goes on from there."


class IdleWatch:
    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._tick_s = min(MAX_TICK_S, timeout_s / 10)

    @contextmanager
    def wait(self) -> Generator[None]:
        """
        Wait inside of it for whatever arrives next.

        Raises:
            ProviderError: "stalled", nothing has arrived for the whole time.
        """
        loop = asyncio.get_running_loop()
        idle_s, ticked_at = 0.0, loop.time()

        def tick() -> None:
            nonlocal idle_s, ticked_at, timer
            late_s, now = 2 * self._tick_s, loop.time()
            elapsed_s, ticked_at = now - ticked_at, now
            idle_s += min(elapsed_s, late_s)
            if idle_s >= self._timeout_s and elapsed_s < late_s:
                scope.cancel()
            else:
                timer = loop.call_later(self._tick_s, tick)

        with anyio.CancelScope() as scope:
            timer = loop.call_later(self._tick_s, tick)
            try:
                yield
            finally:
                timer.cancel()
        if scope.cancelled_caught:
            raise ProviderError(
                "stalled",
                f"The API went silent: nothing arrived for {self._timeout_s:g} s.",
                KEEPS_WHAT_CAME,
            )
