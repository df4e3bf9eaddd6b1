"""A full disk hurts the host: whoever fills it is stopped in time."""

import os
from collections.abc import Iterable
from typing import NamedTuple

RESERVE_BYTES = 1 << 30


class DiskFull(NamedTuple):
    """The file system of `path` was nearly full, so the commands were stopped."""

    path: str
    free_bytes: int


class DiskWatch:
    """Remembers how much is free, and says when too little is left: under `RESERVE_BYTES`, or half of what was there."""

    def __init__(self, paths: Iterable[str]) -> None:
        found = {path: _free_bytes(path) for path in paths}
        self._reserves = {
            path: min(RESERVE_BYTES, free // 2) for path, free in found.items() if free is not None
        }

    def look(self) -> DiskFull | None:
        for path, reserve in self._reserves.items():
            free = _free_bytes(path)
            if free is not None and free < reserve:
                return DiskFull(path, free)
        return None


def _free_bytes(path: str) -> int | None:
    """Return what is free; None if `path` is gone, or cannot be looked at."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
