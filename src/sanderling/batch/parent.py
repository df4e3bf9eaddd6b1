"""Ends a process with its parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """
    Have the kernel send this process a signal when its parent ends, however that ended. Only Linux can do that.

    The parent is a thread: it must have started this process from its main thread.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it ended before
            os.kill(os.getpid(), number)
