"""
Globs and paths for display.

Globs come from the model and from project files. So matching takes at most pattern times path: a star never gives back what it has
passed, neither inside a name nor between names. Only standard library imports, because `tree.py` runs in the sandbox.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import product

MAX_GLOB_CHARS = 4096
MAX_ALTERNATIVES = 256
MAX_COMBINED = 3
"""The most character sets in a name for which every combination of set and literal is tried."""

_BRACES = r"(?<!\\)\{([^{}]*)\}"
_SET = r"\[([!^]?)(\]?[^\]]*)\]"
_PIECES = r"(?s)\\.|\[[!^]?\]?[^\]]*\]|."
_SPECIAL = r"[*?\[{\\]"
_PLAIN_NAME = r"(?a)(?:[\w.*?+,-]|\\[{}])+"
_UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_FIRST_BYTE_ESCAPE = 0xDC00  # os.fsdecode returns an undecodable byte b as U+DC00 + b

NamePattern = re.Pattern[str]


class GlobError(ValueError):
    """An invalid glob; the text is a clause: "it has a `[` without a `]`"."""


def escaped(path: str) -> str:
    r"""Return `path` on one line, with control characters and undecodable bytes as `\x..`."""
    return re.sub(_UNPRINTABLE, _escape, path)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code >= _FIRST_BYTE_ESCAPE:
        code -= _FIRST_BYTE_ESCAPE
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - two hex digits


class Glob:
    """
    A glob for paths below a directory, as in `.gitignore`: without a slash it matches names at any depth.

    `*`, `?` and `[…]` match within a name, `**` matches any number of directories. With `has_braces`, `{a,b}` matches either; because
    files can be named `[id]` and `{a,b}`, brackets and braces also match literally.

    Raises:
        GlobError: it is invalid, or has too many alternatives.
    """

    def __init__(self, glob: str, *, has_braces: bool) -> None:
        if len(glob) > MAX_GLOB_CHARS:
            raise GlobError(f"it is longer than {MAX_GLOB_CHARS} characters")
        self._globs = _alternatives(glob) if has_braces else [glob]
        self._patterns = [
            _patterns(alternative, is_also_literal=has_braces) for alternative in self._globs
        ]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_match(patterns, names) for patterns in self._patterns)

    @property
    def last_names(self) -> list[str]:
        """Globs for the names of matching files; empty if any name can match, or a glob is too complex."""
        names = [glob.rpartition("/")[2] for glob in self._globs]
        is_plain = all(re.fullmatch(_PLAIN_NAME, name) and name.strip("*") for name in names)
        return [re.sub(r"\\(.)", r"[\1]", name) for name in names] if is_plain else []


def rooted(glob: str, directory: str) -> tuple[str, str]:
    """
    Move the literal beginning of `glob` to the directory: `../src/**` then searches only src.

    `directory` must be absolute; the returned one is, too.
    """
    with suppress(ValueError):  # not a user name
        glob = os.path.expanduser(glob)
    if glob.endswith("/"):
        glob += "**"
    if "/" not in glob:
        return directory, glob
    *above, name = glob.split("/")
    count = next((i for i, part in enumerate(above) if re.search(_SPECIAL, part)), len(above))
    literal = "/".join(above[:count]) + "/" if count else ""
    return os.path.normpath(os.path.join(directory, literal)), "/" + "/".join(
        [*above[count:], name]
    )


def _alternatives(glob: str) -> list[str]:
    r"""Expand braces: `{a,b}.c` becomes `a.c`, `b.c` and `\{a,b\}.c`; the last only if there are not too many."""
    try:
        return _expanded(glob, is_also_literal=True)
    except GlobError:
        return _expanded(glob, is_also_literal=False)


def _expanded(glob: str, *, is_also_literal: bool) -> list[str]:
    found: dict[str, None] = {}
    rest = [glob]
    while rest:
        if len(found) + len(rest) > MAX_ALTERNATIVES:
            raise GlobError(f"its braces expand to more than {MAX_ALTERNATIVES} alternatives")
        one = rest.pop()
        if braces := re.search(_BRACES, one):
            before, after = one[: braces.start()], one[braces.end() :]
            choices = [
                *braces[1].split(","),
                *([f"\\{{{braces[1]}\\}}"] if is_also_literal else []),
            ]
            rest += [before + choice + after for choice in reversed(choices)]
        else:
            found[one] = None
    return list(found)


def _patterns(glob: str, *, is_also_literal: bool) -> list[NamePattern | None]:
    """Return a pattern for each path component; None for `**`."""
    pattern_of = _lenient_pattern if is_also_literal else _name_pattern
    names = [name for name in glob.split("/") if name]
    patterns = [None if name == "**" else pattern_of(name) for name in names]
    if patterns and "/" not in glob:
        return [None, *patterns]
    if patterns and patterns[-1] is None:  # `src/**` does not match src itself
        patterns.append(_name_pattern("*"))
    return patterns


@lru_cache(maxsize=MAX_GLOB_CHARS)  # alternatives of a glob share components
def _lenient_pattern(glob: str) -> NamePattern:
    """
    Return a pattern for a name in which each `[…]` is a character set or literal.

    With few of them, all combinations match (`[id].[jt]s`); otherwise all are sets, or all literal.
    """
    choices = [_readings(piece) for piece in re.findall(_PIECES, glob)]
    count = sum(len(each) > 1 for each in choices)
    if count <= MAX_COMBINED:
        readings = ["".join(each) for each in product(*choices)]
    else:
        readings = ["".join(each[0] for each in choices), "".join(each[-1] for each in choices)]
    *others, literal = readings
    patterns = [_name_pattern(literal).pattern]
    for reading in others:
        with suppress(GlobError):  # a reversed range, as in `[user-id]`
            patterns.append(_name_pattern(reading).pattern)
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.DOTALL)


def _readings(piece: str) -> list[str]:
    if not piece.startswith("["):
        return [piece]
    literal = re.sub(r"[\[\]\\*?]", r"\\\g<0>", piece)
    return [piece, literal] if piece != "[" else [piece]


def _name_pattern(glob: str) -> NamePattern:
    parts = [""]  # of the expression, between stars
    at = 0
    while at < len(glob):
        character = glob[at]
        at += 1
        if character == "*":
            parts.append("")
        elif character == "?":
            parts[-1] += "."
        elif character == "[":
            if not (found := re.match(_SET, glob[at - 1 :])):
                raise GlobError("it has a `[` without a `]`")
            inside = re.sub(r"[\\\[\]^&~|]|-(?=-)", r"\\\g<0>", found[2])
            parts[-1] += f"[{'^' if found[1] else ''}{inside}]"
            at += found.end() - 1
        else:
            if character == "\\" and at < len(glob):
                character = glob[at]
                at += 1
            parts[-1] += re.escape(character)
    first, *others = parts
    if others:
        *middle, last = others
        # A part between two stars has a fixed length, so the first match is as good as any other.
        first += "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}"
    try:
        return re.compile(first, re.DOTALL)
    except re.error as error:
        raise GlobError("it has a `[…]` with a reversed range") from error


def _match(patterns: Sequence[NamePattern | None], names: Sequence[str]) -> bool:
    """True if the patterns match all names; a `**` takes one more name whenever the rest does not match."""
    at = name_at = 0
    after_star = star_until = -1
    while name_at < len(names):
        pattern = patterns[at] if at < len(patterns) else None
        if at < len(patterns) and pattern is None:
            at += 1
            after_star, star_until = at, name_at
        elif pattern and pattern.fullmatch(names[name_at]):
            at += 1
            name_at += 1
        elif after_star >= 0:
            star_until += 1
            at, name_at = after_star, star_until
        else:
            return False
    return all(pattern is None for pattern in patterns[at:])
