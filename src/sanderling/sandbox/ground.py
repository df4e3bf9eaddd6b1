"""
The ground: where commands run and files are changed. Confined and unconfined ones are here; one on another machine would be a third.

Who stands on it asks for what it needs and never which ground it is. What is there is looked up by way of its `disk`.
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

KILL_S = 2.0  # for what was killed to be gone


class Disk(Protocol):
    """The names on a ground as the person sees them, whatever a command is shown of them."""

    def real_path(self, path: str) -> str:
        """Return `path` with links followed, as far as they can be."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether there is something, a link that leads nowhere included."""
        ...

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of what `path` leads to; None if it cannot be looked at."""
        ...

    def is_program(self, path: str) -> bool:
        """Say whether `path` leads to a file that the person may run."""
        ...


class LocalDisk:
    """The disk of this machine."""

    def real_path(self, path: str) -> str:
        return real_path(path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except (OSError, ValueError):  # a NUL in the name
            return None

    def is_program(self, path: str) -> bool:
        return os.path.isfile(path) and os.access(path, os.X_OK)


LOCAL_DISK = LocalDisk()


def existing(disk: Disk, path: str) -> str:
    """Return `path`, or the directory in which it would be made: only what is there can be granted."""
    while not disk.exists(path):
        path = os.path.dirname(path)
    return path


class Running(Protocol):
    """A command that was started, its errors in with its output. `has_left_processes` is known when it has ended."""

    has_left_processes: bool

    @property
    def stdout(self) -> PipeReader | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, number: int) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Serving(Running, Protocol):
    """A server that was started, which talks with us over its input and output; its errors are apart."""

    @property
    def stdin(self) -> PipeWriter | None: ...
    @property
    def stderr(self) -> PipeReader | None: ...


async def end_server(server: Serving, patience_s: float) -> None:
    """End a server: it sees the end of its input, then a signal, then all that it has started is killed."""
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


class Facts(NamedTuple):
    """The facts of a ground that are shown and told: `level` is empty while it is not known, `missing` what it leaves open, in sentences."""

    level: SandboxLevel
    network: NetworkMode
    missing: tuple[str, ...] = ()
    problem: str = ""


class Ground(Protocol):
    @property
    def is_confined(self) -> bool:
        """Say whether the kernel holds what is started here."""
        ...

    @property
    def network(self) -> NetworkMode:
        """The network that a command of now has."""
        ...

    @property
    def disk(self) -> Disk: ...

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,
    ) -> Running:
        """
        Start a command, its errors in with its output, its input empty.

        `cwd` is the project's root if it is empty; `env` comes on top of what the ground lets in; the paths of `grant` are for this
        command alone.

        Raises:
            SandboxError: it cannot be confined, so it was not started, or there is no project.
            OSError: nothing confines it, and it cannot be started.
        """
        ...

    async def spawn_server(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        grant: Grant,
        on_denied: Callable[[Denial], None],
        is_stranger: bool = False,
    ) -> Serving:
        """
        Start the server `name` in the project's root. Beside what commands have, it has `env` and `grant`, for itself alone.

        The hosts that it is refused are told to `on_denied`. One that `is_stranger` shares no place with commands, whatever it is
        given, and no variable that the person lets commands see; where nothing confines it, `env` is all that it has.

        Raises:
            SandboxError: it cannot be confined, so it was not started, or there is no project.
            OSError: nothing confines it, and it cannot be started.
        """
        ...

    async def files(self, grant: Grant = NO_GRANT, /) -> Files:
        """
        Return the files as a command of now would see them. Ask anew for each use.

        Raises:
            SandboxError: they cannot be confined, or there is no project.
        """
        ...

    async def scratch(self) -> tuple[str, str]:
        """
        Return the session's temporary directory: its path for us, and for its commands.

        Raises:
            SandboxError: there is none to be had.
        """
        ...

    def leads_to(self, host: str, /) -> bool:
        """Say whether the network of now leads to `host`, with or without `:port`; to its own loopback each does."""
        ...

    def hides(self, path: str, /) -> bool:
        """Say whether something is at `path` that commands do not see, given that they see nothing there."""
        ...

    def needed_to_write(self, path: str, /) -> Grant:
        """Return what must be let in so that `path` can be written."""
        ...

    def lending(self, grant: Grant, /) -> AbstractAsyncContextManager[None]:
        """
        Let the hosts of `grant` through in this context, for all commands of the session; then take all of it back.

        What `spawn` has started with its paths keeps those.

        Raises:
            SandboxError: a host needs a proxy that this level does not have.
        """
        ...

    async def set_network(self, mode: NetworkMode, /) -> None:
        """
        Change the network of what is started from now on; "off" also takes back the hosts that were let in.

        Raises:
            SandboxError: it cannot be done here.
        """
        ...
