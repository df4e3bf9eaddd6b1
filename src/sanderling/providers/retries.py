"""
Retries: when a failed request is made again.

Full jitter spreads clients that failed together. The delay that the server asks for is a lower bound, because a small one would use up
all attempts in seconds. Source: https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
"""

import random
from typing import ClassVar

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """The number of attempts for a request, and the delays between them in seconds."""

    attempts: int = 10
    first_s: float = 0.5
    longest_s: float = 30.0

    ASKED_FROM_S: ClassVar[float] = 60.0
    """If the server asks for a longer delay, the user decides whether to wait."""
    MAX_PAID: ClassVar[int] = 2
    """The number of unusable answers to pay for."""

    def delay_s(self, attempt: int, retry_after_s: float | None) -> float:
        """Return the delay after the failed attempt with this number, counted from 1."""
        limit = min(self.longest_s, self.first_s * 2 ** (attempt - 1))
        return (retry_after_s or 0.0) + random.uniform(0, limit)  # noqa: S311 - not for secrets
