"""Deny and ask rules: one holds as soon as anything visible may match it."""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from sanderling.permissions.patterns import is_host, path_pattern, pattern_of
from sanderling.permissions.rules import Rule, concerns
from sanderling.permissions.shell.grammar import Opaque, SimpleCommand, Word, Words, literals
from sanderling.permissions.shell.programs import core_words, runner_length, runs_more, runs_unseen
from sanderling.permissions.use import Use
from sanderling.sandbox.names import folded

Verdict = Literal["no", "maybe", "yes"]


def forbids(rule: Rule, use: Use) -> Verdict:
    """Return whether a deny or ask rule holds for any visible part of `use`."""
    if use.effect.kind == "run" and rule.path:
        return "maybe" if use.effect.is_unknown else _forbids_words(rule, use)
    if not concerns(rule, use.effect):
        return "no"
    if rule.command:
        return _forbids_command(rule, use)
    if rule.path:
        return _worst(_guards(rule.path, use, path) for path in use.paths)
    if rule.host:
        return "yes" if is_host(rule.host, use.effect.host, any_port=True) else "no"
    return "yes"


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"


def _guards(glob: str, use: Use, path: str) -> Verdict:
    """Compare a rule's path to `path`. If only case differs, the answer depends on the file system: "maybe"."""
    if path_pattern(glob, use.roots, use.disk, is_anywhere=True)(path):
        return "yes"
    is_like = path_pattern(glob, use.roots, use.disk, is_anywhere=True, is_folded=True)(path)
    return "maybe" if is_like else "no"


def _forbids_command(rule: Rule, use: Use) -> Verdict:
    if use.effect.is_unknown:
        return "maybe"
    verdict = _worst(_begins(rule.command, command) for command in use.seen.commands)
    name = (*pattern_of(rule.command)[0], "")[0]
    is_unclear = use.seen.problem or any(_occurs_in(name, text) for text in use.seen.inputs)
    return "maybe" if verdict == "no" and is_unclear else verdict


def _begins(pattern: str, command: SimpleCommand) -> Verdict:
    """Compare the beginning of a command to the pattern; a command that runs another may contain it anywhere."""
    expected, is_exact = pattern_of(pattern)
    words = command.words
    if not words:
        return "no"
    if not expected:
        return "yes"
    if not _is_wrapper(command):
        return _begins_at(words, expected, is_exact=is_exact)
    verdict = _worst(
        _begins_at(words[start:], expected, is_exact=False)
        for start, word in enumerate(words)
        if _is_named(word, expected[0]) != "no"
    )
    if verdict != "no" or command.is_guess:
        return verdict
    return "maybe" if runs_unseen(words) or _may_hold(words, expected[0]) else "no"


@lru_cache(maxsize=256)
def _is_wrapper(command: SimpleCommand) -> bool:
    return command.is_guess or runs_more(command.words) != "" or runner_length(command.words) > 0


def _begins_at(words: Words, expected: tuple[str, ...], *, is_exact: bool) -> Verdict:
    """Compare `words` to the expected ones. "maybe": it depends on what words expand to, or on where options are."""
    is_named = _is_named(words[0], expected[0])
    if is_named == "no":
        return "no"
    arguments, wanted = core_words((expected[0], *words[1:]))[0][1:], expected[1:]
    if is_exact and len(arguments) > len(wanted):
        return "no"
    if is_named == "yes" and tuple(arguments[: len(wanted)]) == wanted:
        return "yes"
    return "maybe" if _may_have(arguments, wanted) else "no"


def _is_named(word: Word, name: str) -> Verdict:
    if isinstance(word, Opaque):
        return "maybe"
    if name in (word, word.rpartition("/")[2]):
        return "yes"
    return "maybe" if folded(name) in (folded(word), folded(word.rpartition("/")[2])) else "no"


