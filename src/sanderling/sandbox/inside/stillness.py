"""
A moment in which no descendant of ours moves, and of which none of them learns.

SIGSTOP is told to parents: script(1) stops with its child, a shell prints it. What a tracer stops is told to the tracer alone, so
we trace whatever we may for that moment; where we may not (another debugger does, or the kernel is set to forbid it), it is
SIGSTOP after all. Should we die in it, the kernel lets everything we trace go on.

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
"""A task in the middle of a system call that cannot be interrupted does not stop before its end, and does not move before either."""
POLL_S = 0.0002


@contextmanager
def everything_still() -> Generator[None]:
    """Stop every descendant of ours in this context, but those that are started in it."""
    stopped = _Stopped()
    try:
        stopped.stop_all()
        yield
    finally:
        stopped.let_go()


class _Stopped:
    def __init__(self) -> None:
        self._moving: set[int] = set()  # threads that we trace and that have not stopped yet
        self._still: dict[int, int] = {}  # the others, each with the status that told of it
        self._signalled: set[int] = set()  # processes that we may not trace

    def stop_all(self) -> None:
        """Until a look finds nothing new: what still moves may start more."""
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
        """Let those go on that have stopped, then look once more: what has not may wait for one that has. Who is late even then: `go_on`."""
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
    """Let a thread that we trace go on, with the signal that it was about to get if that has stopped it; `status` is `waitpid`'s."""
    number = 0 if status >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(status)
    try:
        syscall("ptrace", PTRACE_DETACH, thread, 0, number)
    except ProcessLookupError:  # it was killed meanwhile: its parent hears of that after us
        with suppress(ChildProcessError):
            os.waitpid(thread, os.WNOHANG | WALL)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
