"""
A terminal's screen: text, colours and cursor from what a program writes.

It is our own, and not pyte (https://github.com/selectel/pyte), which we tried first. pyte 0.8.2 has no alternate screen, so that less and
vim stay on it after their end; it draws the contents of DCS strings and of colours with colons as text; it ignores REP, with which
ncurses draws lines; and its cells have no place for the mark of what the user typed, which the model must not see. A subclass would replace
its parser, its cells and most of its screen. (pyte takes 0.3 to 0.4 MB per second of CPU time, and this 4 to 16.) Neovim's own terminal
would do all that, but is there only with one frontend, and the model would depend on it.

The sequences are xterm's: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html. Titles, the clipboard, images and all others that are
not for drawing have no effect.
"""

import codecs
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from sanderling.tools.commands.style import Style

MAX_ROWS, MAX_COLUMNS = 500, 1_000
MAX_NUMBER = 9_999
MAX_NUMBERS_CHARS = 256  # of one sequence
MAX_PENDING_CHARS = 64 * 1024  # of a sequence that does not end
HIDDEN = "[hidden]"
TAB = 8
FORWARDED_MODES = (1, 25, 1000, 1002, 1003, 1006, 2004)
"""Modes that decide how keys, the mouse and pasted text are encoded, and whether the cursor is shown."""
ALTERNATE_SCREENS = (47, 1047, 1049)
APPLICATION_CURSOR, ORIGIN, WRAPS, SHOWS_CURSOR = 1, 6, 7, 25
LINES = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
ANSWERS = {("", "c"): "\x1b[?62;22c", (">", "c"): "\x1b[>0;10;0c"}


@cache
def _tokens() -> re.Pattern[str]:
    return re.compile(
        r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
        r"|(?P<line_end>\r\n)"
        r"|\x1b\[(?P<private>[<-?]?)(?P<numbers>[0-9:;]*)(?P<between>[ -/]*)(?P<final>[@-~])"
        r"|(?P<string>\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\))"
        r"|\x1b(?P<charset>[ -/]*)(?P<escape>[0-OQ-WYZ\\`-~])"
        r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
    )


@cache
def _incomplete() -> re.Pattern[str]:
    return re.compile(r"\x1b(?:\[[<-?]?[0-9:;]*[ -/]*|[\]P^_X][^\x07\x1b]*\x1b?|[ -/]*)\Z")


class Pen(NamedTuple):
    """How a cell was drawn: `style` are parameters of SGR. The model does not see cells that are `hidden`."""

    style: str = ""
    is_hidden: bool = False


PLAIN = Pen()


class Position(NamedTuple):
    row: int
    column: int


class Row:
    """
    The cells of a row: their characters, empty for the second half of a wide one, and how they were drawn.

    Plain blanks at the end may be missing, because most rows are short.
    """

    __slots__ = ("cells", "is_continued", "pens")

    def __init__(self, columns: int = 0, pen: Pen = PLAIN) -> None:
        self.cells = [" "] * columns
        self.pens = [pen] * columns
        self.is_continued = False  # in the next row, because the line is longer

    def put(self, column: int, cells: list[str] | str, pen: Pen) -> None:
        end = column + len(cells)
        if column < len(self.cells):
            if (
                self.cells[column] == "" and column
            ):  # the first half of a wide character stays alone
                self.cells[column - 1] = " "
            if end < len(self.cells) and self.cells[end] == "":
                self.cells[end] = " "
        else:
            self.fill(column)
        self.cells[column:end] = cells
        self.pens[column:end] = [pen] * len(cells)

    def fill(self, columns: int, pen: Pen = PLAIN) -> None:
        """Add blanks until there are so many cells."""
        missing = columns - len(self.cells)
        self.cells += [" "] * missing
        self.pens += [pen] * missing

    def cut(self, columns: int) -> None:
        if self.cells[columns : columns + 1] == [""]:
            self.cells[columns - 1] = " "
        del self.cells[columns:], self.pens[columns:]

    @property
    def is_hidden(self) -> bool:
        return any(pen.is_hidden for pen in self.pens)

    def visible(self) -> str:
        """Return the text for the model."""
        if not self.is_hidden:
            return "".join(self.cells).rstrip()
        pieces: list[str] = []
        for cell, pen in zip(self.cells, self.pens, strict=True):
            if not pen.is_hidden:
                pieces.append(cell)
            elif pieces[-1:] != [HIDDEN]:
                pieces.append(HIDDEN)
        return "".join(pieces).rstrip()

    def drawn(self) -> str:
        """Return the text with its colours, for the user's terminal."""
        pieces: list[str] = []
        style = ""
        for cell, pen in zip(self.cells, self.pens, strict=True):
            if pen.style != style:
                style = pen.style
                pieces.append(f"\x1b[0;{style}m" if style else "\x1b[m")
            pieces.append(cell)
        text = "".join(pieces)
        return f"{text}\x1b[m" if style else text.rstrip(" ")


