"""
Draws a job's terminal in a frontend's.

The frontend gets what changed on the screen, not the program's bytes. So output of 10 MB/s costs it no more than a clock, its terminal never
answers a question of the program, and no sequence of the program's own, such as for the clipboard, reaches it. mosh does the same
(https://mosh.org/mosh-paper.pdf, section 3).
"""

from itertools import islice

from sanderling.tools.commands.screen import FORWARDED_MODES, SHOWS_CURSOR
from sanderling.tools.commands.terminal import Terminal

FRAME_S = 0.05
MAX_LEFT_ROWS = 100  # of those that left the screen since the last frame


class Drawing:
    """The screen of a terminal as one frontend shows it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._rows: list[str] = []
        self._left_count = 0
        self._size = (0, 0)
        self._modes = dict.fromkeys(FORWARDED_MODES, False) | {SHOWS_CURSOR: True}
        self._cursor: tuple[int, int] = (0, 0)

    def update(self) -> str:
        """Return what draws the changes since the last time: text for a terminal."""
        screen = self._terminal.screen
        rows = [row.drawn() for row in screen.rows]
        left_count, size = self._terminal.left_count, (screen.row_count, screen.columns)
        if (left_count, size) != (self._left_count, self._size):
            count = min(left_count - self._left_count, MAX_LEFT_ROWS)
            left = islice(reversed(self._terminal.scrollback), count)
            lines = [*reversed([row.drawn() for row in left]), *rows]
            text = "\x1b[m\x1b[H\x1b[J" + "\r\n".join(lines)
        else:
            text = "".join(
                f"\x1b[{number}H\x1b[m\x1b[K{row}"
                for number, (row, old) in enumerate(zip(rows, self._rows, strict=True), 1)
                if row != old
            )
        modes = {mode: screen.has(mode) for mode in FORWARDED_MODES}
        for mode, is_on in modes.items():
            if is_on != self._modes[mode]:
                text += f"\x1b[?{mode}{'h' if is_on else 'l'}"
        if text or screen.cursor != self._cursor:
            text += f"\x1b[{screen.cursor.row + 1};{screen.cursor.column + 1}H"
        self._rows, self._left_count, self._size = rows, left_count, size
        self._modes, self._cursor = modes, screen.cursor
        return text
