"""Waiting for the end of a process, through a descriptor: a pidfd on Linux, a kqueue on macOS."""

import errno
import os
import select
import sys


class ExitWatch:
    """
    A descriptor that becomes readable when the process `pid` ends. A pid is not used again before its parent has waited for it.

    Raises:
        OSError: no descriptor is left; ENOSYS: this system has neither.
    """

    def __init__(self, pid: int) -> None:
        self._queue: object = None  # closes its descriptor when it is collected
        if sys.platform == "linux":
            self._descriptor = os.pidfd_open(pid)
        elif hasattr(select, "kqueue"):
            self._watch(pid)
        else:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if sys.platform != "linux":

        def _watch(self, pid: int) -> None:
            queue = select.kqueue()
            event = select.kevent(
                pid,
                filter=select.KQ_FILTER_PROC,
                flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
                fflags=select.KQ_NOTE_EXIT,
            )
            try:
                queue.control([event], 0)
            except ProcessLookupError:  # it has ended: the end of a pipe is readable at once
                self._descriptor, writer = os.pipe()
                os.close(writer)
            else:
                self._queue, self._descriptor = queue, queue.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._queue is None:
            os.close(self._descriptor)
        self._queue = None