class Screen:
    """
    The screen of a terminal. While it `hides`, everything new is drawn hidden.

    `answer` gets what the terminal answers to the program's questions, `leave` each row that leaves the top of the main screen.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        answer: Callable[[bytes], None] = lambda _: None,
        leave: Callable[[Row], None] = lambda _: None,
    ) -> None:
        self.hides = False
        self._answer = answer
        self._leave = leave
        self.row_count, self.columns = rows, columns
        self._reset()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""

    def _reset(self) -> None:
        self.rows = [Row() for _ in range(self.row_count)]
        self.row = self.column = 0
        self.modes = {WRAPS: True, SHOWS_CURSOR: True}
        self._main: list[Row] | None = None  # while the alternate screen is shown
        self._top, self._bottom = 0, self.row_count - 1
        self._style = Style()
        self._saved = (0, 0, Style())
        self._inserts = False
        self._charsets = ["B", "B"]
        self._charset = 0
        self._last: tuple[str, bool] = ("", False)

    @property
    def is_alternate(self) -> bool:
        return self._main is not None

    @property
    def is_in_sequence(self) -> bool:
        """Return whether a sequence or a character is incomplete."""
        return bool(self._pending or self._decode.getstate()[0])

    @property
    def cursor(self) -> Position:
        return Position(self.row, min(self.column, self.columns - 1))

    def has(self, mode: int) -> bool:
        return self.modes.get(mode, False)

    def visible(self) -> list[str]:
        """Return the rows for the model, without empty ones at the end."""
        rows = [row.visible() for row in self.rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def end(self) -> list[Row]:
        """Leave the alternate screen, and return the rows of the main one, without empty ones at the end."""
        self._switch(is_on=False, saves=False)
        rows = list(self.rows)
        while rows and not rows[-1].visible():
            rows.pop()
        return rows

    def reveal(self) -> None:
        """Let the model see everything that is on the screen now."""
        for row in (*self.rows, *(self._main or ())):
            row.pens = [pen._replace(is_hidden=False) for pen in row.pens]

    def resize(self, rows: int, columns: int) -> None:
        rows = min(max(rows, 1), MAX_ROWS)
        columns = min(max(columns, 2), MAX_COLUMNS)
        for each in (self.rows, self._main):
            if each is None:
                continue
            surplus = len(each) - rows
            # Rows below the cursor go first, as in other terminals.
            above = min(max(self.row + 1 - rows, 0), surplus) if surplus > 0 else 0
            for row in each[:above]:
                if each is self.rows and not self.is_alternate:
                    self._leave(row)
            del each[:above]
            del each[rows:]
            if each is self.rows:
                self.row -= above
            for row in each:
                row.cut(columns)
            each += [Row() for _ in range(rows - len(each))]
        self.row_count, self.columns = rows, columns
        self._top, self._bottom = 0, rows - 1
        self.row, self.column = min(self.row, rows - 1), min(self.column, columns - 1)

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decode.decode(data)
        self._pending = ""
        at = 0
        match = _tokens().match
        while at < len(text):
            if text[at] == "\x1b" and (rest := _incomplete().match(text, at)):
                if len(text) - at <= MAX_PENDING_CHARS:
                    self._pending = rest[0]
                return
            token = match(text, at)
            assert token
            at = token.end()
            match token.lastgroup:
                case "text":
                    self._draw(token[0])
                case "line_end":
                    self.column = 0
                    self._line_feed()
                case "final" if len(token["numbers"]) <= MAX_NUMBERS_CHARS:
                    self._csi(token["private"], token["numbers"], token["between"], token["final"])
                case "escape":
                    self._escape(token["charset"], token["escape"])
                case "control":
                    self._control(token[0])
                case _:  # a string, or a sequence of too many numbers
                    pass

    # --- drawing ---

    def _draw(self, text: str) -> None:
        if self._charsets[self._charset] == "0":
            text = text.translate(LINES)
        self._last = (text[-1], self.hides)
        pen = Pen(self._style.text, self.hides)
        if text.isascii():
            at = 0
            while at < len(text):
                self._wrap(1)
                piece = text[at : at + self.columns - self.column]
                if not self.has(WRAPS) and len(piece) < len(text) - at:
                    piece = piece[:-1] + text[-1]
                    at = len(text)
                self._put(piece, pen)
                at += len(piece)
            return
        for character in text:
            width = _width(character)
            if width == 0:
                self._combine(character)
                continue
            self._wrap(width)
            self._put([character, ""][:width], pen)

    def _wrap(self, width: int) -> None:
        """Go to the next row if a character of this width does not fit."""
        if self.column + width <= self.columns:
            return
        if self.has(WRAPS):
            self.rows[self.row].is_continued = True
            self.column = 0
            self._line_feed()
        else:
            self.column = self.columns - width

    def _put(self, cells: list[str] | str, pen: Pen) -> None:
        row = self.rows[self.row]
        if self._inserts:
            self._shift(len(cells))
        row.put(self.column, cells, pen)
        self.column += len(cells)

    def _combine(self, character: str) -> None:
        column = min(self.column, self.columns) - 1
        row = self.rows[self.row]
        if column >= len(row.cells):
            return
        if column > 0 and row.cells[column] == "":
            column -= 1
        if column >= 0 and len(row.cells[column]) < TAB:
            row.cells[column] += character
            if self.hides:
                row.pens[column] = row.pens[column]._replace(is_hidden=True)

    def _control(self, character: str) -> None:
        match character:
            case "\n" | "\v" | "\f" | "\x84":
                self._line_feed()
            case "\x85":
                self.column = 0
                self._line_feed()
            case "\r":
                self.column = 0
            case "\b":
                self.column = max(min(self.column, self.columns - 1) - 1, 0)
            case "\t":
                self.column = min((self.column // TAB + 1) * TAB, self.columns - 1)
            case "\x0e" | "\x0f":
                self._charset = int(character == "\x0e")
            case "\x8d":
                self._reverse_line_feed()
            case _:
                pass

    def _escape(self, charset: str, final: str) -> None:
        match charset, final:
            case "", "D":
                self._line_feed()
            case "", "E":
                self.column = 0
                self._line_feed()
            case "", "M":
                self._reverse_line_feed()
            case "", "7":
                self._save()
            case "", "8":
                self._restore()
            case "", "c":
                self._reset()
            case "#", "8":
                for row in self.rows:
                    row.put(0, "E" * self.columns, Pen("", self.hides))
            case (("(" | ")"), _):
                self._charsets["()".index(charset)] = final
            case _:
                pass

    def _line_feed(self) -> None:
        if self.row == self._bottom:
            self._scroll_up(1)
        elif self.row < self.row_count - 1:
            self.row += 1

    def _reverse_line_feed(self) -> None:
        if self.row == self._top:
            self._scroll_down(1)
        elif self.row > 0:
            self.row -= 1

    def _scroll_up(self, count: int, top: int | None = None) -> None:
        start = self._top if top is None else top
        for _ in range(min(count, self._bottom - start + 1)):
            row = self.rows.pop(start)
            if start == 0 and top is None and not self.is_alternate:
                self._leave(row)
            self.rows.insert(self._bottom, self._blank())

    def _scroll_down(self, count: int, top: int | None = None) -> None:
        start = self._top if top is None else top
        for _ in range(min(count, self._bottom - start + 1)):
            del self.rows[self._bottom]
            self.rows.insert(start, self._blank())

    def _blank(self) -> Row:
        return Row(self.columns, self._erased) if self._style.background else Row()

    @property
    def _erased(self) -> Pen:
        return Pen(self._style.background) if self._style.background else PLAIN

    # --- control sequences ---

    def _csi(self, private: str, numbers: str, between: str, final: str) -> None:
        if between:
            if (private, between, final) == ("?", "$", "p"):
                self._answer(f"\x1b[?{numbers[:8]};0$y".encode())
            elif between == "!" and final == "p":
                self._reset_modes()
            return
        if final == "m" and not private:
            self._style.change(numbers)
            return
        values = [_number(each) for each in numbers.split(";")]
        if private == "?" and final in "hl":
            for value in values:
                self._set_mode(value, is_on=final == "h")
        elif final in "hl" and not private:
            if 4 in values:  # noqa: PLR2004 - IRM
                self._inserts = final == "h"
        elif answer := ANSWERS.get((private, final)):
            self._answer(answer.encode())
        elif final == "n":
            self._report(values[0])
        elif not private or (private == "?" and final in "JK"):
            self._place_cursor(final, values)

    def _place_cursor(self, final: str, values: list[int]) -> None:  # noqa: C901, PLR0912 - one table
        count = _count(values)
        match final:
            case "A":
                self._move(-count, 0)
            case "B" | "e":
                self._move(count, 0)
            case "C" | "a":
                self._move(0, count)
            case "D":
                self._move(0, -count)
            case "E":
                self._move(count, -self.columns)
            case "F":
                self._move(-count, -self.columns)
            case "G" | "`":
                self.column = min(count, self.columns) - 1
            case "H" | "f":
                self._go(count - 1, _count(values[1:]) - 1)
            case "d":
                self._go(count - 1, self.column)
            case "I":
                self.column = min((self.column // TAB + count) * TAB, self.columns - 1)
            case "Z":
                self.column = max(-(-self.column // TAB) - count, 0) * TAB
            case "r":
                self._set_region(values)
            case "s":
                self._save()
            case "u":
                self._restore()
            case _:
                self._change_text(final, values)

    def _change_text(self, final: str, values: list[int]) -> None:
        count = _count(values)
        match final:
            case "J":
                self._erase_in_screen(values)
            case "K":
                self._erase_in_line(values)
            case "X":
                column = min(self.column, self.columns - 1)
                self._erase(self.row, column, min(column + count, self.columns))
            case "@":
                self._shift(min(count, self.columns))
            case "P":
                self._shift(-min(count, self.columns))
            case "L":
                self._in_region(self._scroll_down, count)
            case "M":
                self._in_region(self._scroll_up, count)
            case "S":
                self._scroll_up(count)
            case "T":
                self._scroll_down(count)
            case "b":
                self._repeat(count)
            case _:
                pass

    def _report(self, what: int) -> None:
        if what == 5:  # noqa: PLR2004 - DSR: is it well?
            self._answer(b"\x1b[0n")
        elif what == 6:  # noqa: PLR2004 - DSR: where is the cursor?
            column = min(self.column, self.columns - 1) + 1
            self._answer(f"\x1b[{self.row + 1};{column}R".encode())

    def _reset_modes(self) -> None:
        self.modes = {WRAPS: True, SHOWS_CURSOR: True}
        self._inserts = False
        self._top, self._bottom = 0, self.row_count - 1
        self._style = Style()

    def _set_mode(self, mode: int, *, is_on: bool) -> None:
        if mode in ALTERNATE_SCREENS:
            self._switch(is_on=is_on, saves=mode == 1049)  # noqa: PLR2004
        elif mode == 1048:  # noqa: PLR2004
            (self._save if is_on else self._restore)()
        elif mode in (*FORWARDED_MODES, ORIGIN, WRAPS):
            self.modes[mode] = is_on
            if mode == ORIGIN:
                self._go(0, 0)

    def _switch(self, *, is_on: bool, saves: bool) -> None:
        if is_on and self._main is None:
            if saves:
                self._save()
            self._main = self.rows
            self.rows = [Row() for _ in range(self.row_count)]
        elif not is_on and self._main is not None:
            self.rows, self._main = self._main, None
            if saves:
                self._restore()

    def _save(self) -> None:
        self._saved = (self.row, self.column, self._style.copy())

    def _restore(self) -> None:
        row, column, style = self._saved
        self._style = style.copy()
        self.row, self.column = min(row, self.row_count - 1), min(column, self.columns)

    def _go(self, row: int, column: int) -> None:
        top, bottom = (self._top, self._bottom) if self.has(ORIGIN) else (0, self.row_count - 1)
        self.row = min(max(top + row, top), bottom)
        self.column = min(max(column, 0), self.columns - 1)

    def _move(self, rows: int, columns: int) -> None:
        inside = self._top <= self.row <= self._bottom
        top, bottom = (self._top, self._bottom) if inside else (0, self.row_count - 1)
        self.row = min(max(self.row + rows, top), bottom)
        self.column = min(max(min(self.column, self.columns - 1) + columns, 0), self.columns - 1)

    def _erase(self, row: int, start: int, end: int) -> None:
        if start >= end:
            return
        if end == self.columns and not self._style.background:
            self.rows[row].put(start, " ", PLAIN)
            self.rows[row].cut(start)
        else:
            self.rows[row].put(start, " " * (end - start), self._erased)
        if end == self.columns:
            self.rows[row].is_continued = False

    def _erase_in_line(self, values: list[int]) -> None:
        column = min(self.column, self.columns - 1)
        start, end = ((column, self.columns), (0, column + 1), (0, self.columns))[min(values[0], 2)]
        self._erase(self.row, start, end)

    def _erase_in_screen(self, values: list[int]) -> None:
        what = values[0]
        if what > 2:  # noqa: PLR2004 - only the lines above the screen
            return
        self._erase_in_line([what])
        rows = (
            range(self.row + 1, self.row_count),
            range(self.row),
            range(self.row_count),
        )[what]
        for row in rows:
            self._erase(row, 0, self.columns)

    def _shift(self, count: int) -> None:
        """Move the rest of the row to the right, or with a negative count to the left."""
        row, column = self.rows[self.row], min(self.column, self.columns - 1)
        row.fill(column)
        if count > 0:
            row.cells[column:column] = [" "] * count
            row.pens[column:column] = [self._erased] * count
            del row.cells[self.columns :], row.pens[self.columns :]
        else:
            del row.cells[column : column - count], row.pens[column : column - count]
            if self._style.background:
                row.fill(self.columns, self._erased)

    def _repeat(self, count: int) -> None:
        character, was_hidden = self._last
        if not character:
            return
        hides, self.hides = self.hides, self.hides or was_hidden
        # At most a row, as in VTE: of some bytes it could otherwise make megabytes of the log.
        self._draw(character * min(count, self.columns))
        self.hides = hides
        self._last = (character, was_hidden or hides)

    def _set_region(self, values: list[int]) -> None:
        top = _count(values) - 1
        bottom = min((values[1:] or [0])[0] or self.row_count, self.row_count) - 1
        if top < bottom:
            self._top, self._bottom = top, bottom
            self._go(0, 0)

    def _in_region(self, scroll: Callable[[int, int], None], count: int) -> None:
        """Insert or delete rows from the cursor to the end of the region."""
        if self._top <= self.row <= self._bottom:
            scroll(count, self.row)
            self.column = 0


def _count(values: list[int]) -> int:
    return max(values[0], 1) if values else 1


def _number(digits: str) -> int:
    return min(int(digits[:5] or 0), MAX_NUMBER) if digits[:5].isdigit() else 0


def _width(character: str) -> int:
    """Return how many cells a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
