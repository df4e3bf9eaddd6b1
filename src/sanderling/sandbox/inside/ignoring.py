"""
Patterns of .gitignore files (gitignore(5)).

If several rules match a name, the last one applies, and rules of a directory override its parents' rules. Everything in an ignored
directory is ignored. Consecutive rules with the same effect become one regular expression, because every name of the project is matched.

`pathspec` was five times as slow, took seconds for a hostile pattern, and differed from git. ripgrep does not list links, nor files that
are tracked although ignored. Hence this implementation.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

NAME = ".gitignore"
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class _IgnorePattern(NamedTuple):
    is_negative: bool
    is_of_names: bool  # at any depth; otherwise paths relative to the rules' directory
    expression: str


class _Group(NamedTuple):
    """Consecutive rules that all ignore, or all do not. Directories are matched with a slash at the end."""

    is_negative: bool
    names: re.Pattern[str] | None
    paths: re.Pattern[str] | None


class IgnoreFile:
    """The rules in `text`, the content of a file in the absolute path `directory`."""

    def __init__(self, directory: str, text: str) -> None:
        self._start = len(directory.rstrip("/")) + 1
        rules = [rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r")))]
        groups = groupby(rules, lambda rule: rule.is_negative)
        self._groups = [_group(each, list(some)) for each, some in groups][::-1]

    def __bool__(self) -> bool:
        return bool(self._groups)

    def judge(self, path: str, name: str) -> bool | None:
        """Return whether `path` is ignored, or None if no rule matches. `path` and `name` end in a slash for directories."""
        for is_negative, names, paths in self._groups:
            if (names and names.fullmatch(name)) or (paths and paths.fullmatch(path, self._start)):
                return not is_negative
        return None


def is_ignored(chain: Sequence[IgnoreFile], path: str, name: str) -> bool:
    """Return whether the rules of a directory and its parents, nearest first, ignore an entry."""
    for rules in chain:
        if (judged := rules.judge(path, name)) is not None:
            return judged
    return False


def matcher(directory: str, patterns: Sequence[str]) -> IgnoreFile:
    """Return rules that match what any of `patterns` in .gitattributes matches. Negative patterns do not exist there."""
    return IgnoreFile(directory, "\n".join(each for each in patterns if not each.startswith("!")))


def _group(is_negative: bool, rules: Sequence[_IgnorePattern]) -> _Group:
    names = [rule.expression for rule in rules if rule.is_of_names]
    paths = [rule.expression for rule in rules if not rule.is_of_names]
    return _Group(is_negative, _any_of(names), _any_of(paths))


def _any_of(expressions: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(expressions), re.DOTALL) if expressions else None


def _rule(line: str) -> _IgnorePattern | None:
    """Return the rule in a line, or None for comments, blank lines, and patterns that cannot match."""
    pattern = _without_blanks(line)
    if not pattern or pattern.startswith("#"):
        return None
    is_negative = pattern.startswith("!")
    pattern = pattern[is_negative:]
    end = "/" if pattern.endswith("/") else "/?"
    pattern = pattern.removesuffix("/")
    is_of_names = "/" not in pattern
    try:
        expression = _name(pattern) if is_of_names else _path(pattern.removeprefix("/"))
        re.compile(expression)
    except (ValueError, re.error):
        return None
    return _IgnorePattern(is_negative, is_of_names, f"(?:{expression}){end}") if pattern else None


def _without_blanks(line: str) -> str:
    """Strip spaces at the end, except one after a backslash."""
    stripped = line.rstrip(" ")
    slashes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if slashes % 2 and stripped != line else stripped


def _path(pattern: str) -> str:
    """Return the regular expression for a path. Between two `**` the first match is final, to prevent backtracking."""
    groups: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if part.strip("*") == "" and len(part) > 1:
            groups.append([])
        else:
            groups[-1].append(_name(part))
    first, *middle = ["/".join(group) for group in groups]
    if not middle:
        return first
    *middle, last = middle
    first += "/" * bool(first)
    between = "".join(f"(?>(?:[^/]*/)*?{each}/)" for each in middle if each)
    return f"{first}{between}" + (f"(?:[^/]*/)*?{last}" if last else ".+")


def _name(pattern: str) -> str:
    """Return the regular expression for a path component. Between two `*` the first match is final, to prevent backtracking."""
    pieces, position = [""], 0
    while position < len(pattern):
        letter = pattern[position]
        position += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "[^/]"
        elif letter == "[":
            text, position = _class(pattern, position)
            pieces[-1] += text
        elif letter == "\\":
            pieces[-1] += re.escape(pattern[position]) if position < len(pattern) else _fail()
            position += 1
        else:
            pieces[-1] += re.escape(letter)
    first, *middle = pieces
    if not middle:
        return first
    *middle, last = middle
    return first + "".join(f"(?>[^/]*?{each})" for each in middle if each) + f"[^/]*{last}"


def _fail() -> str:
    raise ValueError("it matches nothing")


def _class(pattern: str, position: int) -> tuple[str, int]:
    """Return the character class that begins after a bracket, and the position after it."""
    is_negative = pattern[position : position + 1] in ("!", "^")
    start = position = position + is_negative
    text = ""
    while position < len(pattern):
        letter = pattern[position]
        position += 1
        if letter == "]" and position > start + 1:
            return (f"[^/{text}]" if is_negative else f"(?!/)[{text}]"), position
        if letter == "[" and (known := re.match(r":(\w+):\]", pattern[position:])):
            text += _CLASSES.get(known[1]) or _fail()
            position += known.end()
        elif letter == "\\":
            text += re.escape(pattern[position : position + 1] or _fail())
            position += 1
        elif letter == "-" and start < position - 1 and pattern[position : position + 1] != "]":
            text += "-"
        else:
            text += re.escape(letter)
    return _fail(), position
