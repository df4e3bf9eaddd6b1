"""The turns of a session and what was undone of them, as the journal tells it."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sanderling.changes.journal import turns_of
from sanderling.changes.records import Record, Restored, Restoring
from sanderling.changes.states import FileChange, TurnChanges


class Undoing(NamedTuple):
    """An undoing, or with `undoes` one that was taken back. Of one that `is_finished`, `changes` are what it has done."""

    id: str
    turns: tuple[str, ...]
    changes: tuple[FileChange, ...]
    undoes: str
    is_finished: bool


class Timeline:
    """All turns in which something was changed, and all undoings, the oldest first."""

    def __init__(self, records: Iterable[Record]) -> None:
        records = list(records)
        self.turns = {each.turn: each for each in turns_of(records)}
        self.undoings = list(_undoings(records))

    @property
    def unfinished(self) -> Undoing | None:
        """The undoing that was interrupted, if the last one was."""
        last = self.undoings[-1] if self.undoings else None
        return last if last and not last.is_finished else None

    @property
    def last_turn(self) -> TurnChanges | None:
        """The last turn that was not undone."""
        undone = self.undone_turns
        return next(
            (each for each in reversed(self.turns.values()) if each.turn not in undone), None
        )

    @property
    def last_undoing(self) -> Undoing | None:
        """The last undoing that was not taken back."""
        return next(reversed(self._in_force()), None)

    def last_undoing_of(self, turn: str) -> Undoing | None:
        """The last undoing of this turn that was not taken back."""
        return next((each for each in reversed(self._in_force()) if turn in each.turns), None)

    @property
    def undone_turns(self) -> set[str]:
        return {turn for each in self._in_force() for turn in each.turns}

    def changes_of(self, turns: Collection[str]) -> tuple[FileChange, ...]:
        """The changes of these turns that are not undone, the oldest first."""
        undone = {
            (turn, change.path)
            for each in self._in_force()
            for turn in each.turns
            for change in each.changes
        }
        return tuple(
            change
            for each in self.turns.values()
            if each.turn in turns
            for change in each.changes
            if (each.turn, change.path) not in undone
        )

    def doubtful_of(self, turns: Collection[str]) -> tuple[FileChange, ...]:
        """The changes in the time of these turns that may not be the agent's."""
        return tuple(
            change for each in self.turns.values() if each.turn in turns for change in each.doubtful
        )

    def _in_force(self) -> list[Undoing]:
        taken_back = {each.undoes for each in self.undoings if each.undoes}
        return [each for each in self.undoings if not each.undoes and each.id not in taken_back]


def _undoings(records: Iterable[Record]) -> Iterator[Undoing]:
    records = list(records)
    ends = {each.id: set(each.paths) for each in records if isinstance(each, Restored)}
    for each in records:
        if isinstance(each, Restoring):
            done = ends.get(each.id)
            steps = (step for step in each.steps if done is None or step.path in done)
            yield Undoing(each.id, each.turns, tuple(steps), each.undoes, done is not None)
