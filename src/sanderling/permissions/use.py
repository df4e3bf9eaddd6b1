"""A tool use as rules see it: its command parsed and its paths resolved, each once."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from sanderling.config import config_dir
from sanderling.errors import ConfigError
from sanderling.paths import is_in_any, is_within, normal_path
from sanderling.permissions.shell.grammar import Opaque, Parsed, Words, literals, parse
from sanderling.permissions.shell.programs import all_commands, core_words
from sanderling.project.trust.trust import INSTRUCTION_NAMES
from sanderling.sandbox.execution_environment import LOCAL_DISK, Disk
from sanderling.sandbox.names import asked_about, folded
from sanderling.text import name_set
from sanderling.tools.effects import Effect

MAX_DIRECTORIES, MAX_REAL_PATHS = 32, 1_000

_INSTRUCTION_NAMES = frozenset(map(folded, INSTRUCTION_NAMES))
TURNING = r"\b(HOME|CDPATH|cdable_vars)\b"
"""The variables and options on which `cd` and `~` depend."""
SETTING = name_set(
    "export declare typeset local readonly read printf mapfile readarray getopts unset let shopt set env eval"
)
"""Commands whose words may name variables that they set."""

MAX_LETTERS = 8
"""How many letters of options may precede a path in one word (`-nf.env`)."""


@dataclass(frozen=True)
class Use:
    """An effect, with what has been found out about it."""

    effect: Effect
    project: str
    disk: Disk = LOCAL_DISK

    @cached_property
    def parsed(self) -> Parsed:
        return parse(self.effect.command)

    @cached_property
    def seen(self) -> Parsed:
        return all_commands(self.parsed)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The project's path as given, and its real path."""
        return tuple({normal_path(self.project): None, self.disk.real_path(self.project): None})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The file's path as given, and resolved: a link must not evade a rule."""
        path = self.effect.path
        return normal_path(path), self.disk.real_path(path)

    @cached_property
    def protected(self) -> frozenset[str]:
        """The parts of the path below the project whose writing is always asked about."""
        root = next((root for root in self.roots if is_within(self.paths[0], root)), "")
        called = self.paths[0].removeprefix(root)
        is_called = asked_about(called.split("/"))
        return is_called | asked_about(self.paths[1].removeprefix(self.roots[-1]).split("/"))

    @cached_property
    def instructs(self) -> bool:
        """Whether it writes what later sessions are sent: a file of instructions, under any name, or the user's own configuration."""
        if self.effect.kind != "write":
            return False
        if any(folded(path.rpartition("/")[2]) in _INSTRUCTION_NAMES for path in self.paths):
            return True
        own = _own_directory()
        links = (f"{place}/{name}" for place in (*self.roots, *own) for name in INSTRUCTION_NAMES)
        return is_in_any(self.paths[1], map(self.disk.real_path, own)) or (
            self.paths[1] in map(self.disk.real_path, links)
        )

    def is_inside(self, others: Sequence[str] = ()) -> bool:
        directories = (*self.roots, *map(self.disk.real_path, others))
        return is_in_any(self.paths[1], directories)

    @cached_property
    def directories(self) -> tuple[str, ...] | None:
        """The directories where the line's commands may run, according to `cd`; None if that is unknown, or if the line may change it."""
        if self._is_turned:
            return None
        found = dict.fromkeys([self.effect.cwd or self.project])
        for command in self.seen.commands:
            words, moves = core_words(command.words)
            if words and words[0] in ("cd", "pushd"):
                moves = tuple(word for word in words[1:] if word != "--") or ("~",)
            for move in moves:
                if isinstance(move, Opaque) or move.startswith("-") or len(found) > MAX_DIRECTORIES:
                    return None
                places = [place for directory in found for place in _places(directory, move)]
                found |= dict.fromkeys(map(normal_path, places))
        return tuple(found)

    @cached_property
    def _is_turned(self) -> bool:
        """True if `cd` or `~` in the line may depend on a variable or option that was set there or before."""
        commands = self.seen.commands
        words = [word for each in commands for word in each.words]
        words += [redirection.target for each in commands for redirection in each.redirections]
        if not any(word in ("cd", "pushd") or "~" in word for word in literals(words)):
            return False
        said = [name for each in commands for name, _ in each.assignments]
        for each in commands:
            if each.words and each.words[0] in SETTING:
                said += literals(each.words[1:])
        return any(re.search(TURNING, text) for text in (*said, *self.effect.exported))

    def files(self, word: str) -> Iterator[str]:
        """
        Yield every path that a word of a command may name: itself, or what follows a `=`, `:`, `@` or `,` in it, or letters of options.

        The paths are absolute, but not normalized: what precedes a `..` may be a link.
        """
        pieces = dict.fromkeys([word, *re.split(r"[=:@,]", word)])
        if re.match(r"-\w", word):
            pieces |= dict.fromkeys(word[start:] for start in range(2, min(len(word), MAX_LETTERS)))
        for directory in self._bases:
            for piece in filter(None, pieces):
                yield from _places(directory, piece[:4096])

    @cached_property
    def _bases(self) -> dict[str, None]:
        """The bases of relative paths, as given and resolved: a file that does not exist yet cannot be resolved."""
        directories = self.directories or ()
        return dict.fromkeys((*directories, *map(self.disk.real_path, directories), *self.roots))

    @cached_property
    def _targets(self) -> dict[str, tuple[str, ...]]:
        return {}

    def targets(self, word: str) -> tuple[str, ...] | None:
        """Return the files that a word may name, as given and resolved; None if they are too many to look up."""
        known = self._targets.get(word)
        if known is not None or sum(map(len, self._targets.values())) > MAX_REAL_PATHS:
            return known
        found = dict[str, None]()
        for file in self.files(word):
            found[normal_path(file)] = None
            if "/" in word or self.disk.exists(file):
                found[self.disk.real_path(file)] = None
            if len(found) > MAX_REAL_PATHS:
                return None
        self._targets[word] = tuple(found)
        return self._targets[word]


def _own_directory() -> tuple[str, ...]:
    with suppress(ConfigError):  # there is no HOME
        return (config_dir(),)
    return ()


def _places(directory: str, name: str) -> tuple[str, ...]:
    """Return the paths that `name` leads to from a directory. `~` leads home or, if it was quoted, to a file of that name."""
    names = {name: None}
    with suppress(ValueError):  # no such user
        names[os.path.expanduser(name)] = None  # noqa: PTH111 - the same name as text
    return tuple(os.path.join(directory, each) for each in names)  # noqa: PTH118


def is_at_home(words: Words, use: Use) -> bool:
    """Return True if the program runs in this project: rules are about its programs, and elsewhere the same words may mean another."""
    name = words[0]
    if isinstance(name, str) and "/" in name and not name.startswith("/"):
        return use.directories is not None and set(use.directories) <= {use.project, *use.roots}
    return name == "cd" or stays_inside(use, "")


def stays_inside(use: Use, name: str) -> bool:
    """Return True if `name` leads nowhere outside the project, from every directory where the line may be by then."""
    return use.directories is not None and all(
        is_in_any(path, use.roots)
        for directory in use.directories
        for place in _places(directory, name)
        for path in (normal_path(place), use.disk.real_path(place))
    )
