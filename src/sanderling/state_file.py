"""
Files of the state directory that any number of processes read and change: stored rules, trusted files, allowed servers, a token.

Who changes one holds its lock, reads it again, and puts a complete new file in its place, so no change of another process is lost,
and whoever reads sees all of it or what was there before. Readers take no lock: a rename is atomic, and a reader that waits for a
stopped writer would stop the editor.
"""

import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sanderling.errors import ConfigError
from sanderling.paths import open_plain, replacing, temporaries_of

MAX_LOCK_WAIT_S = 2.0


class Versioned(msgspec.Struct):
    """The content of a state file, or as much of it as every version understands."""

    version: int


T = TypeVar("T", bound=Versioned)


class UnreadableError(Exception):
    """A state file cannot be used: `str(error)` goes on after its name."""


class TooLargeError(ConfigError):
    """The new content would be too large to be read again."""


class StateFile(Generic[T]):
    """The JSON file at `path`: a `content`, at most `max_bytes` long, of this `version`."""

    def __init__(self, path: Path, content: type[T], *, version: int, max_bytes: int) -> None:
        self.path = path
        self._content = content
        self._version = version
        self._max_bytes = max_bytes

    def read(self) -> T | None:
        """
        Return the content as it is now; None if there is no file.

        Raises:
            UnreadableError: it cannot be read, is damaged, or was written by another version.
        """
        try:
            with open_plain(self.path) as file:
                data = file.read(self._max_bytes + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"cannot be read: {error.strerror}") from error
        if len(data) > self._max_bytes:
            raise UnreadableError("is too large")
        try:
            if msgspec.json.decode(data, type=Versioned).version != self._version:
                raise UnreadableError("was written by another version")
            return msgspec.json.decode(data, type=self._content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableError("is damaged") from error

    def change(self, changed: Callable[[], T]) -> None:
        """
        Replace the content by what `changed` returns, which runs under the lock: it reads what it starts from.

        Raises:
            ConfigError: another process holds the lock and does not let go.
            TooLargeError: it could not be read again.
            OSError: it cannot be written.
            UnicodeEncodeError: it has half a character.
        """
        with locked(self.path):
            data = msgspec.json.format(msgspec.json.encode(changed()), indent=2) + b"\n"
            if len(data) > self._max_bytes:
                raise TooLargeError(f"{self.path} would be too large to be read again")
            with replacing(self.path) as file:
                file.write(data)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """
    Hold the lock of the state file `path` in this context; its directory is made.

    Raises:
        ConfigError: another process holds it and does not let go.
        OSError: there is no place for it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, path)
        for leftover in temporaries_of(
            path
        ):  # of writers that were killed: no other one is at work
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    """Wait for the lock, but not for a process that was stopped while it holds it: the editor's host waits meanwhile."""
    deadline = time.monotonic() + MAX_LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"another process is changing {path}, and does not end; try again"
                ) from None
            time.sleep(0.005)
