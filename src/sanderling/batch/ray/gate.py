"""
The rate limit of all requests of a run.

If an API says that there were too many, no request is sent until the time that it names. Then half as many run at a time as before, and each
round of successful ones adds one: additive increase and multiplicative decrease, as in TCP (RFC 5681). With a limit for each worker instead,
the others would be refused, too, and each refused request counts.
"""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from sanderling.errors import SanderlingError

DEFAULT_PAUSE_S = 5.0  # if the API names no time
LONGEST_PAUSE_S = 600.0


class GateClosedError(SanderlingError):
    """A request has waited as long as it may. `retry_after_s` is how long the gate stays closed at least."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many requests: the API's rate limit is reached")
        self.retry_after_s = retry_after_s


class Gate:
    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(math.inf)
        self._running = 0
        self._limit = math.inf
        self._opens_at = -math.inf

    @property
    def limit(self) -> float:
        """The most requests at a time."""
        return self._limit

    @property
    def left_s(self) -> float:
        """The seconds until the gate opens; 0 if it is open."""
        return max(0.0, self._opens_at - anyio.current_time())

    @asynccontextmanager
    async def passed(self, patience_s: float) -> AsyncGenerator[None]:
        """
        Wait for the gate, and count as a running request in this context.

        Raises:
            GateClosedError: after `patience_s`.
        """
        borrower = object()
        try:
            with anyio.fail_after(patience_s):
                await self._limiter.acquire_on_behalf_of(borrower)
                try:
                    while left_s := self.left_s:  # noqa: ASYNC110 - time is what it waits for
                        await anyio.sleep(left_s)
                except BaseException:
                    self._limiter.release_on_behalf_of(borrower)
                    raise
        except TimeoutError as error:
            raise GateClosedError(self.left_s or DEFAULT_PAUSE_S) from error
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._limiter.release_on_behalf_of(borrower)

    def close_for(self, pause_s: float | None) -> None:
        """Close the gate, because the API has refused a request that passed it. Of several refusals in one pause, the longest counts."""
        pause_s = min(DEFAULT_PAUSE_S if pause_s is None else pause_s, LONGEST_PAUSE_S)
        if not self.left_s:
            self._set_limit(max(1.0, self._running // 2))
        self._opens_at = max(self._opens_at, anyio.current_time() + pause_s)

    def note_success(self) -> None:
        if self._limit < math.inf:
            self._set_limit(self._limit + 1 / self._limit)

    def _set_limit(self, limit: float) -> None:
        self._limit = limit
        self._limiter.total_tokens = math.inf if limit == math.inf else int(limit)
