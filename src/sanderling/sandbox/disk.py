"""Stops commands before they fill a disk, which would also harm the host."""

import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

Unit = Literal["bytes", "files"]

# Disks are checked ten times a second. In that time, a command creates about 10,000 files or writes about 100 MB.
RESERVES: dict[Unit, int] = {"bytes": 1 << 30, "files": 50_000}


class DiskFull(NamedTuple):
    """The file system of `path` was nearly full, in bytes or files, so the commands were stopped."""

    path: str
    free: int
    unit: Unit


class DiskWatch:
    """Reports when less than `RESERVES`, or less than half of what was free at the start, is left."""

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
    Return the free bytes and files; nothing if `path` cannot be inspected.

    Some file systems, such as btrfs, have no fixed number of inodes. They report a total of 0 files and never run out.
    """
    try:
        status = os.statvfs(path)
    except OSError:
        return {}
    free: dict[Unit, int] = {"bytes": status.f_bavail * status.f_frsize}
    if status.f_files:
        free["files"] = status.f_favail
    return free
