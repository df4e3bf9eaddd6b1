"""
Undo, without I/O: computes each file's content after undo from the recorded changes and the current files.

A path whose last change is the agent's gets its former content. If the user changed it since, or between two changes of the agent, the
user's changes are merged with the undo line by line. If both affect the same lines, or something else replaced the file, it is left
alone: no change of the user's is ever lost. Redo is the undo of an undo.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sanderling.changes.editing.merge import merge
from sanderling.changes.editing.text import decode
from sanderling.changes.states import ABSENT, ANY_MODE, UNREADABLE, FileChange, State
from sanderling.changes.store import name_of
from sanderling.text import common_length

SAME_LINES = "the same lines were changed since"
YOURS = "{lines} changed on both sides, and yours stay"
OTHER_THING = "it was replaced by something else"
GONE = "it was removed since"
CHANGED_NEW_FILE = "the agent created it, and it was changed since"
NOT_KEPT = "its earlier state was not kept: {why}"
NOT_TEXT = "it was changed since, and binary files cannot be merged"
NOT_KNOWN = "it may have been changed since: {why}"

NOT_MADE = {
    "socket": "it was a socket, which only its program can create",
    "other": "it was a device",
}

Content = Callable[[State], bytes | None]
"""Returns the bytes of a file in a state; None if they are no longer kept."""


class PresentState(NamedTuple):
    """The state of a path, with a file's bytes. A `twin` is another name of the same file."""

    state: State
    data: bytes | None = None
    twin: str = ""


class RestoreStep(NamedTuple):
    """
    The undo of one path: its present state, its new one, and whether that is a merge.

    If the twin of `then` has the same content by then, `path` is linked to it again. Without a twin it becomes a separate file.
    """

    path: str
    now: PresentState
    then: PresentState
    is_merged: bool = False


class SkippedPath(NamedTuple):
    """A path that is left alone, and the reason, as a clause."""

    path: str
    why: str


class RestorePlan(NamedTuple):
    """The steps in a valid order, and the paths left alone."""

    steps: tuple[RestoreStep, ...]
    left: tuple[SkippedPath, ...] = ()


class SkippedError(Exception):
    """A file is left alone; the text is the reason, as a clause."""


def file_state(data: bytes, mode: int) -> State:
    return State("file", mode, len(data), name_of(data))


def by_path(changes: Iterable[FileChange]) -> dict[str, list[FileChange]]:
    """Group changes by path, keeping their order."""
    found: dict[str, list[FileChange]] = {}
    for change in changes:
        found.setdefault(change.path, []).append(change)
    return found


def states_needed(changes: Sequence[FileChange], now: State) -> Iterator[State]:
    """Yield the states of one path whose bytes `plan` will request."""
    if len(changes) == 1 and is_same(now, changes[0].after):
        changes = [replace(changes[0], after=ABSENT)]
    for change in changes:
        yield from (each for each in (change.before, change.after) if each.content)


def plan(
    changes: Iterable[FileChange], present: Mapping[str, PresentState], content: Content
) -> RestorePlan:
    """Return how to undo `changes`, given oldest first; `present` has the current state of each path."""
    steps: list[RestoreStep] = []
    left: list[SkippedPath] = []
    for path, made in by_path(changes).items():
        now = present[path]
        try:
            then, is_merged = _taken_back(made, now, content)
        except SkippedError as error:
            left.append(SkippedPath(path, str(error)))
        else:
            now = now._replace(twin=made[-1].after_twin)
            if is_same(then.state, made[0].before):
                then = then._replace(twin=made[0].before_twin)
            has_other_names = now.state.kind == "file" and then.twin != now.twin
            if not is_same(then.state, now.state) or has_other_names:
                steps.append(RestoreStep(path, now, then, is_merged))
    return RestorePlan(tuple(sorted(steps, key=_place)), tuple(left))


def is_same(one: State, other: State) -> bool:
    """True if two states are certainly the same; states that were not kept cannot be compared."""
    if one.kind != other.kind:
        return False
    match one.kind:
        case "absent":
            return True
        case "link":
            return one.target == other.target
        case "directory" | "fifo":
            return _has_same_mode(one, other)
        case "file" if UNREADABLE not in (one.lost, other.lost):
            return bool(one.content) and one.content == other.content and _has_same_mode(one, other)
        case _:  # an unreadable file is the same if its stamp is
            return bool(one.stamp) and one.stamp == other.stamp


def _has_same_mode(one: State, other: State) -> bool:
    return one.mode == other.mode or ANY_MODE in (one.mode, other.mode)


def is_torn(now: PresentState, before: bytes | None, after: bytes | None) -> bool:
    """
    True if a process was killed while it overwrote `before` with `after`, and left a mixture.

    A user could leave the same bytes by restoring some of the agent's lines.
    """
    if now.data is None or before is None or after is None or now.data in (before, after):
        return False
    same = common_length(now.data, after)
    padded = before.ljust(len(after), b"\0")  # space is allocated before anything is written
    return len(now.data) == len(padded) and now.data[same:] == padded[same:]


def _place(step: RestoreStep) -> tuple[int, int]:
    """
    Return the sort key of a step: remove names before creating others.

    Remove files, then directories from the deepest up; then create directories from the top down, and files. Modes of directories come
    last: a read-only directory cannot be changed any more.
    """
    depth = step.path.count("/")
    before, after = step.now.state.kind, step.then.state.kind
    if after == "absent":
        return (1, -depth) if before == "directory" else (0, 0)
    if after == "directory":
        return (4, -depth) if before == "directory" else (2, depth)
    return 3, depth


