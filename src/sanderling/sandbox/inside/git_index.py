"""
Git's index, read without git: tells which files equal their objects, by the times that git recorded (gitformat-index(5)).

No git program runs here, and the repository's configuration is ignored, except for what makes a file differ from its object: where
attributes name a filter, an encoding or `ident`, or object names are not SHA-1, no file counts as clean. Line endings may also differ;
callers that use an object as a file's content compare the sizes.
"""

import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sanderling.sandbox.inside.ignoring import IgnoreFile, matcher
from sanderling.sandbox.inside.reading import load
from sanderling.sandbox.inside.rows import FileRow

MAX_INDEX_BYTES = 256 << 20
MAX_TEXT_BYTES, MAX_SOURCES = 128 << 10, 1000
"""The limits for all attribute files together."""
MAX_ENTRIES = 500_000
"""A larger index is ignored: projects of that size are not scanned, and it would take a gigabyte of memory."""
_HEADER = struct.Struct(">4sII")
# ctime, mtime, device, inode, mode, owner, group, size, name of the object, flags
_ENTRY = struct.Struct(">IIIIIIIIII20sH")
_EXTENDED, _NAME_MASK = 0x4000, 0x0FFF
_REGULAR = 0o100000
_CONVERTING = ("filter", "ident", "working-tree-encoding")


class Entry(NamedTuple):
    """A file's state in the index, from when its object was made."""

    ctime_ns: int
    mtime_ns: int
    inode: int
    size: int
    object: bytes


class Index:
    """
    The index of the repository with `.git` in `root`, limited to files below `project`.

    It is empty if it cannot be read. `directories` are those with tracked files in or below them. `has_head` is False once the repository
    has been taken apart.
    """

    def __init__(self, root: str, project: str) -> None:
        self.root = root
        self.entries: dict[str, Entry] = {}
        self.directories: set[str] = set()
        self._below = f"{project}/"
        self._mtime_ns = 0
        self._stamp: tuple[int, ...] = ()
        self._converting: list[IgnoreFile] = []
        git_dir = _git_dir(root)
        self._path = f"{git_dir}/index"
        self.head = f"{git_dir}/HEAD"
        self.has_head = os.path.lexists(self.head)
        self.common_dir = _common_dir(git_dir)
        self._config_dirs = (git_dir, self.common_dir)
        self.refresh()

    def refresh(self) -> None:
        """Read the index again if it has changed."""
        try:
            status = os.stat(self._path)
        except OSError:
            stamp: tuple[int, ...] = (0,)
        else:
            stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self.entries = {}
        try:
            data, is_whole, read = load(self._path, MAX_INDEX_BYTES, 0)
            if is_whole and all(
                b"objectformat" not in _text(f"{each}/config").lower() for each in self._config_dirs
            ):
                self._mtime_ns = read[3]
                prefix = f"{self.root}/"
                known = ((prefix + name, entry) for name, entry in _entries(data))
                self.entries = {
                    path: entry for path, entry in known if path.startswith(self._below)
                }
        except (OSError, ValueError, struct.error):
            pass
        self.directories = _directories(self.entries)
        self._converting = list(self._rules())

    def clean(self, path: str, row: FileRow) -> bytes:
        """Return the name of the object with the same content as the file `path`, or b"" if there may be none."""
        entry = self.entries.get(path)
        if (
            entry is None
            or not stat.S_ISREG(row.mode)
            or entry.mtime_ns != row.mtime_ns
            or entry.size != row.size & 0xFFFFFFFF
            or entry.ctime_ns != row.ctime_ns
            or entry.inode != row.inode & 0xFFFFFFFF
            # "racy": the file may have changed after git looked
            or entry.mtime_ns >= self._mtime_ns
        ):
            return b""
        if self._converting:
            name = os.path.basename(path)
            if any(rules.judge(path, name) for rules in self._converting):
                return b""
        return entry.object

    def _rules(self) -> Iterator[IgnoreFile]:
        """Yield rules for files whose attributes make them differ from their objects."""
        own = {path for path in self.entries if path.endswith("/.gitattributes")} | {
            f"{self.root}/.gitattributes"
        }
        sources = [(os.path.dirname(path), path) for path in own]
        others = (
            f"{self.common_dir}/info/attributes",
            os.path.expanduser("~/.config/git/attributes"),
            "/etc/gitattributes",
        )
        sources += [(self.root, path) for path in others]
        room = MAX_TEXT_BYTES
        for directory, path in sources[:MAX_SOURCES]:
            text = _text(path)
            room -= len(text)
            if room <= 0:
                break
            lines = os.fsdecode(text).splitlines()
            if rules := matcher(directory, list(_converting_patterns(lines))):
                yield rules
        if room <= 0 or len(sources) > MAX_SOURCES:  # the rest may match anything
            yield matcher(self.root, ["*"])

    def forget(self) -> None:
        self.entries, self.directories = {}, set()


def _directories(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        directory = path.rpartition("/")[0]
        while directory and directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


def _converting_patterns(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        pattern, *attributes = line.split() or [""]
        if pattern.startswith("[attr]"):  # a macro for several attributes
            pattern = "*"
        if any(each.partition("=")[0] in _CONVERTING for each in attributes):
            yield "*" if pattern.startswith('"') else pattern


def _text(path: str) -> bytes:
    try:
        return load(path, MAX_TEXT_BYTES, MAX_TEXT_BYTES)[0]
    except OSError:
        return b""


def _git_dir(root: str) -> str:
    """Return the directory that `.git` is, or points to."""
    path = f"{root}/.git"
    text = b"" if os.path.isdir(path) else _text(path)
    named = os.fsdecode(text).removeprefix("gitdir:").strip() if text.startswith(b"gitdir:") else ""
    return os.path.join(root, named) if named else path


def _common_dir(git_dir: str) -> str:
    named = os.fsdecode(_text(f"{git_dir}/commondir")).strip()
    return os.path.join(git_dir, named) if named else git_dir


def _entries(data: bytes) -> Iterator[tuple[str, Entry]]:
    """Yield the regular files of an index."""
    magic, version, count = _HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4) or count > MAX_ENTRIES:
        raise ValueError("no index")
    position, name = _HEADER.size, b""
    unpack, size = _ENTRY.unpack_from, _ENTRY.size
    for _ in range(count):
        cs, cn, ms, mn, _, inode, mode, _, _, length, digest, flags = unpack(data, position)
        start = position + size + (2 if flags & _EXTENDED else 0)
        if version == 4:  # noqa: PLR2004 - the end of the previous name is replaced
            cut, start = _number(data, start)
            end = data.index(b"\0", start)
            name = name[: len(name) - cut] + data[start:end]
            position = end + 1
        else:
            end = start + (flags & _NAME_MASK)
            if flags & _NAME_MASK == _NAME_MASK:
                end = data.index(b"\0", start)
            name = data[start:end]
            position += (end - position + 8) & ~7
        if mode & 0o170000 == _REGULAR:
            entry = Entry(cs * 1_000_000_000 + cn, ms * 1_000_000_000 + mn, inode, length, digest)
            yield os.fsdecode(name), entry


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it."""
    byte = data[position]
    value = byte & 127
    while byte & 128:
        position += 1
        byte = data[position]
        value = ((value + 1) << 7) | (byte & 127)
    return value, position + 1
