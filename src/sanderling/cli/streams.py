"""Standard input, output and error of a program in a pipeline: the pipes may idle, pause or close."""

import os
import select
import signal
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress

import anyio
from anyio import to_thread

from sanderling.errors import SanderlingError
from sanderling.text import CONTROL, visible

MAX_STDIN_BYTES = 10_000_000
STDIN_WAIT_S = 3.0
CHUNK_BYTES = 1 << 16


class InputError(SanderlingError):
    """Standard input cannot be used."""


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop a program; under `nohup` the end of the terminal does not."""
    is_tied = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if is_tied else [])]


def read_stdin(*, is_extra: bool) -> str:
    """
    Return all that is piped in or redirected from a file; empty for a terminal. Blocks.

    If it `is_extra`, the input may stay open and empty for ever: a program that starts others often leaves its own input to them. So the
    first byte must arrive within `STDIN_WAIT_S`.

    Raises:
        InputError: it cannot be read, or is longer than `MAX_STDIN_BYTES`.
    """
    try:
        if os.isatty(0) or (is_extra and not _is_written()):
            return ""
        data = bytearray()
        while len(data) <= MAX_STDIN_BYTES and (chunk := os.read(0, CHUNK_BYTES)):
            data += chunk
    except OSError as error:
        raise InputError(f"standard input cannot be read: {error.strerror}") from error
    if len(data) > MAX_STDIN_BYTES:
        raise InputError(f"standard input is longer than {MAX_STDIN_BYTES:,} bytes")
    return data.decode("utf-8", "replace")


def _is_written() -> bool:
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return True
    is_ready = bool(select.select([0], [], [], STDIN_WAIT_S)[0])
    if not is_ready:
        say(f"nothing came on standard input for {STDIN_WAIT_S:g} s: continuing without it")
    return is_ready


def say_untrusted(paths: Iterable[str]) -> None:
    """Name files of the project that have no effect yet."""
    say(
        f"ignored until trusted with `sanderling trust`, or :Agent trust in Neovim: {', '.join(paths)}"
    )


def say(text: str) -> None:
    """
    Write `text` to standard error, if that is open, with control characters made visible.

    Later lines are indented, so that a file's name cannot fake a message.
    """
    with suppress(OSError):  # the reader has closed it
        sys.stderr.write(as_said(text))
        sys.stderr.flush()


def as_said(text: str) -> str:
    """Return `text` as the lines that `say` writes."""
    lines = visible(text).replace("\n", "\n    ")
    return f"sanderling: {lines}\n"


class ThreadedStdout:
    """
    Standard output, written by a thread, so that a reader that pauses blocks nothing else.

    `problem` is why it cannot be written any more; `BrokenPipeError` if the reader has closed it.
    """

    def __init__(self) -> None:
        self.problem: OSError | None = None
        self.has_failed = anyio.Event()
        self._waiting = bytearray()
        self._has_more = anyio.Event()
        self._is_drained = anyio.Event()
        self._is_drained.set()
        self._is_terminal = os.isatty(1)

    def write(self, text: str) -> None:
        if self.problem:
            return
        if self._is_terminal:  # it would obey control characters from the model
            text = CONTROL.sub("\ufffd", text)
        self._waiting += text.encode()
        self._has_more.set()
        if self._is_drained.is_set():
            self._is_drained = anyio.Event()

    async def serve(self) -> None:
        while True:
            await self._has_more.wait()
            self._has_more = anyio.Event()
            data, self._waiting = bytes(self._waiting), bytearray()
            try:
                await to_thread.run_sync(_write_all, data, abandon_on_cancel=True)
            except OSError as error:
                self.problem = error
                self.has_failed.set()
                self._is_drained.set()
                return
            if not self._waiting:
                self._is_drained.set()

    async def drain(self) -> None:
        """Wait until all is written, or writing has failed."""
        await self._is_drained.wait()


def _write_all(data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(1, left) :]
        # Another program has made the shared pipe non-blocking.
        except BlockingIOError:
            select.select([], [1], [])
