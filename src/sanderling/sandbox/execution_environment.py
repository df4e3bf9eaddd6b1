"""
The execution environment of a session: where commands run and files are changed, confined or not.

Its users ask it for what they need, and never which kind it is. They look up paths through its `disk`.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import NamedTuple, Protocol

import anyio

from sanderling.errors import SandboxError
from sanderling.paths import real_path
from sanderling.protocol.modes import NetworkMode, SandboxLevel
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.files import Files
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.sandbox.processes import PipeReader, PipeWriter
from sanderling.sandbox.terminals import CommandTerminal

KILL_S = 2.0  # to wait for killed processes


class Disk:
    """The file names of an execution environment as the user sees them, whatever commands see."""

    def real_path(self, path: str) -> str:
        return real_path(path)

    def exists(self, path: str) -> bool:
        """Return whether the path exists, including broken links."""
        return os.path.lexists(path)

    def status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except (OSError, ValueError):  # a NUL in the name
            return None

    def is_program(self, path: str) -> bool:
        return os.path.isfile(path) and os.access(path, os.X_OK)


LOCAL_DISK = Disk()


def existing(disk: Disk, path: str) -> str:
    """Return `path`, or its nearest existing parent directory: only existing paths can be granted."""
    while not disk.exists(path):
        path = os.path.dirname(path)
    return path


class RunningCommand(Protocol):
    """
    A running command, with stderr in stdout.

    `has_left_processes` is valid after its end. `mark` is `Denial.by` of what the network refuses it; empty if nothing is refused.
    """

    has_left_processes: bool
    mark: str

    @property
    def terminal(self) -> CommandTerminal | None: ...
    @property
    def stdout(self) -> PipeReader | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, number: int) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class RunningServer(RunningCommand, Protocol):
    """A running server that communicates over stdin and stdout, with a separate stderr."""

    @property
    def stdin(self) -> PipeWriter | None: ...
    @property
    def stderr(self) -> PipeReader | None: ...


async def end_server(server: RunningServer, patience_s: float) -> None:
    """End a server: close its stdin, then send SIGTERM, then kill it with all of its processes."""
    try:
        if server.stdin:
            server.stdin.close()
        for number in (None, signal.SIGTERM):
            if number:
                server.send_signal(number)
            with anyio.move_on_after(patience_s), suppress(SandboxError):
                await server.wait()
                return
        server.kill()
        with anyio.move_on_after(KILL_S), suppress(SandboxError):
            await server.wait()
    finally:
        server.close()


class SandboxState(NamedTuple):
    """The state to show. `level` is empty until known; `missing` has a sentence for each gap of the level."""

    level: SandboxLevel
    network: NetworkMode
    missing: tuple[str, ...] = ()
    problem: str = ""


class ExecutionEnvironment(Protocol):
    @property
    def is_confined(self) -> bool: ...

    @property
    def network(self) -> NetworkMode: ...

    @property
    def disk(self) -> Disk: ...

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,
        has_terminal: bool = False,
    ) -> RunningCommand:
        """
        Start a command, with stderr in stdout and empty stdin; or with a `terminal` for all of them.

        `cwd` defaults to the project's root. `env` is added to the variables that are allowed. The paths of `grant` are for this command
        only.

        Raises:
            SandboxError: it cannot be confined and was not started, the project is gone, or there are no terminals.
            OSError: it is not confined and cannot be started.
        """
        ...

    async def spawn_server(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str = "",
        grant: Grant,
        on_denied: Callable[[Denial], None],
        is_third_party: bool = False,
    ) -> RunningServer:
        """
        Start the server `name` in `cwd`, by default the project's root, with the rights of commands plus its own `env` and `grant`.

        Refused hosts are passed to `on_denied`. A third-party server (`is_third_party`) shares no directories or namespaces with commands,
        and does not get the variables that the user allows for commands. Where it is not confined, `env` is its whole environment.

        Raises:
            SandboxError: it cannot be confined and was not started, or the project is gone.
            OSError: it is not confined and cannot be started.
        """
        ...

    async def files(self, grant: Grant = NO_GRANT, /) -> Files:
        """
        Return the files as commands see them now. Call it again for each use.

        Raises:
            SandboxError: they cannot be confined, or the project is gone.
        """
        ...

    async def scratch(self) -> tuple[str, str]:
        """
        Return the path of the session's temporary directory, and its path for commands.

        Raises:
            SandboxError: it is unavailable.
        """
        ...

    def leads_to(self, host: str, /) -> bool:
        """Return whether the current network allows `host`, with or without `:port`. Commands' own loopback is always allowed."""
        ...

    def hides(self, path: str, /) -> bool:
        """Return whether something at `path` is hidden from commands, given that they find nothing there."""
        ...

    def is_scratch(self, path: str, /) -> bool:
        """Return whether `path` is in the session's own /tmp, which the user does not see."""
        ...

    def needed_to_write(self, path: str, /) -> Grant:
        """Return the grant that is needed to write `path`."""
        ...

    def lending(self, grant: Grant, /) -> AbstractAsyncContextManager[None]:
        """
        Allow the hosts of `grant` for all commands of the session in this context, and revoke the whole grant afterwards.

        Commands that were started with its paths keep them.

        Raises:
            SandboxError: a host needs a proxy that this level does not support.
        """
        ...

    async def set_network(self, mode: NetworkMode, /) -> None:
        """
        Change the network of commands started from now on. "off" also revokes granted hosts.

        Raises:
            SandboxError: it is not supported here.
        """
        ...


async def first_output(
    environment: ExecutionEnvironment,
    argv: Sequence[str],
    limit: int,
    *,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
) -> bytes:
    """
    Run a command; return the first `limit` bytes of its output, or a little more. What it would write after them is lost.

    Raises:
        OSError, SandboxError: it could not be started.
    """
    process = await environment.spawn(argv, cwd=cwd, env=env)
    pieces: list[bytes] = []
    try:
        assert process.stdout
        while limit > 0:
            pieces.append(await process.stdout.receive())
            limit -= len(pieces[-1])
    except anyio.EndOfStream:
        await process.wait()
    finally:
        process.close()
    return b"".join(pieces)
