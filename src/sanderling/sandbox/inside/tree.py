"""
A project's tree as it was looked at last, and what has changed in it since.

Where inotify can watch its directories, only those are looked at again in which something has happened; else the state of each file
is asked for. inotify tells of what goes through this kernel and by a name in the directory. So it is blind

* where a file system has another side (a server, the host of a virtual machine or container): a colleague's change there would be
  taken for that of the next command, and undo would take it back with it. Such file systems are not watched, and each file's state is
  asked for, in a way that passes by the caches of this side;
* to a change by a hard link outside of the tree. Directories that hold a file of several names are looked at each time. To look at all
  files each time would find those, too, that get a second name, are changed by it, and lose it again between two looks; but it costs
  130 ms for 40,000 files, before and after each command, where a look that finds nothing costs 1 ms. A file that has got a name
  outside since the last look, and has changed, is reported as such: nobody can tell by which name;
* to what is written into a file that is mapped into memory, until that ends. Then there is an event without a change of the times, as
  a page that is dirty already (on tmpfs: each page) is written to without the file system's knowledge; the bytes have to tell.

Nobody can set a change time: a file with the same row is the same, if its times are fine enough. One that was changed in the last tick
of the kernel's clock is waited out; what cannot be is a matter for `doubts.py`.

What is ignored and not tracked is left out, and so is what is version control's own: of that the names alone are known, so that
it is seen when they go (`git clean -xfd`). To look into what is ignored would be to look at each build.
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
from sanderling.sandbox.inside.ignoring import NAME, Rules, is_ignored
from sanderling.sandbox.inside.reading import TICK_NS, load
from sanderling.sandbox.inside.rows import Row, Seen, row_of
from sanderling.sandbox.inside.watches import Watches

MAX_FILES = 200_000
MAX_WALK_S = 20.0
MAX_RULES_BYTES = 128 << 10
"""The most of one file's rules that is read: these take a second to be understood, and who ignores a thousand things has a tenth of it."""
CHECKED_EACH = 256  # names
A_DIRECTORY, A_FILE = Row(stat.S_IFDIR, 0, 0, 0, 0), Row(stat.S_IFREG, 0, 0, 0, 0)
OWN = frozenset((".git", ".hg", ".jj", ".svn"))


class _Names(NamedTuple):
    """The names in a directory: those that count, and those that are left out."""

    files: dict[str, Row]
    directories: set[str]
    left_out: dict[str, Row]


