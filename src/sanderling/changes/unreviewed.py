"""Unreviewed changes: those made without asking since the user last looked at the file, read from the journal."""

from collections.abc import Iterable

from sanderling.changes.records import Changed, Changing, Record, Reviewed, TurnBegun, Unchanged
from sanderling.changes.states import FileChange
from sanderling.changes.timeline import Timeline

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
    undone = {
        (turn, change.path)
        for each in Timeline(records).undoings_in_force
        for turn in each.turns
        for change in each.changes
    }
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
