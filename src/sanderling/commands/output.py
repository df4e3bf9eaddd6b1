"""The output of a command: for the screen as text, for the model in bounds, for whoever needs it all in a file."""

import codecs
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream

from sanderling.text import CONTROL, printable

MAX_SCREEN_CHARS = 256 * 1024
MAX_HEAD_BYTES = 7_000  # what goes wrong stands at the end: it gets three quarters
MAX_TAIL_BYTES = 21_000
MAX_TOLD_BYTES = MAX_HEAD_BYTES + MAX_TAIL_BYTES
# Neovim takes 30 ms to draw a line of 256 KiB, each time. What is cut is in the file, which holds all that is longer than this.
MAX_SCREEN_LINE_CHARS = MAX_TOLD_BYTES
CUT_LINE = "… [the rest of this line is not shown]"
QUIET_S = 0.1  # after this, a line that is not whole is shown
# A flood of output, and we who read it, would take both of two cores: a key would wait for up to 90 ms.
FLOOD_BYTES, FLOOD_PAUSE_S = 1 << 20, 0.004
MAX_FILE_BYTES = 100_000_000
MAX_HELD_CHARS = 16 * 1024

_ESCAPE = (
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|[\]P^_X][^\x07\x1b]*+(?:\x07|\x1b\\)"  # strings: titles, links
    r"|[ -/]*+[0-~])"
)
_TOO_LONG = rf"(?m)^(.{{{MAX_SCREEN_LINE_CHARS}}}).+$"
_CUT_CHARACTER = rb"[\x80-\xbf]{0,3}"  # what its first byte was cut from


def clean(text: str) -> str:
    """`text` as a person would see it at the end: no escape sequences, of a progress line its last state."""
    lines = re.sub(_ESCAPE, "", text).split("\n")
    return printable(CONTROL.sub("", "\n".join(map(_last_state, lines))))


