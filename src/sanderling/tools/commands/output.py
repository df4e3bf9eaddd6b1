"""Command output: text for the screen, a bounded excerpt for the model, and all of it in a file."""

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
MAX_HEAD_BYTES = 4_000  # errors are usually at the end, which gets three quarters
MAX_TAIL_BYTES = 12_000
MAX_TOLD_BYTES = MAX_HEAD_BYTES + MAX_TAIL_BYTES
# Neovim takes 30 ms to draw a line of 256 KiB, each time. Cut lines are complete in the file, which has all longer output.
MAX_SCREEN_LINE_CHARS = MAX_TOLD_BYTES
CUT_LINE = "… [the rest of this line is not shown]"
QUIET_S = 0.1  # after this, an incomplete line is shown
# A flood of output, and the host that reads it, would occupy both of two cores: a key would wait for up to 90 ms.
FLOOD_BYTES, FLOOD_PAUSE_S = 1 << 20, 0.004
MAX_FILE_BYTES = 100_000_000
MAX_HELD_CHARS = 16 * 1024

_ESCAPE = (
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|[\]P^_X][^\x07\x1b]*+(?:\x07|\x1b\\)"  # strings: titles, links
    r"|[ -/]*+[0-~])"
)
_TOO_LONG = rf"(?m)^(.{{{MAX_SCREEN_LINE_CHARS}}}).+$"
_CUT_CHARACTER = rb"\A[\x80-\xbf]{1,3}"  # the rest of a character whose first byte was cut off


def clean(text: str) -> str:
    """Return `text` as finally displayed: without escape sequences, progress lines in their last state."""
    lines = re.sub(_ESCAPE, "", text).split("\n")
    return printable(CONTROL.sub("", "\n".join(map(_last_state, lines))))


def _last_state(line: str) -> str:
    """Return a line's last state, after overwriting from its beginning or with backspaces."""
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
    """Converts bytes to clean text by lines, up to `MAX_SCREEN_CHARS` in total and `MAX_SCREEN_LINE_CHARS` for each line."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._held = ""
        self._room = MAX_SCREEN_CHARS
        self._line_chars = 0  # of the last line, shown or not

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    @property
    def is_waiting(self) -> bool:
        return bool(self._held)

    def feed(self, chunk: bytes) -> str:
        """Take a chunk; return the lines completed by it, because incomplete ones may still change."""
        if self.is_full:
            return ""
        lines, newline, self._held = (self._held + self._decode(chunk)).rpartition("\n")
        if len(self._held) > MAX_HELD_CHARS:
            lines, newline, self._held = lines + newline + self._held, "", ""
        return self._shown(lines + newline)

    def flush(self) -> str:
        """Return the incomplete line after a pause; a progress line is kept, as it will be overwritten."""
        return "" if "\r" in self._held else self.finish()

    def finish(self) -> str:
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
        """Return the part of `piece` that fits in the last line, with a mark if it is cut."""
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
    Pass all output to `take`, and its text for the screen to `show`, until the end.

    Once the screen is full, reading pauses now and then, so that a flood of output does not slow down the editor.
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
    """The beginning and end of the output, up to `MAX_TOLD_BYTES`; progress lines in their last state."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._kept_bytes = 0  # without overwritten states
        self.is_cut = False  # the last text lacks the middle
        self._line = b""  # the last one, incomplete

    @property
    def size(self) -> int:
        return self._kept_bytes + len(self._line)

    def add(self, chunk: bytes) -> None:
        data = self._line + chunk
        if b"\r" in data:
            data = _last_states(data.replace(b"\r\n", b"\n"))
        end = data.rfind(b"\n") + 1
        if len(data) - end > MAX_HELD_CHARS:
            end = len(data)
        self._line = data[end:]
        self._kept_bytes += end
        self._head, self._tail = _extended(self._head, self._tail, data[:end])

    def text(self) -> str:
        """Return the text, or its beginning and end, cut between lines, with the number of omitted bytes between them."""
        line = _last_state_of_bytes(self._line)
        head, tail = _extended(self._head, self._tail, line)
        total = self._kept_bytes + len(line)
        self.is_cut = False
        if total <= MAX_TOLD_BYTES:
            text = _decoded(head + tail)
            if len(text.encode()) <= MAX_TOLD_BYTES:
                return text
        self.is_cut = True
        head, tail = _fitting_head(head), _fitting_tail(tail)
        left_out = total - len(head) - len(tail)
        beginning = _decoded(head, is_cut=True)
        newline = "" if beginning.endswith("\n") else "\n"
        return f"{beginning}{newline}[{left_out:,} bytes are left out here]\n{_decoded(tail)}"


class OutputLog:
    """
    The output of a command: beginning and end in memory, and all of it in the file `path` if it is longer.

    `shown_as` is the file's name in messages. `is_new`: the directory is writable by others, so the file must not exist yet, not even as
    a link. It is opened only once, so it cannot be replaced.
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
        self.problem = ""  # why the file is incomplete
        self.is_spilled = False
        self._is_taken_whole = False
        self._shown_as = shown_as or str(path)
        self._is_new = is_new
        self._max_file_bytes = max_file_bytes
        self._file_bytes = 0
        self._ends = Ends()
        self._early = b""  # all output, until it is in the file
        self._early_text_bytes = 0  # as text, with undecodable bytes escaped
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._fd: int | None = None

    @property
    def has_news(self) -> bool:
        return self.news_bytes > 0

    @property
    def news_bytes(self) -> int:
        """The size of what `take` would return, if nothing were left out."""
        return self._ends.size

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        self._ends.add(chunk)
        if self.is_spilled:
            self._write(chunk)
            return
        self._early += chunk
        self._early_text_bytes += len(self._decode(chunk).encode())
        if self._early_text_bytes > MAX_TOLD_BYTES:
            self.spill()

    def spill(self) -> None:
        """Write all output to the file, whatever its length."""
        if not self.is_spilled:
            self.is_spilled = True
            early, self._early = self._early, b""
            self._write(early)

    def text(self) -> str:
        return self._ends.text()

    def take(self) -> str:
        """Return the output since the last time."""
        ends, self._ends = self._ends, Ends()
        text = ends.text()
        self._is_taken_whole = not ends.is_cut
        return text

    def read(self, offset: int, limit: int) -> bytes:
        """Return up to `limit` raw bytes from `offset`; empty beyond the end of the file."""
        if self._fd is None:
            return self._early[offset : offset + limit]
        return os.pread(self._fd, limit, offset)

    def note(self) -> str:
        """Return a line that names the file with all output; empty if nothing was omitted."""
        if self.problem:
            return f"The rest of the output is lost: {self.problem}."
        if self._is_taken_whole or not self.is_spilled:
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
    r"""Reduce each line to its last state. A final "\r" of the last line stays, because later output overwrites that line."""
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
    """Return the beginning that fits, in whole lines unless that loses most of it; escapes make undecodable bytes longer."""
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
        data = data[begin:] if is_line else re.sub(_CUT_CHARACTER, b"", data)
        size = len(_decoded(data).encode())
        if size <= MAX_TAIL_BYTES:
            return data
        data = data[-(len(data) * MAX_TAIL_BYTES // size) :]


def _decoded(data: bytes, *, is_cut: bool = False) -> str:
    """Return `data` as clean text; if it `is_cut`, without an incomplete last character."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return clean(decoder.decode(data, final=not is_cut))
