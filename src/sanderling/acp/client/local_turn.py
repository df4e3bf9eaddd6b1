"""The turn that a local prompt has started: the only time at which an agent elsewhere may use local tools and keys."""

import anyio

BEGIN_TIMEOUT_S = 10.0
"""A turn begins here after it has begun on the other side, so its first request may arrive earlier."""


class LocalTurn:
    """Whether such a turn is running."""

    def __init__(self) -> None:
        self._begun = anyio.Event()
        self._is_expected = False

    def expect(self) -> None:
        """A prompt is on its way to the other side: requests may wait until its turn begins."""
        self._is_expected = True

    def begin(self) -> None:
        self._begun.set()

    def end(self) -> None:
        self._is_expected = False
        if self._begun.is_set():
            self._begun = anyio.Event()

    async def is_running(self) -> bool:
        """Return whether the turn is running, after waiting for one whose prompt is on its way."""
        begun = self._begun
        if self._is_expected:
            with anyio.move_on_after(BEGIN_TIMEOUT_S):
                await begun.wait()
        return begun.is_set()
