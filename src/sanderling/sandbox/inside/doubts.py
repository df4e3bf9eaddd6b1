"""
Changes that rows do not show: repeated changes within the same time, changes through other names, and names of the same file.

Some file systems store times in steps of one or two seconds (ext4 with small inodes, FAT, HFS+, SFTP and old NFS servers), too long to
wait for. There, as in git's index, a recently changed file is "racy": another change may leave the same row, so the next look compares
its bytes. It does so for every file that the last look found changed, rather than for files with recent times, because the server that
sets the times may have a different clock.
"""

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sanderling.sandbox.inside.directories import SECOND_NS, Directories
from sanderling.sandbox.inside.rows import ChangedRow, FileRow

COARSE_S = 2.0
"""The largest interval in which two changes can get the same time, on a file system with whole seconds."""
MAX_SKEW_S = 60.0
"""The assumed maximum difference between a server's clock and the local one, for the first look at a tree."""

Changes = dict[str, ChangedRow]


class Racy:
    """The files of a tree whose times may not show another change."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._found: dict[str, float] = {}  # with the time of the look that found them changed

    def begin(self) -> None:
        """Start with the files that changed just before the first look."""
        now = time.monotonic()
        self._found = dict.fromkeys(self._just_changed(), now)

    def _just_changed(self) -> Iterator[str]:
        """Yield files that changed so recently that another change may leave the same row."""
        now_ns = time.time_ns()
        for path, directory in self._directories.items():
            system = directory.system
            if not system.is_coarse:
                continue
            skew_s = MAX_SKEW_S if system.is_blind else 0.0
            since_ns = now_ns - int((COARSE_S + skew_s) * SECOND_NS)
            for name, row in directory.files.items():
                if row.ctime_ns >= since_ns:
                    yield f"{path}/{name}"

    def doubt(self, changes: Changes) -> set[str]:
        """Mark `changes` whose bytes must be compared. Return other files that may have changed."""
        now = time.monotonic()
        unsure = self._found.keys() - changes.keys()
        left = {path: since for path, since in self._found.items() if now - since <= COARSE_S}
        for path, seen in changes.items():
            if self._is_coarse(path):
                changes[path] = seen._replace(is_unsure=True)
                left[path] = now
        self._found = left
        return unsure

    def _is_coarse(self, path: str) -> bool:
        directory = self._directories.get(os.path.dirname(path))
        return directory is not None and directory.system.is_coarse


def is_linked(row: FileRow | None) -> bool:
    """Return whether this is the row of a file with several hard links, which changes through any of them."""
    return row is not None and row.links > 1 and not stat.S_ISDIR(row.mode)


def note_strangers(changes: Changes, directories: Directories) -> None:
    """Mark the files that gained a hard link outside the tree."""
    grown = [seen for seen in changes.values() if _has_got_a_name(seen)]
    if grown:
        names = Counter(row.inode for each in directories.values() for row in each.files.values())
        for seen in grown:
            if seen.after and names[seen.after.inode] < seen.after.links:
                changes[seen.path] = seen._replace(is_shared=True)


def _has_got_a_name(seen: ChangedRow) -> bool:
    before, after = seen.before, seen.after
    return (
        before is not None
        and after is not None
        and is_linked(after)
        and after.inode == before.inode
        and after.links > before.links
    )


def note_twins(changes: Changes, directories: Directories) -> None:
    """Record, for each changed file with hard links, another name that it had before, or has now."""
    linked = [seen for seen in changes.values() if is_linked(seen.before) or is_linked(seen.after)]
    if not linked:
        return
    numbers = {row.inode for seen in linked for row in (seen.before, seen.after) if row}
    now: dict[int, list[str]] = {}
    for path, directory in directories.items():
        for name, row in directory.files.items():
            if row.inode in numbers:
                now.setdefault(row.inode, []).append(f"{path}/{name}")
    # Names that belonged to the file already come first: a removed file cannot be linked to.
    then = {
        number: [name for name in names if _was(changes.get(name), number)]
        for number, names in now.items()
    }
    for seen in linked:
        if seen.before and seen.path not in then.setdefault(seen.before.inode, []):
            then[seen.before.inode].append(seen.path)
    for seen in linked:
        before = _other(seen.path, then, seen.before)
        is_still_one = seen.after and before in now.get(seen.after.inode, ())
        after = before if is_still_one else _other(seen.path, now, seen.after)
        changes[seen.path] = seen._replace(before_twin=before, after_twin=after)


def _was(seen: ChangedRow | None, inode: int) -> bool:
    """Return whether a name belonged to that file before, given that it does now."""
    return seen is None or (seen.before is not None and seen.before.inode == inode)


def _other(path: str, names: Mapping[int, Sequence[str]], row: FileRow | None) -> str:
    """Return another name of the file with this row."""
    if row is None or not is_linked(row):
        return ""
    return next((name for name in names.get(row.inode, ()) if name != path), "")
