"""Allow rules: one holds only if it covers everything that a use would do."""

import os
import re
from collections.abc import Iterable, Sequence

from sanderling.permissions.only_reading import inputs, is_read_only, looks_inside
from sanderling.permissions.patterns import is_host, path_pattern, pattern_of
from sanderling.permissions.rules import Rule, concerns
from sanderling.permissions.shell.grammar import Opaque, Redirection, SimpleCommand, Word, literals
from sanderling.permissions.shell.programs import (
    code_files,
    core_words,
    project_words,
    runner_length,
    runs_more,
)
from sanderling.permissions.use import Use, is_at_home, stays_inside
from sanderling.sandbox.names import asked_about
from sanderling.text import shortened
from sanderling.tools.commands.variables import is_harmless_setting, is_plain_variable
from sanderling.tools.effects import Effect

MOST_QUOTED = 80  # characters of a command in a reason


def uncovered_commands(effect: Effect, *, project: str) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a line that ask without a rule; None if no rule could cover the line."""
    use = Use(effect, project)
    if use.parsed.problem or effect.leaves_sandbox or any(map(_side_effect, use.parsed.commands)):
        return None
    return tuple(
        command
        for command in use.parsed.commands
        if command.words and not is_read_only(command.words, use, is_confined=True)
    )


def covers(rule: Rule, use: Use) -> bool:
    """Return True if an allow rule covers a use that is no line for the shell."""
    if not concerns(rule, use.effect):
        return False
    if rule.host:
        return is_host(rule.host, use.effect.host, any_port=False)
    if rule.path:
        pattern = path_pattern(rule.path, use.roots, use.disk, is_anywhere=False)
        is_named = use.protected <= set(rule.path.split("/"))
        return pattern(use.paths[1]) and (is_named or use.effect.kind != "write")
    return use.effect.kind in ("run", "fetch", "call", "delegate") or (
        use.is_inside() and not use.protected
    )


def covers_part(rule: Rule, use: Use) -> bool:
    """Return True if an allow rule covers the use, or at least one command of a line."""
    if use.effect.is_line:
        return any(_covers_words(rule, command, use) for command in use.parsed.commands)
    return covers(rule, use)


def uncovered(
    use: Use, rules: Sequence[Rule], *, is_confined: bool = True, only_rules: bool = False
) -> tuple[str, Rule | None]:
    """Return why a line asks, or "", and the last of the rules that it needs."""
    if use.parsed.problem:
        return f"The command is not understood: {use.parsed.problem}.", None
    if not use.parsed.commands:
        return "There is nothing to run.", None
    needed = None
    for command in use.parsed.commands:
        if problem := _side_effect(command):
            return problem, None
        if not (is_confined or only_rules) and not looks_inside(inputs(command), use):
            return f"It reads outside the project: '{shortened(command.text, MOST_QUOTED)}'.", None
        reads = not only_rules and is_read_only(command.words, use, is_confined=is_confined)
        if reads or not command.words:
            continue
        needed = next((rule for rule in rules if _covers_words(rule, command, use)), None)
        if needed is None:
            more = runs_more(command.words)
            return (
                f"No rule covers '{shortened(command.text, MOST_QUOTED)}'{more and ': '}{more}.",
                None,
            )
    return "", needed


def _side_effect(command: SimpleCommand) -> str:
    """Return a sentence about what a command sets or redirects, if that could matter; else ""."""
    for name, value in command.assignments:
        if not _is_harmless_assignment(name, value, is_alone=not command.words):
            return f"It sets '{name}', which can change what runs."
    for redirection in command.redirections:
        if not _is_harmless_redirection(redirection):
            return f"It is redirected to a file: '{shortened(command.text, MOST_QUOTED)}'."
    return ""


def _covers_words(rule: Rule, command: SimpleCommand, use: Use) -> bool:
    if not command.words or not concerns(rule, use.effect):
        return False
    expected, is_exact = pattern_of(rule.command)
    if expected[:1] not in ((), command.words[:1]):
        return False  # as with most rules; the rest is slower
    if is_exact:
        return command.words == expected and is_at_home(command.words, use)
    words, moves = core_words(command.words)
    runner = runner_length(words)
    names_only_runner = 0 < runner >= len(expected)
    if tuple(words[: len(expected)]) != expected or names_only_runner:
        return False
    places = (*moves, *(file for file in code_files(words) if file not in expected))
    named = (word for word in literals(project_words(words)) if word not in expected)
    is_inside = all(stays_inside(use, place) for place in places) and _works_inside(named, use)
    return not runs_more(words) and is_inside and is_at_home(words, use)


def _works_inside(words: Iterable[str], use: Use) -> bool:
    """Return True if these words name only files in the project, and no file that runs when the project is merely opened."""
    # A word without a slash can also name a link, or a file that an option creates.
    named = tuple(words)
    return looks_inside(named, use) and not any(
        asked_about(re.split(r"[/=:@,]", word)) for word in named
    )


def _is_harmless_assignment(name: str, value: Word, *, is_alone: bool) -> bool:
    if is_alone:
        return is_plain_variable(name)
    return isinstance(value, str) and is_harmless_setting(name, value)


def _is_harmless_redirection(redirection: Redirection) -> bool:
    """Return True if it discards, duplicates a descriptor, or reads a file that is not a device."""
    operator, target = redirection.operator, redirection.target
    if isinstance(target, Opaque) or len(redirection.descriptor) > 1:
        return False
    if operator in (">&-", "<&-"):
        return True
    if operator in (">&", "<&"):
        return re.fullmatch(r"\d", target, re.ASCII) is not None
    if target == "/dev/null":
        return operator in (">", ">>", "&>", "&>>", "<")
    # Below /dev, bash opens connections (/dev/tcp/…).
    return (
        operator == "<"
        and target != ""
        and not os.path.normpath(target).startswith(("/dev", "//dev", "/proc"))
    )
