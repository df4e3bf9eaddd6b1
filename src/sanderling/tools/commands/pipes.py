"""
The pipe that ends a command line: `jest | tail` succeeds, although jest failed.

Bash has the status of each part until the next command, and `eval` is one. So the command is followed by an assignment, but only where a
line after it cannot change its meaning. That is decided here, without knowing the whole grammar: an unclear line has no pipe.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

SIGPIPE = 141
"""The status of a program whose reader has ended: `yes | head`."""
MAX_PARTS = 64
ANSWERS = {
    **dict.fromkeys(
        [
            "grep",
            "egrep",
            "fgrep",
            "zgrep",
            "rg",
            "ag",
            "ack",
            "diff",
            "cmp",
            "which",
            "pgrep",
            "test",
            "[",
        ],
        1,
    ),
    "xargs": 123,  # of `xargs grep`, among others
}
"""Statuses that are an answer: nothing found, or a difference."""
LOOKING = {"find", "ls", "cat", "du", "stat", "file", "head", "tail", "wc", "readlink"}
"""Programs whose failure is meant to be ignored if their errors go to /dev/null."""

# Strings: compiling them would delay the start of every session.
_TOKENS = r"""(?xs)
    (?P<word>(?:'[^']*'|\$'(?:[^'\\]|\\.)*'|"(?:[^"\\`$]|\\.|\$\([^()"'`]*\)|\$(?!\())*"|\\.|[^\s'"`\\|&;()<>\#]|(?<=[^\s|&;()])\#)+)
    |(?P<comment>\#[^\n]*)
    |(?P<heredoc><<-?(?!<)[ \t]*(?:(?P<quote>['"])(?P<quoted>[\w.-]+)(?P=quote)|(?P<plain>[\w.-]+)))
    |(?P<redirection>(?:&>>?|<<<|>>|[<>]&|<>|>\||[<>])[ \t]*)
    |(?P<condition>&&|\|\|)
    |(?P<pipe>\|&?)
    |(?P<background>&)
    |(?P<end>;+|\n)
    |(?P<open>\()
    |(?P<close>\))
    |(?P<blank>[^\S\n]+)
    """
_SHOWS_ITS_LINES = r"\bDEBUG\b|\bset\s+-\w*v|\bset\s.*-o\s+verbose"
_SILENT = "2>/dev/null"
_NO_NAME = r"\w+=|[{!]$|(?:time|sudo|env|command|nice|exec|builtin|then|do|else|2>/dev/null)$|\d+$"


class PipePart(NamedTuple):
    """A part of a pipe: its program, if known, and whether its errors go to /dev/null."""

    name: str
    is_silent: bool


class _CommandLine:
    """The beginning of a line: the words of each part of its last pipe."""

    def __init__(self) -> None:
        self.parts: list[list[str]] = [[]]
        self.depth = 0
        self.has_ended = False  # by `;` or a line end; the next word begins another pipe
        self.is_complete = True
        self._has_piped = False  # before a condition
        self._is_target = False

    def take(self, kind: str, text: str) -> None:
        if kind in ("open", "close"):
            self.depth += 1 if kind == "open" else -1
            self.is_complete = self.depth >= 0
            if kind == "open":
                self._word("(")
        elif self.depth:
            return
        elif kind == "word":
            self._word(text)
        elif kind == "redirection":
            self._is_target = True
        elif kind == "pipe":
            self.parts.append([])
        elif kind == "condition":
            self._has_piped = self._has_piped or len(self.parts) > 1
            self.parts = [[]]
        elif kind == "background":
            self.parts = [[]]
        elif kind == "end":
            self.has_ended = True

    def _word(self, text: str) -> None:
        if self.has_ended and self.parts[-1]:
            self.parts, self._has_piped = [[]], False
        self.has_ended = False
        if not self._is_target:
            self.parts[-1].append(text)
        elif text == "/dev/null" and self.parts[-1][-1:] == ["2"]:
            self.parts[-1][-1] = _SILENT
        self._is_target = False

    def pipe(self) -> tuple[PipePart, ...]:
        is_pipe = len(self.parts) > 1 and all(self.parts)
        is_clear = self.is_complete and not self.depth and not self._has_piped
        return tuple(map(_part, self.parts)) if is_pipe and is_clear else ()


def last_pipe(command: str) -> tuple[PipePart, ...]:
    """Return the pipe that ends `command`; empty if none does, or if a line after it could change its meaning."""
    if "|" not in command or re.search(_SHOWS_ITS_LINES, command):
        return ()
    line, at, tokens = _CommandLine(), 0, re.compile(_TOKENS)
    here: list[str] = []  # what ends the here-documents that begin at the next line
    while at < len(command):
        token = tokens.match(command, at)
        if not token:
            return ()
        at = token.end()
        if token.lastgroup == "heredoc":
            here.append(token["quoted"] or token["plain"])
        elif token[0] == "\n":
            for end in here:
                found = re.compile(rf"^\t*{re.escape(end)}(?:\n|\Z)", re.MULTILINE).search(
                    command, at
                )
                if not found:
                    return ()
                at = found.end()
            here = []
        line.take(token.lastgroup or "", token[0])
    return () if here else line.pipe()


def _part(words: Sequence[str]) -> PipePart:
    word = next((word for word in words if not re.match(_NO_NAME, word)), "")
    name = word.rpartition("/")[2]
    is_name = re.fullmatch(r"[\w.+-]{1,40}|\[", name)
    return PipePart(name if is_name else "", _SILENT in words)


def failed_parts(command: str, statuses: Sequence[int], status: int | None) -> str:
    """Return the failures in the pipe that ends `command`, except for its own `status`: `1 in the pipe before tail`."""
    parts = last_pipe(command)
    if len(parts) != len(statuses):
        return ""
    failures = [
        f"{each} in the pipe before {after.name or 'the next part'}"
        for each, part, after in zip(statuses, parts, parts[1:], strict=False)
        if each not in (0, SIGPIPE, status, ANSWERS.get(part.name))
        and not (part.is_silent and part.name in LOOKING)
    ]
    return "; ".join(failures)


def statuses_in(text: str) -> tuple[int, ...]:
    """Parse the statuses that the shell reported; a command could have written anything there."""
    parts = text[: 4 * MAX_PARTS].split()
    return tuple(map(int, parts)) if all(re.fullmatch(r"\d{1,3}", each) for each in parts) else ()