def _may_hold(words: Words, name: str) -> bool:
    """Return True if the command runs `name`, or has it in a word: `alias x=rm`, `--to-command=rm`, `-Irm`."""
    if _is_named(words[0], name) != "no":
        return True
    literal = literals(words[1:])
    if runs_more(words) and any(_mentions(word, name) for word in literal):
        return True
    pieces = [
        word.partition("=")[2] or word[2:] for word in literal if "=" in word or word[:1] == "-"
    ]
    return any(_is_named(piece, name) == "yes" for piece in pieces)


def _mentions(code: str, name: str) -> bool:
    return " " in code and _occurs_in(name, code)


def _occurs_in(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(folded(name))}(?!\w)", folded(text)) is not None


_SHORT = {"--force": "f", "--recursive": "r", "--delete": "d", "--global": "g", "--yes": "y"}


def _may_have(arguments: Words, wanted: tuple[str, ...]) -> bool:
    """Return True if the wanted words occur with only options and their values between them; options may be anywhere."""
    options = [word for word in wanted if word.startswith("-")]
    if not all(_may_have_option(arguments, option) for option in options):
        return False
    names = [word for word in wanted if not word.startswith("-")]
    may_be_value = False
    for word in arguments:
        if not names:
            break
        if isinstance(word, Opaque) or word == names[0]:
            names.pop(0)
            may_be_value = False
        elif word.startswith(("-", "+")):
            may_be_value = "=" not in word
        elif may_be_value:
            may_be_value = False
        else:
            return False
    return not names


def _may_have_option(arguments: Words, option: str) -> bool:
    if any(isinstance(word, Opaque) and word.can_be_option for word in arguments):
        return True
    literal = [word for word in literals(arguments) if word.startswith("-")]
    long = [word.partition("=")[0] for word in literal if word.startswith("--")]
    letters = {letter for word in literal if not word.startswith("--") for letter in word[1:]}
    letters |= {_SHORT[name] for name in long if name in _SHORT}
    if option.startswith("--"):
        is_long = any(len(name) > len("--x") and option.startswith(name) for name in long)
        return is_long or _SHORT.get(option) in letters
    return option in literal or {*option[1:].lower()} <= {letter.lower() for letter in letters}


def _forbids_words(rule: Rule, use: Use) -> Verdict:
    """Look for a rule's path in a command: in all words for rules about reading, in redirections for the others."""
    commands = use.seen.commands
    is_reading = rule.tool in ("read", "bash", "*")
    words = [
        word
        for command in commands
        for word in (
            *(command.words[1:] if is_reading else ()),
            *(redirection.target for redirection in command.redirections),
        )
    ]
    verdict = _worst(_named_files(rule, use, literals(words)))
    is_unclear = (
        use.seen.problem != ""
        or use.directories is None
        or any(isinstance(word, Opaque) for word in words)
        or any(_longest_literal(rule.path) in folded(text) for text in use.seen.inputs)
        or (is_reading and any(_may_reach(rule.path, command) for command in commands))
    )
    return "maybe" if verdict == "no" and is_unclear else verdict


def _named_files(rule: Rule, use: Use, words: Iterable[str]) -> Iterator[Verdict]:
    for word in dict.fromkeys(words):
        targets = use.targets(word)
        if targets is None:
            yield "maybe"
            return
        for target in targets:
            yield _guards(rule.path, use, target)


def _longest_literal(glob: str) -> str:
    return max(re.split(r"[/*?\[\]]+", folded(glob)), key=len)


MIN_LITERAL = 3
"""A shorter literal of a rule's path occurs in too many words to ask about each."""


def _may_reach(glob: str, command: SimpleCommand) -> bool:
    """Return True if a program in another language (`sed 'r.env'`), or one that is not visible, may read a path of that name."""
    if not runs_more(command.words):
        return False
    literal = _longest_literal(glob)
    words = [*map(folded, literals(command.words[1:]))]
    is_in = len(literal) >= MIN_LITERAL and any(
        literal in word or (re.search(r"[*?\[]", word) and fnmatch.fnmatchcase(literal, word))
        for word in words
    )
    return is_in or runs_unseen(command.words)
