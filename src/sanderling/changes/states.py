"""States of files before and after the agent's changes."""

from collections.abc import Iterable
from typing import Literal

import msgspec

ANY_MODE = -1
"""The mode of a planned file, directory or link whose actual mode is unknown."""
TOO_LARGE, NO_ROOM, UNREADABLE = "too large", "no room", "unreadable"


BRINGING = "worktree:"
"""How the turn, and the tool use, of changes begins that apply the work of a worktree."""
REMEMBERING = "remember:"
"""How the turn, and the tool use, of a change begins that the user's corrections led to; the id of the last prompt and a unique one follow."""


def stamp_of(inode: int, ctime_ns: int) -> str:
    return f"{inode}:{ctime_ns}"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The state of a path at one time. `mode` has the permission bits, `target` is a link's.

    `content` is the digest of the bytes in the store, or empty if they are not kept; then `lost` says why. `stamp` identifies an
    unreadable file: as long as it is the same, the file is unchanged.
    """

    kind: Literal["absent", "file", "link", "directory", "fifo", "socket", "other"] = "absent"
    mode: int = 0
    size: int = 0
    content: str = ""
    target: str = ""
    lost: str = ""
    stamp: str = ""


ABSENT = State()


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A change to the file `path`, an absolute path; undecodable bytes are surrogates (PEP 383).

    `doubt` says why it may not be the agent's, for example that a job ran in the background while the user worked; it is empty if it is.
    `is_seen`: the user saw and allowed it before it was made. A twin is another name (hard link) of the same file, before or after the
    change.
    """

    path: str
    before: State
    after: State
    tool_use_id: str
    doubt: str = ""
    is_seen: bool = False
    before_twin: str = ""
    after_twin: str = ""


class TurnChanges(msgspec.Struct, frozen=True):
    """
    The changes of the turn of the prompt `turn`, normally one for each path, from first to last state.

    A path has several changes, in order, if others changed it in between. Changes that may not be the agent's are `doubtful`; `changes`
    has only the certain ones.
    """

    turn: str
    changes: tuple[FileChange, ...]
    doubtful: tuple[FileChange, ...] = ()


def merged(turn: str, changes: tuple[FileChange, ...]) -> TurnChanges:
    """Combine all changes of a turn, given in order; a path that returned to its first state has none."""
    certain = _one_each(change for change in changes if not change.doubt)
    doubtful = _one_each(change for change in changes if change.doubt)
    return TurnChanges(turn, certain, doubtful)


def _one_each(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    chains: dict[str, list[FileChange]] = {}
    for change in changes:
        chain = chains.pop(change.path, [])  # the order follows the last change
        if chain and chain[-1].after == change.before:
            first = chain.pop()
            chain.append(
                msgspec.structs.replace(change, before=first.before, before_twin=first.before_twin)
            )
        else:
            chain.append(change)
        chains[change.path] = chain
    every = (change for chain in chains.values() for change in chain)
    return tuple(
        each for each in every if each.before != each.after or each.after.lost or is_split(each)
    )


def is_split(change: FileChange) -> bool:
    """True if the file's other names differ after the change: it may have the same content, but is not the same file."""
    return change.before_twin != change.after_twin
