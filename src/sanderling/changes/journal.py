"""The journal of a session: the agent's file changes, with former contents."""

import errno
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec.structs import replace

from sanderling.changes.forking import Origin, take_over
from sanderling.changes.records import (
    NAME,
    Changed,
    Changing,
    JournalFile,
    Record,
    Restored,
    Restoring,
    TurnBegun,
    Unchanged,
)
from sanderling.changes.scan import Scan
from sanderling.changes.states import (
    ABSENT,
    ANY_MODE,
    NO_ROOM,
    TOO_LARGE,
    FileChange,
    State,
    TurnChanges,
    merged,
)
from sanderling.changes.store import MAX_FILE_BYTES, Store, packed
from sanderling.paths import real_path
from sanderling.sandbox.inside.reading import Stamp
from sanderling.text import printable

UNWRITTEN = "Changes cannot be recorded ({reason}): they cannot be undone later."
UNKNOWN_BEFORE = (
    "Changes from before the fork cannot be undone here: their record was not copied ({reason})."
)
LARGE = "{path} is larger than {limit} MB: the agent's changes to it cannot be undone."


NOT_WRITTEN = Stamp(0, 0, 0, 0, 0, 0, 1)


class Edit:
    """A change that a tool is about to make; `stamp` is set to the file's once written."""

    def __init__(self, change: FileChange) -> None:
        self.change = change
        self.stamp = NOT_WRITTEN._replace(mode=change.after.mode)


@asynccontextmanager
async def unjournaled(path: str, new: bytes, mode: int, tool_use_id: str) -> AsyncGenerator[Edit]:
    """Make a change in this context that cannot be undone."""
    after = State("file", stat.S_IMODE(mode), len(new))
    yield Edit(FileChange(path, ABSENT, after, tool_use_id))


