"""
The tree of a project as of the last look, and what has changed in it since.

With inotify, a look visits only directories in which something happened. Without it, a look asks for the state of every file. inotify
reports only changes that pass through this kernel, by a name inside a watched directory. So it misses:

* changes on the other side of a file system: on a server, or on the host of a virtual machine or container. A colleague's change there
  would be taken for the next command's, and undo would revert it along with that command's. Such file systems are not watched. Every
  file's state is requested, bypassing the caches on this side.
* changes through a hard link outside the tree. Directories that contain a file with several names are checked at every look. Checking all
  files at every look would also catch a file that gains a second name, is changed through it, and loses it again between two looks. But
  that costs 130 ms for 40,000 files, before and after each command, where a look that finds nothing costs 1 ms. A file that gained a name
  outside the tree since the last look, and changed, is marked as shared, because the tree cannot know through which name it was changed.
* writes to a memory-mapped file, until the mapping ends. The event at its end comes without a change of the times, because pages that are
  already dirty (on tmpfs, all pages) are written without the file system noticing. Then the bytes are compared.

Programs cannot set a file's change time (ctime), so a file with the same row is unchanged, provided the times are fine enough. After a
change within the last tick of the kernel's clock, the look waits for the next tick. On file systems with coarser times, `doubts.py`
decides.

Ignored files that are not tracked, and version control's own directories, are left out. Only their names are recorded, so that their
removal (`git clean -xfd`) is noticed. Looking into ignored directories would mean scanning every build.
"""

import errno
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from sanderling.sandbox.inside.directories import Directory, FileSystem, known_row
from sanderling.sandbox.inside.doubts import Racy, is_linked, note_strangers, note_twins
from sanderling.sandbox.inside.git_index import MAX_ENTRIES, Index
from sanderling.sandbox.inside.git_objects import Held
from sanderling.sandbox.inside.hidden import Hidden
from sanderling.sandbox.inside.ignoring import NAME, IgnoreFile, is_ignored
from sanderling.sandbox.inside.reading import TICK_NS, load
from sanderling.sandbox.inside.rows import ChangedRow, FileRow, row_of
from sanderling.sandbox.inside.watches import TreeWatches

MAX_FILES = 200_000
MAX_WALK_S = 20.0
MAX_RULES_BYTES = 128 << 10
"""Rules beyond this size are not read. This much takes a second to parse; a thousand rules are a tenth of it."""
CHECKED_EACH = 256  # names
A_DIRECTORY, A_FILE = FileRow(stat.S_IFDIR, 0, 0, 0, 0), FileRow(stat.S_IFREG, 0, 0, 0, 0)
OWN = frozenset((".git", ".hg", ".jj", ".svn"))


class _DirectoryNames(NamedTuple):
    """The names in a directory: files and directories that count, and names that are left out."""

    files: dict[str, FileRow]
    directories: set[str]
    left_out: dict[str, FileRow]


