"""A bounded queue of outgoing lines. Adding a line never waits for the reader."""

from typing import Protocol

import anyio

from sanderling.acp.wire.change_signal import ChangeSignal

MAX_UNSENT_BYTES = 256 << 20


class Writer(Protocol):
    async def send(self, item: bytes) -> None:
        """
        Write all bytes.

        Raises:
            anyio.BrokenResourceError: the other end is closed.
        """
        ...


class Outbox:
    """Lines to send, joined into one write where several wait. `is_closed`: new lines are dropped, because there is no reader."""

    def __init__(self, writer: Writer, max_bytes: int = MAX_UNSENT_BYTES) -> None:
        self.is_closed = False
        self._max_bytes = max_bytes
        self._writer = writer
        self._unsent = bytearray()
        self._is_sending = False
        self._has_more = anyio.Event()
        self._sent = ChangeSignal()

    @property
    def is_empty(self) -> bool:
        return self.is_closed or not (self._unsent or self._is_sending)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def add(self, line: bytes) -> None:
        if self.is_closed:
            return
        self._unsent += line
        if len(self._unsent) > self._max_bytes:
            self.close()
        self._has_more.set()

    def close(self) -> None:
        self.is_closed = True
        self._unsent.clear()
        self._has_more.set()
        self._sent.notify()

    async def serve(self) -> None:
        """Send lines as they are added; return when the other end is closed."""
        try:
            while not self.is_closed:
                await self._has_more.wait()
                self._has_more = anyio.Event()
                await self._send_all()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.close()

    async def _send_all(self) -> None:
        self._is_sending = True
        while self._unsent:
            data, self._unsent = bytes(self._unsent), bytearray()
            await self._writer.send(data)
        self._is_sending = False
        self._sent.notify()

    async def drain(self) -> None:
        """Wait until everything is sent, or the other end is closed."""
        while not self.is_empty:
            await self._sent.wait()
