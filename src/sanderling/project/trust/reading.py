"""Files that may instruct the model: found and read within bounds, as text that hides nothing from the user."""

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from itertools import islice
from pathlib import Path

import msgspec

from sanderling.paths import is_within
from sanderling.text import visible_prose

MAX_FILE_BYTES = 256 * 1024
MAX_ENTRIES = 20_000
MAX_DEPTH = 8
MAX_SKILL_DEPTH, MAX_SKILL_DIRECTORIES = 5, 2_000
MAX_OUTSIDE_LEVELS = 2
SKILL_NAMES = ("SKILL.md", "skill.md")
# A file that was changed a moment ago may change again with the same time stamp: some file systems count whole seconds.
UNSETTLED_NS = 2_000_000_000
NOT_ENTERED = frozenset(
    ("node_modules", "vendor", "target", "dist", "build", "venv", "__pycache__")
)


class Content(msgspec.Struct, frozen=True):
    """A file's text, and the SHA-256 of its bytes. If the file cannot be used, both are empty, and `problem` says why."""

    text: str = ""
    sha256: str = ""
    problem: str = ""


class TrustReader:
    """Reads files whole, and again only when they have changed. Links must not lead out of `root`, the `whole`, unless that is empty."""

    def __init__(self, root: str = "", whole: str = "the project") -> None:
        self._root = root
        self._whole = whole
        self._read: dict[str, tuple[tuple[int, ...], Content]] = {}

    def read(self, path: str) -> Content | None:
        """Return the current file; None if it does not exist. Costs one `stat` if nothing has changed."""
        try:
            found = os.stat(path)  # noqa: PTH116 - asked for many names before each request to the model
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # no file can have such a name
                return None
            return Content(problem=_unreadable(error))
        if stat.S_ISDIR(found.st_mode):
            return None
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if path in self._read and self._read[path][0] == stamp:
            return self._read[path][1]
        content = read_file(path, self._root, self._whole)
        if time.time_ns() - found.st_ctime_ns > UNSETTLED_NS:
            self._read[path] = stamp, content
        return content


def read_file(path: str, root: str = "", whole: str = "the project") -> Content:
    """Read the file. It must not be a link that leads out of `root`, unless that is empty; a problem calls `root` the `whole`."""
    try:
        # Checked before opening, which may have effects on devices.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return Content(problem="is not a regular file")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return Content(problem="is not a regular file")
            if root and not _lies_within(root, path, found):
                return Content(problem=f"is a link that leads out of {whole}")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return Content(problem=_unreadable(error))
    if len(data) > MAX_FILE_BYTES:
        return Content(problem=f"has more than {MAX_FILE_BYTES:,} bytes")
    return Content(as_text(data), sha256(data).hexdigest())


def _lies_within(root: str, path: str, found: os.stat_result) -> bool:
    """Return True if the open file, not what `path` may lead to by now, is in `root`."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(root) and os.path.samestat(real.stat(), found)


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror}"


def as_text(data: bytes) -> str:
    """Return `data` as text, with invisible characters as their numbers: `<U+202E>`."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    return visible_prose(text)


def visible_name(name: str) -> str:
    text = as_text(name.encode(errors="replace"))
    return text.replace("\t", "<U+0009>").replace("\n", "<U+000A>")


def find_files(root: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """
    Return the files below `root` with wanted names, relative to it, the nearest first.

    Skips hidden directories, directories of dependencies and builds, links to directories, and names with invisible characters. Stops
    after `MAX_ENTRIES` entries.
    """
    found = list[str]()
    waiting = deque([("", 0)])
    left = MAX_ENTRIES
    while waiting and left:
        inside, depth = waiting.popleft()
        entries = _entries(f"{root}/{inside}", left)
        left -= len(entries)
        for entry in entries:
            if visible_name(entry.name) != entry.name:
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH and not _is_skipped(entry.name):
                    waiting.append((f"{inside}{entry.name}/", depth + 1))
            elif is_wanted(entry.name):
                found.append(inside + entry.name)
    return found


def find_skills(directory: str, bounds: str = "") -> list[str]:
    """
    Return the files `SKILL.md` below `directory`, relative to it, the nearest first.

    Follows links to directories, with which users share skills, and does not look inside a skill: there are its examples. Of what is
    outside the `bounds`, it looks only at two levels: a repository may have a link to the root of the disk. Skills found there can be
    reported.
    """
    found, seen = list[str](), set[str]()
    waiting = deque([("", 0, 0)])
    while waiting and len(seen) < MAX_SKILL_DIRECTORIES:
        inside, depth, outside = waiting.popleft()
        try:
            real = os.path.realpath(f"{directory}/{inside}")
        except OSError:  # it was a link a moment ago
            continue
        if real in seen:
            continue
        seen.add(real)
        if bounds and not is_within(real, bounds):
            outside += 1
        entries = {each.name: each for each in _entries(f"{directory}/{inside}", MAX_ENTRIES)}
        named = next(filter(entries.__contains__, SKILL_NAMES), "")
        if named and inside:
            found.append(inside + named)
        elif depth < MAX_SKILL_DEPTH and outside < MAX_OUTSIDE_LEVELS:
            below = (
                each
                for name, each in entries.items()
                if not _is_skipped(name) and visible_name(name) == name and _is_directory(each)
            )
            waiting.extend((f"{inside}{each.name}/", depth + 1, outside) for each in below)
    return found


def find_child_skills(directory: str) -> list[str]:
    """Return the `SKILL.md` of each directory in `directory`, relative to it: there are no others in a plugin."""
    names = (each.name for each in _entries(directory, MAX_ENTRIES) if _is_directory(each))
    found = (f"{name}/{SKILL_NAMES[0]}" for name in names if visible_name(name) == name)
    return [name for name in found if os.path.lexists(f"{directory}/{name}")]


def find_markdown(directory: str) -> list[str]:
    """Return the Markdown files below `directory`, relative to it."""
    return find_files(directory, lambda name: name.endswith(".md"))


def _entries(directory: str, limit: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, limit), key=lambda entry: entry.name)
    except OSError:
        # Removed meanwhile, or not readable. Files in there are found when they are used.
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a directory or a link to one. A link may lead in a circle, or to where nobody may look."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in NOT_ENTERED
