"""A full disk hurts the host, so commands that fill it are stopped in time."""

import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

Unit = Literal["bytes", "files"]

# A disk is looked at ten times a second, in which a command makes some 10,000 files, or writes some 100 MB.
RESERVES: dict[Unit, int] = {"bytes": 1 << 30, "files": 50_000}


class DiskFull(NamedTuple):
    """The file system of `path` was nearly full, of data or of files, so the commands were stopped."""

    path: str
    free: int
    unit: Unit


class DiskWatch:
    """Notes how much is free, and reports when too little is left: less than `RESERVES`, or than half of what was there."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._reserves = {
            path: {unit: min(RESERVES[unit], free // 2) for unit, free in _free(path).items()}
            for path in paths
        }

    def look(self) -> DiskFull | None:
        for path, reserves in self._reserves.items():
            free = _free(path)
            for unit, reserve in reserves.items():
                if unit in free and free[unit] < reserve:
                    return DiskFull(path, free[unit], unit)
        return None


def _free(path: str) -> dict[Unit, int]:
    """
    Return what is free; nothing if `path` is gone, or cannot be looked at.

    Some file systems, such as btrfs, have no table of inodes: they report a total of 0 files, and none is ever missing.
    """
    try:
        status = os.statvfs(path)
    except OSError:
        return {}
    free: dict[Unit, int] = {"bytes": status.f_bavail * status.f_frsize}
    if status.f_files:
        free["files"] = status.f_favail
    return free
