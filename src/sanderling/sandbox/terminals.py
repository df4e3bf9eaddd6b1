"""
Pseudo-terminals for commands.

The terminal is opened where the command runs, so that its name exists there: gdb, tmux and `tty` look for it. The host keeps both ends. It
uses the command's end only for the input that the command has not read: to ask how much there is, and to drop it.
"""

import array
import fcntl
import os
import select
import struct
import termios
from collections.abc import Sequence

import anyio

from sanderling.sandbox.descriptors import CHUNK_BYTES, close

# A session leader without a controlling terminal gets the first one that it opens (tty(4), O_NOCTTY in open(2)). A shell does that in one
# line at all levels. `posix_spawn` could open it in the sandbox, but not for unconfined commands, which `subprocess` starts.
_ON_TERMINAL = 'exec "$@" <>"$0" >&0 2>&0'

FIRST_TERMINAL = "/dev/pts/0"
"""In a /dev/pts that is the command's own."""

NO_TERMINALS = "This machine's sandbox level '{level}' has no terminals. Run the command without `pty`, with its answers as options."


class CommandTerminal:
    """The host's side of a command's terminal; `path` is its name for the command."""

    def __init__(self, host_end: int, command_end: int, path: str) -> None:
        os.set_blocking(host_end, False)
        self.path = path
        self._host_end = host_end
        self._command_end = command_end

    async def receive(self) -> bytes:
        """
        Return output.

        Raises:
            anyio.EndOfStream: nothing has the terminal open any more.
        """
        while self._host_end >= 0:
            await anyio.wait_readable(self._host_end)
            try:
                chunk = os.read(self._host_end, CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # EIO
                break
            if not chunk:
                break
            return chunk
        raise anyio.EndOfStream

    def send(self, data: bytes | bytearray) -> int:
        """Send input without waiting. Return how many bytes the terminal took: it has room for 4 KiB."""
        try:
            return os.write(self._host_end, data) if self._host_end >= 0 else len(data)
        except BlockingIOError:
            return 0
        except OSError:  # EIO: nobody reads
            return len(data)

    @property
    def has_unread(self) -> bool:
        """Return whether there is output that the host, or input that the command has not read."""
        if self._host_end < 0 or self._command_end < 0:
            return False
        poll = select.poll()
        poll.register(self._host_end, select.POLLIN)
        unread = array.array("i", [0])
        fcntl.ioctl(self._command_end, termios.FIONREAD, unread)
        return bool(unread[0]) or any(found & select.POLLIN for _, found in poll.poll(0))

    def drop_input(self) -> None:
        """Drop the input that the command has not read, and what waits for room in its queue (TCFLSH in tty_io.c and tty_ioctl.c of Linux)."""
        if self._command_end >= 0:
            termios.tcflush(self._command_end, termios.TCIFLUSH)

    def resize(self, rows: int, columns: int) -> None:
        if self._host_end >= 0:
            fcntl.ioctl(self._host_end, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def end(self) -> None:
        """Note that the command has ended: after its last output, `receive` raises."""
        self._command_end = close(self._command_end)

    def close(self) -> None:
        self.end()
        self._host_end = close(self._host_end)


def on_terminal(argv: Sequence[str], path: str) -> list[str]:
    """Return the command that runs `argv` with `path` as its controlling terminal."""
    return ["/bin/sh", "-c", _ON_TERMINAL, path, *argv]


def open_terminal() -> CommandTerminal:
    """
    Open a terminal in the host's own /dev.

    Raises:
        OSError: there is none left.
    """
    host_end, command_end = os.openpty()
    return CommandTerminal(host_end, command_end, os.ttyname(command_end))
