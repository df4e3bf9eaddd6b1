"""
Retries: when a request that has failed is made again.

Full jitter spreads those who failed together; what the server asks for is a lower bound, for small values of it would use up all
attempts in seconds. Source: https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/
"""

import random
from typing import ClassVar

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """The number of attempts for a request, and how long each waits, in seconds."""

    attempts: int = 10
    first_s: float = 0.5
    longest_s: float = 30.0

    ASKED_FROM_S: ClassVar[float] = 60.0
    """A server that wants more than this is not waited for without a word of the person's."""
    MAX_PAID: ClassVar[int] = 2
    """The number of answers to pay for that cannot be used."""

    def delay_s(self, attempt: int, retry_after_s: float | None) -> float:
        """The time to wait after the attempt with this number has failed; they count from 1."""
        limit = min(self.longest_s, self.first_s * 2 ** (attempt - 1))
        return (retry_after_s or 0.0) + random.uniform(0, limit)  # noqa: S311 - not for secrets
