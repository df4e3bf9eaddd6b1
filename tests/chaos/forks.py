"""A process that imports everything once, and forks for each task one that may be killed."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import anyio
import msgspec

from tests.conftest import ROOT


class Forks:
    """The process that runs `module`, from the outside; it has `fork_for_each` as its `main`."""

    def __init__(self, module: str, home: Path, more: Mapping[str, str] | None = None) -> None:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC_", "XDG_"))
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env=environment | {"HOME": str(home)} | (more or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def begin(self, task: msgspec.Struct) -> int:
        """Give it a task; return the id of the process that does it."""
        assert self.process.stdin
        self.process.stdin.write(msgspec.json.encode(task) + b"\n")
        return int(self.line())

    def line(self) -> bytes:
        assert self.process.stdout
        return self.process.stdout.readline()

    def end(self, pid: int, kill_after_s: float | None) -> int:
        """Return the exit status of the process, which is killed if it lives for so long; a negative one is the signal's."""
        output = self.process.stdout
        if kill_after_s is not None and not select([output], [], [], kill_after_s)[0]:
            with suppress(ProcessLookupError):  # it has ended in this very moment
                os.kill(pid, signal.SIGKILL)
        return int(self.line())

    def close(self) -> None:
        self.process.communicate()


def fork_for_each(kind: type, do: Callable[[Any], Awaitable[None]]) -> None:
    """For each line on standard input, a `kind` as JSON: fork a process that does it; print its id and then its exit status."""
    gc.freeze()
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=kind)
        pid = os.fork()
        if pid == 0:
            # It says so itself: what it prints next could come before a line of ours.
            print(os.getpid(), flush=True)
            anyio.run(do, task)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
