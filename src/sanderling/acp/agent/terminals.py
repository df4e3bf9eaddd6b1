"""
Commands in the client's terminals. The user's settings must enable this, because no sandbox confines them.

A command is the same shell wrapper as in Sanderling's own sandbox, so the directory and variables persist. Its output is polled and
written to a pipe.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence

import anyio

from sanderling.acp.agent.tasks import TaskStarter
from sanderling.acp.wire.asking import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    ExitStatus,
    TerminalOutputResponse,
    TerminalRequest,
)
from sanderling.acp.wire.base import Empty
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.errors import RpcError
from sanderling.acp.wire.sessions import Pair
from sanderling.errors import SandboxError
from sanderling.sandbox.processes import PipeReader, PipeWriter
from sanderling.text import printable

LOOK_S = 0.1
MAX_OUTPUT_BYTES = 4 << 20
KNOWN_CHARS = 256  # the end of the output read so far, used to find new output after truncation
UNKNOWN_STATUS = 255


class ClientProcess:
    """A command in the client's terminal `terminal_id`."""

    def __init__(self, connection: AcpConnection, session_id: str, terminal_id: str) -> None:
        reading, writing = os.pipe()
        self.has_left_processes = False
        self.mark = ""
        self.terminal = None
        self.stdout: PipeReader | None = PipeReader(reading)
        self.returncode: int | None = None
        self._writer = PipeWriter(writing)
        self._connection = connection
        self._terminal = TerminalRequest(session_id=session_id, terminal_id=terminal_id)
        self._kill = anyio.Event()
        self._close = anyio.Event()
        self._ended = anyio.Event()

    async def serve(self) -> None:
        """Copy the output until the command ends or is closed, then release the terminal."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._kill_when_asked)
                tasks.start_soon(self._stop_when_closed, tasks.cancel_scope)
                await self._follow()
                tasks.cancel_scope.cancel()
        except* (RpcError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the terminal is gone, or the pipe has no reader
        finally:
            self.returncode = UNKNOWN_STATUS if self.returncode is None else self.returncode
            self._writer.close()
            self._ended.set()
        try:
            await self._connection.request("terminal/release", self._terminal, Empty)
        except RpcError:
            return

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:  # noqa: ARG002 - ACP can only kill
        self._kill.set()

    def kill(self) -> None:
        self._kill.set()

    def close(self) -> None:
        """Stop reading. A command that is still running is killed."""
        self._close.set()
        if self.stdout:
            self.stdout.close()

    async def _follow(self) -> None:
        read = ""
        while self.returncode is None:
            response = await self._connection.request(
                "terminal/output", self._terminal, TerminalOutputResponse
            )
            new = unread(response.output, read)
            read = response.output
            if new:
                await self._writer.send(printable(new).encode())
            if response.exit_status:
                self.returncode = _status_of(response.exit_status)
            else:
                await anyio.sleep(LOOK_S)

    async def _kill_when_asked(self) -> None:
        await self._kill.wait()
        await self._connection.request("terminal/kill", self._terminal, Empty)

    async def _stop_when_closed(self, scope: anyio.CancelScope) -> None:
        await self._close.wait()
        scope.cancel()


class ClientTerminals:
    """Starts commands in the client's terminals. `show` is called with each command line and its terminal ID."""

    def __init__(
        self,
        session_id: str,
        connection: AcpConnection,
        tasks: TaskStarter,
        show: Callable[[str, str], None],
    ) -> None:
        self._session_id = session_id
        self._connection = connection
        self._tasks = tasks
        self._show = show

    async def spawn(
        self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], line: str
    ) -> ClientProcess:
        """
        Start a command.

        Raises:
            SandboxError: the client cannot start it.
        """
        asked = CreateTerminalRequest(
            session_id=self._session_id,
            command=argv[0],
            args=list(argv[1:]),
            env=[Pair(name=name, value=value) for name, value in env.items()],
            cwd=cwd,
            output_byte_limit=MAX_OUTPUT_BYTES,
        )
        try:
            response = await self._connection.request(
                "terminal/create", asked, CreateTerminalResponse
            )
        except RpcError as error:
            raise SandboxError(f"the client could not create a terminal: {error}") from error
        process = ClientProcess(self._connection, self._session_id, response.terminal_id)
        self._tasks.start_soon(process.serve)
        self._show(line, response.terminal_id)
        return process


def unread(output: str, read: str) -> str:
    """Return the new part of `output`. Its beginning may have been dropped since `read` was read."""
    if output.startswith(read):
        return output[len(read) :]
    known = read[-KNOWN_CHARS:]
    before, found, new = output.rpartition(known)
    return new if found or before else output


def _status_of(response: ExitStatus) -> int:
    if response.exit_code is not None:
        return response.exit_code
    name = response.signal or ""
    number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    return -number if isinstance(number, signal.Signals) else UNKNOWN_STATUS
