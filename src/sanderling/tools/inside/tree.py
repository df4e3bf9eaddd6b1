"""
A directory as a tree: the program that `ls` runs in the sandbox, so that the kernel decides what can be seen.

The standard library alone, and little of it, for it starts at every use.
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
MAX_BYTES = 26_000  # with its heading it stays below 30 KB, however long that is
MAX_ENTRIES = 100  # of one directory that are shown
MAX_SCANNED = 20_000  # of one directory that are looked at
MAX_RULES_BYTES = 256 * 1024
REPOSITORIES = frozenset({".git", ".hg", ".jj", ".svn"})
NOT_OPENED = "…"
KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


# --- what is ignored ---------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A line of an ignore file."""

    glob: Glob
    is_exception: bool
    is_for_directories: bool


class Rules(NamedTuple):
    """An ignore file's rules, for paths below `base`, which ends in a slash. The last one that matches decides."""

    base: str
    rules: list[Rule]

    def verdict(self, path: str, *, is_directory: bool) -> bool | None:
        """True if `path` is ignored, False if not; None if no rule says."""
        inside = path[len(self.base) :]
        for rule in reversed(self.rules):
            if rule.is_for_directories <= is_directory and rule.glob.matches(inside):
                return not rule.is_exception
        return None


def rules_of(file: str, base: str) -> Rules:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return Rules(base, [])
    with os.fdopen(descriptor, "rb") as stream:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.fsdecode(stream.read(MAX_RULES_BYTES)) if is_file else ""
    return Rules(base, [rule for line in text.split("\n") if (rule := _rule(line))])


def _rule(line: str) -> Rule | None:
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
        return Rule(Glob(bare, has_braces=False), glob != line, glob != bare)
    except GlobError:  # git takes no notice of such a line either
        return None


class Ignored(NamedTuple):
    """
    The ignored files below a directory: by the rules of its own files and of those above it, nearest first.

    `.ignore` files overrule git's; git's own reach up to the root of the repository.
    """

    plain: tuple[Rules, ...]
    git: tuple[Rules, ...]
    everywhere: tuple[Rules, ...]

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


def of_person(base: str) -> Rules:
    return rules_of(os.path.expanduser("~/.config/git/ignore"), base)


def ignored_above(path: str) -> Ignored:
    ignored = Ignored((), (), (of_person("/"),))
    parts = [part for part in path.split("/") if part]
    for count in range(len(parts)):
        ignored = ignored.inside("/" + "/".join(parts[:count]))
    return ignored


# --- the tree ----------------------------------------------------------------------------------------------------------


class Directory:
    """A directory of the tree: `line` names it, `children` are the lines and directories in it, once it was opened."""

    def __init__(self, path: str, line: str, level: int, above: Ignored) -> None:
        self.path = path
        self.line = line
        self.level = level
        self.children: list[str | Directory] = []
        self._ignored = above  # until it is opened: what is ignored in the one above

    def open(self, room: int) -> int:
        """Find its children, if `room` lines hold them; return how many lines they take."""
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
        """The entries to show, how many more there are, and whether others are ignored."""
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

    def _child(self, entry: os.DirEntry[str]) -> "str | Directory":
        name = escaped(entry.name)
        if entry.is_symlink():
            return f"{name} -> {_target(entry.path)}"
        if not entry.is_dir(follow_symlinks=False):
            return f"{name}  {_size(entry)}"
        line = f"{name}/"
        if os.access(entry.path, os.R_OK):
            return Directory(entry.path, line, self.level + 1, self._ignored)
        return f"{line}  (cannot be read: {os.strerror(errno.EACCES)})"

    def lines(self) -> Iterator[str]:
        """The lines of its children and theirs, each indented by its level."""
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
    return target if os.path.exists(path) else f"{target}  (leads nowhere)"


def _size(entry: os.DirEntry[str]) -> str:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        return f"({error.strerror})"
    if kind := KINDS.get(stat.S_IFMT(status.st_mode)):
        return f"({kind})"
    size = float(status.st_size)
    for unit in ("B", "K", "M"):
        if size < 1000:  # noqa: PLR2004 - then it has four digits
            return f"{size:.0f}{unit}" if unit == "B" else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}G"


def tree(path: str, depth: int) -> list[str]:
    """
    The lines of the tree below `path`, directories first, `depth` levels deep at most.

    What is near comes before what is deep: a directory is opened when there is room for what is in it, level by level.

    Raises:
        OSError: `path` cannot be listed.
    """
    os.scandir(path).close()
    top = Directory(path, "", 0, ignored_above(path))
    room = MAX_LINES
    queue = deque([top])
    while queue:
        directory = queue.popleft()
        room -= directory.open(room)
        if directory.level + 1 < depth:
            queue.extend(child for child in directory.children if isinstance(child, Directory))
    return list(top.lines()) or [top.line.strip()]


def main(path: str, depth: str) -> None:
    """Write the tree, or say why not and fail."""
    try:
        text = "\n".join(tree(path, int(depth)))
    except OSError as error:
        text = error.strerror or str(error)
        sys.stdout.buffer.write(text.encode())
        sys.exit(1)
    data = text.encode()
    if len(data) > MAX_BYTES:
        data = data[: data.rfind(b"\n", 0, MAX_BYTES)] + b"\n[cut here: list a directory of it]"
    sys.stdout.buffer.write(data)
