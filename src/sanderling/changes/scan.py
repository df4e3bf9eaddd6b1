"""
The project before and after a command: which files changed, and their former content.

Files that git has stored need no copy; all others are copied before a command runs. Most copies are never needed, and useless after the
session, so they are in an unnamed file that disappears with the process, however it ends.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec.structs import replace

from sanderling.changes.git import as_file, digest_of, read_objects
from sanderling.changes.states import (
    ABSENT,
    ANY_MODE,
    NO_ROOM,
    TOO_LARGE,
    UNREADABLE,
    FileChange,
    State,
    stamp_of,
)
from sanderling.changes.store import MAX_FILE_BYTES, Packed, Store, packed
from sanderling.paths import is_within, real_path
from sanderling.sandbox.execution_environment import ExecutionEnvironment
from sanderling.sandbox.files import Files
from sanderling.sandbox.inside.reading import Stamp
from sanderling.sandbox.inside.rows import ChangedRow, FileRow
from sanderling.sandbox.project_scanner import Copied, ProjectScanner

MAX_COPIES_BYTES = 256 << 20
RESERVE_BYTES = 1 << 30
"""Free disk space that copies must leave."""
IGNORED = "it was ignored before"
CLOSED = "its directory could not be read before"
LEFT_OUT = {
    "ignored": "git ignores it, so no copy was kept",
    "own": "version control's own files are not kept",
    "closed": "it could not be read",
}
UNSEEN = "it was not scanned before"
HOME = "it is the home directory or contains it"
SHARED = "it has another name outside the project, so another program may have changed it"
RESTARTED = "the sandbox was switched on or off meanwhile"
REFUSED = {
    errno.E2BIG: "it has more than 200,000 files and directories",
    errno.ETIME: "scanning its files takes too long",
    errno.ESTALE: "it was replaced by another directory",
}


class ScanError(Exception):
    """The project cannot be scanned, now or `is_for_good`; `str(error)` is a clause that follows "because"."""

    def __init__(self, reason: str, *, is_for_good: bool) -> None:
        super().__init__(reason)
        self.is_for_good = is_for_good


class _Copies:
    """Compressed contents by digest, until the process ends. Every method blocks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: int | None = None
        self._places: dict[bytes, tuple[int, int, int]] = {}
        self._end = 0

    def add(self, content: Packed) -> bool:
        """Keep `content`; return False if there is no room."""
        if content.digest in self._places:
            return True
        if self._end + len(content.data) > MAX_COPIES_BYTES:
            return False
        try:
            if self._file is None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file, path = tempfile.mkstemp(dir=self._directory)
                Path(path).unlink()
            status = os.fstatvfs(self._file)
            if status.f_bavail * status.f_frsize < RESERVE_BYTES:
                return False
            os.pwrite(self._file, content.data, self._end)
        except OSError:
            return False
        self._places[content.digest] = (self._end, len(content.data), content.size)
        self._end += len(content.data)
        return True

    def get(self, digest: bytes) -> Packed | None:
        if self._file is None or digest not in self._places:
            return None
        offset, length, size = self._places[digest]
        return Packed(digest, size, os.pread(self._file, length, offset))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Scan:
    """The scan of the project `root` for a journal with `store`; `directory` is for copies."""

    def __init__(self, root: str, store: Store, directory: Path) -> None:
        self._root = root
        self._is_home = is_within(real_path(str(Path.home())), root)
        self._store = store
        self._copies = _Copies(directory)
        self._scanner = ProjectScanner(root)
        self._known: dict[str, tuple[FileRow, State]] = {}
        self._edited: dict[str, tuple[Stamp | None, State]] = {}
        self._uncopied: dict[str, FileRow] = {}  # left over from an interrupted scan
        self._compared: set[str] = set()  # by content, in this scan

    def edited(self, path: str, stamp: Stamp, state: State) -> None:
        """Record what a tool wrote, so that it does not count as a change by others. Without an inode it is only in a buffer."""
        if stamp.inode:
            self._edited[path] = (stamp, state)

    def removed(self, path: str) -> None:
        """Record that a tool removed `path`, so that it does not count as a change by others."""
        self._edited[path] = (None, ABSENT)

    async def look(
        self, environment: ExecutionEnvironment, *, is_whole: bool = True
    ) -> list[FileChange]:
        """
        Scan the project; return the changes since the last scan, without a tool use, and keep old and new contents.

        The first scan, and the first in another environment, finds no changes. If it is not `is_whole`, changes are not needed.

        Raises:
            ScanError: for example, the project has too many files.
            SandboxError: there is no sandbox.
        """
        if self._is_home:
            raise ScanError(HOME, is_for_good=True)
        files = await environment.files()
        try:
            is_first, seen = await self._scanner.look(files)
            changes: list[FileChange] = []
            if is_whole and not is_first:
                changes = await self._changes(environment, files, seen)
            self._forget_unsure(seen)
            self._forget_edited(list(self._edited) if is_first else [each.path for each in seen])
            await self._copy_unclean(files)
        except OSError as error:
            reason = REFUSED.get(error.errno or 0)
            raise ScanError(
                reason or f"its files cannot be scanned ({error.strerror})",
                is_for_good=error.errno in (errno.E2BIG, errno.ETIME),
            ) from error
        if is_whole and is_first:
            raise ScanError(RESTARTED, is_for_good=False)
        return changes

    async def _copy_unclean(self, files: Files) -> None:
        """Copy files that git does not have: they may change next."""
        with anyio.CancelScope(shield=True):  # each unclean file is reported only once
            self._uncopied |= dict(await self._scanner.unclean(files))
        paths = [path for path, row in self._uncopied.items() if self._state(path, row) is None]
        while paths:
            copied = await self._scanner.copies(files, paths, MAX_FILE_BYTES)
            has_room = await to_thread.run_sync(self._take_copies, copied)
            if not has_room:
                break
            paths = paths[len(copied) :]
        self._uncopied.clear()

    def _take_copies(self, copied: Sequence[Copied]) -> bool:
        has_room = True
        for copy in copied:
            state = _state_of(copy)
            if copy.digest and not self._copies.add(Packed(copy.digest, copy.size, copy.data)):
                has_room = False
                state = _lost(copy.row, NO_ROOM)
            self._known[copy.path] = (copy.row, state)
        return has_room

    def _state(self, path: str, row: FileRow) -> State | None:
        """Return the known state of a row."""
        stamp, state = self._edited.get(path, (None, None))
        if stamp and _row_of(stamp) == row:
            return state
        known = self._known.get(path)
        return known[1] if known and known[0] == row else None

    # --- changes -----------------------------------------------------------------------------------------------------------

    async def _changes(
        self, environment: ExecutionEnvironment, files: Files, seen: Sequence[ChangedRow]
    ) -> list[FileChange]:
        news = [each for each in seen if not self._is_known(each)]
        if not news:
            return []
        objects = await self._objects(environment, files, news)
        copied = await self._copied(files, news)

        def record() -> list[FileChange]:
            changes: list[FileChange] = []
            for each in news:
                before = self._before(each, objects)
                after = self._after(each, copied.get(each.path))
                after = _as_closed(before, each, after)
                if before != after or after.lost or _is_split(each):
                    change = FileChange(
                        each.path,
                        before,
                        after,
                        tool_use_id="",
                        doubt=SHARED if each.is_shared else "",
                        before_twin=each.before_twin,
                        after_twin=each.after_twin,
                    )
                    changes.append(change)
            self._store.sync()
            return changes

        changes = await to_thread.run_sync(record)
        await self._scanner.judged(files, list(copied))
        return changes

    def _is_known(self, seen: ChangedRow) -> bool:
        """True if the row is unchanged since before the command, or is the result of a tool's change."""
        if seen.after is None:
            return self._edited.get(seen.path) == (None, ABSENT)
        if seen.is_unsure and stat.S_ISREG(seen.after.mode):
            return seen.before == seen.after and seen.after.size > MAX_FILE_BYTES
        _, edited = self._edited.get(seen.path, (None, None))
        if edited and edited.kind == "directory":  # its times change with its entries
            return edited == _directory(seen.after)
        return self._state(seen.path, seen.after) is not None

    def _forget_unsure(self, seen: Iterable[ChangedRow]) -> None:
        """Forget rows that do not determine the content, except those compared in this scan; new copies replace them."""
        for each in seen:
            if each.is_unsure:
                self._edited.pop(each.path, None)
                if each.path not in self._compared:
                    self._known.pop(each.path, None)
        self._compared.clear()

    def _forget_edited(self, paths: Iterable[str]) -> None:
        """Let entries without a stamp hold for one scan: the next such change is made by others."""
        for path in paths:
            if path in self._edited and self._edited[path][1].kind in ("absent", "directory"):
                del self._edited[path]

    async def _copied(self, files: Files, seen: Iterable[ChangedRow]) -> dict[str, Copied]:
        paths = [each.path for each in seen if each.after and not stat.S_ISDIR(each.after.mode)]
        found: dict[str, Copied] = {}
        while paths:
            some = await self._scanner.copies(files, paths, MAX_FILE_BYTES)
            found |= {copy.path: copy for copy in some}
            paths = paths[len(some) :]
        return found

    async def _objects(
        self, environment: ExecutionEnvironment, files: Files, seen: Iterable[ChangedRow]
    ) -> dict[str, bytes]:
        by_repository: dict[str, dict[str, int]] = {}
        for each in seen:
            if each.object and each.before and each.before.size <= MAX_FILE_BYTES:
                by_repository.setdefault(each.repository, {})[each.object] = each.before.size
        found: dict[str, bytes] = {}
        for repository, sizes in by_repository.items():
            found |= await read_objects(environment, self._root, repository, sizes)
            if missing := [name for name in sizes if name not in found]:
                largest = max(sizes[name] for name in missing)
                held = await self._scanner.objects(files, repository, missing, largest)
                found |= {name: data for name, data in held.items() if digest_of(data) == name}
        return found

    def _before(self, seen: ChangedRow, objects: dict[str, bytes]) -> State:
        row = seen.before
        if row and seen.left_out:
            lost = LEFT_OUT[seen.left_out]
            is_directory = stat.S_ISDIR(row.mode)
            return State("directory" if is_directory else "file", ANY_MODE, lost=lost)
        if seen.is_unsure and seen.after and self._state(seen.path, seen.after):
            row = seen.after  # written by a tool since, or unchanged
        if row is None:
            lost = IGNORED if seen.was_ignored else CLOSED if seen.was_closed else ""
            return State("file", lost=lost) if lost else ABSENT
        if state := _directory(row) or self._state(seen.path, row):
            if state.content and (copy := self._copies.get(bytes.fromhex(state.content))):
                return self._stored(copy, row)
            return state
        if row.size > MAX_FILE_BYTES or not seen.object:
            return _lost(row, TOO_LARGE if row.size > MAX_FILE_BYTES else UNSEEN)
        data = as_file(objects[seen.object], row.size) if seen.object in objects else None
        return _lost(row, UNREADABLE) if data is None else self._stored(packed(data), row)

    def _after(self, seen: ChangedRow, copy: Copied | None) -> State:
        if seen.after is None:
            return ABSENT
        if state := _directory(seen.after):
            return state
        if copy is None:
            return _lost(seen.after, UNREADABLE)
        state = _state_of(copy)
        if copy.digest:
            state = self._stored(Packed(copy.digest, copy.size, copy.data), copy.row)
        self._known[seen.path] = (copy.row, state)
        self._compared.add(seen.path)
        return state

    def _stored(self, content: Packed, row: FileRow) -> State:
        try:
            name = self._store.put(content)
        except OSError:
            return _lost(row, NO_ROOM)
        return State("file", stat.S_IMODE(row.mode), content.size, name)

    def close(self) -> None:
        self._scanner.close()
        self._copies.close()


