"""Names of keys, and the bytes that a terminal sends for them."""

import re

from sanderling.errors import ToolError
from sanderling.text import printable

MAX_KEYS = 100
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
_OTHERS = {
    **dict.fromkeys(("enter", "return", "cr"), "\r"),
    **dict.fromkeys(("esc", "escape"), "\x1b"),
    **dict.fromkeys(("bspace", "backspace", "bs"), "\x7f"),
    **dict.fromkeys(("delete", "del"), "\x1b[3~"),
    **dict.fromkeys(("pageup", "pgup"), "\x1b[5~"),
    **dict.fromkeys(("pagedown", "pgdn"), "\x1b[6~"),
    "tab": "\t",
    "s-tab": "\x1b[Z",
    "space": " ",
    "insert": "\x1b[2~",
    **{f"f{number}": f"\x1bO{letter}" for number, letter in enumerate("PQRS", 1)},
    **{f"f{n}": f"\x1b[{code}~" for n, code in enumerate((15, 17, 18, 19, 20, 21, 23, 24), 5)},
}
_CONTROL = r"(?:c-|ctrl[-+]|\^)(space|[a-z@\[\\\]^_])"
_META = r"(?:m-|a-|alt[-+])(.{1,20})"


def encoded(keys: str, *, is_application: bool) -> bytes:
    """
    Return the bytes for `keys`, names separated by blanks; `is_application`: as the program asked for cursor keys.

    Raises:
        ToolError: a key is unknown.
    """
    names = keys.split()
    if not names or len(names) > MAX_KEYS:
        raise ToolError(f"`keys` takes 1 to {MAX_KEYS} keys, such as `C-c` or `Up Enter`.")
    return "".join(_encoded(name, is_application=is_application) for name in names).encode()


def _encoded(name: str, *, is_application: bool) -> str:
    if len(name) == 1:
        return name
    key = name.removeprefix("<").removesuffix(">").casefold()
    if letter := _CURSOR.get(key):
        return f"\x1b{'O' if is_application else '['}{letter}"
    if code := _OTHERS.get(key):
        return code
    if control := re.fullmatch(_CONTROL, key):
        return chr(ord(control[1].replace("space", "@").upper()) & 0x1F)
    if meta := re.fullmatch(_META, key):
        of_name = name.removeprefix("<").removesuffix(">")[meta.start(1) :]
        return f"\x1b{_encoded(of_name, is_application=is_application)}"
    raise ToolError(
        f"There is no key '{printable(name)}'. Use Enter, Tab, Esc, BSpace, Up, Home, PageUp, F1, C-c, M-x and the like."
    )


def is_enter(keys: str) -> bool:
    return keys.strip().casefold() in ("enter", "return", "cr")


def is_interrupt(keys: str) -> bool:
    return keys.strip().casefold() in ("c-c", "ctrl-c", "ctrl+c", "^c")
