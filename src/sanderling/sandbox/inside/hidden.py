"""
Files that come to light without being new: if undo took them for new ones, it would remove the only copy.

Of files that git ignores, only the names were known, and of files in a directory that its mode closes, not even those. A command may move
the first to a place that is looked at, and open the second.
"""

import os
import stat
import time
from collections.abc import Iterator

from sanderling.sandbox.inside.directories import SECOND_NS
from sanderling.sandbox.inside.doubts import COARSE_S, Changes
from sanderling.sandbox.inside.rows import FileRow
from sanderling.sandbox.kernel.file_systems import birth_ns


class Hidden:
    """The files of a tree that have come to light since the last look at it."""

    def __init__(self) -> None:
        self._looked_at_ns = time.time_ns()
        self._gone: dict[int, bool] = {}  # inodes, and whether they were in a closed directory
        self._opened: set[str] = set()

    def begin(self) -> int:
        """Begin a look; return when the last one began."""
        last, self._looked_at_ns = self._looked_at_ns, time.time_ns()
        self._gone, self._opened = {}, set()
        return last

    def is_gone(self, inode: int, *, was_closed: bool = False) -> None:
        """Note that a file is no longer where it was hidden: it may have been moved."""
        self._gone[inode] = was_closed

    def is_open(self, path: str) -> None:
        """Note that a closed directory can be listed now."""
        self._opened.add(path)

    def note(self, changes: Changes, since_ns: int) -> list[str]:
        """Mark the `changes` of files that were there before; remove and return the paths of unchanged files."""
        same: list[str] = []
        for path, was_closed, is_in_place in self._found(changes, since_ns):
            row = changes[path].after
            assert row
            if is_in_place and row.ctime_ns + _doubtful_ns(row) < since_ns:
                same.append(path)
            else:
                seen = changes[path]
                changes[path] = seen._replace(was_closed=was_closed, was_ignored=not was_closed)
        for path in same:
            del changes[path]
        return same

    def _found(self, changes: Changes, since_ns: int) -> Iterator[tuple[str, bool, bool]]:
        """Yield each path of a file that was there before, whether it was closed, and whether it is still in its place."""
        if not self._gone and not self._opened:
            return
        uncovered: dict[str, tuple[bool, bool]] = dict.fromkeys(self._opened, (True, True))
        for path in sorted(changes):  # directories before what is in them
            seen = changes[path]
            if seen.before or not seen.after or seen.was_ignored:
                continue
            found = uncovered.get(os.path.dirname(path))
            if not found and seen.after.inode in self._gone:
                found = (self._gone[seen.after.inode], False)
            if found and _was_there(path, seen.after, since_ns):
                if stat.S_ISDIR(seen.after.mode):
                    uncovered[path] = found
                was_closed, is_in_place = found
                yield path, was_closed, is_in_place


def _was_there(path: str, row: FileRow, since_ns: int) -> bool:
    """Return whether the file was made before `since_ns`: a new file may have got the inode number of a removed one."""
    born = birth_ns(path)
    return (row.mtime_ns if born is None else born) < since_ns


def _doubtful_ns(row: FileRow) -> int:
    """Return how much later than its time a file may have changed: a whole number of seconds may have been cut off."""
    return 0 if row.ctime_ns % SECOND_NS else int(COARSE_S * SECOND_NS)