def _state_of(copy: Copied) -> State:
    """Return the state of a copied file; the caller stores its content."""
    row, mode = copy.row, stat.S_IMODE(copy.row.mode)
    if row == FileRow(0, 0, 0, 0, 0):
        return ABSENT
    if stat.S_ISLNK(row.mode):
        return State("link", target=os.fsdecode(copy.data))
    if not stat.S_ISREG(row.mode):
        return _special(row)
    if copy.digest:
        return State("file", mode, copy.size, copy.digest.hex())
    return _lost(row, TOO_LARGE if row.size > MAX_FILE_BYTES else UNREADABLE)


def _row_of(stamp: Stamp) -> FileRow:
    return FileRow(stamp.mode, stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode, stamp.nlink)


def _directory(row: FileRow) -> State | None:
    return State("directory", stat.S_IMODE(row.mode)) if stat.S_ISDIR(row.mode) else None


def _lost(row: FileRow, why: str) -> State:
    if not (stat.S_ISLNK(row.mode) or stat.S_ISREG(row.mode)):
        return _special(row)
    kind = "link" if stat.S_ISLNK(row.mode) else "file"
    stamp = stamp_of(row.inode, row.ctime_ns) if why == UNREADABLE else ""
    return State(kind, stat.S_IMODE(row.mode), row.size, lost=why, stamp=stamp)


