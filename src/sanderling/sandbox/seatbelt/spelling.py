"""
How macOS spells a path.

The kernel compares a rule with the path of the file that it found, and not with the requested path: links are resolved, so `/tmp` is
`/private/tmp`, and names have the case and the Unicode form that they have on the disk. A file that is being created has no such form yet:
its last name is as the program gave it, while the volume takes `.ENVRC` and `.envrc` for the same.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator

from sanderling.paths import MAX_LINKS
from sanderling.sandbox.names import IGNORED
from sanderling.sandbox.seatbelt.expressions import plain

DATA_VOLUME = "/System/Volumes/Data"
"""Where the writable volume is mounted. Its usual directories also appear below /, through firmlinks (/usr/share/firmlinks)."""

FOLDED = {
    "k": "\u212a",
    "s": "\u017f",
    "ss": "\u00df\u1e9e",
    "ff": "\ufb00",
    "fi": "\ufb01",
    "fl": "\ufb02",
    "ffi": "\ufb03",
    "ffl": "\ufb04",
    "st": "\ufb05\ufb06",
}
"""The characters beyond ASCII that are equal to ASCII letters where case makes no difference (CaseFolding.txt of Unicode)."""
MAX_CHUNK = 6
"""Longer runs of letters that ligatures join are matched loosely, because the number of their spellings grows exponentially."""


def links_on(path: str) -> list[str]:
    """Return the links that lead from `path` to its file, each in its real directory. A program can follow a link only if it can read it."""
    found: list[str] = []
    place, parts = "/", path.split("/")[::-1]
    while parts and len(found) < MAX_LINKS:
        step = os.path.normpath(f"{place}/{parts.pop()}")
        try:
            target = os.readlink(step)
        except OSError:
            place = step
            continue
        found.append(step)
        parts += target.split("/")[::-1]
        place = "/" if target.startswith("/") else place
    return found


def above_it(path: str) -> Iterator[str]:
    """Yield the directories above `path`, up to "/"."""
    while path != "/":
        path = os.path.dirname(path)
        yield path


def aliases(path: str) -> list[str]:
    """
    Return the spellings under which a rule must name a canonical `path`.

    macOS 11 and 12 judge a path on the data volume without the mount point, even if no firmlink leads there (Chromium's issue 1266490).
    """
    if path.startswith(f"{DATA_VOLUME}/"):
        return [path, path.removeprefix(DATA_VOLUME)]
    return [path]


def tree_pattern(directory: str, name: str) -> str:
    """Return a regular expression for `name` in `directory`, in any spelling, and everything below; a name may have several parts."""
    spelled = "/".join(map(any_spelling, name.split("/")))
    return f"^{plain(directory.rstrip('/'))}/{spelled}(/|$)"


def ignored_pattern(directory: str, names: Iterable[str]) -> str:
    """
    Return a regular expression for names with characters that HFS+ ignores, and everything below, where these `names` of `directory` could be.

    Such a character could be anywhere in a name, and the patterns of names would be ten times as long with all of these spellings. So names
    of ASCII letters, or those equal to them, and of such characters are refused altogether. Emoji that contain one are not affected.
    """
    ignored = "|".join(IGNORED)
    letter = f"([ -.0-~]|{'|'.join(''.join(FOLDED.values()))}|{ignored})*"
    parts = [name.split("/")[:-1] for name in names]
    around = {
        "/".join(map(any_spelling, each[:end])) for each in parts for end in range(1, len(each) + 1)
    }
    below = f"(({'|'.join(sorted(around))})/)?" if around else ""
    return f"^{plain(directory.rstrip('/'))}/{below}{letter}({ignored}){letter}(/|$)"


def any_spelling(name: str) -> str:
    """Return a regular expression for all names that a case-insensitive volume takes for `name`, which is one component."""
    name = unicodedata.normalize("NFC", name).casefold()
    parts: list[str] = []
    start = 0
    for end in range(1, len(name) + 1):
        if end == len(name) or name[end - 1 : end + 1] not in FOLDED:
            parts.append(_chunk(name[start:end]))
            start = end
    return "".join(parts)


def _chunk(text: str) -> str:
    if len(text) > MAX_CHUNK:
        return f"({'|'.join(dict.fromkeys(_pieces(text)))})+"
    return _one_of(_splits(text))


def _pieces(text: str) -> Iterator[str]:
    for start in range(len(text)):
        for size in (1, 2, 3):
            yield from _spellings(text[start : start + size])


def _splits(text: str) -> Iterator[str]:
    """Yield the spellings of `text` as sequences of letters and ligatures."""
    if not text:
        yield ""
        return
    for size in (1, 2, 3):
        if first := list(_spellings(text[:size])) if size <= len(text) else []:
            yield from (_one_of(iter(first)) + rest for rest in _splits(text[size:]))


def _spellings(text: str) -> Iterator[str]:
    """Yield the spellings of one letter, or the ligatures for several."""
    if len(text) == 1:
        if not text.isascii():
            for char in dict.fromkeys((text, text.upper(), text.title())):
                for form in ("NFC", "NFD"):
                    yield plain(unicodedata.normalize(form, char))
        elif text.isalpha():
            yield f"[{text}{text.upper()}]"
        else:
            yield plain(text)
    yield from FOLDED.get(text, "")


def _one_of(patterns: Iterator[str]) -> str:
    first, *others = dict.fromkeys(patterns)
    return f"({'|'.join((first, *others))})" if others else first
