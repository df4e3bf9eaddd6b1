"""Commands without a sandbox: for a person who has said so, in this session, and for systems that have none."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress

import anyio
from anyio import to_thread

from sanderling.sandbox.processes import PipeReader

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
"""What a command must not find ignored, as inside; `subprocess` sees to what Python itself ignores."""


class UnconfinedProcess:
    """
    A command with all of the person's rights. `kill` ends its process group; what left that group lives on.

    `has_left_processes`: when it ended, something of its group still ran; that was ended with it.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", stdout: PipeReader) -> None:
        self.stdout = stdout
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
        """Take its status, and end its group: whoever is left there keeps the number from being given to another one."""
        self._process.wait(REAP_S)
        self.has_left_processes = self._signal_group(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            self._signal_group(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of the output. A command that still runs is killed."""
        if self.returncode is None:
            self.kill()
            try:
                self._process.wait(REAP_S)
            except subprocess.TimeoutExpired:  # the kernel holds it: it ends when it can
                self._process.returncode = -signal.SIGKILL
        self.stdout.close()

    def _signal_group(self, number: int) -> bool:
        """Whether there was anyone."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # some other user's, by way of sudo: beyond our reach
            return True
        return True


async def spawn_unconfined(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None
) -> UnconfinedProcess:
    """
    Start a command, its errors in with its output; `env` comes on top of our own environment.

    Raises:
        OSError: it cannot be started.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC) if sys.platform == "linux" else os.pipe()
    try:
        with _nothing_ignored():
            process = subprocess.Popen(  # noqa: ASYNC220, S603
                argv,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **env} if env else None,
                start_new_session=True,
            )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return UnconfinedProcess(process, PipeReader(reader))


@contextmanager
def _nothing_ignored() -> Generator[None]:
    """
    What is started in this context ignores no signal, though we do: whoever starts an editor in the background may leave it that.

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
