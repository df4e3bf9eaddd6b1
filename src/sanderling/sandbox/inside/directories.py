"""Directories of a project's tree as they were looked at last, and the file systems that they lie on."""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from sanderling.sandbox.inside.git_index import Index
from sanderling.sandbox.inside.ignoring import Rules, is_ignored
from sanderling.sandbox.inside.rows import Row, row_of
from sanderling.sandbox.kernel.file_systems import fresh_status, is_local

SECOND_NS = 1_000_000_000
_status_time, _row_time = attrgetter("st_ctime_ns"), attrgetter("ctime_ns")


class FileSystem:
    """A file system that the tree lies on: inotify `is_blind` to it, and all times that were seen of it are whole seconds."""

    __slots__ = ("is_blind", "is_coarse")

    def __init__(self, path: str) -> None:
        self.is_blind = not is_local(path)
        self.is_coarse = True

    def row(self, path: str) -> Row | None:
        try:
            return row_of(fresh_status(path) if self.is_blind else os.lstat(path))
        except OSError as error:
            return row_at(path) if error.errno == errno.ENOSYS else None

    def inode(self, entry: "os.DirEntry[str]") -> int:
        """Return what `row` has; not every file system with another side tells the same when it lists a directory."""
        row = self.row(entry.path) if self.is_blind else None
        return row.inode if row else entry.inode()

    def learn(self, rows: Iterable[Row]) -> None:
        if self.is_coarse:
            self.is_coarse = all(row.ctime_ns % SECOND_NS == 0 for row in rows)


class Directory:
    """A directory that is looked at. If it `is_ignored`, only what is tracked counts in it; `chain` are the rules above it."""

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
        row: Row,
        chain: Sequence[Rules],
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
        self.own: Rules | None = None
        self.rules = chain  # with its own
        self.files: dict[str, Row] = {}
        self.left_out: dict[str, Row] = {}  # of which the names alone are known
        self.subdirectories: set[str] = set()

    def leaves_out(self, path: str, name: str) -> bool:
        """Say whether something in it does not count; `path` and `name` end in a slash if it is a directory."""
        if not self.is_ignored and not is_ignored(self.rules, path, name):
            return False
        tracked = self.index and (
            path.rstrip("/") in self.index.directories or path in self.index.entries
        )
        return not tracked

    def may_be_other(self, path: str) -> bool:
        """Say whether the directory, which is at `path`, or one of its files may have changed."""
        system = self.system
        if (
            system.is_coarse
        ):  # a name that has come or gone in the same second leaves no trace in its times
            return True
        if not system.is_blind:
            return _is_other(path, self.row) or _has_others(path, self.files)
        return system.row(path) != self.row or any(
            system.row(f"{path}/{name}") != row for name, row in self.files.items()
        )


Directories = Mapping[str, Directory]
"""By their paths."""


def known_row(directories: Directories, path: str) -> Row | None:
    above, _, name = path.rpartition("/")
    directory = directories.get(above)
    return directory.files.get(name) if directory else None


def row_at(path: str) -> Row | None:
    try:
        return row_of(os.lstat(path))
    except OSError:
        return None


def _is_other(path: str, known: Row) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return True
    return status.st_ctime_ns != known.ctime_ns or status.st_ino != known.inode


def _has_others(directory: str, files: Mapping[str, Row]) -> bool:
    """
    Say whether one of the files of a directory, which is the same itself, has changed.

    No name stands for another file then, so that the times suffice; and no line of ours runs for each of 40,000 files.
    """
    try:
        times = list(map(_status_time, map(os.lstat, map(f"{directory}/".__add__, files))))
    except OSError:
        return True
    return times != list(map(_row_time, files.values()))
