"""Commands without a sandbox: for a person who has said so, in this session, and for systems that have none."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
from anyio.abc import ByteReceiveStream


class UnconfinedProcess:
    """A command with all of the person's rights. `kill` ends its process group; what left that group lives on."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process

    @property
    def stdout(self) -> ByteReceiveStream | None:
        return self._process.stdout

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self.kill()


async def spawn_unconfined(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None
) -> UnconfinedProcess:
    """
    Start a command, its errors in with its output; `env` comes on top of our own environment.

    Raises:
        OSError: it cannot be started.
    """
    process = await anyio.open_process(
        argv,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env={**os.environ, **env} if env else None,
        start_new_session=True,
    )
    return UnconfinedProcess(process)
