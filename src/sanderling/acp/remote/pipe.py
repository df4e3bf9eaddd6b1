"""
A program whose stdin and stdout carry a connection: ssh, or a command that runs others in a container.

It runs with the user's own rights, because it needs their keys and configuration. The agent that it starts remotely has its own sandbox.
Its stderr is kept within limits.
"""

import os
import shlex
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import Process

from sanderling.acp.remote.address import HOME, Address
from sanderling.acp.remote.refusals import RemoteRefusedError
from sanderling.sandbox.sandbox import alone
from sanderling.text import signal_name
from sanderling.tools.commands.server_log import ServerLog

PATIENCE_S = 1.0  # for a program to exit
CONNECT_S = 10
ALIVE_S, ALIVE_COUNT = 5, 3  # a connection that is silent for longer is dead
OPTIONS = (
    "-T",  # no terminal
    *("-o", "BatchMode=yes"),  # fail instead of asking for a password or the host's key
    *("-o", f"ConnectTimeout={CONNECT_S}"),
    *("-o", f"ServerAliveInterval={ALIVE_S}"),
    *("-o", f"ServerAliveCountMax={ALIVE_COUNT}"),
    *("-o", "ClearAllForwardings=yes"),
)
EXIT_NO_PROJECT, EXIT_NOT_FOUND, EXIT_SSH = 66, 127, 255
SCRIPT = (
    f'cd -- "$1" || exit {EXIT_NO_PROJECT}; '
    "PATH=$PATH:$HOME/.local/bin; export PATH; "
    'it=$(command -v sanderling || echo "${XDG_DATA_HOME:-$HOME/.local/share}/nvim/sanderling/venv/bin/sanderling"); '
    f'[ -x "$it" ] || exit {EXIT_NOT_FOUND}; '
    'exec "$it" acp'
)
"""One line without an exclamation mark, so that every login shell passes it on to sh unchanged."""
INSTALL = "`:AgentInstall` in Neovim there does that, or `make install` in a copy of its repository, with .venv/bin/sanderling linked into ~/.local/bin"
FINAL = ("permission denied", "host key verification failed", "too many authentication failures")


class Pipe:
    """A running program. `stdin` and `stdout` carry the connection."""

    is_outdated = False
    notice = ""
    warnings: tuple[str, ...] = ()

    def __init__(self, process: Process, address: Address) -> None:
        assert process.stdin
        assert process.stdout
        self.stdin, self.stdout = process.stdin, process.stdout
        self._process = process
        self._address = address
        self._log = ServerLog()
        self._is_read = anyio.Event()

    async def read_errors(self) -> None:
        assert self._process.stderr
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                self._log.add(await self._process.stderr.receive())
        self._is_read.set()

    async def wait(self) -> str:
        """Wait for its end; return a description of how it ended."""
        status = await self._process.wait()
        with anyio.move_on_after(PATIENCE_S):
            await self._is_read.wait()
        words = self._log.last_line()
        if status < 0:
            return f"it was ended by {signal_name(-status)}"
        return words or (f"it ended with exit status {status}" if status else "it ended")

    def refusal(self) -> str:
        """Return why a retry is useless; "" if it may succeed."""
        title, words = self._address.title, self._log.last_line()
        status = self._process.returncode
        if status == EXIT_NOT_FOUND:
            return f"There is no `sanderling` on {title}: install it there. {INSTALL}."
        if status == EXIT_NO_PROJECT:
            return f"There is no project {self._address.path} on {title} ({words})."
        is_final = any(each in words.lower() for each in FINAL)
        if status == EXIT_SSH and self._address.kind == "ssh" and is_final:
            command = shlex.join(self._address.argv[-1:])
            return (
                f"ssh does not get to {title}: {words.rstrip('.')}."
                f" `ssh {command}` in a terminal has to work without a question."
            )
        return ""

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """End the program: close its input, then send SIGTERM, then SIGKILL."""
        with suppress(anyio.BrokenResourceError, OSError):
            await self.stdin.aclose()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
            with anyio.move_on_after(PATIENCE_S):
                await self._process.wait()
                break
        await self._process.aclose()


def argv_of(address: Address) -> tuple[str, ...]:
    """Return the command line that starts a session's agent at `address`."""
    inside = ("sh", "-c", SCRIPT, "sanderling", address.path or HOME)
    if address.kind == "ssh":  # ssh passes a single line to the remote shell
        return ("ssh", *OPTIONS, *address.argv, shlex.join(inside))
    return (*address.argv, *inside)


@asynccontextmanager
async def piped(address: Address, environment: Mapping[str, str]) -> AsyncGenerator[Pipe]:
    """
    Run the program that carries a connection to `address` within this context. At its end, its processes are gone.

    Raises:
        RemoteRefusedError: the program cannot be started.
    """
    argv = argv_of(address)
    try:
        process = await anyio.open_process(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # keys such as Ctrl-C in the terminal must not end it
        )
    except OSError as error:
        words = error.strerror or str(error)
        raise RemoteRefusedError(f"`{argv[0]}` cannot be started: {words}.") from error
    pipe = Pipe(process, address)
    try:
        with alone():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pipe.read_errors)
                yield pipe
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await pipe.end()
