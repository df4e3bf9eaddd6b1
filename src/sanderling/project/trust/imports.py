"""Imports in instructions: `@path` includes the file that it names."""

import posixpath
import re
from collections.abc import Iterator

import msgspec

MAX_IMPORT_DEPTH = 5

_FENCE = r" {0,3}(`{3,}|~{3,})"
# Not slower on a long line of backticks than on others.
_SPAN = r"(?<!`)(`+)[^`]+\1"
_MENTION = r"(?<![^\s(])@([^\s`<>\"'()]+)"
_BULLET = r"\s*(?:[-*+]\s+)?"
_INDENTED = r"(?: {4}|\t)\s*(?![-*+\s])"  # code, unless it is a nested list


class Import(msgspec.Struct, frozen=True):
    """An import. `is_alone`: nothing else is on its line, so it can only be meant as an import."""

    mention: str
    is_alone: bool


def lines_with_imports(text: str) -> Iterator[tuple[str, tuple[Import, ...]]]:
    """Yield each line of `text` with its imports; code has no imports."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(_FENCE, line)
        if fence:
            is_end = found and found[1].startswith(fence) and not line[found.end() :].strip()
            fence = "" if is_end else fence
            yield line, ()
        elif found:
            fence = found[1]
            yield line, ()
        else:
            yield line, _imports(line)


def _imports(line: str) -> tuple[Import, ...]:
    if "@" not in line or re.match(_INDENTED, line):
        return ()
    mentions = [found.rstrip(".,;:!?") for found in re.findall(_MENTION, re.sub(_SPAN, "`", line))]
    alone = re.sub(_BULLET, "", line, count=1).rstrip()
    return tuple(Import(name, alone == f"@{name}") for name in mentions if name)


def imported_path(importing: str, mention: str) -> str | None:
    """Return the path that `mention` means in the file `importing`, both relative to the same root; None if it leads out of that."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(importing), mention))
    is_outside = path.startswith(("/", "~", "../")) or path in (".", "..")
    return None if is_outside else path
