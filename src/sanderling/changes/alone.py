"""The use of a descriptor by one thread at a time, and by none once it was closed: its number may be somebody else's by then."""

import errno
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock


class Alone:
    """The right to use something that can be closed while threads are at work with it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_over = False

    @contextmanager
    def using(self) -> Generator[None]:
        """
        Use it in this context, which nobody else does meanwhile.

        Raises:
            OSError: it was closed.
        """
        with self._lock:
            if self._is_over:
                raise OSError(errno.EBADF, "the session has ended")
            yield

    @contextmanager
    def closing(self) -> Generator[None]:
        """Close it in this context, when whoever uses it has done so."""
        with self._lock:
            self._is_over = True
            yield