class Tree:
    """The tree below `root`, which is absolute and real. If it `is_watched`, the kernel is asked to tell what changes."""

    def __init__(self, root: str, *, is_watched: bool = True) -> None:
        self._root = root
        self._directories: dict[str, Directory] = {}
        self._indexes: dict[str, Index] = {}
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._held: dict[str, Held] = {}  # by the root of their repository
        self._unjudged: dict[str, set[str]] = {}  # names by directory
        self._changes: dict[str, Seen] | None = None  # None: all is new
        self._count = 0
        self._end = 0.0
        self._waiting: list[tuple[str, Directory, bool]] = []
        self._systems: dict[int, FileSystem] = {}  # by their devices
        self._unwatched: set[str] = set()  # directories of whose files inotify does not tell all
        self._racy = Racy(self._directories)
        self._hidden = Hidden()
        self._watches = Watches()
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
        """The objects of the repository whose root that is, as far as they outlive their removal."""
        return self._held.get(repository)

    # --- looking -------------------------------------------------------------------------------------------------------

    def look(self) -> list[Seen]:
        """
        Return what has changed since the last look; the first one finds nothing changed.

        Raises:
            OSError: the root cannot be read; E2BIG: there is too much; ETIME: it takes too long.
        """
        self._end = time.monotonic() + MAX_WALK_S
        since_ns = self._hidden.begin()
        if not self._directories:
            system = FileSystem(self._root)
            around = Directory(Row(0, 0, 0, 0, 0), *self._surroundings(), system, is_ignored=False)
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
        """Take note of what the rows of files do not tell. Those that were written, and have the same row, may hold something else."""
        assert self._changes is not None
        unsure = self._racy.doubt(self._changes)
        unsure |= {f"{path}/{name}" for path, names in happened.items() for name in names}
        for path in unsure - self._changes.keys():
            if (row := known_row(self._directories, path)) and stat.S_ISREG(row.mode):
                self._note(path, row, row)
                self._changes[path] = self._changes[path]._replace(is_unsure=True)
        note_strangers(self._changes, self._directories)
        note_twins(self._changes, self._directories)

    def unclean(self) -> list[tuple[str, Row]]:
        """Return the files that have changed since this was asked last and are not what git has; the first time, of all."""
        waiting, self._unjudged = self._unjudged, {}
        if waiting:
            for index in self._indexes.values():
                index.refresh()
                self._bound(index)
        found: list[tuple[str, Row]] = []
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
        """Say whether files have changed since `unclean` was asked last."""
        return any(self._unjudged.values())

    def judged(self, paths: Iterable[str]) -> None:
        """Take note that the bytes of these files are known."""
        for path in paths:
            directory, _, name = path.rpartition("/")
            self._unjudged.get(directory, set()).discard(name)

    def _rescan(self, paths: Iterable[str]) -> None:
        """Look at each file in these directories, and list those that have changed themselves, or in which one has."""
        for path in sorted(paths):
            if (directory := self._directories.get(path)) is None:
                continue  # gone with one above it
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
                raise OSError(errno.ESTALE, "it is another directory")
            self._leave(path)
            if above := self._directories.get(os.path.dirname(path)):
                self._list(os.path.dirname(path), above)
            return
        if row.mode != directory.row.mode:
            self._note(path, directory.row, row)
        directory.row = row
        # One that was made anew can have the number of the one that is gone.
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
        """Take in the directory `path`, and have it listed."""
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
        self._watch(path, system)  # before it is listed, so that nothing comes between
        self._note(path, None, row, was_ignored=was_ignored)
        self._waiting.append((path, directory, was_ignored))

    def _leave(self, path: str) -> None:
        """Take note that a directory is gone, with all that was below it."""
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
        """Compare a directory with what is known of it; those that are new in it wait to be listed."""
        self._check_time()
        try:
            with os.scandir(path) as found:
                entries = list(found)
        except PermissionError:  # what is new in it is not known, and nothing is gone
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
    ) -> _Names:
        """The names in a directory, as they count."""
        found = _Names({}, set(), {})
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
        """Compare the files of a directory that may not be listed, as far as they can be seen by their names."""
        for name, old in tuple(directory.files.items()):
            row = directory.system.row(f"{path}/{name}")
            if row and row != old:
                self._note(f"{path}/{name}", old, row)
                directory.files[name] = row

    def _go_into(
        self, path: str, above: Directory, old_rules: Sequence[Rules], *, was_ignored: bool
    ) -> None:
        """Take in a directory that is new, or list it again because other rules hold for it now."""
        if known := self._directories.get(path):
            if old_rules != above.rules:
                known.chain = above.rules
                self._waiting.append((path, known, was_ignored))
            return
        place = f"{path}/", f"{os.path.basename(path)}/"
        is_out = above.is_ignored or is_ignored(above.rules, *place)
        is_back = was_ignored or _came_back(old_rules, above, *place)
        self._enter(path, above, is_ignored=is_out, was_ignored=is_back)

    def _replace(self, path: str, directory: Directory, found: _Names) -> None:
        """Let what was `found` be what a directory holds now."""
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
        self, path: str, before: Row | None, after: Row | None, *, was_ignored: bool = False
    ) -> None:
        """Take note of a change. A file in the place of a directory is noted twice: as the one that is gone, and as the new one."""
        if self._changes is None:
            return
        known = self._changes.get(path)
        if known:
            before, after = known.before or before, after or known.after
        named, repository = self._objects.pop(path, (b"", ""))
        name = named.hex()
        if known and not name:
            name, repository = known.object, known.repository
        self._changes[path] = Seen(path, before, after, name, repository, was_ignored)

    def _note_left_out(self, path: str, row: Row, why: Literal["", "closed"] = "") -> None:
        """Take note that something is gone of which the name alone was known."""
        if self._changes is not None:
            what = why or ("own" if os.path.basename(path) in OWN else "ignored")
            self._changes[path] = Seen(path, row._replace(inode=0), None, left_out=what)
            self._hidden.is_gone(row.inode, was_closed=bool(why))

    def _note_lost_repositories(self) -> None:
        """
        Take note of repositories that are none any more.

        Their directories may still be there, with what the sandbox protects in them: what makes one is its HEAD.
        """
        assert self._changes is not None
        for index in self._indexes.values():
            was_there, index.has_head = index.has_head, os.path.lexists(index.head)
            if was_there and not index.has_head and index.head.startswith(f"{self._root}/"):
                self._changes[index.head] = Seen(index.head, A_FILE, None, left_out="own")

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            raise OSError(errno.ETIME, "it takes too long")

    # --- what is left out ----------------------------------------------------------------------------------------------

    def _read_rules(
        self, path: str, directory: Directory, entries: "Sequence[os.DirEntry[str]]"
    ) -> None:
        """Read what stands in a directory about what counts in it: its .gitignore, and a repository's index."""
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
            own = Rules(path, text)
            directory.rules = (own, *directory.chain) if own else directory.chain

    def _index(self, root: str) -> Index:
        if root not in self._indexes:
            self._indexes[root] = Index(root, self._root)
            self._bound(self._indexes[root])
        return self._indexes[root]

    def _bound(self, index: Index) -> None:
        """Do without an index if all of them have too many entries: any number of directories can name the same one as theirs."""
        if sum(len(each.entries) for each in self._indexes.values()) > MAX_ENTRIES:
            index.forget()

    def _surroundings(self) -> tuple[Sequence[Rules], Index | None]:
        """The rules that hold for the root without standing in it, and the index of the repository that it lies in."""
        above = list(_above(self._root))
        repository = next((path for path in above if os.path.lexists(f"{path}/.git")), "")
        between = above[1 : above.index(repository) + 1] if repository else []
        chain = [Rules(path, _text(f"{path}/{NAME}")) for path in between]
        index = self._index(repository) if repository else None
        everywhere = [os.path.expanduser("~/.config/git/ignore")]
        everywhere += [f"{index.common_dir}/info/exclude"] if index else []
        chain += [Rules(repository or self._root, _text(path)) for path in reversed(everywhere)]
        return tuple(filter(None, chain)), index


def _settle(changes: Sequence[Seen]) -> None:
    """Wait until one more change would have another time."""
    newest = max((seen.after.ctime_ns for seen in changes if seen.after), default=0)
    left = newest + TICK_NS - time.time_ns()
    if 0 < left <= TICK_NS:
        time.sleep(left / 1e9)


def _came_back(old_rules: Sequence[Rules], directory: Directory, path: str, name: str) -> bool:
    """Say whether what is new was ignored by the rules that held before, so that it may have been there."""
    return old_rules != directory.rules and is_ignored(old_rules, path, name)


def _above(path: str) -> Iterator[str]:
    """A directory and those above it."""
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _text(path: str) -> str:
    try:
        return os.fsdecode(load(path, MAX_RULES_BYTES, MAX_RULES_BYTES)[0])
    except OSError:
        return ""
