"""The turns of a session and what was undone of them, as the journal tells it."""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sanderling.changes.journal import turns_of
from sanderling.changes.records import (
    CommandBegun,
    CommandEnded,
    Kind,
    Record,
    Restored,
    Restoring,
    TurnBegun,
)
from sanderling.changes.states import FileChange, TurnChanges


class Undoing(NamedTuple):
    """
    An undoing, or with `undoes` one that was taken back. Of one that `is_finished`, `changes` are what it has done.

    `left` are the paths that it could not change, each with the reason; `kind` and `prompt_id` are those of the record.
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
    All turns in which something was changed, and all undoings, the oldest first.

    `interrupted` are the turns with a command whose end nobody saw: what it has changed is not known. They are among the turns, for
    they are what a user who undoes "the last turn" thinks of.
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
        """The last undoing, or taking back of one."""
        return self.undoings[-1] if self.undoings else None

    @property
    def last_undoing(self) -> Undoing | None:
        """The last undoing that was not taken back."""
        return next((each for each in reversed(self.undoings_in_force) if each.changes), None)

    def last_undoing_of(self, turn: str) -> Undoing | None:
        """The last undoing of this turn that was not taken back."""
        in_force = reversed(self.undoings_in_force)
        return next((each for each in in_force if each.changes and turn in each.turns), None)

    @property
    def undone_turns(self) -> set[str]:
        """The turns that were undone, at least in part: not those of which nothing could be, or of which some was done again."""
        redone = {each.undoes for each in self.undoings if each.changes}
        return {
            turn
            for each in self.undoings_in_force
            for turn in each.turns
            if each.id not in redone and not self._is_all_left(turn, each)
        }

    @property
    def tried_turns(self) -> set[str]:
        """The turns that were undone, or of which that was tried, and not redone since."""
        return {turn for each in self.undoings_in_force for turn in each.turns}

    def _is_all_left(self, turn: str, undoing: Undoing) -> bool:
        made = self.turns[turn].changes if turn in self.turns else ()
        left = {path for path, _ in undoing.left}
        return bool(made) and all(change.path in left for change in made)

    def changes_of(self, turns: Collection[str]) -> tuple[FileChange, ...]:
        """The changes of these turns that are not undone, the oldest first."""
        undone = {
            (turn, change.path)
            for each in self.undoings_in_force
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

    @property
    def undoings_in_force(self) -> list[Undoing]:
        """The undoings of which something is not taken back, with what that is."""
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
