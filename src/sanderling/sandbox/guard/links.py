"""Hard links to protected files. A mount protects one name; writing through another name changes the same file."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_in_any

MAX_LOOKED_AT = 50_000
MAX_OTHER_NAMES = 64
"""Each is a mount in every view. uv and pnpm hard-link whole environments to their caches, and so to each other."""


class OtherNames(NamedTuple):
    """`found`: the hard links in the searched directories. `missing`: protected files of which not every link was found."""

    found: tuple[str, ...]
    missing: tuple[str, ...]


def other_names(held: Iterable[str], places: Iterable[str]) -> OtherNames:
    """Find hard links in `places` to the files at or below `held`. `places` are walked only if such files exist."""
    held = tuple(held)
    known: dict[tuple[int, int], tuple[str, int]] = {}
    names: dict[tuple[int, int], set[str]] = {}
    for path, status in _linked_files(held):
        identity = status.st_dev, status.st_ino
        known.setdefault(identity, (path, status.st_nlink))
        names.setdefault(identity, set()).add(path)
    if not known:
        return OtherNames((), ())
    inodes = {inode for _, inode in known}
    for entry in _entries(places):
        if entry.inode() in inodes:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if (status.st_dev, status.st_ino) in known:
                    names[status.st_dev, status.st_ino].add(entry.path)
    found = sorted(path for paths in names.values() for path in paths if not is_in_any(path, held))
    missing = (path for each, (path, count) in known.items() if len(names[each]) < count)
    return OtherNames(tuple(found), tuple(sorted(missing)))


def _linked_files(paths: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    waiting = list(paths)
    for _ in range(MAX_LOOKED_AT):
        if not waiting:
            return
        path = waiting.pop()
        try:
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                waiting += [f"{path}/{name}" for name in os.listdir(path)]
            elif stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield path, status
        except OSError:
            continue


def _entries(places: Iterable[str]) -> "Iterator[os.DirEntry[str]]":
    """Yield everything below `places` except directories, without following links."""
    waiting = list(places)
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry
