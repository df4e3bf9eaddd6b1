"""The journal of a session: each change of a file that is the agent's, with what stood there before."""

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

UNWRITTEN = "What the agent changes cannot be recorded ({reason}): it cannot be undone later."
UNKNOWN_BEFORE = "What was changed before the fork cannot be undone in it: it cannot be recorded here ({reason})."
LARGE = "{path} is larger than {limit} MB: what the agent does to it cannot be undone."


NOT_WRITTEN = Stamp(0, 0, 0, 0, 0, 0, 1)


class Edit:
    """A change that a tool is about to make; `stamp` is that of the file when it was made, if it was written."""

    def __init__(self, change: FileChange) -> None:
        self.change = change
        self.stamp = NOT_WRITTEN._replace(mode=change.after.mode)


class Journal:
    """
    The journal of a session, in a directory of its own below `root`, that of all sessions.

    `on_problem` is told in a sentence, once for each reason, what could not be recorded: that never stops the agent. A session that
    was forked has an `origin`.
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
        self.problems: tuple[str, ...] = ()  # of the file, once it was read
        self._writing = anyio.Lock()
        self._records: list[Record] | None = None
        self._unwritten: list[Record] = []
        self._turn = ""
        self._last_turn = ""  # of which the file knows

    # --- what is told to it ------------------------------------------------------------------------------------------------

    def begin_turn(self, prompt_id: str) -> None:
        """Let what is changed from now on belong to the turn of this prompt."""
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
        Record that `path`, its links followed, which holds `old` (None: there is no file), is given the bytes `new` in this context.

        The disk has both before it begins. If it raises, the change was not made; else `stamp` is to be set. `directories` are made
        for it: with whatever mode, until that is noted.
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
            await self.append(Changed(made), is_durable=False)  # that it was announced will do

    @asynccontextmanager
    async def restoring(self, path: str, state: State) -> AsyncGenerator[Edit]:
        """Take note that `path` is brought back to `state` in this context, which an undoing has recorded; `stamp` is to be set."""
        edit = Edit(FileChange(path, ABSENT, state, ""))
        yield edit
        self.scan.edited(path, edit.stamp, state)

    async def keep(self, path: str, data: bytes, mode: int) -> State:
        """Return the state of the file `path` that holds `data`, which can be had back from now on, unless it is told that it cannot."""
        return (await self._kept(path, [data], mode))[0]

    async def _kept(self, path: str, contents: Sequence[bytes], mode: int) -> list[State]:
        states = [State("file", stat.S_IMODE(mode), len(data)) for data in contents]
        if any(len(data) > MAX_FILE_BYTES for data in contents):
            self._tell(LARGE.format(path=printable(path), limit=MAX_FILE_BYTES >> 20))

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
            self._tell(UNWRITTEN.format(reason=error.strerror))
            return [replace(state, lost=NO_ROOM) for state in states]

    async def note(self, *changes: FileChange) -> None:
        """Record changes that were made, in this order."""
        await self.append(*map(Changed, changes))

    async def append(self, *records: Record, is_durable: bool = True) -> None:
        """
        Write records; if that `is_durable`, the disk has them when this returns, unless it was told as a problem.

        What could not be written goes before what is written next.
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
                else:  # a line that the disk may take when it likes is written before a thread has begun
                    write()
            except OSError as error:
                if error.errno == errno.EFBIG:  # there will be no room for it
                    self._unwritten = []
                self._tell(UNWRITTEN.format(reason=error.strerror))

    async def announce(self, record: Restoring) -> None:
        """
        Write a record without which nothing may be undone; the disk has it when this returns.

        Raises:
            OSError: it cannot be written.
        """
        known = await self.records()
        async with self._writing:
            new = self._begun([record])
            try:
                await to_thread.run_sync(self._write, (*self._unwritten, *new), True)
            except OSError:  # it may stand there all the same: nobody is to finish it
                self._unwritten.append(Restored(record.id, ()))
                raise
            known.extend(new)

    def _begun(self, records: Sequence[Record]) -> list[Record]:
        """The records with the beginning of their turn before them, if the file does not know of that."""
        is_new = self._turn != self._last_turn
        return [*([TurnBegun(self._turn)] if is_new else []), *records]

    def _write(self, records: Sequence[Record], is_durable: bool) -> None:
        self._file.append(records)
        self._unwritten = []
        self._last_turn = self._turn
        if is_durable:
            self._file.sync()

    # --- what it knows -----------------------------------------------------------------------------------------------------

    async def records(self) -> list[Record]:
        """All records, those of earlier processes too."""
        async with self._writing:
            if self._records is None:
                await self._take_over()
                try:
                    self._records, self.problems = await to_thread.run_sync(self._file.read)
                    for problem in self.problems:
                        self._tell(problem)
                except OSError as error:
                    self._tell(UNWRITTEN.format(reason=error.strerror))
                    self._records = []
                begun = [each.id for each in self._records if isinstance(each, TurnBegun)]
                self._last_turn = begun[-1] if begun else ""
            return self._records

    async def _take_over(self) -> None:
        """Have what the session that this one was forked from knows of the turns that both have."""
        if self._origin:
            try:
                await to_thread.run_sync(take_over, self._origin, self._directory)
            except OSError as error:
                self._tell(UNKNOWN_BEFORE.format(reason=error.strerror))

    async def turns(self) -> tuple[TurnChanges, ...]:
        """The turns in which something was changed, the first first."""
        return turns_of(await self.records())

    async def latest(self) -> TurnChanges | None:
        """The last turn in which something was changed."""
        return next(reversed(await self.turns()), None)

    async def content(self, state: State) -> bytes | None:
        """The bytes of a file in this state; None if they are not kept, or not any more."""
        if not state.content:
            return None
        try:
            async with self._writing:
                return await to_thread.run_sync(self._store.get, state.content)
        except OSError:
            return None

    def stored(self, state: State) -> bytes | None:
        """Return what `content` does; for a thread, which holds no more than it needs."""
        try:
            return self._store.get(state.content) if state.content else None
        except OSError:
            return None

    async def contents(self, states: Iterable[State]) -> dict[str, bytes]:
        """The bytes of files in these states by what they are called, as far as they are kept."""
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

    def _tell(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.add(problem)
            self._on_problem(problem)


def _as_made(change: FileChange) -> FileChange:
    """A change whose end nobody saw: which mode a new file got is not known."""
    if change.before != ABSENT:
        return change
    return replace(change, after=replace(change.after, mode=ANY_MODE))


def turns_of(records: Iterable[Record]) -> tuple[TurnChanges, ...]:
    """The turns of a journal in which something was changed. A change that was announced and has no end counts as made."""
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
