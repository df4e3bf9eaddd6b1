"""
A directory as a tree: the program that `ls` runs in the sandbox, so that the kernel decides what is visible.

Only a few standard library imports, because it starts with every call.
"""

import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from sanderling.tools.paths import Glob, GlobError, escaped

MAX_LINES = 500
MAX_BYTES = 26_000  # with the heading, the result stays below 30 KB
MAX_ENTRIES = 100  # shown of one directory
MAX_SCANNED = 20_000  # read of one directory
MAX_RULES_BYTES = 256 * 1024
REPOSITORIES = frozenset({".git", ".hg", ".jj", ".svn"})
NOT_OPENED = "…"
KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


# --- ignore rules ------------------------------------------------------------------------------------------------------


class IgnoreRule(NamedTuple):
    """A line of an ignore file."""

    glob: Glob
    is_exception: bool
    is_for_directories: bool


class IgnoreRules(NamedTuple):
    """The rules of an ignore file for paths below `base`, which ends in a slash. The last match decides."""

    base: str
    rules: list[IgnoreRule]

    def verdict(self, path: str, *, is_directory: bool) -> bool | None:
        """Return True if `path` is ignored, False if it is an exception; None if no rule matches."""
        inside = path[len(self.base) :]
        for rule in reversed(self.rules):
            if rule.is_for_directories <= is_directory and rule.glob.matches(inside):
                return not rule.is_exception
        return None


def rules_of(file: str, base: str) -> IgnoreRules:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return IgnoreRules(base, [])
    with os.fdopen(descriptor, "rb") as stream:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.fsdecode(stream.read(MAX_RULES_BYTES)) if is_file else ""
    return IgnoreRules(base, [rule for line in text.split("\n") if (rule := _rule(line))])


def _rule(line: str) -> IgnoreRule | None:
    line = line.removesuffix("\r")
    bare = line.rstrip(" ")
    line = f"{bare} " if bare.endswith("\\") and bare != line else bare
    if not line or line.startswith("#"):
        return None
    glob = line.removeprefix("!")
    bare = glob.removesuffix("/")
    if not bare:
        return None
    try:
        return IgnoreRule(Glob(bare, has_braces=False), glob != line, glob != bare)
    except GlobError:  # git ignores such a line, too
        return None


class Ignored(NamedTuple):
    """
    The ignore rules for a directory, from its own files and those above, nearest first.

    `.ignore` files override git's, which only apply up to the repository root.
    """

    plain: tuple[IgnoreRules, ...]
    git: tuple[IgnoreRules, ...]
    everywhere: tuple[IgnoreRules, ...]

    def hides(self, path: str, *, is_directory: bool) -> bool:
        for rules in (*self.plain, *self.git, *self.everywhere):
            if (verdict := rules.verdict(path, is_directory=is_directory)) is not None:
                return verdict
        return False

    def inside(self, directory: str) -> "Ignored":
        base = directory.rstrip("/") + "/"
        plain = [rules_of(base + name, base) for name in (".rgignore", ".ignore")]
        git, everywhere = self.git, self.everywhere
        if os.path.lexists(base + ".git"):
            git, everywhere = (), (rules_of(base + ".git/info/exclude", base), of_person(base))
        here = rules_of(base + ".gitignore", base)
        return Ignored((*plain, *self.plain), (here, *git), everywhere)


def of_person(base: str) -> IgnoreRules:
    return rules_of(os.path.expanduser("~/.config/git/ignore"), base)


def ignored_above(path: str) -> Ignored:
    ignored = Ignored((), (), (of_person("/"),))
    parts = [part for part in path.split("/") if part]
    for count in range(len(parts)):
        ignored = ignored.inside("/" + "/".join(parts[:count]))
    return ignored


# --- the tree ----------------------------------------------------------------------------------------------------------


