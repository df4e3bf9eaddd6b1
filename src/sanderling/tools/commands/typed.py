"""The user's input in a terminal, to hide it where a program repeats it later: a history, an error message, an echo that comes late."""

import codecs
import re

from sanderling.tools.commands.screen import Row

MIN_LINE_CHARS = 4  # a PIN; shorter ones occur everywhere
MIN_WORD_CHARS = 8  # of a line: otherwise `make test` would hide each "test" in the output
MAX_TEXTS = 4_096
_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?"


class TypedText:
    """Lines and long words that the user has typed. Only in memory, and only as long as the terminal lives."""

    def __init__(self) -> None:
        self._line = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._texts: dict[str, None] = {}
        self._by_start: dict[str, list[str]] = {}

    def note(self, data: bytes) -> None:
        for character in re.sub(_SEQUENCE, "\n", self._decode(data)):
            if character in "\b\x7f":
                self._line = self._line[:-1]
            elif character < " ":
                self.keep()
            else:
                self._line += character

    def keep(self) -> None:
        """End the line, and remember it."""
        line, self._line = self._line.strip(), ""
        words = [word for word in line.split() if len(word) >= MIN_WORD_CHARS]
        for text in (line, *words):
            if len(text) >= MIN_LINE_CHARS and text not in self._texts:
                self._texts[text] = None
                self._by_start.setdefault(text[:MIN_LINE_CHARS], []).append(text)
        while len(self._texts) > MAX_TEXTS:
            self._drop(next(iter(self._texts)))

    def _drop(self, text: str) -> None:
        del self._texts[text]
        start = text[:MIN_LINE_CHARS]
        self._by_start[start].remove(text)
        if not self._by_start[start]:
            del self._by_start[start]

    def forget(self) -> None:
        self._line = ""
        self._texts.clear()
        self._by_start.clear()

    def hide_in(self, rows: list[Row]) -> None:
        """Hide these texts in `rows`, which are one line."""
        if not self._by_start:
            return
        text = ""
        places: list[tuple[Row, int]] = []
        for row in rows:
            for column, cell in enumerate(row.cells):
                text += cell
                places += [(row, column)] * len(cell)
        for at in range(len(text) - MIN_LINE_CHARS + 1):
            for hidden in self._by_start.get(text[at : at + MIN_LINE_CHARS], ()):
                if text.startswith(hidden, at):
                    for row, column in places[at : at + len(hidden)]:
                        row.pens[column] = row.pens[column]._replace(is_hidden=True)
