"""The unconfined way to run commands, after the user switched the sandbox off for this session, or on systems without one."""

import os
import shutil
import signal
import subprocess
import tempfile
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import anyio
from anyio import to_thread

from sanderling.errors import SandboxError
from sanderling.platforms.endings import ExitWatch
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.execution_environment import LOCAL_DISK
from sanderling.sandbox.files import UnconfinedFiles
from sanderling.sandbox.kernel.layout import private_directory, remove_temporary_files_of_the_dead
from sanderling.sandbox.policy import NO_GRANT, Grant, SandboxPolicy
from sanderling.sandbox.processes import (
    DEVNULL,
    PIPE,
    STDOUT,
    PipeReader,
    PipeWriter,
    stream_in,
    stream_out,
)
from sanderling.sandbox.terminals import CommandTerminal, on_terminal, open_terminal

REAP_S = 1.0
RESET = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)
"""Signals that a command must not inherit as ignored, as in the sandbox. `subprocess` restores the ones that Python itself ignores."""


class UnconfinedProcess:
    """
    A command with all of the user's rights. `kill` ends its process group, but not processes that left the group.

    `has_left_processes`: processes of its group still ran when it ended, and were killed.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        stdout: PipeReader | None,
        stdin: PipeWriter | None = None,
        stderr: PipeReader | None = None,
    ) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.mark = ""
        self.terminal: CommandTerminal | None = None
        self.has_left_processes = False
        self._process = process
        self._waiting = anyio.Lock()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the command to end. Return its exit status, or the negative signal number."""
        async with self._waiting:
            if self.returncode is None:
                await self._has_exited()
                self._reap()
        assert self.returncode is not None
        return self.returncode

    async def _has_exited(self) -> None:
        with suppress(OSError):  # no descriptor left
            watch = ExitWatch(self._process.pid)
            try:
                await anyio.wait_readable(watch)
            finally:
                watch.close()
            return
        await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    def _reap(self) -> None:
        """Reap the command, and kill its group. A remaining process keeps the group's number from being reused."""
        self._process.wait(REAP_S)
        self.has_left_processes = self._signal_group(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            self._signal_group(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the streams, and kill the command if it still runs."""
        if self.returncode is None:
            self.kill()
            try:
                self._process.wait(REAP_S)
            except subprocess.TimeoutExpired:  # blocked in the kernel, it ends later
                self._process.returncode = -signal.SIGKILL
        for stream in (self.stdin, self.stdout, self.stderr, self.terminal):
            if stream:
                stream.close()

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the command's process group. Return whether anyone was in it."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's process, through sudo
            return True
        return True


async def spawn_unconfined(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
    stderr: int = STDOUT,
    inherits: bool = True,
    has_terminal: bool = False,
) -> UnconfinedProcess:
    """
    Start a command. Its stderr goes to stdout unless `stderr` is `PIPE`, and all to a terminal if it `has_terminal`; `env` is added to Sanderling's environment if it `inherits`.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as theirs, ExitStack() as unless_started:
        terminal = None
        if has_terminal:
            terminal = open_terminal()
            unless_started.callback(terminal.close)
            argv = on_terminal(argv, terminal.path)
        stdin_end, our_stdin = stream_in(stdin, theirs, unless_started)
        stdout_end, our_stdout = stream_out(DEVNULL if terminal else PIPE, theirs, unless_started)
        stderr_end, our_stderr = (
            (STDOUT, None) if stderr == STDOUT else stream_out(stderr, theirs, unless_started)
        )
        with _nothing_ignored():
            process = subprocess.Popen(  # noqa: ASYNC220, S603
                argv,
                stdin=stdin_end,
                stdout=stdout_end,
                stderr=stderr_end,
                cwd=cwd,
                env={**(os.environ if inherits else {}), **(env or {})},
                start_new_session=True,
            )
        unless_started.pop_all()
    started = UnconfinedProcess(process, our_stdout, our_stdin, our_stderr)
    started.terminal = terminal
    return started


@contextmanager
def _nothing_ignored() -> Generator[None]:
    """
    Start programs in this context without ignored signals. An editor that was started in the background may have them ignored.

    Handlers, unlike ignored signals, are not inherited by a new program.
    """
    ignored = [number for number in RESET if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(_number: int, _frame: object) -> None: ...


class Unconfined:
    """Commands and files with all of the user's rights. `look_at_project` raises if the project is gone."""

    is_confined = False
    network: NetworkMode = "on"
    disk = LOCAL_DISK

    def __init__(self, policy: SandboxPolicy, look_at_project: Callable[[], None]) -> None:
        self._policy = policy
        self._look_at_project = look_at_project
        self._scratch = ""

    @property
    def _variables(self) -> Mapping[str, str]:
        """The environment variables that commands get."""
        return os.environ

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,  # noqa: ARG002 - it may do all of that anyway
        has_terminal: bool = False,
    ) -> UnconfinedProcess:
        self._look_at_project()
        variables = {**self._variables, **(env or {})}
        cwd = cwd or self._policy.project
        return await spawn_unconfined(
            argv, cwd=cwd, env=variables, inherits=False, has_terminal=has_terminal
        )

    async def spawn_server(
        self,
        name: str,  # noqa: ARG002
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str = "",
        grant: Grant,  # noqa: ARG002 - it may do all of that anyway
        on_denied: Callable[[Denial], None],  # noqa: ARG002
        is_third_party: bool = False,
    ) -> UnconfinedProcess:
        self._look_at_project()
        return await spawn_unconfined(
            argv,
            cwd=cwd or self._policy.project,
            env=env if is_third_party else {**self._variables, **env},
            stdin=PIPE,
            stderr=PIPE,
            inherits=False,
        )

    async def files(self, _grant: Grant = NO_GRANT) -> UnconfinedFiles:
        self._look_at_project()
        return UnconfinedFiles()

    async def scratch(self) -> tuple[str, str]:
        """Return a temporary directory. If the host is killed, the next host removes it."""
        if not self._scratch:
            directory = private_directory(self._policy, "tmp")
            remove_temporary_files_of_the_dead(directory)
            self._scratch = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=directory)
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        return self._scratch, self._scratch

    def leads_to(self, _host: str) -> bool:
        return True

    def hides(self, _path: str) -> bool:
        return False

    def is_scratch(self, _path: str) -> bool:
        return False

    def needed_to_write(self, _path: str) -> Grant:
        return NO_GRANT

    @asynccontextmanager
    async def lending(self, _grant: Grant) -> AsyncGenerator[None]:
        yield

    async def set_network(self, _mode: NetworkMode) -> None:
        raise SandboxError("The sandbox is off, so the network cannot be restricted.")


class Outer(Unconfined):
    """Commands and files with all rights that the container gives. Commands do not get Sanderling's keys."""

    @property
    def _variables(self) -> Mapping[str, str]:
        return {name: each for name, each in os.environ.items() if name not in self._policy.keys}

    async def set_network(self, mode: NetworkMode) -> None:
        if mode != "on":
            raise SandboxError("The container is the sandbox, and its network is not Sanderling's.")
