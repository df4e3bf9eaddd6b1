"""
The idle timeout: the time without any data, counted while this process runs.

A deadline on a clock would pass while the process is stopped or the machine sleeps, even if data has arrived meanwhile or arrives as soon
as the network is back. So idle time is counted in ticks. A late tick counts as two at most, and never ends the wait. But after some
seconds of sleep a connection may be dead without a sign: it gets `AFTER_SLEEP_S` to prove that it is alive, not the whole timeout again.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.text import duration

MAX_TICK_S = 1.0
ASLEEP_S = 10.0  # a tick this late was not delayed by our own process
AFTER_SLEEP_S = 20.0


def keeps_what_came() -> str:
    return f"What arrived is kept. {remedies().go_on}"


def _now() -> float:
    """Return a clock that runs while the machine sleeps or, if the system lacks one, while the process is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class IdleWatch:
    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._tick_s = min(MAX_TICK_S, timeout_s / 10)

    @contextmanager
    def wait(self) -> Generator[None]:
        """
        Limit a wait for data in this context.

        Raises:
            ProviderError: "stalled": nothing arrived within the timeout.
        """
        loop = asyncio.get_running_loop()
        idle_s, ticked_at = 0.0, _now()
        wait_s = self._timeout_s

        def tick() -> None:
            nonlocal idle_s, ticked_at, wait_s, timer
            late_s, now = 2 * self._tick_s, _now()
            elapsed_s, ticked_at = now - ticked_at, now
            idle_s += min(elapsed_s, late_s)
            if elapsed_s >= ASLEEP_S:
                wait_s = min(wait_s, idle_s + AFTER_SLEEP_S)
            if idle_s >= wait_s and elapsed_s < late_s:
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
            silent_s = self._timeout_s if wait_s == self._timeout_s else round(idle_s)
            raise ProviderError(
                "stalled",
                f"The API went silent: nothing arrived for {duration(silent_s)}.",
                keeps_what_came(),
            )
