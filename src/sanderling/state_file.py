"""
Files of the state directory that many processes read and change: stored rules, trusted files, allowed servers, a token.

A writer takes the file's lock, reads the file again, and replaces it by a complete new one. So no change of another process is lost, and
readers see either the old or the new content. Readers take no lock: a rename is atomic, and a reader that waits for a stopped writer
would block the editor.
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

MAX_LOCK_WAIT_S, LOCK_POLL_S = 2.0, 0.005


class Versioned(msgspec.Struct):
    """The part of a state file that all versions share."""

    version: int


T = TypeVar("T", bound=Versioned)


class UnreadableError(Exception):
    """A state file is unusable: `str(error)` continues a sentence that begins with its name."""


class TooLargeError(ConfigError):
    """The new content is too large to be read again."""


class StateFile(Generic[T]):
    """The JSON file at `path`, with a `content` of this `version`, at most `max_bytes` long."""

    def __init__(self, path: Path, content: type[T], *, version: int, max_bytes: int) -> None:
        self.path = path
        self._content = content
        self._version = version
        self._max_bytes = max_bytes

    def read(self) -> T | None:
        """
        Return the current content; None if there is no file.

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
        Replace the content by the result of `changed`, which runs under the lock and reads the old content there.

        Raises:
            ConfigError: another process keeps the lock.
            TooLargeError: the new content is too large to be read again.
            OSError: the file cannot be written.
            UnicodeEncodeError: the content has half of a surrogate pair.
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
    Hold the lock of the state file `path` in this context; create its directory.

    Raises:
        ConfigError: another process keeps the lock.
        OSError: the lock file cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Not long: a stopped process may hold the lock, and the editor's host is waiting.
        if not has_locked(fd, MAX_LOCK_WAIT_S):
            raise ConfigError(f"another process is changing {path} and has not finished; try again")
        for leftover in temporaries_of(path):  # left by killed writers
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(fd)


def has_locked(fd: int, wait_s: float) -> bool:
    """Lock a file, if that is possible within `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True
