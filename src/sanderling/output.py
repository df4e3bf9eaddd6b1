"""What a command writes: for the screen as text, for the model in bounds, for whoever needs it all in a file."""

import codecs
import os
import re
from pathlib import Path

from sanderling.errors import printable

MAX_SCREEN_CHARS = 256 * 1024
MAX_HEAD_BYTES = 15 * 1024
MAX_TAIL_BYTES = 15 * 1024
MAX_FILE_BYTES = 100_000_000
MAX_HELD_CHARS = 16 * 1024

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|[\]P^_X][^\x07\x1b]*+(?:\x07|\x1b\\)"  # strings: titles, links
    r"|[ -/]*+[0-~])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def clean(text: str) -> str:
    """`text` as a person would see it at the end: no escape sequences, of a progress line its last state."""
    lines = _ESCAPE.sub("", text).split("\n")
    return printable(_CONTROL.sub("", "\n".join(map(_last_state, lines))))


def _last_state(line: str) -> str:
    """What is left of a line that was written over: from its beginning, or backwards."""
    line = line.rstrip("\r").rpartition("\r")[2]
    if "\b" not in line:
        return line
    shown: list[str] = []
    for character in line:
        if character != "\b":
            shown.append(character)
        elif shown:
            shown.pop()
    return "".join(shown)


class ScreenText:
    """Bytes in, clean text out, a line at a time; at most `MAX_SCREEN_CHARS` of it."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._held = ""
        self._room = MAX_SCREEN_CHARS

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    def feed(self, chunk: bytes) -> str:
        """What can be shown now: whole lines, for what is not one yet may still change."""
        if self.is_full:
            return ""
        lines, newline, self._held = (self._held + self._decode(chunk)).rpartition("\n")
        if len(self._held) > MAX_HELD_CHARS:
            lines, newline, self._held = lines + newline + self._held, "", ""
        return self._shown(lines + newline)

    def flush(self) -> str:
        """The line that is not whole, because nothing more has come for a while; one that is being written over waits on."""
        return "" if "\r" in self._held else self.finish()

    def finish(self) -> str:
        """What is left, because nothing more will come."""
        text, self._held = self._held, ""
        return self._shown(text)

    def _shown(self, text: str) -> str:
        shown = clean(text[: max(0, self._room)])
        self._room -= len(text)
        return shown


class OutputLog:
    """All that a command writes: its beginning and its end in memory; in the file `path`, too, when that is not everything."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total_bytes = 0
        self.problem = ""  # why the file does not hold everything
        self._head = b""
        self._tail = b""
        self._fd: int | None = None

    @property
    def is_spilled(self) -> bool:
        return self.total_bytes > MAX_HEAD_BYTES + MAX_TAIL_BYTES

    def add(self, chunk: bytes) -> None:
        was_spilled = self.is_spilled
        self.total_bytes += len(chunk)
        room = MAX_HEAD_BYTES - len(self._head)
        before = b"" if was_spilled else self._head + self._tail
        self._head += chunk[:room]
        self._tail = (self._tail + chunk[room:])[-MAX_TAIL_BYTES:]
        if self.is_spilled:
            self._write(before + chunk)

    def text(self) -> str:
        """Its beginning and its end, cut between lines, with a line that says how much lies between."""
        if not self.is_spilled:
            return _decoded(self._head + self._tail)
        head = self._head[: self._head.rfind(b"\n") + 1] or self._head
        tail = self._tail[self._tail.find(b"\n") + 1 :] or self._tail
        left_out = self.total_bytes - len(head) - len(tail)
        return f"{_decoded(head)}[{left_out:,} bytes are left out here]\n{_decoded(tail)}"

    def note(self) -> str:
        """Where all of it is; empty when nothing was left out."""
        if self.problem:
            return f"The rest of the output is lost: {self.problem}."
        return f"All {self.total_bytes:,} bytes of output: {self.path}" if self.is_spilled else ""

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, data: bytes) -> None:
        if self.problem:
            return
        if self.total_bytes > MAX_FILE_BYTES:
            data = data[: MAX_FILE_BYTES - self.total_bytes]
            self.problem = f"{self.path} holds the first {MAX_FILE_BYTES:,} bytes"
        try:
            if self._fd is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._fd = os.open(self.path, flags, 0o600)
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}"


def _decoded(data: bytes) -> str:
    return clean(data.decode("utf-8", "backslashreplace"))
