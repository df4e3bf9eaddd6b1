"""Standard input and output as async streams, for pipes, sockets, terminals and files."""

import os
import socket
import stat
from contextlib import suppress

import anyio

CHUNK_BYTES = 1 << 16
ATOMIC_BYTES = 4096  # a pipe that is ready for writing accepts this much without blocking


class Stdin:
    """Standard input, left in blocking mode: other processes may share it."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._is_ready = _is_always_ready(descriptor)

    async def receive(self) -> bytes:
        if not self._is_ready:
            await anyio.wait_readable(self._descriptor)
        with suppress(ConnectionResetError):
            if chunk := os.read(self._descriptor, CHUNK_BYTES):
                return chunk
        raise anyio.EndOfStream


class Stdout:
    """Standard output. Writing to it never blocks the event loop."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._is_ready = _is_always_ready(descriptor)

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            if not self._is_ready:
                await anyio.wait_writable(self._descriptor)
            try:
                rest = rest[os.write(self._descriptor, rest[:ATOMIC_BYTES]) :]
            # Another process made the pipe non-blocking and filled it first.
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error


def _is_always_ready(descriptor: int) -> bool:
    """Return whether the descriptor never blocks and cannot be polled: a file, or a device such as /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor))


def keep_to_messages() -> int:
    """Redirect all prints to standard error; return a descriptor of the original standard output, reserved for messages."""
    messages = os.dup(1)
    os.set_inheritable(messages, False)
    os.dup2(2, 1)
    if stat.S_ISSOCK(os.fstat(messages).st_mode):
        with suppress(OSError), socket.socket(fileno=os.dup(messages)) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return messages
