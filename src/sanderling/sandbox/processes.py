"""The host's side of a command: its streams, its exit status, and signals."""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from sanderling.errors import SandboxError
from sanderling.sandbox.descriptors import CHUNK_BYTES, close
from sanderling.sandbox.wire import STATUS

if TYPE_CHECKING:
    from sanderling.sandbox.terminals import CommandTerminal

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT


class PipeReader(ByteReceiveStream):
    """The reading end of a pipe. It does not read ahead, so a command that writes too fast has to wait."""

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
    A command in the sandbox. `send_signal` reaches its process group, `kill` all processes that it started.

    `has_left_processes`: processes that it started still ran when it ended, and were killed. `terminal`: its streams, if it has one. `mark` is `Denial.by` of what the network
    refuses it.
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
        self.mark = ""
        self.terminal: CommandTerminal | None = None
        self.returncode: int | None = None
        self.has_left_processes = False
        self._problem: SandboxError | None = None
        self._status = status
        self._said = b""
        self._signal_it = signal_it
        self._waiting = anyio.Lock()

    async def wait(self) -> int:
        """
        Wait for the command and all processes it started to end. Return its exit status, or the negative signal number.

        Raises:
            SandboxError: the command was not started, or the sandbox ended while it ran.
        """
        # The init reports the end on its own pipe. The end of stdout would not do: a background process can hold it open, which
        # once blocked a caller for 300 s.
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
        """Return whether the init reported that nothing is left. Otherwise the end of the pipe shows it."""
        return len(self._said) == STATUS.size and STATUS.unpack(self._said)[1]

    def _read_status(self) -> None:
        if len(self._said) == STATUS.size:
            status, is_all_over = STATUS.unpack(self._said)
            self.returncode = os.waitstatus_to_exitcode(status)
            self.has_left_processes = not is_all_over
        elif self._said:
            self._problem = SandboxError(self._said.decode(errors="replace"))
        else:
            self.returncode = -signal.SIGKILL  # the init was killed before it could report

    def send_signal(self, number: int) -> None:
        self._signal_it(number)

    def kill(self) -> None:
        self._signal_it(signal.SIGKILL)

    def close(self) -> None:
        """Close the streams, and kill the command if it still runs."""
        if self.is_running:
            self.kill()
            self.returncode = -signal.SIGKILL
        for stream in (self.stdin, self.stdout, self.stderr, self.terminal, self._status):
            if stream:
                stream.close()


def stream_in(kind: int, theirs: ExitStack, ours: ExitStack) -> tuple[int, PipeWriter | None]:
    """Return the command's end of its stdin, closed with `theirs`, and if `kind` is `PIPE` the host's end, closed with `ours`."""
    if kind != PIPE:
        return _given(kind, theirs), None
    reader, writer = os.pipe()
    theirs.callback(os.close, reader)
    stream = PipeWriter(writer)
    ours.callback(stream.close)
    return reader, stream


def stream_out(kind: int, theirs: ExitStack, ours: ExitStack) -> tuple[int, PipeReader | None]:
    """Return the command's end of an output, closed with `theirs`, and if `kind` is `PIPE` the host's end, closed with `ours`."""
    if kind != PIPE:
        return _given(kind, theirs), None
    reader, writer = os.pipe()
    theirs.callback(os.close, writer)
    stream = PipeReader(reader)
    ours.callback(stream.close)
    return writer, stream


def _given(kind: int, theirs: ExitStack) -> int:
    """Return the descriptor that `kind` is, or a new one of /dev/null."""
    if kind != DEVNULL:
        return kind
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    theirs.callback(os.close, descriptor)
    return descriptor
