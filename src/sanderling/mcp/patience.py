"""Timeouts of requests to a server, not counting the time in which the user is asked something."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio


class Patience:
    """The timeout for one server. Its questions to the user belong to our requests, and end with the last of them."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._requests: set[anyio.CancelScope] = set()
        self._questions: set[anyio.CancelScope] = set()

    @contextmanager
    def limited(self) -> Generator[None]:
        """
        Limit a request in this context.

        Raises:
            TimeoutError: it took too long.
        """
        scope = anyio.CancelScope(deadline=self._deadline())
        self._requests.add(scope)
        try:
            with scope:
                yield
        finally:
            self._requests.discard(scope)
            if not self._requests:
                for question in self._questions:
                    question.cancel()
        if scope.cancelled_caught:
            raise TimeoutError

    @contextmanager
    def asking(self) -> Generator[bool]:
        """Ask the user in this context, which ends with the last open request; yield True if one is open."""
        with anyio.CancelScope() as scope:
            self._questions.add(scope)
            self._set_deadlines()
            try:
                yield bool(self._requests)
            finally:
                self._questions.discard(scope)
                self._set_deadlines()

    def _set_deadlines(self) -> None:
        for request in self._requests:
            request.deadline = self._deadline()

    def _deadline(self) -> float:
        return float("inf") if self._questions else anyio.current_time() + self._limit_s
