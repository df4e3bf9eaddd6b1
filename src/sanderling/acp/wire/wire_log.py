"""A log of a connection: each message, unredacted, as a line of JSON in a file that only the user can read."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from sanderling.paths import write_all

VARIABLE = "SANDERLING_ACP_LOG"


class Logged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log: a `message`, or the `text` of an invalid one. `direction` is relative to this process."""

    at: datetime
    direction: Literal["in", "out"]
    message: msgspec.Raw | UnsetType = UNSET
    text: str = ""


class WireLog:
    """The log of one connection: a new file in `directory`, named by the current time."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S.%fZ}-{os.getpid()}.ndjson"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o600)

    def note(
        self, direction: Literal["in", "out"], line: bytes, *, is_message: bool = True
    ) -> None:
        now = datetime.now(UTC)
        if is_message:
            logged = Logged(now, direction, msgspec.Raw(line.strip()))
        else:
            logged = Logged(now, direction, text=line.decode(errors="replace"))
        self._write(msgspec.json.encode(logged) + b"\n")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            return
        try:
            write_all(self._descriptor, line)
        except OSError as error:  # a full disk: continue without the log
            self.close()
            sys.stderr.write(f"sanderling: stopped logging to {self.path}: {error.strerror}\n")
