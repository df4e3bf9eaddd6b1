"""
The journal of a session that was forked: of the turns that both sessions have it knows what the other one does.

The packs are the same files by a second name: nobody changes what stands in them, and each session appends to its own.
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
    """The directory of the journal of the session that another one was forked from, and the `turns` that both have."""

    directory: Path
    project: str
    turns: frozenset[str]


def take_over(origin: Origin, directory: Path) -> None:
    """
    Make the journal in `directory` of what there is in that of `origin`, unless there is one.

    Raises:
        OSError: it cannot be made; nothing is there then.
    """
    if (directory / NAME).exists() or not (origin.directory / NAME).exists():
        return
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # a process that was killed has left it
    try:
        temporary.mkdir(mode=0o700)
        for pack in sorted(origin.directory.glob(PACKS)):
            with suppress(FileNotFoundError):  # it was dropped just now
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
    """The records of `turns`, and of the undoings that have come to their end and were about none but these."""
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
                yield replace(record, kind="", prompt_id="")  # that conversation is the other one's
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
