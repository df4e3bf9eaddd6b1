"""
Stops all descendants of this process for a moment, without their noticing.

SIGSTOP alone is visible: the parent is notified, so script(1) stops along with its child, and a shell prints a message. A stop by a
tracer is reported only to the tracer, so all processes that may be traced are traced meanwhile. The others (already under a debugger, or
the kernel forbids ptrace) get SIGSTOP. If this process dies, the kernel resumes everything that it traces.

Source: ptrace(2), PTRACE_SEIZE and PTRACE_INTERRUPT
"""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sanderling.sandbox.inside import init
from sanderling.sandbox.inside.init import WALL
from sanderling.sandbox.kernel.syscalls import syscall

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
PTRACE_EVENT_STOP = 128
DEADLINE_S = 0.05
"""A task in an uninterruptible system call stops only at the end of the call, but does nothing else before."""
POLL_S = 0.0002


@contextmanager
def everything_still() -> Generator[None]:
    """Stop every descendant in this context, except those started within it."""
    stopped = _Stopped()
    try:
        stopped.stop_all()
        yield
    finally:
        stopped.let_go()


class _Stopped:
    def __init__(self) -> None:
        self._moving: set[int] = set()  # traced threads that have not stopped yet
        self._still: dict[int, int] = {}  # stopped threads, with their wait status
        self._signalled: set[int] = set()  # processes that cannot be traced

    def stop_all(self) -> None:
        """Stop everything, until a search finds nothing new: running processes may start more."""
        while new := self._find():
            for pid, thread in new:
                self._stop(pid, thread)
            self._wait(DEADLINE_S)

    def _find(self) -> list[tuple[int, int]]:
        known = self._moving | self._still.keys()
        return [
            (pid, thread)
            for pid in init.descendants() - self._signalled
            for thread in _threads(pid)
            if thread not in known
        ]

    def _stop(self, pid: int, thread: int) -> None:
        try:
            syscall("ptrace", PTRACE_SEIZE, thread, 0, 0)
        except ProcessLookupError:
            return
        except PermissionError:
            self._signalled.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            return
        self._moving.add(thread)
        with suppress(ProcessLookupError):
            syscall("ptrace", PTRACE_INTERRUPT, thread, 0, 0)

    def _wait(self, deadline_s: float) -> None:
        end = time.monotonic() + deadline_s
        while self._moving and time.monotonic() < end:
            for thread in list(self._moving):
                self._look(thread)
            if self._moving:
                time.sleep(POLL_S)

    def _look(self, thread: int) -> None:
        try:
            pid, status = os.waitpid(thread, os.WNOHANG | WALL)
        except ChildProcessError:
            self._moving.discard(thread)
            return
        if pid:
            self._moving.discard(thread)
            if os.WIFSTOPPED(status):
                self._still[thread] = status

    def let_go(self) -> None:
        """Resume the stopped threads, then check again, because some may have waited for others. Later ones are left to `go_on`."""
        self._detach()
        self._wait(DEADLINE_S)
        self._detach()
        for pid in self._signalled:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _detach(self) -> None:
        for thread, status in self._still.items():
            go_on(thread, status)
        self._still = {}


def go_on(thread: int, status: int) -> None:
    """Resume a traced thread with wait status `status`, delivering the signal that stopped it, if any."""
    number = 0 if status >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(status)
    try:
        syscall("ptrace", PTRACE_DETACH, thread, 0, number)
    except ProcessLookupError:  # killed meanwhile: its parent is notified after this
        with suppress(ChildProcessError):
            os.waitpid(thread, os.WNOHANG | WALL)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
