"""
The journal's file: JSON lines, only ever appended to, a header first.

A process that was killed leaves at most one torn line, the last: it is cut off when the journal is opened to be written. Lines that
are damaged are left out, and counted: what they recorded cannot be undone, which the user has to know. Names of files can hold any
bytes, so these lines are Python's JSON: what is no UTF-8 stands there as lone surrogates.

A journal of another version, or one whose header is damaged, is neither read nor written: what this version appended to it would
never be read again, by either. This version then has a journal of its own next to it. Moving the other one away was the alternative;
but whoever goes back to that version, after trying this one, would find their undo gone.
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
"""The journal of this version where another version has the usual name."""
OTHER_VERSION = "What was changed earlier in this session was recorded by another version of Sanderling, which can undo it. This one cannot."
DAMAGED_HEADER = (
    "The record of what was changed earlier in this session is damaged: none of that can be undone."
)
DAMAGED_LINES = "{count} line{s} of the record of this session's changes {are} damaged: what {they} recorded cannot be undone."
MAX_BYTES = 256 << 20
"""All of it is in memory while a session is open."""


Kind = Literal["", "undo", "redo", "rewind"]


class Header(msgspec.Struct, tag="changes", frozen=True):
    version: int
    project: str


class TurnBegun(msgspec.Struct, tag="turn", frozen=True):
    """The turn of the prompt `id` has begun: what follows was changed in it."""

    id: str


class Changing(msgspec.Struct, tag="changing", frozen=True):
    """A tool is about to make a change: without a record of how that ended, it may have been made."""

    change: FileChange


class Changed(msgspec.Struct, tag="changed", frozen=True):
    """A change was made; the one that was announced for its path, if any was, is it."""

    change: FileChange


class Unchanged(msgspec.Struct, tag="unchanged", frozen=True):
    """The change that was announced for `path` was not made."""

    path: str


class CommandBegun(msgspec.Struct, tag="command_begun", frozen=True):
    """A command runs: what it has changed follows, before the record of its end. Without that nobody has looked."""

    tool_use_id: str


class CommandEnded(msgspec.Struct, tag="command_ended", frozen=True):
    tool_use_id: str


class Restoring(msgspec.Struct, tag="restoring", frozen=True, omit_defaults=True):
    """
    Files are about to be brought from one state to another, `before` to `after` in each step: the undoing `id` of `turns`.

    With `undoes` it is that undoing which is taken back: the turns are redone. `kind` is what the person has asked for, and with a
    `prompt_id` the conversation goes back to before that prompt as well.
    """

    id: str
    turns: tuple[str, ...]
    steps: tuple[FileChange, ...]
    undoes: str = ""
    kind: Kind = ""
    prompt_id: str = ""


class Restored(msgspec.Struct, tag="restored", frozen=True, omit_defaults=True):
    """The undoing `id` has come to its end; `paths` are those that it has changed, `left` those that it could not, each with the reason."""

    id: str
    paths: tuple[str, ...]
    left: tuple[tuple[str, str], ...] = ()


class Reviewed(msgspec.Struct, tag="reviewed", frozen=True, omit_defaults=True):
    """
    The person has reviewed what the agent did to the file `path`: of that only what leads from `before` to `after` is left to be reviewed.

    Where those are the same, nothing is.
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


def encoded(record: Header | Record) -> bytes:
    return json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode() + b"\n"


def decoded(line: bytes) -> Header | Record | None:
    with suppress(ValueError, RecursionError, msgspec.ValidationError):
        return msgspec.convert(json.loads(line), Header | Record)
    return None


class Recorded(NamedTuple):
    """The records of a journal, and what is wrong with it: sentences."""

    records: list[Record]
    problems: tuple[str, ...] = ()


class JournalFile(Descriptor):
    """The journal of one session on disk; `path` is its usual place. Every method blocks, and may raise `OSError`."""

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
                write_all(fd, encoded(Header(VERSION, self._project)))
        except BaseException:
            os.close(fd)
            raise
        return fd


def read_journal(path: Path) -> Recorded:
    """Read a journal, also one that another process writes."""
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
    """Return why this version leaves the journal at `path` alone, as a sentence; empty if it does not."""
    try:
        with open_plain(path) as file:
            line = file.readline()
    except FileNotFoundError:
        return ""
    if not line.endswith(b"\n"):  # torn before the header was complete: nothing is lost with it
        return ""
    header = decoded(line)
    if not isinstance(header, Header):
        return DAMAGED_HEADER
    return "" if header.version == VERSION else OTHER_VERSION


def _lines(path: Path) -> tuple[list[Record], int]:
    """The records of the journal at `path`, and the number of lines that cannot be read."""
    records: list[Record] = []
    damaged = 0
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return records, damaged
    with file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                break  # torn, or another process is writing it
            record = decoded(line)
            if record and not isinstance(record, Header):
                records.append(record)
            elif number or not isinstance(record, Header):
                damaged += 1
    return records, damaged
