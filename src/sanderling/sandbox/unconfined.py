"""The unconfined ground, without a sandbox: for a person who has said so, in this session, and for systems that have none."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import anyio
from anyio import to_thread

from sanderling.errors import SandboxError
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.files import UnconfinedFiles
from sanderling.sandbox.ground import LOCAL_DISK, Disk
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
"""Signals that a command must not find ignored, as inside; `subprocess` sees to what Python itself ignores."""


class UnconfinedProcess:
    """
    A command with all of the person's rights. `kill` ends its process group; what left that group lives on.

    `has_left_processes`: when it ended, something of its group still ran; that was ended with it.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        stdout: PipeReader,
        stdin: PipeWriter | None = None,
        stderr: PipeReader | None = None,
    ) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.has_left_processes = False
        self._process = process
        self._waiting = anyio.Lock()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until the command has ended; return its exit status, or minus the signal that ended it."""
        async with self._waiting:
            if self.returncode is None:
                await self._has_exited()
                self._reap()
        assert self.returncode is not None
        return self.returncode

    async def _has_exited(self) -> None:
        if sys.platform == "linux":
            with suppress(OSError):  # there is no descriptor left
                descriptor = os.pidfd_open(self._process.pid)
                try:
                    await anyio.wait_readable(descriptor)
                finally:
                    os.close(descriptor)
                return
        await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    def _reap(self) -> None:
        """Take the command's status, and end its group: whoever is left there keeps the number from being given to another one."""
        self._process.wait(REAP_S)
        self.has_left_processes = self._signal_group(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            self._signal_group(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of the streams. A command that still runs is killed."""
        if self.returncode is None:
            self.kill()
            try:
                self._process.wait(REAP_S)
            except subprocess.TimeoutExpired:  # the kernel holds it: it ends when it can
                self._process.returncode = -signal.SIGKILL
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the command's process group; say whether there was anyone in it."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # some other user's, by way of sudo: beyond our reach
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
) -> UnconfinedProcess:
    """
    Start a command, its errors in with its output unless `stderr` is `PIPE`; `env` comes on top of our own environment, if it `inherits`.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as theirs, ExitStack() as unless_started:
        stdin_end, our_stdin = stream_in(stdin, theirs, unless_started)
        stdout_end, our_stdout = stream_out(PIPE, theirs, unless_started)
        stderr_end, our_stderr = (
            (STDOUT, None) if stderr == STDOUT else stream_out(stderr, theirs, unless_started)
        )
        assert our_stdout
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
    return UnconfinedProcess(process, our_stdout, our_stdin, our_stderr)


@contextmanager
def _nothing_ignored() -> Generator[None]:
    """
    Let what is started in this context ignore no signal, though we do: whoever starts an editor in the background may leave it that.

    What is caught, a new program does not inherit.
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
    """Commands and files with all of the person's rights. `look_at_project` raises if there is no project."""

    is_confined = False
    network: NetworkMode = "on"
    disk: Disk = LOCAL_DISK

    def __init__(self, policy: SandboxPolicy, look_at_project: Callable[[], None]) -> None:
        self._policy = policy
        self._look_at_project = look_at_project
        self._scratch = ""

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,  # noqa: ARG002 - it can do all of that
    ) -> UnconfinedProcess:
        self._look_at_project()
        return await spawn_unconfined(argv, cwd=cwd or self._policy.project, env=env)

    async def spawn_server(
        self,
        name: str,  # noqa: ARG002
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        grant: Grant,  # noqa: ARG002 - it can do all of that
        on_denied: Callable[[Denial], None],  # noqa: ARG002
        is_stranger: bool = False,
    ) -> UnconfinedProcess:
        self._look_at_project()
        return await spawn_unconfined(
            argv,
            cwd=self._policy.project,
            env=env,
            stdin=PIPE,
            stderr=PIPE,
            inherits=not is_stranger,
        )

    async def files(self, _grant: Grant = NO_GRANT) -> UnconfinedFiles:
        self._look_at_project()
        return UnconfinedFiles()

    async def scratch(self) -> tuple[str, str]:
        """A directory for what goes along with commands that nothing confines. Of a host that was killed, the next one removes it."""
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

    def needed_to_write(self, _path: str) -> Grant:
        return NO_GRANT

    @asynccontextmanager
    async def lending(self, _grant: Grant) -> AsyncGenerator[None]:
        yield

    async def set_network(self, _mode: NetworkMode) -> None:
        raise SandboxError("The sandbox is off, and with it any hold on the network.")