def _taken_back(
    changes: Sequence[FileChange], now: PresentState, content: Content
) -> tuple[PresentState, bool]:
    """Return the new state of a path, and whether it is a merge."""
    is_merged = False
    for change in reversed(changes):
        if is_same(now.state, change.before):
            continue
        if is_same(now.state, change.after):
            now = _kept(change.before, content)
        elif _is_torn(now, change, content):
            now, is_merged = _kept(change.before, content), True
        else:
            now, is_merged = _merged(change, now, content), True
    return now, is_merged


def _is_torn(now: PresentState, change: FileChange, content: Content) -> bool:
    if {now.state.kind, change.before.kind, change.after.kind} != {"file"}:
        return False
    return is_torn(now, content(change.before), content(change.after))


def _kept(state: State, content: Content) -> PresentState:
    if why := state.lost or NOT_MADE.get(state.kind, ""):
        raise SkippedError(NOT_KEPT.format(why=why))
    if state.kind != "file":
        return PresentState(state)
    if (data := content(state)) is None:
        raise SkippedError(NOT_KEPT.format(why="its copy is missing or damaged"))
    return PresentState(state, data)


def _merged(change: FileChange, now: PresentState, content: Content) -> PresentState:
    before, after = change.before, change.after
    kinds = {before.kind, after.kind, now.state.kind}
    if kinds == {"directory"}:
        return PresentState(replace(now.state, mode=_mode(change, now)))
    if kinds != {"file"}:
        raise SkippedError(_why_other(change, now))
    if now.data is None:
        raise SkippedError(NOT_KNOWN.format(why=now.state.lost))
    if after.lost and not after.content:
        raise SkippedError(NOT_KNOWN.format(why=after.lost))
    data = _merged_bytes(
        _kept(after, content).data or b"", now.data, _kept(before, content).data or b""
    )
    return PresentState(file_state(data, _mode(change, now)), data)


def _mode(change: FileChange, now: PresentState) -> int:
    """Return the mode after undo: the user's, if they changed it."""
    return change.before.mode if now.state.mode == change.after.mode else now.state.mode


def _why_other(change: FileChange, now: PresentState) -> str:
    if now.state.kind == "absent":
        return GONE
    if now.state.kind == "other" and now.state.lost:  # in a directory that is closed
        return NOT_KNOWN.format(why=now.state.lost)
    if now.state.kind != change.after.kind:
        return OTHER_THING
    if change.after.lost or now.state.lost:
        return NOT_KNOWN.format(why=change.after.lost or now.state.lost)
    return CHANGED_NEW_FILE if change.before.kind == "absent" else OTHER_THING


def in_parts(
    changes: Sequence[FileChange], now: PresentState, content: Content
) -> tuple[PresentState, str]:
    """
    Return the undo of the `changes` of one path, given oldest first, where nothing conflicts, and a clause that names the other lines.

    If it cannot be done in parts, that is the present state, and why.
    """
    then, whys = now, list[str]()
    for change in reversed(changes):
        try:
            then, _ = _taken_back([change], then, content)
        except SkippedError as error:
            parts = _without_conflicts(change, then, content) if str(error) == SAME_LINES else None
            if parts is None:
                return now, str(error)
            then, why = parts
            whys.append(why)
    return then, "; ".join(whys)


def _without_conflicts(
    change: FileChange, now: PresentState, content: Content
) -> tuple[PresentState, str] | None:
    """
    Return the undo of `change` where nothing conflicts, with the user's lines elsewhere, and a clause that names these lines.

    None if it is not a text file on all sides, or the plan does not leave it alone because of conflicts.
    """
    sides = [content(change.after), now.data, content(change.before)]
    if any(data is None or decode(data).is_binary for data in sides):
        return None
    # Their side is the user's here: it is the one that a merge keeps.
    base, user, other = (data.decode("latin-1") for data in sides if data is not None)
    merged = merge(base, other, user)
    if not merged.conflicts:
        return None
    data = merged.text.encode("latin-1")
    numbers = ", ".join(
        str(each.theirs.start + 1)
        if len(each.theirs) < 2  # noqa: PLR2004 - a range needs two
        else f"{each.theirs.start + 1} to {each.theirs.stop}"
        for each in merged.conflicts
    )
    is_one = len(merged.conflicts) == 1 and len(merged.conflicts[0].theirs) <= 1
    lines = f"line {numbers} was" if is_one else f"lines {numbers} were"
    return PresentState(file_state(data, _mode(change, now)), data), YOURS.format(lines=lines)


def _merged_bytes(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Return `ours` with the changes from `base` to `theirs`."""
    if ours == base:
        return theirs
    if base == theirs:
        return ours
    if any(decode(data).is_binary for data in (base, ours, theirs)):
        raise SkippedError(NOT_TEXT)
    # Latin-1 maps each byte to one character, so the merge preserves any encoding and line endings.
    merged = merge(*(data.decode("latin-1") for data in (base, ours, theirs)))
    if merged.conflicts:
        raise SkippedError(SAME_LINES)
    return merged.text.encode("latin-1")
