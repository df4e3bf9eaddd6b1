"""A file that one thread at a time writes, and none after it was closed: its descriptor may then belong to another file."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock


class Descriptor:
    """The descriptor `_fd` of a file that can be closed while threads use it; None while it is not open."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._lock = Lock()
        self._is_over = False

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    @contextmanager
    def _using(self) -> Generator[None]:
        """Use the descriptor exclusively in this context."""
        with self._lock:
            if self._is_over:
                raise OSError(errno.EBADF, "the session has ended")
            yield

    def sync(self) -> None:
        with self._using():
            if self._fd is not None:
                os.fsync(self._fd)

    def close(self) -> None:
        """Wait for the thread that uses it, and prevent further use."""
        with self._lock:
            self._is_over = True
            self._close_fd()

    def _close_fd(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
