"""The known directories of a project's tree, and their file systems."""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from sanderling.sandbox.inside.git_index import Index
from sanderling.sandbox.inside.ignoring import IgnoreFile, is_ignored
from sanderling.sandbox.inside.rows import FileRow, row_of
from sanderling.sandbox.kernel.file_systems import fresh_status, is_local

SECOND_NS = 1_000_000_000
_status_time, _row_time = attrgetter("st_ctime_ns"), attrgetter("ctime_ns")


class FileSystem:
    """A file system of the tree. `is_blind`: inotify misses changes on it. `is_coarse`: all times seen so far were whole seconds."""

    __slots__ = ("is_blind", "is_coarse")

    def __init__(self, path: str) -> None:
        self.is_blind = not is_local(path)
        self.is_coarse = True

    def row(self, path: str) -> FileRow | None:
        try:
            return row_of(fresh_status(path) if self.is_blind else os.lstat(path))
        except OSError as error:
            return row_at(path) if error.errno == errno.ENOSYS else None

    def inode(self, entry: "os.DirEntry[str]") -> int:
        """Return what `row` has; not every file system with another side tells the same when it lists a directory."""
        row = self.row(entry.path) if self.is_blind else None
        return row.inode if row else entry.inode()

    def learn(self, rows: Iterable[FileRow]) -> None:
        if self.is_coarse:
            self.is_coarse = all(row.ctime_ns % SECOND_NS == 0 for row in rows)


class Directory:
    """A directory of the tree. If `is_ignored`, only tracked files in it count. `chain` has the rules from directories above."""

    __slots__ = (
        "chain",
        "files",
        "index",
        "is_closed",
        "is_ignored",
        "is_listed",
        "left_out",
        "own",
        "row",
        "rules",
        "rules_text",
        "subdirectories",
        "system",
    )

    def __init__(
        self,
        row: FileRow,
        chain: Sequence[IgnoreFile],
        index: Index | None,
        system: FileSystem,
        *,
        is_ignored: bool,
    ) -> None:
        self.row = row
        self.system = system
        self.chain = chain
        self.index = index
        self.is_ignored = is_ignored
        self.is_listed = self.is_closed = False  # once, and: it could not be
        self.rules_text = ""
        self.own: IgnoreFile | None = None
        self.rules = chain  # including its own
        self.files: dict[str, FileRow] = {}
        self.left_out: dict[str, FileRow] = {}  # only their names are known
        self.subdirectories: set[str] = set()

    def leaves_out(self, path: str, name: str) -> bool:
        """Return whether an entry is left out. `path` and `name` end in a slash for directories."""
        if not self.is_ignored and not is_ignored(self.rules, path, name):
            return False
        tracked = self.index and (
            path.rstrip("/") in self.index.directories or path in self.index.entries
        )
        return not tracked

    def may_be_other(self, path: str) -> bool:
        """Return whether the directory at `path`, or one of its files, may have changed."""
        system = self.system
        if system.is_coarse:  # names added or removed within one second do not show in the times
            return True
        if not system.is_blind:
            return _is_other(path, self.row) or _has_others(path, self.files)
        return system.row(path) != self.row or any(
            system.row(f"{path}/{name}") != row for name, row in self.files.items()
        )


Directories = Mapping[str, Directory]
"""by path"""


def known_row(directories: Directories, path: str) -> FileRow | None:
    above, _, name = path.rpartition("/")
    directory = directories.get(above)
    return directory.files.get(name) if directory else None


def row_at(path: str) -> FileRow | None:
    try:
        return row_of(os.lstat(path))
    except OSError:
        return None


def _is_other(path: str, known: FileRow) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return True
    return status.st_ctime_ns != known.ctime_ns or status.st_ino != known.inode


def _has_others(directory: str, files: Mapping[str, FileRow]) -> bool:
    """
    Return whether a file has changed in a directory that has not.

    No name can belong to another file then, so comparing times suffices, without a line of Python per file (up to 40,000).
    """
    try:
        times = list(map(_status_time, map(os.lstat, map(f"{directory}/".__add__, files))))
    except OSError:
        return True
    return times != list(map(_row_time, files.values()))
