"""States of files before and after the agent has changed them."""

from collections.abc import Iterable
from typing import Literal

import msgspec

ANY_MODE = -1
"""The mode of what was about to be made, when nobody has seen which one it got."""
TOO_LARGE, NO_ROOM, UNREADABLE = "too large", "no room", "unreadable"


def stamp_of(inode: int, ctime_ns: int) -> str:
    """Return the stamp of a state: a change of the thing is a change of this."""
    return f"{inode}:{ctime_ns}"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The state of a path at one time. `mode` are its permission bits, `target` is a link's.

    `content` is the digest of its bytes in the store, empty where they are not kept; then `lost` says why. `stamp` stands for what
    cannot be read: with the same one it is the same thing, and nobody has changed it.
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
    A change of the file `path`, which is absolute; bytes of a name that are no UTF-8 are surrogates (PEP 383).

    `doubt` says why it may not be the agent's: a job ran in the background, say, while the person worked. It is empty if it is.
    `is_seen`: the person was shown it, and allowed it, before it was made. A twin is the path of the same file by another name (a hard
    link), where it had one before the change, or has one after it.
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
    The changes of the turn that began with the prompt `turn`, one for each path: what was there first, and what is there last.

    A path has several where somebody else has changed it in between: they are in their order.
    Those that may not be the agent's are `doubtful`, and in `changes` only what was certain.
    """

    turn: str
    changes: tuple[FileChange, ...]
    doubtful: tuple[FileChange, ...] = ()


def merged(turn: str, changes: tuple[FileChange, ...]) -> TurnChanges:
    """The changes of a turn from all that were made in it, in their order. What came back to what it was is none."""
    certain = _one_each(change for change in changes if not change.doubt)
    doubtful = _one_each(change for change in changes if change.doubt)
    return TurnChanges(turn, certain, doubtful)


def _one_each(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    chains: dict[str, list[FileChange]] = {}
    for change in changes:
        chain = chains.pop(change.path, [])  # the last one decides about the order
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
    """Say whether the file has other names after the change: it may hold the same as before, but not be the same file."""
    return change.before_twin != change.after_twin
