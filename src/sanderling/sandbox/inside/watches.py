"""inotify watches for the directories of a tree."""

import errno
import os
from contextlib import suppress

from sanderling.sandbox.kernel import inotify

MAX_WATCHES = 30_000
"""A share of the user's watches. Editors and language servers need some, too."""
MAX_READS = 64
MASK = (
    inotify.IN_ATTRIB
    | inotify.IN_MODIFY
    | inotify.IN_CLOSE_WRITE
    | inotify.IN_MOVED_FROM
    | inotify.IN_MOVED_TO
    | inotify.IN_CREATE
    | inotify.IN_DELETE
    | inotify.IN_DELETE_SELF
    | inotify.IN_MOVE_SELF
    | inotify.IN_DONT_FOLLOW
    | inotify.IN_EXCL_UNLINK
)


class TreeWatches:
    """The watches of a tree. If the kernel has no instance or no more watches, all are dropped, and `happened` returns None."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._fd = -1
        with suppress(OSError):
            self._fd = inotify.instance()

    @property
    def are_on(self) -> bool:
        return self._fd >= 0

    def add(self, path: str) -> None:
        if self._fd < 0:
            return
        try:
            number = inotify.watch(self._fd, path, MASK)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self.close()
            return
        self._paths[number] = path
        self._numbers[path] = number
        if len(self._paths) > MAX_WATCHES:
            self.close()

    def remove(self, path: str) -> None:
        """Stop watching `path`, unless the directory has moved and is watched at its new path."""
        number = self._numbers.pop(path, None)
        if number is not None and self._paths.get(number) == path:
            del self._paths[number]
            inotify.forget(self._fd, number)

    def happened(self) -> dict[str, set[str]] | None:
        """
        Return the directories in which something happened since the last call, or None if that is unknown.

        Each maps to the names of the files that were written, or closed after writing.
        """
        if self._fd < 0:
            return None
        happened: dict[str, set[str]] = {}
        is_sure = True
        while events := list(inotify.events(self._fd, MAX_READS)):
            for event in events:
                is_sure = is_sure and not event.mask & inotify.IN_Q_OVERFLOW
                if path := self._paths.get(event.watch):
                    written = happened.setdefault(path, set())
                    if event.mask & (inotify.IN_MODIFY | inotify.IN_CLOSE_WRITE):
                        written.add(event.name)
                    if event.mask & inotify.IN_IGNORED:
                        del self._paths[event.watch]
        return happened if is_sure else None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