class Journal:
    """
    The journal of a session, in its own directory below `root`.

    Problems never stop the agent: `on_problem` gets each one once, as a sentence. A forked session has an `origin`.
    """

    def __init__(
        self,
        root: Path,
        session_id: str,
        project: str,
        on_problem: Callable[[str], None] = lambda _: None,
        origin: Origin | None = None,
    ) -> None:
        directory = root / session_id
        self._directory = directory
        self._origin = origin
        self._store = Store(directory, root)
        self.scan = Scan(real_path(project), self._store, root)
        self._file = JournalFile(directory / NAME, project)
        self._on_problem = on_problem
        self._problems: set[str] = set()
        self.problems: tuple[str, ...] = ()  # of the file, once read
        self._writing = anyio.Lock()
        self._records: list[Record] | None = None
        self._unwritten: list[Record] = []
        self._turn = ""
        self._last_turn = ""  # the last one in the file

    # --- writing -----------------------------------------------------------------------------------------------------------

    def begin_turn(self, prompt_id: str) -> None:
        self._turn = prompt_id

    @asynccontextmanager
    async def editing(
        self,
        path: str,
        old: bytes | None,
        mode: int,
        new: bytes,
        tool_use_id: str,
        *,
        directories: Iterable[str] = (),
        is_seen: bool = False,
    ) -> AsyncGenerator[Edit]:
        """
        Record in this context that `path` (a real path) changes from `old` (None: no file) to `new`.

        Both contents are on disk before the context begins. If it raises, the change was not made; otherwise it sets `stamp`. The new
        `directories` have an unknown mode until a later record.
        """
        contents = [new] if old is None else [old, new]
        *earlier, after = await self._kept(path, contents, mode)
        before = earlier[0] if earlier else ABSENT
        edit = Edit(FileChange(path, before, after, tool_use_id, is_seen=is_seen))
        made = State("directory", ANY_MODE)
        above = [FileChange(each, ABSENT, made, tool_use_id) for each in directories]
        await self.append(*map(Changing, (*above, edit.change)))
        try:
            yield edit
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.append(*(Unchanged(each.path) for each in (*above, edit.change)))
            raise
        mode = stat.S_IMODE(edit.stamp.mode)
        self.scan.edited(path, edit.stamp, replace(after, mode=mode))
        with anyio.CancelScope(shield=True):
            made = replace(edit.change, after=replace(after, mode=mode))
            await self.append(Changed(made), is_durable=False)  # the announcement is durable

    @asynccontextmanager
    async def restoring(self, path: str, state: State) -> AsyncGenerator[Edit]:
        """Record in this context that `path` returns to `state`, as part of a journaled undo; the context sets `stamp`."""
        edit = Edit(FileChange(path, ABSENT, state, ""))
        yield edit
        self.scan.edited(path, edit.stamp, state)

    async def keep(self, path: str, data: bytes, mode: int) -> State:
        """Store `data` so that `path` can be restored; return its state. A failure is reported as a problem."""
        return (await self._kept(path, [data], mode))[0]

    async def _kept(self, path: str, contents: Sequence[bytes], mode: int) -> list[State]:
        states = [State("file", stat.S_IMODE(mode), len(data)) for data in contents]
        if any(len(data) > MAX_FILE_BYTES for data in contents):
            self._report(LARGE.format(path=printable(path), limit=MAX_FILE_BYTES >> 20))

        def put() -> list[State]:
            found = [
                replace(state, lost=TOO_LARGE)
                if len(data) > MAX_FILE_BYTES
                else replace(state, content=self._store.put(packed(data)))
                for state, data in zip(states, contents, strict=True)
            ]
            self._store.sync()
            return found

        try:
            async with self._writing:
                return await to_thread.run_sync(put)
        except OSError as error:
            self._report(UNWRITTEN.format(reason=error.strerror))
            return [replace(state, lost=NO_ROOM) for state in states]

    async def note(self, *changes: FileChange) -> None:
        await self.append(*map(Changed, changes))

    async def append(self, *records: Record, is_durable: bool = True) -> None:
        """
        Write records; if `is_durable`, they are on disk on return, unless a problem was reported.

        Records that failed earlier are written first.
        """
        known = await self.records()
        async with self._writing:
            new = self._begun(records)
            known.extend(new)
            self._unwritten += new
            write = partial(self._write, tuple(self._unwritten), is_durable)
            try:
                is_quick = self._file.is_open and len(self._unwritten) == len(new)
                if is_durable or not is_quick:
                    await to_thread.run_sync(write)
                else:  # the write is only buffered, which is faster than a thread
                    write()
            except OSError as error:
                if error.errno == errno.EFBIG:  # there will never be room for it
                    self._unwritten = []
                self._report(UNWRITTEN.format(reason=error.strerror))

    async def announce(self, record: Restoring) -> None:
        """
        Write a record without which nothing may be undone; it is on disk on return.

        Raises:
            OSError: it could not be written.
        """
        known = await self.records()
        async with self._writing:
            new = self._begun([record])
            try:
                await to_thread.run_sync(self._write, (*self._unwritten, *new), True)
            except OSError:  # it may be in the file anyway: mark it as finished
                self._unwritten.append(Restored(record.id, ()))
                raise
            known.extend(new)

    def _begun(self, records: Sequence[Record]) -> list[Record]:
        """Return the records, after the beginning of their turn if the file does not contain it."""
        is_new = self._turn != self._last_turn
        return [*([TurnBegun(self._turn)] if is_new else []), *records]

    def _write(self, records: Sequence[Record], is_durable: bool) -> None:
        self._file.append(records)
        self._unwritten = []
        self._last_turn = self._turn
        if is_durable:
            self._file.sync()

    # --- reading -----------------------------------------------------------------------------------------------------------

    async def records(self) -> list[Record]:
        """Return all records, including earlier processes' records."""
        async with self._writing:
            if self._records is None:
                await self._take_over()
                try:
                    self._records, self.problems = await to_thread.run_sync(self._file.read)
                    for problem in self.problems:
                        self._report(problem)
                except OSError as error:
                    self._report(UNWRITTEN.format(reason=error.strerror))
                    self._records = []
                begun = [each.id for each in self._records if isinstance(each, TurnBegun)]
                self._last_turn = begun[-1] if begun else ""
            return self._records

    async def _take_over(self) -> None:
        """Copy the journal of the original session, for the turns that both share."""
        if self._origin:
            try:
                await to_thread.run_sync(take_over, self._origin, self._directory)
            except OSError as error:
                self._report(UNKNOWN_BEFORE.format(reason=error.strerror))

    async def turns(self) -> tuple[TurnChanges, ...]:
        return turns_of(await self.records())

    async def latest(self) -> TurnChanges | None:
        return next(reversed(await self.turns()), None)

    async def content(self, state: State) -> bytes | None:
        """Return a file's bytes in this state; None if they are not kept, or no longer."""
        async with self._writing:
            return await to_thread.run_sync(self.stored, state)

    def stored(self, state: State) -> bytes | None:
        """Return the same as `content`; call it from a thread."""
        try:
            return self._store.get(state.content) if state.content else None
        except OSError:
            return None

    async def contents(self, states: Iterable[State]) -> dict[str, bytes]:
        """Return the kept contents of these states by name."""
        names = {state.content for state in states if state.content}

        def get() -> dict[str, bytes]:
            found = {name: self._store.get(name) for name in names}
            return {name: data for name, data in found.items() if data is not None}

        try:
            async with self._writing:
                return await to_thread.run_sync(get)
        except OSError:
            return {}

    def close(self) -> None:
        self.scan.close()
        self._file.close()
        self._store.close()

    def _report(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.add(problem)
            self._on_problem(problem)


def _as_made(change: FileChange) -> FileChange:
    """Return an unconfirmed change: the mode of a new file is unknown."""
    if change.before != ABSENT:
        return change
    return replace(change, after=replace(change.after, mode=ANY_MODE))


def turns_of(records: Iterable[Record]) -> tuple[TurnChanges, ...]:
    """Return the turns with changes. An announced change without a recorded end counts as made."""
    turn, by_turn = "", dict[str, list[FileChange]]()
    announced: dict[str, tuple[str, FileChange]] = {}
    for record in records:
        match record:
            case TurnBegun(id):
                turn = id
            case Changing(change):
                announced[change.path] = (turn, change)
            case Changed(change):
                announced.pop(change.path, None)
                by_turn.setdefault(turn, []).append(change)
            case Unchanged(path):
                announced.pop(path, None)
            case _:
                pass
    for turn_of_it, change in announced.values():
        by_turn.setdefault(turn_of_it, []).append(_as_made(change))
    found: Sequence[TurnChanges] = [merged(each, tuple(made)) for each, made in by_turn.items()]
    return tuple(each for each in found if each.changes or each.doubtful)
