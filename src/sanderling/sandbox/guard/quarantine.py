"""The quarantine: where what a command left behind is moved, with bounds."""

import os
import stat
from contextlib import suppress

MAX_MOVED_BYTES = 64 << 20

MAX_MOVED_NAMES = 10_000
"""What is copied to a quarantine on another file system, while the tripwire waits; more stays where it is, under another name."""


class TooMuchError(Exception):
    pass


class _Copier:
    """Copies plain files that may still change, and links, as long as they are not too much; nothing else."""

    def __init__(self) -> None:
        self._bytes = MAX_MOVED_BYTES
        self._names = MAX_MOVED_NAMES

    def count(self, _directory: str, names: list[str]) -> list[str]:
        """For `shutil.copytree`: ignore none of the names."""
        self._names -= len(names)
        if self._names < 0:
            raise TooMuchError
        return []

    def copy(self, source: str, destination: str) -> None:
        flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(source, os.O_RDONLY | flags)
        except OSError:
            return
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return
            if found.st_size > self._bytes:
                raise TooMuchError
            with open(destination, "xb") as copy:
                while chunk := file.read(1 << 20):
                    self._bytes -= len(chunk)
                    if self._bytes < 0:
                        raise TooMuchError
                    copy.write(chunk)


def move(source: str, destination: str) -> None:
    """
    Move to another file system what may still change, and may hold anything: what is no plain file is not kept.

    Raises:
        OSError, RecursionError, _TooMuchError: it stays, or a part of it does.
    """
    import shutil

    copier = _Copier()
    if os.path.isdir(source) and not os.path.islink(source):
        with suppress(shutil.Error):  # which tells of what could not be copied, at the end
            shutil.copytree(
                source, destination, symlinks=True, ignore=copier.count, copy_function=copier.copy
            )
        shutil.rmtree(source)
        return
    if os.path.islink(source):
        os.symlink(os.readlink(source), destination)
    else:
        copier.copy(source, destination)
    os.unlink(source)
