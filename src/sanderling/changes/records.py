"""
The journal's file: append-only JSON lines, beginning with a header.

A killed process leaves at most one torn line at the end, which is cut off when the journal is opened for writing. Damaged lines are
skipped and counted: their changes cannot be undone, which the user has to know. File names can contain any bytes, so the lines are
Python's JSON, where bytes outside UTF-8 become lone surrogates.

A journal of another version, or with a damaged header, is neither read nor written: neither version could read what this one appended.
This version then starts its own journal next to it. Moving the other one away was the alternative; but a user who returns to that version
after trying this one would find their undo gone.
"""

import errno
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from sanderling.changes.descriptor import Descriptor
from sanderling.changes.states import ABSENT, FileChange, State
from sanderling.paths import open_plain, write_all

VERSION = 1
NAME = "journal.jsonl"
OWN_NAME = f"journal-{VERSION}.jsonl"
"""This version's journal when another version has the usual name."""
OTHER_VERSION = "Earlier changes in this session were recorded by another version of Sanderling; only that version can undo them."
DAMAGED_HEADER = "The record of this session's earlier changes is damaged: they cannot be undone."
DAMAGED_LINES = "{count} line{s} of this session's change record {are} damaged: the changes that {they} recorded cannot be undone."
MAX_BYTES = 256 << 20
"""An open session holds all of it in memory."""

Kind = Literal["", "undo", "redo", "rewind"]


class JournalHeader(msgspec.Struct, tag="changes", frozen=True):
    version: int
    project: str


class TurnBegun(msgspec.Struct, tag="turn", frozen=True):
    """The turn of the prompt `id` begins: the following changes belong to it."""

    id: str


class Changing(msgspec.Struct, tag="changing", frozen=True):
    """A tool is about to make a change: without a record of its end, it may have been made."""

    change: FileChange


class Changed(msgspec.Struct, tag="changed", frozen=True):
    """A change was made: the announced one for its path, if any."""

    change: FileChange


class Unchanged(msgspec.Struct, tag="unchanged", frozen=True):
    """The announced change to `path` was not made."""

    path: str


class CommandBegun(msgspec.Struct, tag="command_begun", frozen=True):
    """A command starts. Its changes follow, before the record of its end; without that record they are unknown."""

    tool_use_id: str


class CommandEnded(msgspec.Struct, tag="command_ended", frozen=True):
    tool_use_id: str


class Restoring(msgspec.Struct, tag="restoring", frozen=True, omit_defaults=True):
    """
    An undo is about to bring files from `before` to `after` in each step: the undo `id` of `turns`.

    With `undoes` it reverts that undo, so the turns are redone. `kind` is the user's request; with a `prompt_id` the conversation also
    returns to before that prompt.
    """

    id: str
    turns: tuple[str, ...]
    steps: tuple[FileChange, ...]
    undoes: str = ""
    kind: Kind = ""
    prompt_id: str = ""


class Restored(msgspec.Struct, tag="restored", frozen=True, omit_defaults=True):
    """The end of the undo `id`: `paths` were changed, `left` were not, each with the reason."""

    id: str
    paths: tuple[str, ...]
    left: tuple[tuple[str, str], ...] = ()


class Reviewed(msgspec.Struct, tag="reviewed", frozen=True, omit_defaults=True):
    """
    The user has reviewed the agent's changes to `path`; the change from `before` to `after` remains to be reviewed.

    If those are equal, nothing remains.
    """

    path: str
    before: State = ABSENT
    after: State = ABSENT


Record = (
    TurnBegun
    | Changing
    | Changed
    | Unchanged
    | CommandBegun
    | CommandEnded
    | Restoring
    | Restored
    | Reviewed
)


def encoded(record: JournalHeader | Record) -> bytes:
    return json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> JournalHeader | Record | None:
    with suppress(ValueError, RecursionError, msgspec.ValidationError):
        return msgspec.convert(json.loads(line), JournalHeader | Record)
    return None


class Recorded(NamedTuple):
    """The records of a journal, and its problems as sentences."""

    records: list[Record]
    problems: tuple[str, ...] = ()


class JournalFile(Descriptor):
    """The journal of one session on disk, normally at `path`. Every method blocks, and may raise `OSError`."""

    def __init__(self, path: Path, project: str) -> None:
        super().__init__()
        self._path = path
        self._project = project
        self._is_torn = False

    def read(self) -> Recorded:
        return read_journal(self._path)

    def append(self, records: Iterable[Record]) -> None:
        """Write `records`, all or none of them."""
        data = b"".join(map(encoded, records))
        with self._using():
            if self._fd is None:
                self._fd = self._opened()
            end = os.fstat(self._fd).st_size
            data = b"\n" * self._is_torn + data
            if end + len(data) > MAX_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            try:
                write_all(self._fd, data)
            except OSError:
                self._is_torn = True
                os.ftruncate(self._fd, end)
                self._is_torn = False
                raise
            self._is_torn = False

    def _opened(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path.with_name(OWN_NAME) if _foreign(self._path) else self._path
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            data = path.read_bytes()
            os.ftruncate(fd, data.rfind(b"\n") + 1)
            if b"\n" not in data:
                write_all(fd, encoded(JournalHeader(VERSION, self._project)))
        except BaseException:
            os.close(fd)
            raise
        return fd


def read_journal(path: Path) -> Recorded:
    """Read a journal, even while another process writes it."""
    problem = _foreign(path)
    records, damaged = _lines(path.with_name(OWN_NAME) if problem else path)
    problems = [problem] if problem else []
    if damaged:
        is_one = damaged == 1
        words = {"s": "" if is_one else "s", "are": "is" if is_one else "are"}
        they = "it" if is_one else "they"
        problems.append(DAMAGED_LINES.format(count=damaged, they=they, **words))
    return Recorded(records, tuple(problems))


def _foreign(path: Path) -> str:
    """Return why this version leaves the journal at `path` alone, as a sentence; "" if it does not."""
    try:
        with open_plain(path) as file:
            line = file.readline()
    except FileNotFoundError:
        return ""
    if not line.endswith(b"\n"):  # cut off before the header was complete: nothing is lost
        return ""
    header = decoded(line)
    if not isinstance(header, JournalHeader):
        return DAMAGED_HEADER
    return "" if header.version == VERSION else OTHER_VERSION


def _lines(path: Path) -> tuple[list[Record], int]:
    """Return the records of the journal at `path`, and the number of unreadable lines."""
    records: list[Record] = []
    damaged = 0
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return records, damaged
    with file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                break  # cut off, or another process is writing it
            record = decoded(line)
            if record and not isinstance(record, JournalHeader):
                records.append(record)
            elif number or not isinstance(record, JournalHeader):
                damaged += 1
    return records, damaged