def _last_state(line: str) -> str:
    """The rest of a line that was written over: from its beginning, or backwards."""
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
    """Bytes in, clean text out, a line at a time; at most `MAX_SCREEN_CHARS` of it, and `MAX_SCREEN_LINE_CHARS` of each line."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._held = ""
        self._room = MAX_SCREEN_CHARS
        self._line_chars = 0  # of the last line that was shown, or would have been

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    @property
    def is_waiting(self) -> bool:
        """True if it holds a line that is not whole."""
        return bool(self._held)

    def feed(self, chunk: bytes) -> str:
        """Take a chunk; return the lines that are whole now, for what is not one yet may still change."""
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
        """Return the rest, because nothing more will come."""
        text, self._held = self._held, ""
        return self._shown(text)

    def _shown(self, text: str) -> str:
        shown = clean(text[: max(0, self._room)])
        self._room -= len(text)
        line, newline, rest = shown.partition("\n")
        line = self._continued(line)
        if newline:
            self._line_chars = len(rest) - rest.rfind("\n") - 1
            rest = re.sub(_TOO_LONG, rf"\1{CUT_LINE}", rest)
        return line + newline + rest

    def _continued(self, piece: str) -> str:
        """The part of `piece` that still has room in the last line, with a sign where that is used up."""
        room = MAX_SCREEN_LINE_CHARS - self._line_chars
        self._line_chars += len(piece)
        if len(piece) <= room:
            return piece
        return piece[:room] + CUT_LINE if room >= 0 else ""


async def follow(
    stdout: ByteReceiveStream,
    screen: ScreenText,
    take: Callable[[bytes], None],
    show: Callable[[str], None],
) -> None:
    """
    Give `take` all that comes, and `show` what of it goes on the screen, until the end.

    When the screen is full nobody watches any more: reading pauses now and then, so that a flood leaves the editor its share.
    """

    def draw(text: str) -> None:
        if text:
            show(text)

    unseen_bytes = 0
    try:
        with suppress(anyio.EndOfStream):
            while True:
                chunk = b""
                with anyio.move_on_after(QUIET_S if screen.is_waiting else None):
                    chunk = await stdout.receive()
                if not chunk:
                    draw(screen.flush())
                    continue
                take(chunk)
                draw(screen.feed(chunk))
                unseen_bytes += len(chunk) * screen.is_full
                if unseen_bytes >= FLOOD_BYTES:
                    unseen_bytes = 0
                    await anyio.sleep(FLOOD_PAUSE_S)
    finally:
        draw(screen.finish())


class Ends:
    """The beginning and the end of what is added, at most `MAX_TOLD_BYTES` of it; of a progress line its last state."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._kept_bytes = 0  # of what was added: without the states that were written over
        self._line = b""  # the last one, which is not whole yet

    @property
    def is_empty(self) -> bool:
        return not (self._kept_bytes or self._line)

    def add(self, chunk: bytes) -> None:
        data = self._line + chunk
        if b"\r" in data:
            data = _last_states(data.replace(b"\r\n", b"\n"))
        end = data.rfind(b"\n") + 1
        if len(data) - end > MAX_HELD_CHARS:
            end = len(data)
        self._line = data[end:]
        self._keep(data[:end])

    def text(self) -> str:
        """The whole text, or its beginning and its end, cut between lines, with a line that says how much lies between."""
        line = _last_state_of_bytes(self._line)
        head, tail = _extended(self._head, self._tail, line)
        total = self._kept_bytes + len(line)
        if total <= MAX_TOLD_BYTES:
            text = _decoded(head + tail)
            if len(text.encode()) <= MAX_TOLD_BYTES:
                return text
        head, tail = _fitting_head(head), _fitting_tail(tail)
        left_out = total - len(head) - len(tail)
        beginning = _decoded(head, is_cut=True)
        newline = "" if beginning.endswith("\n") else "\n"
        return f"{beginning}{newline}[{left_out:,} bytes are left out here]\n{_decoded(tail)}"

    def _keep(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        self._head, self._tail = _extended(self._head, self._tail, data)


class OutputLog:
    """
    The output of a command: its beginning and its end in memory; in the file `path`, too, when that is not everything.

    `shown_as` is what the file is called where it is talked of. `is_new`: the file lies where others can write, so it must not
    exist yet, not even as a link; and nobody can put another one in its place, for it is opened once.
    """

    def __init__(
        self,
        path: Path,
        *,
        shown_as: str = "",
        is_new: bool = False,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self.path = path
        self.total_bytes = 0
        self.problem = ""  # why the file does not hold everything
        self.is_spilled = False
        self._shown_as = shown_as or str(path)
        self._is_new = is_new
        self._max_file_bytes = max_file_bytes
        self._file_bytes = 0
        self._ends = Ends()
        self._early = b""  # all of it, until it is in the file
        self._early_told_bytes = 0  # as text, where what is none is escaped
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._fd: int | None = None

    @property
    def has_news(self) -> bool:
        """True if something was added since the last `take`."""
        return not self._ends.is_empty

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        self._ends.add(chunk)
        if self.is_spilled:
            self._write(chunk)
            return
        self._early += chunk
        self._early_told_bytes += len(self._decode(chunk).encode())
        if self._early_told_bytes > MAX_TOLD_BYTES:
            self.spill()

    def spill(self) -> None:
        """Put all of it into the file, whatever its length."""
        if not self.is_spilled:
            self.is_spilled = True
            early, self._early = self._early, b""
            self._write(early)

    def text(self) -> str:
        """The output's beginning and its end, as `Ends` gives them."""
        return self._ends.text()

    def take(self) -> str:
        """The output added since the last `take`, as `text` gives it."""
        ends, self._ends = self._ends, Ends()
        return ends.text()

    def read(self, offset: int, limit: int) -> bytes:
        """Read at most `limit` bytes from `offset`, as they were written; none where the file does not go."""
        if self._fd is None:
            return self._early[offset : offset + limit]
        return os.pread(self._fd, limit, offset)

    def note(self) -> str:
        """The line that says which file has all of it; empty when nothing was left out."""
        if self.problem:
            return f"The rest of the output is lost: {self.problem}."
        if not self.is_spilled:
            return ""
        return f"All {self.total_bytes:,} bytes of output: {self._shown_as}"

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, data: bytes) -> None:
        if self.problem:
            return
        if self._file_bytes + len(data) > self._max_file_bytes:
            data = data[: self._max_file_bytes - self._file_bytes]
            self.problem = f"{self._shown_as} holds the first {self._max_file_bytes:,} bytes"
        try:
            if self._fd is None:
                self._fd = self._open()
            while data:
                written = os.write(self._fd, data)
                self._file_bytes += written
                data = data[written:]
        except OSError as error:
            self.problem = f"{self._shown_as}: {error.strerror}"

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if self._is_new:
            return os.open(self.path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self.path, flags | os.O_TRUNC, 0o600)


def _extended(head: bytes, tail: bytes, data: bytes) -> tuple[bytes, bytes]:
    room = MAX_HEAD_BYTES - len(head)
    return head + data[:room], (tail + data[room:])[-MAX_TAIL_BYTES:]


def _last_states(data: bytes) -> bytes:
    """The last state of each line. The last line keeps a return at its end, for what follows writes over it."""
    kept: list[bytes] = []
    at = 0
    while (found := data.find(b"\r", at)) >= 0:
        begin = data.rfind(b"\n", at, found) + 1 or at
        end = data.find(b"\n", found)
        line = data[begin : end if end >= 0 else len(data)]
        kept += data[at:begin], _last_state_of_bytes(line)
        if end < 0:
            return b"".join(kept) + (b"\r" if line.endswith(b"\r") else b"")
        at = end
    return b"".join(kept) + data[at:]


def _last_state_of_bytes(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _fitting_head(data: bytes) -> bytes:
    """The first lines, as many as may be told, whole unless that loses the most of them; escapes make what is no text longer."""
    while True:
        end = data.rfind(b"\n") + 1
        data = data[:end] if end > len(data) // 2 else data
        size = len(_decoded(data, is_cut=True).encode())
        if size <= MAX_HEAD_BYTES:
            return data
        data = data[: len(data) * MAX_HEAD_BYTES // size]


def _fitting_tail(data: bytes) -> bytes:
    while True:
        begin = data.find(b"\n") + 1
        is_line = 0 < begin < len(data) // 2
        data = data[begin:] if is_line else data[_end_of_cut_character(data) :]
        size = len(_decoded(data).encode())
        if size <= MAX_TAIL_BYTES:
            return data
        data = data[-(len(data) * MAX_TAIL_BYTES // size) :]


def _end_of_cut_character(data: bytes) -> int:
    found = re.match(_CUT_CHARACTER, data)
    return found.end() if found else 0


def _decoded(data: bytes, *, is_cut: bool = False) -> str:
    """`data` as text; if it `is_cut`, without the character that it ends within."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return clean(decoder.decode(data, final=not is_cut))
