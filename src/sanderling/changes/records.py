"""
The journal's file: JSON lines, only ever appended to, a header first.

A process that was killed leaves at most one torn line, the last: it is cut off when the journal is opened to be written. Lines that
are damaged, and records of a later version, are left out. Names of files can hold any bytes, so these lines are Python's JSON:
what is no UTF-8 stands there as lone surrogates.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from sanderling.changes.descriptor import Descriptor
from sanderling.changes.states import ABSENT, FileChange, State
from sanderling.paths import open_plain, write_all

VERSION = 1
NAME = "journal.jsonl"
MAX_BYTES = 256 << 20
"""All of it is in memory while a session is open."""


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
    kind: Literal["", "undo", "redo", "rewind"] = ""
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
    with suppress(ValueError, msgspec.ValidationError):
        return msgspec.convert(json.loads(line), Header | Record)
    return None


class JournalFile(Descriptor):
    """The journal of one session on disk. Every method blocks, and may raise `OSError`."""

    def __init__(self, path: Path, project: str) -> None:
        super().__init__()
        self._path = path
        self._project = project
        self._is_torn = False

    def read(self) -> list[Record]:
        """Return the records; none if there is no journal, or one that this version cannot read."""
        return list(read_journal(self._path))

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
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            data = self._path.read_bytes()
            os.ftruncate(fd, data.rfind(b"\n") + 1)
            if b"\n" not in data:
                write_all(fd, encoded(Header(VERSION, self._project)))
        except BaseException:
            os.close(fd)
            raise
        return fd


def read_journal(path: Path) -> Iterator[Record]:
    """The records of a journal, also of one that another process writes."""
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return
    with file:
        first: Any = decoded(file.readline())
        if not isinstance(first, Header) or first.version != VERSION:
            return
        for line in file:
            record = decoded(line) if line.endswith(b"\n") else None
            if record and not isinstance(record, Header):
                yield record
