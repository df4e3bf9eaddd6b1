"""Standard input and output as streams of a connection, whatever they are: pipes, sockets, files."""

import os
import socket
import stat
from contextlib import suppress

import anyio

CHUNK_BYTES = 1 << 16
ATOMIC_BYTES = 4096  # a pipe that can be written takes so many without waiting


class Stdin:
    """Standard input. Its flags stay as they are: others may have it, too."""

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
    """Standard output, which others on the loop never wait for."""

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
            # Another program has made the pipe non-blocking, and was quicker.
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error


def _is_always_ready(descriptor: int) -> bool:
    """Say whether nobody ever waits for it, nor could: a file, a device like /dev/null or /dev/full."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor))


def keep_to_messages() -> int:
    """Have all that prints go to standard error; return a descriptor of standard output, which is for messages alone."""
    messages = os.dup(1)
    os.set_inheritable(messages, False)
    os.dup2(2, 1)
    if stat.S_ISSOCK(os.fstat(messages).st_mode):
        with suppress(OSError), socket.socket(fileno=os.dup(messages)) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return messages
