"""The turns of a session, their undos, and the changes that the user has not reviewed, read from the journal."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sanderling.changes.journal import turns_of
from sanderling.changes.records import (
    Changed,
    Changing,
    CommandBegun,
    CommandEnded,
    Kind,
    Record,
    Restored,
    Restoring,
    Reviewed,
    TurnBegun,
    Unchanged,
)
from sanderling.changes.states import FileChange, TurnChanges


class Undoing(NamedTuple):
    """
    An undo, or with `undoes` the redo of one. If it `is_finished`, `changes` are the completed ones.

    `left` are the paths that it could not change, each with the reason; `kind` and `prompt_id` come from the record.
    """

    id: str
    turns: tuple[str, ...]
    changes: tuple[FileChange, ...]
    undoes: str
    is_finished: bool
    left: tuple[tuple[str, str], ...] = ()
    kind: Kind = ""
    prompt_id: str = ""


class Timeline:
    """
    All turns with changes, and all undos, oldest first.

    `interrupted` turns have a command without a recorded end, so its changes are unknown. They are included because a user who undoes
    "the last turn" means them, too.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        records = list(records)
        self.undoings = list(_undoings(records))
        self.interrupted = set(_interrupted(records))
        made = {each.turn: each for each in turns_of(records)}
        begun = dict.fromkeys(each.id for each in records if isinstance(each, TurnBegun))
        self.turns = {
            turn: made.get(turn) or TurnChanges(turn, ())
            for turn in (*(each for each in made if each not in begun), *begun)
            if turn in made or turn in self.interrupted
        }

    @property
    def latest(self) -> Undoing | None:
        return self.undoings[-1] if self.undoings else None

    @property
    def last_undoing(self) -> Undoing | None:
        """The last undo that was not redone."""
        return next((each for each in reversed(self.undoings_in_force) if each.changes), None)

    def last_undoing_of(self, turn: str) -> Undoing | None:
        """Return the last undo of this turn that was not redone."""
        in_force = reversed(self.undoings_in_force)
        return next((each for each in in_force if each.changes and turn in each.turns), None)

    @property
    def undone_turns(self) -> set[str]:
        """The turns undone at least in part, except those in which no change could be undone or some were redone."""
        redone = {each.undoes for each in self.undoings if each.changes}
        return {
            turn
            for each in self.undoings_in_force
            for turn in each.turns
            if each.id not in redone and not self._is_all_left(turn, each)
        }

    @property
    def tried_turns(self) -> set[str]:
        """The turns with an attempted or completed undo that was not redone."""
        return {turn for each in self.undoings_in_force for turn in each.turns}

    def _is_all_left(self, turn: str, undoing: Undoing) -> bool:
        made = self.turns[turn].changes if turn in self.turns else ()
        left = {path for path, _ in undoing.left}
        return bool(made) and all(change.path in left for change in made)

    def changes_of(self, turns: Collection[str]) -> tuple[FileChange, ...]:
        """Return the changes of these turns that are not undone, oldest first."""
        undone = self.undone_changes
        return tuple(
            change
            for each in self.turns.values()
            if each.turn in turns
            for change in each.changes
            if (each.turn, change.path) not in undone
        )

    def doubtful_of(self, turns: Collection[str]) -> tuple[FileChange, ...]:
        return tuple(
            change for each in self.turns.values() if each.turn in turns for change in each.doubtful
        )

    @property
    def undone_changes(self) -> set[tuple[str, str]]:
        """The turn and path of each undone change."""
        return {
            (turn, change.path)
            for each in self.undoings_in_force
            for turn in each.turns
            for change in each.changes
        }

    @property
    def undoings_in_force(self) -> list[Undoing]:
        """The undos that are not wholly redone, with their remaining changes."""
        found: list[Undoing] = []
        for each in self.undoings:
            takers = [other for other in self.undoings if other.undoes == each.id]
            if each.undoes:
                continue
            if not takers:
                found.append(each)
                continue
            left = set[str].intersection(*({path for path, _ in taker.left} for taker in takers))
            if changes := tuple(change for change in each.changes if change.path in left):
                found.append(each._replace(changes=changes))
        return found


def _undoings(records: Iterable[Record]) -> Iterator[Undoing]:
    records = list(records)
    ends = {each.id: each for each in records if isinstance(each, Restored)}
    for each in records:
        if isinstance(each, Restoring):
            end = ends.get(each.id)
            done = set(end.paths) if end else None
            steps = tuple(step for step in each.steps if done is None or step.path in done)
            left = end.left if end else ()
            yield Undoing(
                each.id,
                each.turns,
                steps,
                each.undoes,
                done is not None,
                left,
                each.kind,
                each.prompt_id,
            )


def _interrupted(records: Iterable[Record]) -> Iterator[str]:
    turn, running = "", dict[str, str]()
    for record in records:
        match record:
            case TurnBegun(id):
                turn = id
            case CommandBegun(use):
                running[use] = turn
            case CommandEnded(use):
                running.pop(use, None)
            case _:
                pass
    yield from running.values()


Made = tuple[str, FileChange]
"""A turn, and a change in it."""


def unreviewed(
    records: Iterable[Record], *, has_commands: bool = False
) -> dict[str, tuple[FileChange, ...]]:
    """
    Return the changes of each path with unreviewed changes, oldest first.

    Commands' changes count for files that the file tools have changed; for other files only if it `has_commands`.
    """
    records = list(records)
    walk = _Walk(has_commands=has_commands)
    for record in records:
        walk.take(record)
    undone = Timeline(records).undone_changes
    left = {
        path: tuple(change for turn, change in made if (turn, path) not in undone)
        for path, made in walk.left.items()
    }
    return {path: changes for path, changes in left.items() if changes}


def _is_directory(change: FileChange) -> bool:
    return "directory" in (change.before.kind, change.after.kind)


class _Walk:
    """A walk through the records of a journal; `left` are the unreviewed changes so far."""

    def __init__(self, *, has_commands: bool) -> None:
        self._has_commands = has_commands
        self.left: dict[str, list[Made]] = {}
        self._turn = ""
        self._announced: set[str] = set()

    def take(self, record: Record) -> None:
        match record:
            case TurnBegun(turn):
                self._turn = turn
            case Changing(change) if not (change.is_seen or _is_directory(change)):
                self._announced.add(change.path)
                self._append(change)
            case Changed(change) if not (change.is_seen or change.doubt):
                is_asked = self._take_announced(change.path) or change.path in self.left
                if is_asked or self._has_commands:
                    self._append(change)
            case Unchanged(path):
                self._take_announced(path)
            case Reviewed(path, before, after):
                turns = {turn for turn, _ in self.left.pop(path, [])}
                if before != after:
                    turn = turns.pop() if len(turns) == 1 else ""
                    self.left[path] = [(turn, FileChange(path, before, after, ""))]
            case _:
                pass

    def _append(self, change: FileChange) -> None:
        self.left.setdefault(change.path, []).append((self._turn, change))

    def _take_announced(self, path: str) -> bool:
        """Remove the announced change to `path`; return False if there was none."""
        if path not in self._announced:
            return False
        self._announced.discard(path)
        made = self.left.get(path, [])
        if made:
            made.pop()
        if not made:
            self.left.pop(path, None)
        return True
