"""Colours and attributes of text in a terminal: the parameters of SGR (ECMA-48), in their shortest form."""

from collections.abc import Mapping

FLAGS = frozenset("12345789")
ENDS_OF_FLAGS: Mapping[str, str] = {
    "22": "12",
    "23": "3",
    "24": "4",
    "25": "5",
    "27": "7",
    "28": "8",
    "29": "9",
    "": "".join(sorted(FLAGS)),
}
COLOUR_NUMBERS = {"5": 2, "2": 4}
"""How many numbers follow 38, 48 or 58: an index, or red, green and blue."""


class Style:
    """The style with which a terminal draws now."""

    def __init__(self) -> None:
        self.background = ""
        self.text = ""  # the parameters
        self._foreground = ""
        self._flags: dict[str, None] = {}

    def copy(self) -> "Style":
        copy = Style()
        copy.background, copy.text = self.background, self.text
        copy._foreground, copy._flags = self._foreground, dict(self._flags)
        return copy

    def change(self, parameters: str) -> None:
        values = parameters.split(";")
        while values:
            kind, *more = values.pop(0).split(":")
            kind = kind.lstrip("0")
            if kind in ("38", "48", "58") and not more:
                count = COLOUR_NUMBERS.get(values[0] if values else "", 0)
                more, values = values[:count], values[count:]
            self._change(kind, [each for each in more if each])
        self.text = ";".join(filter(None, (*self._flags, self._foreground, self.background)))

    def _change(self, kind: str, more: list[str]) -> None:
        if kind in ENDS_OF_FLAGS or (kind == "4" and more == ["0"]):
            for flag in ENDS_OF_FLAGS.get(kind, kind):
                self._flags.pop(flag, None)
        elif kind in FLAGS:
            self._flags[kind] = None
        if kind in ("", "39") or kind[:-1] in ("3", "9"):
            self._foreground = _colour(kind, more, "39")
        if kind in ("", "49") or kind[:-1] in ("4", "10"):
            self.background = _colour(kind, more, "49")


def _colour(kind: str, more: list[str], default: str) -> str:
    if kind in ("", default):
        return ""
    return ";".join((kind, *(number[:3] for number in more if number.isdigit())))
