"""Waiting for the end of a process, through a descriptor: a pidfd on Linux, a kqueue on macOS."""

import os
import sys

if sys.platform == "darwin":
    import select

    class ExitWatch:
        """
        A descriptor that becomes readable when the process `pid` ends. A pid is not used again before its parent has waited for it.

        Raises:
            OSError: no descriptor is left.
        """

        def __init__(self, pid: int) -> None:
            self._queue = select.kqueue()
            self._over = -1
            event = select.kevent(
                pid,
                filter=select.KQ_FILTER_PROC,
                flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
                fflags=select.KQ_NOTE_EXIT,
            )
            try:
                self._queue.control([event], 0)
            except ProcessLookupError:  # it has ended: the end of a pipe is readable at once
                self._over, writer = os.pipe()
                os.close(writer)
            except OSError:
                self._queue.close()
                raise

        def fileno(self) -> int:
            return self._queue.fileno() if self._over < 0 else self._over

        def close(self) -> None:
            self._queue.close()
            if self._over >= 0:
                os.close(self._over)
                self._over = -1

else:

    class ExitWatch:
        """
        A descriptor that becomes readable when the process `pid` ends. A pid is not used again before its parent has waited for it.

        Raises:
            OSError: no descriptor is left, or the kernel has no pidfd.
        """

        def __init__(self, pid: int) -> None:
            self._descriptor = os.pidfd_open(pid)

        def fileno(self) -> int:
            return self._descriptor

        def close(self) -> None:
            os.close(self._descriptor)