class ListedDirectory:
    """A directory of the tree: `line` names it; once opened, `children` are its lines and subdirectories."""

    def __init__(self, path: str, line: str, level: int, above: Ignored) -> None:
        self.path = path
        self.line = line
        self.level = level
        self.children: list[str | ListedDirectory] = []
        self._ignored = above  # the parent's, until it is opened

    def open(self, room: int) -> int:
        """Read the entries if they fit in `room` lines; return the number of lines used."""
        self._ignored = self._ignored.inside(self.path)
        try:
            entries, left_out, hidden = self._entries()
        except OSError as error:
            self.line += f"  (cannot be read: {error.strerror})"
            return 0
        count = len(entries) + bool(left_out)
        if count > room:
            self.line += f"  {NOT_OPENED}"
            return 0
        if not count:
            self.line += "  (only ignored entries)" if hidden else "  (empty)"
            return 0
        self.children = [self._child(entry) for entry in entries]
        if left_out:
            self.children.append(f"… {left_out} more")
        return count

    def _entries(self) -> tuple[list[os.DirEntry[str]], str, bool]:
        """Return the entries to show, the number of others, and whether some are hidden."""
        shown: list[os.DirEntry[str]] = []
        count, is_all = 0, True
        with os.scandir(self.path) as entries:
            for entry in entries:
                if count == MAX_SCANNED:
                    is_all = False
                    break
                count += 1
                is_directory = entry.is_dir(follow_symlinks=False)
                if entry.name not in REPOSITORIES and not self._ignored.hides(
                    entry.path, is_directory=is_directory
                ):
                    shown.append(entry)
        shown.sort(key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
        left_out = len(shown) - MAX_ENTRIES
        more = f"{left_out:,}" if is_all else f"at least {max(left_out, 0):,}"
        return shown[:MAX_ENTRIES], more if left_out > 0 or not is_all else "", count > len(shown)

    def _child(self, entry: os.DirEntry[str]) -> "str | ListedDirectory":
        name = escaped(entry.name)
        if entry.is_symlink():
            return f"{name} -> {_target(entry.path)}"
        if not entry.is_dir(follow_symlinks=False):
            return f"{name}  {_size(entry)}"
        line = f"{name}/"
        if os.access(entry.path, os.R_OK):
            return ListedDirectory(entry.path, line, self.level + 1, self._ignored)
        return f"{line}  (cannot be read: {os.strerror(errno.EACCES)})"

    def lines(self) -> Iterator[str]:
        """Yield the lines of all descendants, indented by level."""
        indent = "  " * self.level
        for child in self.children:
            if isinstance(child, str):
                yield indent + child
            else:
                yield indent + child.line
                yield from child.lines()


def _target(path: str) -> str:
    try:
        target = escaped(os.readlink(path))
    except OSError as error:
        return f"({error.strerror})"
    return target if os.path.exists(path) else f"{target}  (broken link)"


def _size(entry: os.DirEntry[str]) -> str:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        return f"({error.strerror})"
    if kind := KINDS.get(stat.S_IFMT(status.st_mode)):
        return f"({kind})"
    size = float(status.st_size)
    for unit in ("B", "K", "M"):
        if size < 1000:  # noqa: PLR2004 - four digits
            return f"{size:.0f}{unit}" if unit == "B" else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}G"


def tree(path: str, depth: int) -> list[str]:
    """
    Return the lines of the tree below `path`, directories first, up to `depth` levels.

    Directories are opened level by level while there is room, so near entries come before deep ones.

    Raises:
        OSError: `path` cannot be listed.
    """
    os.scandir(path).close()
    top = ListedDirectory(path, "", 0, ignored_above(path))
    room = MAX_LINES
    queue = deque([top])
    while queue:
        directory = queue.popleft()
        room -= directory.open(room)
        if directory.level + 1 < depth:
            queue.extend(
                child for child in directory.children if isinstance(child, ListedDirectory)
            )
    return list(top.lines()) or [top.line.strip()]


def main(path: str, depth: str) -> None:
    """Write the tree, or the error with exit status 1."""
    try:
        text = "\n".join(tree(path, int(depth)))
    except OSError as error:
        text = error.strerror or str(error)
        sys.stdout.buffer.write(text.encode())
        sys.exit(1)
    data = text.encode()
    if len(data) > MAX_BYTES:
        data = data[: data.rfind(b"\n", 0, MAX_BYTES)] + b"\n[cut here: list a subdirectory]"
    sys.stdout.buffer.write(data)
