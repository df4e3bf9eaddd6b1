"""The host's end of a command: its streams, its exit, and the means to stop it."""

import os
import signal
import subprocess
import sys
from asyncio import get_running_loop
from collections.abc import Callable
from contextlib import ExitStack, suppress

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from sanderling.errors import SandboxError
from sanderling.sandbox.wire import STATUS

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
CHUNK_BYTES = 64 * 1024


class PipeReader(ByteReceiveStream):
    """The reading end of a pipe. Nothing is read ahead: a command that writes faster than we read waits."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        if self._descriptor < 0:
            raise anyio.ClosedResourceError
        await anyio.wait_readable(self._descriptor)
        if chunk := os.read(self._descriptor, max_bytes):
            return chunk
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._descriptor = close(self._descriptor)


class PipeWriter(ByteSendStream):
    """The writing end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            if self._descriptor < 0:
                raise anyio.ClosedResourceError
            await anyio.wait_writable(self._descriptor)
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self._descriptor = close(self._descriptor)


class Process:
    """
    A command in the sandbox. `send_signal` reaches its process group, `kill` everything that it has started.

    `has_left_processes`: when it ended, something that it had started still ran; that was ended with it.
    """

    def __init__(
        self,
        signal_it: Callable[[int], None],
        status: PipeReader,
        stdin: PipeWriter | None,
        stdout: PipeReader | None,
        stderr: PipeReader | None,
    ) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self.has_left_processes = False
        self._problem: SandboxError | None = None
        self._status = status
        self._said = b""
        self._signal_it = signal_it
        self._waiting = anyio.Lock()

    async def wait(self) -> int:
        """
        Wait until the command and everything it has started is gone; return its exit status, or minus the signal that ended it.

        Raises:
            SandboxError: the command was not started, or the sandbox has ended under it.
        """
        async with self._waiting:
            if self.is_running:
                with suppress(anyio.EndOfStream):
                    while not self._is_all_over():
                        self._said += await self._status.receive()
                self._status.close()
                self._read_status()
        if self._problem:
            raise self._problem
        assert self.returncode is not None
        return self.returncode

    @property
    def is_running(self) -> bool:
        return self.returncode is None and self._problem is None

    def _is_all_over(self) -> bool:
        """Say whether the init has said that nothing is left; else the end of the pipe says it."""
        return len(self._said) == STATUS.size and STATUS.unpack(self._said)[1]

    def _read_status(self) -> None:
        if len(self._said) == STATUS.size:
            status, is_all_over = STATUS.unpack(self._said)
            self.returncode = os.waitstatus_to_exitcode(status)
            self.has_left_processes = not is_all_over
        elif self._said:
            self._problem = SandboxError(self._said.decode(errors="replace"))
        else:
            self.returncode = -signal.SIGKILL  # its init was killed, and could not say so

    def send_signal(self, number: int) -> None:
        self._signal_it(number)

    def kill(self) -> None:
        self._signal_it(signal.SIGKILL)

    def close(self) -> None:
        """Let go of the streams. A command that still runs is killed."""
        if self.is_running:
            self.kill()
            self.returncode = -signal.SIGKILL
        for stream in (self.stdin, self.stdout, self.stderr, self._status):
            if stream:
                stream.close()


def stream_in(kind: int, theirs: ExitStack, ours: ExitStack) -> tuple[int, PipeWriter | None]:
    """The end for a command's input, closed with `theirs`, and ours if `kind` is `PIPE`, closed with `ours`."""
    if kind != PIPE:
        return _given(kind, theirs), None
    reader, writer = _pipe()
    theirs.callback(os.close, reader)
    stream = PipeWriter(writer)
    ours.callback(stream.close)
    return reader, stream


def stream_out(kind: int, theirs: ExitStack, ours: ExitStack) -> tuple[int, PipeReader | None]:
    """The end for a command's output, closed with `theirs`, and ours if `kind` is `PIPE`, closed with `ours`."""
    if kind != PIPE:
        return _given(kind, theirs), None
    reader, writer = _pipe()
    theirs.callback(os.close, writer)
    stream = PipeReader(reader)
    ours.callback(stream.close)
    return writer, stream


def _pipe() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC) if sys.platform == "linux" else os.pipe()


def _given(kind: int, theirs: ExitStack) -> int:
    """The descriptor that `kind` is, or one of /dev/null."""
    if kind != DEVNULL:
        return kind
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    theirs.callback(os.close, descriptor)
    return descriptor


def close(descriptor: int) -> int:
    """
    Close what somebody may wait for, who is told first; return -1, the number of what is closed, and do nothing with that.

    When anyio's waiter wakes, it takes away what waits for its number. If a new descriptor had that by then, whoever waits for the
    new one would wait for ever.
    """
    if descriptor >= 0:
        anyio.notify_closing(descriptor)
        get_running_loop().call_soon(os.close, descriptor)  # behind the one who wakes
    return -1
