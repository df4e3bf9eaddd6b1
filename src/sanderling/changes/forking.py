"""
The journal of a forked session: for the turns that both sessions share, a copy of the original's.

Packs are hard links to the same files: their contents never change, and each session appends to its own packs.
"""

import errno
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from sanderling.changes.records import (
    NAME,
    Changed,
    Changing,
    JournalFile,
    Record,
    Restored,
    Restoring,
    Reviewed,
    TurnBegun,
    Unchanged,
    read_journal,
)
from sanderling.changes.store import PACKS

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)


class Origin(NamedTuple):
    """The journal directory of the original session, and the `turns` that both share."""

    directory: Path
    project: str
    turns: frozenset[str]


def take_over(origin: Origin, directory: Path) -> None:
    """
    Create the journal in `directory` from that of `origin`, unless it exists.

    Raises:
        OSError: it could not be created; nothing is left behind.
    """
    if (directory / NAME).exists() or not (origin.directory / NAME).exists():
        return
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process
    try:
        temporary.mkdir(mode=0o700)
        for pack in sorted(origin.directory.glob(PACKS)):
            with suppress(FileNotFoundError):  # dropped just now
                _name_again(pack, temporary / pack.name)
        file = JournalFile(temporary / NAME, origin.project)
        file.append(_shared(read_journal(origin.directory / NAME).records, origin.turns))
        file.sync()
        file.close()
        temporary.rename(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _name_again(pack: Path, target: Path) -> None:
    try:
        target.hardlink_to(pack)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copy2(pack, target)


def _shared(records: Collection[Record], turns: Collection[str]) -> Iterator[Record]:
    """Yield the records of `turns`, and of completed undos of these turns only."""
    undoings = _undoings(records, turns)
    is_shared = False
    for record in records:
        match record:
            case TurnBegun(id):
                is_shared = id in turns
                if is_shared:
                    yield record
            case Changing() | Changed() | Unchanged() | Reviewed() if is_shared:
                yield record
            case Restoring(id) if id in undoings:
                yield replace(record, kind="", prompt_id="")  # those are the original's
            case Restored(id) if id in undoings:
                yield record
            case _:
                pass


def _undoings(records: Iterable[Record], turns: Collection[str]) -> set[str]:
    ended = {record.id for record in records if isinstance(record, Restored)}
    return {
        record.id
        for record in records
        if isinstance(record, Restoring) and record.id in ended and set(record.turns) <= set(turns)
    }
