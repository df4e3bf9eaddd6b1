"""Ends a process with its parent."""

import ctypes
import os
import signal
import sys
from threading import Thread

from sanderling.platforms.endings import ExitWatch

PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """
    Have this process get a signal when its parent ends, however that ended: from the kernel on Linux, elsewhere from a thread.

    On Linux the parent is a thread: it must have started this process from its main thread.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    else:
        Thread(target=_send_at_end, args=(parent, number), name="parent", daemon=True).start()
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), number)


def _send_at_end(parent: int, number: signal.Signals) -> None:
    import select

    select.select([ExitWatch(parent)], [], [])
    os.kill(os.getpid(), number)