def _special(row: FileRow) -> State:
    """Return the state of a special file: FIFOs are interchangeable, sockets belong to a process."""
    mode = stat.S_IMODE(row.mode)
    if stat.S_ISFIFO(row.mode):
        return State("fifo", mode)
    if stat.S_ISSOCK(row.mode):
        return State("socket", mode, stamp=stamp_of(row.inode, row.ctime_ns))
    return State("other", mode)


def _is_split(seen: ChangedRow) -> bool:
    """True if a hard link was replaced by a separate file, perhaps with the same content."""
    before, after = seen.before, seen.after
    return (
        before is not None
        and after is not None
        and bool(seen.before_twin)
        and before.inode != after.inode
    )


def _as_closed(before: State, seen: ChangedRow, after: State) -> State:
    """
    Return the state of a file that became unreadable, if its times show that its content is unchanged.

    A program that resets times can make this wrong. Undo is still right, because `stamp` alone decides whether the file changed since;
    redo restores the content from before.
    """
    one, other = seen.before, seen.after
    if after.lost != UNREADABLE or not before.content or not one or not other:
        return after
    if (one.inode, one.size, one.mtime_ns) != (other.inode, other.size, other.mtime_ns):
        return after
    return replace(before, mode=after.mode, stamp=after.stamp)
