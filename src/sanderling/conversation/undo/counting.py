"""Counts the lines that changes of files added and removed, under the names to show."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from sanderling.changes.editing.lines import TextDifference
from sanderling.changes.editing.text import decode
from sanderling.changes.states import FileChange, State
from sanderling.protocol.events import ChangedLines
from sanderling.tools.workspace import Workspace

MAX_LISTED = 1000
MAX_BYTES, MAX_S = 8 << 20, 0.5
"""Limits for counting the lines of a command, whose result waits for them."""


class ShownNames:
    """
    The names to show for a list of changes, each a path with its states before and after.

    A directory that appears or disappears is shown by its contents; an empty one by its own name.
    """

    def __init__(self, changes: Iterable[tuple[str, State, State]]) -> None:
        self._hidden: set[str] = set()
        self._modes: set[str] = set()
        self._directories: set[str] = set()
        for path, *states in changes:
            kinds = {state.kind for state in states}
            if "directory" in kinds:
                self._directories.add(path)
            self._hidden.update(map(str, PurePath(path).parents))
            if kinds == {"directory"}:
                self._modes.add(path)

    def shown(self, path: str, shown: Callable[[str], str]) -> str:
        """Return the name to show for `path`; empty if it is omitted."""
        if path not in self._directories:
            return shown(path)
        return "" if path in self._hidden and path not in self._modes else f"{shown(path)}/"


class LineCounter:
    """Counts changed lines for a list of files, within limits of time and size, so that a list with huge files still completes."""

    def __init__(self, max_bytes: int, max_s: float) -> None:
        self._end = time.monotonic() + max_s
        self._room = max_bytes

    def counts(
        self, before: State, after: State, content: Callable[[State], bytes | None]
    ) -> tuple[int, int]:
        """Return the numbers of lines added and removed; 0 for binary files."""
        self._room -= before.size + after.size
        if self._room < 0 or time.monotonic() > self._end:
            return 0, 0
        texts = [decode(content(each) or b"") for each in (before, after)]
        if any(text.is_binary for text in texts):
            return 0, 0
        hunks = TextDifference(texts[0].text, texts[1].text).hunks
        return sum(len(hunk.lines) for hunk in hunks), sum(hunk.line_count for hunk in hunks)


def changed_lines(changes: Sequence[FileChange], workspace: Workspace) -> tuple[ChangedLines, ...]:
    """Return the changed lines of the first `MAX_LISTED` files. Call it from a thread."""
    counter, stored = LineCounter(MAX_BYTES, MAX_S), workspace.journal.stored
    names = ShownNames((each.path, each.before, each.after) for each in changes)
    return tuple(
        ChangedLines(name, *counter.counts(each.before, each.after, stored))
        for each in changes[:MAX_LISTED]
        if (name := names.shown(each.path, workspace.shown))
    )
