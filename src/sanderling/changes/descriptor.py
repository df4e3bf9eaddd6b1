"""A file that is written by one thread at a time, and by none once it was closed: its descriptor may be somebody else's by then."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock


class Descriptor:
    """The descriptor `_fd` of a file that can be closed while threads are at work with it; None as long as it is not open."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._lock = Lock()
        self._is_over = False

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    @contextmanager
    def _using(self) -> Generator[None]:
        """
        Use it in this context, which nobody else does meanwhile.

        Raises:
            OSError: it was closed.
        """
        with self._lock:
            if self._is_over:
                raise OSError(errno.EBADF, "the session has ended")
            yield

    def sync(self) -> None:
        """Wait until the disk has what was written."""
        with self._using():
            if self._fd is not None:
                os.fsync(self._fd)

    def close(self) -> None:
        """Wait for the thread that is at work with it, and let none begin."""
        with self._lock:
            self._is_over = True
            self._close_fd()

    def _close_fd(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