class Tree:
    """The tree below `root`, an absolute and real path. If `is_watched`, changes are learned from inotify."""

    def __init__(self, root: str, *, is_watched: bool = True) -> None:
        self._root = root
        self._directories: dict[str, Directory] = {}
        self._indexes: dict[str, Index] = {}
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._held: dict[str, Held] = {}  # by the root of their repository
        self._unjudged: dict[str, set[str]] = {}  # names by directory
        self._changes: dict[str, ChangedRow] | None = None  # None: first look, everything is new
        self._count = 0
        self._end = 0.0
        self._waiting: list[tuple[str, Directory, bool]] = []
        self._systems: dict[int, FileSystem] = {}  # by device
        self._unwatched: set[str] = set()  # directories whose files inotify cannot fully watch
        self._racy = Racy(self._directories)
        self._hidden = Hidden()
        self._watches = TreeWatches()
        if not is_watched:
            self._watches.close()

    @property
    def is_watched(self) -> bool:
        return self._watches.are_on

    def close(self) -> None:
        self._watches.close()
        for held in self._held.values():
            held.close()

    def held(self, repository: str) -> Held | None:
        """Return the held objects of the repository with that root."""
        return self._held.get(repository)

    # --- looking -------------------------------------------------------------------------------------------------------

    def look(self) -> list[ChangedRow]:
        """
        Return the changes since the last look. The first look returns none.

        Raises:
            OSError: the root cannot be read; E2BIG: too many files; ETIME: it takes too long.
        """
        self._end = time.monotonic() + MAX_WALK_S
        since_ns = self._hidden.begin()
        if not self._directories:
            system = FileSystem(self._root)
            around = Directory(
                FileRow(0, 0, 0, 0, 0), *self._surroundings(), system, is_ignored=False
            )
            self._enter(self._root, around)
            self._list_waiting()
            self._unjudged = {path: set(each.files) for path, each in self._directories.items()}
            self._changes = {}
            self._racy.begin()
            return []
        self._changes = {}
        happened = self._watches.happened()
        if happened is None:
            self._rescan(self._directories)
        else:
            for path in sorted(happened):
                self._list_again(path)
            self._rescan(self._unwatched)
            if any(
                is_linked(each.before) or is_linked(each.after) for each in self._changes.values()
            ):
                self._rescan(self._directories)
        self._note_lost_repositories()
        same = self._hidden.note(self._changes, since_ns)
        self._doubt(happened or {})
        changes = list(self._changes.values())
        for path in (*same, *self._changes):
            directory, _, name = path.rpartition("/")
            self._unjudged.setdefault(directory, set()).add(name)
        _settle(changes)
        return changes

    def _doubt(self, happened: Mapping[str, Collection[str]]) -> None:
        """Add the changes that rows do not show. A file that was written and still has the same row may have new content."""
        assert self._changes is not None
        unsure = self._racy.doubt(self._changes)
        unsure |= {f"{path}/{name}" for path, names in happened.items() for name in names}
        for path in unsure - self._changes.keys():
            if (row := known_row(self._directories, path)) and stat.S_ISREG(row.mode):
                self._note(path, row, row)
                self._changes[path] = self._changes[path]._replace(is_unsure=True)
        note_strangers(self._changes, self._directories)
        note_twins(self._changes, self._directories)

    def unclean(self) -> list[tuple[str, FileRow]]:
        """Return the files that changed since the last call and differ from what git has. The first call considers all files."""
        waiting, self._unjudged = self._unjudged, {}
        if waiting:
            for index in self._indexes.values():
                index.refresh()
                self._bound(index)
        found: list[tuple[str, FileRow]] = []
        needed: dict[str, list[bytes]] = {}
        for path, names in waiting.items():
            if (directory := self._directories.get(path)) is None:
                continue
            index = directory.index
            for name in names:
                if (row := directory.files.get(name)) is None:
                    continue
                below = f"{path}/{name}"
                if index and (named := index.clean(below, row)):
                    self._objects[below] = (named, index.root)
                    needed.setdefault(index.root, []).append(named)
                else:
                    found.append((below, row))
        for root, names in needed.items():
            if root not in self._held:
                self._held[root] = Held(f"{self._indexes[root].common_dir}/objects")
            self._held[root].hold(names)
        return found

    @property
    def has_unjudged(self) -> bool:
        return any(self._unjudged.values())

    def judged(self, paths: Iterable[str]) -> None:
        """Mark these files as known: their bytes have been copied."""
        for path in paths:
            directory, _, name = path.rpartition("/")
            self._unjudged.get(directory, set()).discard(name)

    def _rescan(self, paths: Iterable[str]) -> None:
        """Check every file in these directories. List directories again that have changed, or contain a changed file."""
        for path in sorted(paths):
            if (directory := self._directories.get(path)) is None:
                continue  # removed together with a directory above it
            self._check_time()
            if directory.may_be_other(path):
                self._list_again(path)
        self._list_waiting()

    def _list_again(self, path: str) -> None:
        directory = self._directories.get(path)
        if directory is None:
            return
        row = directory.system.row(path)
        if row is None or not stat.S_ISDIR(row.mode) or row.inode != directory.row.inode:
            if path == self._root:
                raise OSError(errno.ESTALE, "the root was replaced")
            self._leave(path)
            if above := self._directories.get(os.path.dirname(path)):
                self._list(os.path.dirname(path), above)
            return
        if row.mode != directory.row.mode:
            self._note(path, directory.row, row)
        directory.row = row
        # A recreated directory can have the inode number of the old one.
        self._watch(path, directory.system)
        self._list(path, directory)

    def _watch(self, path: str, system: FileSystem) -> None:
        if not system.is_blind:
            self._watches.add(path)

    def _system(self, path: str, device: int) -> FileSystem:
        if device not in self._systems:
            self._systems[device] = FileSystem(path)
        return self._systems[device]

    # --- directories ---------------------------------------------------------------------------------------------------

    def _enter(
        self, path: str, above: Directory, *, is_ignored: bool = False, was_ignored: bool = False
    ) -> None:
        """Add the directory `path`, and queue it for listing."""
        try:
            status = os.lstat(path)
        except OSError:
            return
        system = self._system(path, status.st_dev)
        row = system.row(path) if system.is_blind else row_of(status)
        if row is None or not stat.S_ISDIR(row.mode):
            return
        directory = Directory(row, above.rules, above.index, system, is_ignored=is_ignored)
        self._directories[path] = directory
        self._count += 1
        if self._count > MAX_FILES:
            raise OSError(errno.E2BIG, "too many files")
        self._watch(path, system)  # before listing, so that no change falls in between
        self._note(path, None, row, was_ignored=was_ignored)
        self._waiting.append((path, directory, was_ignored))

    def _leave(self, path: str) -> None:
        """Record that a directory is gone, with everything below it."""
        going = [path]
        while going:
            path = going.pop()
            if (directory := self._directories.pop(path, None)) is None:
                continue
            self._watches.remove(path)
            self._unwatched.discard(path)
            self._note(path, directory.row, None)
            if directory.is_closed:
                self._note_left_out(path, directory.row, "closed")
            for name, row in directory.files.items():
                self._note(f"{path}/{name}", row, None)
            for name, row in directory.left_out.items():
                self._note_left_out(f"{path}/{name}", row)
            self._count -= len(directory.files) + 1
            going += [f"{path}/{name}" for name in directory.subdirectories]

    def _list_waiting(self) -> None:
        while self._waiting:
            path, directory, was_ignored = self._waiting.pop()
            self._list(path, directory, was_ignored=was_ignored)

    def _list(self, path: str, directory: Directory, *, was_ignored: bool = False) -> None:
        """Compare a directory with its last known state. New directories in it are queued for listing."""
        self._check_time()
        try:
            with os.scandir(path) as found:
                entries = list(found)
        except PermissionError:  # new names stay unknown, and nothing counts as removed
            directory.is_closed = not directory.is_listed
            self._unwatched.add(path)  # inotify would have to read it, too
            self._compare_known(path, directory)
            return
        except OSError:
            entries = []
        if directory.is_closed:
            self._hidden.is_open(path)
        directory.is_listed, directory.is_closed = True, False
        old_rules = directory.rules
        self._read_rules(path, directory, entries)
        found = self._chosen(path, directory, entries)
        known, prefix = directory.files, f"{path}/"
        for name, row in found.files.items():
            old = known.get(name)
            if old != row:
                below = prefix + name
                back = was_ignored or (
                    old is None and _came_back(old_rules, directory, below, name)
                )
                self._note(below, old, row, was_ignored=back)
        names = found.files.keys() | found.directories | found.left_out.keys()
        for name in directory.left_out.keys() - names:
            self._note_left_out(prefix + name, directory.left_out[name])
        self._replace(path, directory, found)
        for name in sorted(found.directories, reverse=True):
            self._go_into(prefix + name, directory, old_rules, was_ignored=was_ignored)

    def _chosen(
        self, path: str, directory: Directory, entries: "Sequence[os.DirEntry[str]]"
    ) -> _DirectoryNames:
        """Return the names in a directory, split into names that count and names left out."""
        found = _DirectoryNames({}, set(), {})
        has_rules = directory.rules or directory.is_ignored
        known, prefix, row_at = directory.files, f"{path}/", directory.system.row
        inode_of = directory.system.inode
        for number, entry in enumerate(entries):
            if has_rules and number % CHECKED_EACH == 0:
                self._check_time()
            name = entry.name
            below = prefix + name
            if entry.is_dir(follow_symlinks=False):
                if name in OWN or (has_rules and directory.leaves_out(f"{below}/", f"{name}/")):
                    found.left_out[name] = A_DIRECTORY._replace(inode=inode_of(entry))
                else:
                    found.directories.add(name)
            elif name in OWN or (
                name not in known and has_rules and directory.leaves_out(below, name)
            ):
                found.left_out[name] = A_FILE._replace(inode=inode_of(entry))
            elif row := row_at(below):
                found.files[name] = row
        return found

    def _compare_known(self, path: str, directory: Directory) -> None:
        """Compare the known files of a directory that cannot be listed, by name where they can still be seen."""
        for name, old in tuple(directory.files.items()):
            row = directory.system.row(f"{path}/{name}")
            if row and row != old:
                self._note(f"{path}/{name}", old, row)
                directory.files[name] = row

    def _go_into(
        self, path: str, above: Directory, old_rules: Sequence[IgnoreFile], *, was_ignored: bool
    ) -> None:
        """Add a new directory, or list a known one again if other ignore rules apply to it now."""
        if known := self._directories.get(path):
            if old_rules != above.rules:
                known.chain = above.rules
                self._waiting.append((path, known, was_ignored))
            return
        place = f"{path}/", f"{os.path.basename(path)}/"
        is_out = above.is_ignored or is_ignored(above.rules, *place)
        is_back = was_ignored or _came_back(old_rules, above, *place)
        self._enter(path, above, is_ignored=is_out, was_ignored=is_back)

    def _replace(self, path: str, directory: Directory, found: _DirectoryNames) -> None:
        """Store `found` as the current content of a directory."""
        files, directories = found.files, found.directories
        directory.left_out = found.left_out
        for name in directory.files.keys() - files.keys():
            self._note(f"{path}/{name}", directory.files[name], None)
        gone = directory.subdirectories - directories
        self._count += len(files) - len(directory.files)
        directory.files, directory.subdirectories = files, directories
        directory.system.learn((directory.row, *files.values()))
        if directory.system.is_blind or any(row.links > 1 for row in files.values()):
            self._unwatched.add(path)
        else:
            self._unwatched.discard(path)
        for name in gone:
            self._leave(f"{path}/{name}")
        if self._count > MAX_FILES:
            raise OSError(errno.E2BIG, "too many files")

    def _note(
        self, path: str, before: FileRow | None, after: FileRow | None, *, was_ignored: bool = False
    ) -> None:
        """Record a change. A file that replaces a directory is recorded twice: once as removed, once as new."""
        if self._changes is None:
            return
        known = self._changes.get(path)
        if known:
            before, after = known.before or before, after or known.after
        named, repository = self._objects.pop(path, (b"", ""))
        name = named.hex()
        if known and not name:
            name, repository = known.object, known.repository
        self._changes[path] = ChangedRow(path, before, after, name, repository, was_ignored)

    def _note_left_out(self, path: str, row: FileRow, why: Literal["", "closed"] = "") -> None:
        """Record that an entry is gone of which only the name was known."""
        if self._changes is not None:
            what = why or ("own" if os.path.basename(path) in OWN else "ignored")
            self._changes[path] = ChangedRow(path, row._replace(inode=0), None, left_out=what)
            self._hidden.is_gone(row.inode, was_closed=bool(why))

    def _note_lost_repositories(self) -> None:
        """
        Record repositories that lost their HEAD.

        Their directories may still exist, with the files that the sandbox protects in them; but without HEAD, git finds no repository
        there.
        """
        assert self._changes is not None
        for index in self._indexes.values():
            was_there, index.has_head = index.has_head, os.path.lexists(index.head)
            if was_there and not index.has_head and index.head.startswith(f"{self._root}/"):
                self._changes[index.head] = ChangedRow(index.head, A_FILE, None, left_out="own")

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            raise OSError(errno.ETIME, "it takes too long")

    # --- what is left out ----------------------------------------------------------------------------------------------

    def _read_rules(
        self, path: str, directory: Directory, entries: "Sequence[os.DirEntry[str]]"
    ) -> None:
        """Read what decides which names in a directory count: its .gitignore, and the index of a repository."""
        text = ""
        for entry in entries:
            if entry.name == NAME and entry.is_file(follow_symlinks=False):
                text = _text(f"{path}/{NAME}")
            elif entry.name == ".git" and (not directory.index or directory.index.root != path):
                directory.index = self._index(path)
        if (
            text != directory.rules_text
            or directory.rules[-len(directory.chain) :] != directory.chain
        ):
            directory.rules_text = text
            own = IgnoreFile(path, text)
            directory.rules = (own, *directory.chain) if own else directory.chain

    def _index(self, root: str) -> Index:
        if root not in self._indexes:
            self._indexes[root] = Index(root, self._root)
            self._bound(self._indexes[root])
        return self._indexes[root]

    def _bound(self, index: Index) -> None:
        """Drop this index if all indexes together have too many entries: any number of directories can name the same index."""
        if sum(len(each.entries) for each in self._indexes.values()) > MAX_ENTRIES:
            index.forget()

    def _surroundings(self) -> tuple[Sequence[IgnoreFile], Index | None]:
        """Return the rules from outside the root that apply to it, and the index of the repository around it."""
        above = list(_above(self._root))
        repository = next((path for path in above if os.path.lexists(f"{path}/.git")), "")
        between = above[1 : above.index(repository) + 1] if repository else []
        chain = [IgnoreFile(path, _text(f"{path}/{NAME}")) for path in between]
        index = self._index(repository) if repository else None
        everywhere = [os.path.expanduser("~/.config/git/ignore")]
        everywhere += [f"{index.common_dir}/info/exclude"] if index else []
        chain += [
            IgnoreFile(repository or self._root, _text(path)) for path in reversed(everywhere)
        ]
        return tuple(filter(None, chain)), index


def _settle(changes: Sequence[ChangedRow]) -> None:
    """Wait until another change would get a different time."""
    newest = max((seen.after.ctime_ns for seen in changes if seen.after), default=0)
    left = newest + TICK_NS - time.time_ns()
    if 0 < left <= TICK_NS:
        time.sleep(left / 1e9)


def _came_back(old_rules: Sequence[IgnoreFile], directory: Directory, path: str, name: str) -> bool:
    """Return whether a new name was ignored by the previous rules, so that it may have existed before."""
    return old_rules != directory.rules and is_ignored(old_rules, path, name)


def _above(path: str) -> Iterator[str]:
    """Yield a directory and all its parents."""
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _text(path: str) -> str:
    try:
        return os.fsdecode(load(path, MAX_RULES_BYTES, MAX_RULES_BYTES)[0])
    except OSError:
        return ""
