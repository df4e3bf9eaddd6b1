"""The user's input in a terminal, to hide it where a program repeats it later: a history, an error message, an echo that comes late."""

import codecs
import re
from collections import OrderedDict

from sanderling.tools.commands.screen import Row

MIN_LINE_CHARS = 4  # a PIN; shorter ones occur everywhere
PIECE_CHARS = 8  # of a line: otherwise `make test` would hide each "test" in the output
MAX_TEXTS = 1 << 17
_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?"
_INCOMPLETE = r"\x1b\[[0-?]*[ -/]*\Z"


class TypedText:
    """
    Lines that the user has typed. Only in memory, and only as long as the terminal lives.

    A program may repeat a part of a line, or the model may edit one that it brought back from a history. So each piece of a long line is
    remembered.
    """

    def __init__(self) -> None:
        self._line = ""
        self._pending = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        # Short lines, and the pieces of long ones. A dict takes the longer to find its first key, the more were deleted: minutes for a paste.
        self._texts = OrderedDict[str, None]()
        self._lengths: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._texts)

    def note(self, data: bytes) -> None:
        text = self._pending + self._decode(data)
        self._pending = rest[0] if (rest := re.search(_INCOMPLETE, text)) else ""
        text = text[: len(text) - len(self._pending)]
        for part in re.findall(r"[\x00-\x1f\x7f]|[^\x00-\x1f\x7f]+", re.sub(_SEQUENCE, "\n", text)):
            if part in "\b\x7f":
                self._line = self._line[:-1]
            elif part < " ":
                self.keep()
            else:
                self._line += part

    def keep(self) -> None:
        """End the line, and remember it."""
        line, self._line = self._line.strip(), ""
        length = min(len(line), PIECE_CHARS)
        if length < MIN_LINE_CHARS:
            return
        for at in range(max(0, len(line) - MAX_TEXTS), len(line) - length + 1):
            self._texts[line[at : at + length]] = None
        self._lengths.add(length)
        while len(self._texts) > MAX_TEXTS:
            self._texts.popitem(last=False)

    def forget(self) -> None:
        self._line = self._pending = ""
        self._texts.clear()

    def hide_in(self, rows: list[Row]) -> None:
        """Hide these texts in `rows`, which are one line."""
        if not self._texts:
            return
        text = ""
        places: list[tuple[Row, int]] = []
        for row in rows:
            for column, cell in enumerate(row.cells):
                text += cell
                places += [(row, column)] * len(cell)
        for at in range(len(text) - MIN_LINE_CHARS + 1):
            for length in self._lengths:
                if text[at : at + length] in self._texts:
                    for row, column in places[at : at + length]:
                        _hide(row, column)


def _hide(row: Row, column: int) -> None:
    row.pens[column] = row.pens[column]._replace(is_hidden=True)
    if row.cells[column + 1 : column + 2] == [""]:  # the second half of a wide character
        row.pens[column + 1] = row.pens[column + 1]._replace(is_hidden=True)
