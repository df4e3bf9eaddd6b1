"""
What a tool use may do without asking: the mode, the rules, and what the use would do, held against each other.

Among rules, deny goes before ask, and ask before allow. A rule that forbids or asks holds as soon as anything that can be seen of a
use matches; where it cannot be ruled out, the person is asked. A rule that allows must cover all of it.
"""

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Literal

import msgspec

from sanderling.events import Mode
from sanderling.sandbox.git import has_its_files_around
from sanderling.sandbox.layout import leads_to_hidden
from sanderling.sandbox.names import asked_about, folded
from sanderling.sandbox.network import is_loopback, split_authority
from sanderling.sandbox.policy import is_in_any, is_within, real_path
from sanderling.shell_grammar import (
    Command,
    Opaque,
    Parsed,
    Redirection,
    Word,
    Words,
    name_set,
    parse,
)
from sanderling.shell_programs import (
    all_commands,
    code_files,
    core_words,
    is_config_key,
    is_harmless_config_key,
    is_harmless_setting,
    is_plain_variable,
    project_words,
    runner_length,
    runs_more,
    runs_unseen,
)

Action = Literal["allow", "ask", "deny"]


class Effect(msgspec.Struct, frozen=True):
    """
    What a tool use would do. `kind` says which of the others are set.

    `path` is absolute; `command` is a line for the shell, to be run in `cwd` (empty: the project's root); `host` may end in `:port`.
    `none` touches nothing outside of the conversation. `leaves_sandbox`: it wants more than the session's sandbox gives.
    `exported` is what earlier commands have set that can change what runs (`NAME='value'`, `NAME (unset)`), as a person can read it.
    """

    tool: str
    kind: Literal["none", "read", "write", "run", "fetch"]
    path: str = ""
    command: str = ""
    host: str = ""
    cwd: str = ""
    leaves_sandbox: bool = False
    exported: tuple[str, ...] = ()


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a rule is for, in the rule's own terms (commands, paths or hosts): checked when it is loaded."""

    matches: tuple[str, ...] = ()
    does_not_match: tuple[str, ...] = ()


Text = Annotated[str, msgspec.Meta(max_length=2_000)]


RuleTool = Literal["bash", "edit", "write", "read", "web_fetch", "*"]


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """
    A standing answer. Of `command`, `path` and `host` one at most is set; without any, it holds for all that the tool does.

    `command`: the words that a command begins with. Any arguments may follow (a last word `*` says so), or none if the last word is
    `$`; a command that runs another (`timeout`, `bash -c`) is allowed only by a rule with all its words and that `$`. `path`: a glob
    as in .gitignore, relative to the project if it has a slash, absolute, or below `~/`; without a slash a name at any depth. `host`:
    a name, `*.name` for all below it, or an address; it may end in `:port`.

    An allow rule for `edit` or `write` is for that tool; other rules for one of them hold for both. Those that do not allow and are
    for `read`, `bash` or `*` are also held against the words of commands. They ask where it is not sure that they hold: where options
    stand between their words or at another place, and where a name differs in upper and lower case only.
    """

    action: Action
    tool: RuleTool = "*"
    command: Text = ""
    path: Text = ""
    host: Text = ""
    examples: Examples = Examples()

    def __post_init__(self) -> None:
        matchers = [name for name in ("command", "path", "host") if getattr(self, name)]
        if len(matchers) > 1:
            raise ValueError(
                f"a rule has one of command, path and host, not {' and '.join(matchers)}"
            )
        for name in matchers:
            if self.tool not in _TOOLS_OF[name]:
                raise ValueError(f"a rule for '{self.tool}' has no {name}")
        if self.command:
            _pattern_of(self.command)
        if self.path and self.tool == "bash" and self.action == "allow":
            raise ValueError("a path cannot allow a command; name the command")
        if self.path.startswith("!"):
            raise ValueError(
                "a path that is negated with '!' is not possible; write a rule with another action"
            )
        if re.search(r"[\s/@]|://", self.host):
            raise ValueError("a host is a name or an address, without scheme, user and path")

    def __str__(self) -> str:
        return " ".join(filter(None, (self.action, self.tool, self.command, self.path, self.host)))


class Decision(msgspec.Struct, frozen=True):
    """`reason` is a sentence for the person, and for the model if it is denied; `rule` is what decided, if one did."""

    action: Action
    reason: str
    rule: Rule | None = None


def decide(
    effect: Effect,
    mode: Mode,
    rules: Sequence[Rule],
    *,
    project: str,
    is_confined: bool,
    write_paths: Sequence[str] = (),
) -> Decision:
    """
    Whether a tool use runs at once, asks first, or is not done.

    `project` is the absolute root; `is_confined` says that the sandbox will hold what runs; `write_paths` are what it lets in beside
    the project. Looks on the disk for links, and for what PATH leads to.
    """
    if effect.kind == "none":
        return Decision("allow", "It touches nothing outside of the conversation.")
    use = Use(effect, project)
    if against := _against(use, mode, rules):
        return against
    if at_once := _at_once(use, mode, is_confined=is_confined, write_paths=write_paths):
        return Decision("allow", at_once)
    if mode == "plan" and effect.kind == "run" and not is_confined:
        return Decision(
            "ask", "In plan mode it is the sandbox that keeps commands from writing, and it is off."
        )
    return _by_rules(use, rules, is_confined=is_confined)


PLAN = "The session is in plan mode: nothing is written. Say in your answer what you would change; the person can change the mode."


def _against(use: "Use", mode: Mode, rules: Sequence[Rule]) -> Decision | None:
    """What stands against it, whatever allows it: the rules that deny or ask, and plan mode."""
    verdicts = [(rule, forbids(rule, use)) for rule in rules if rule.action != "allow"]
    for rule, verdict in verdicts:
        if rule.action == "deny" and verdict == "yes":
            return Decision("deny", f"A rule forbids this: {rule}.", rule)
    if mode == "plan" and use.effect.kind == "write":
        return Decision("deny", PLAN)
    for rule, verdict in verdicts:
        if verdict == "yes":
            return Decision("ask", f"A rule asks about this: {rule}.", rule)
    for rule, verdict in verdicts:
        if verdict == "maybe":
            return Decision("ask", f"It cannot be ruled out that this rule holds: {rule}.", rule)
    return None


def _at_once(use: "Use", mode: Mode, *, is_confined: bool, write_paths: Sequence[str]) -> str:
    """Why this may run whatever the rules allow; "" if they have to."""
    match use.effect.kind:
        case "read" if is_confined or use.is_inside():
            return "It only reads."
        case "write" if mode == "auto" and is_confined and use.is_inside(write_paths):
            return "" if use.protected else "The sandbox confines it."
        case "run" if mode != "ask" and is_confined and not use.effect.leaves_sandbox:
            return "The sandbox confines it."
        case "fetch" if mode == "auto" and is_confined and _is_own_loopback(use.effect.host):
            return "It stays on the loopback of the session."
        case _:
            return ""


def _is_own_loopback(host: str) -> bool:
    return is_loopback(split_authority(host)[0])


def _by_rules(use: "Use", rules: Sequence[Rule], *, is_confined: bool) -> Decision:
    """What the rules that allow make of it. None lets anything leave the sandbox: that is asked each time."""
    effect = use.effect
    if effect.leaves_sandbox:
        return Decision("ask", "It asks for more than the sandbox gives.")
    if effect.exported:
        return Decision("ask", exports_told(effect.exported))
    allowing = [rule for rule in rules if rule.action == "allow"]
    if effect.kind == "run":
        problem, rule = _uncovered(use, allowing, is_confined=is_confined)
        return Decision("ask", problem) if problem else Decision("allow", "It is allowed.", rule)
    for rule in allowing:
        if _covers(rule, use):
            return Decision("allow", f"A rule allows it: {rule}.", rule)
    what = {
        "read": "reads outside of the project",
        "write": "changes a file",
        "fetch": "fetches a page",
    }
    return Decision("ask", f"It {what[effect.kind]}, and no rule allows it.")


MAX_TOLD_CHARS = 1_000


def is_told_whole(exported: Sequence[str]) -> bool:
    """Whether `exports_told` says all of it: else whoever reads that has not seen it."""
    return len(", ".join(exported)) <= MAX_TOLD_CHARS


def exports_told(exported: Sequence[str]) -> str:
    """The sentence about what earlier commands have set; "" for nothing."""
    told = ", ".join(exported)
    if not is_told_whole(exported):
        told = f"{told[:MAX_TOLD_CHARS]} … ({len(told):,} characters)"
    return f"An earlier command has set {told}, which can change what runs." if told else ""


def only_reads_with(name: str, command: str, *, cwd: str, project: str, is_confined: bool) -> bool:
    """Whether a program stands in a line, and all that it does there is to look."""
    if name not in re.sub(r"[\\'\"]", "", command):
        return False
    use = Use(Effect("bash", "run", command=command, cwd=cwd), project)
    found = [each.words for each in use.parsed.commands if each.words[:1] == (name,)]
    looks = all(_is_read_only(words, use, is_confined=is_confined) for words in found)
    return bool(found) and looks and not use.parsed.problem


def applies(rule: Rule, effect: Effect, *, project: str) -> bool:
    """Whether `rule` by itself holds for `effect`: all of it if it allows, any of it otherwise. Its examples are held against this."""
    use = Use(effect, project)
    if rule.action != "allow":
        return forbids(rule, use) == "yes"
    if effect.kind == "run":
        return _concerns(rule, effect) and not _uncovered(use, [rule], only_rules=True)[0]
    return _covers(rule, use)


def uncovered_commands(effect: Effect, *, project: str) -> tuple[Command, ...] | None:
    """The commands of a line that ask without a rule; None if no rule could cover the line."""
    use = Use(effect, project)
    if use.parsed.problem or effect.leaves_sandbox or any(map(_side_effect, use.parsed.commands)):
        return None
    return tuple(
        command
        for command in use.parsed.commands
        if command.words and not _is_read_only(command.words, use, is_confined=True)
    )


# --- A tool use, looked at once ----------------------------------------------------------------------------------------------

MAX_DIRECTORIES, MAX_REAL_PATHS = 32, 1_000
MAX_LETTERS = 8
"""How many letters of options may stand before a path in one word (`-nf.env`)."""


@dataclass(frozen=True)
class Use:
    """An effect with what has been found out about it."""

    effect: Effect
    project: str

    @cached_property
    def parsed(self) -> Parsed:
        return parse(self.effect.command)

    @cached_property
    def seen(self) -> tuple[tuple[Command, ...], str]:
        return all_commands(self.parsed)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The project as it is called, and as it is."""
        return tuple({os.path.normpath(self.project): None, real_path(self.project): None})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The file as it is called, and as it is: a link must not lead past a rule."""
        path = self.effect.path
        return os.path.normpath(path), real_path(path)

    @cached_property
    def protected(self) -> frozenset[str]:
        """The parts of the path below the project that may not be written just so."""
        root = next((root for root in self.roots if is_within(self.paths[0], root)), "")
        called = self.paths[0].removeprefix(root)
        is_called = asked_about(called.split("/"))
        return is_called | asked_about(self.paths[1].removeprefix(self.roots[-1]).split("/"))

    def is_inside(self, others: Sequence[str] = ()) -> bool:
        """Whether the file really is in the project, or in one of `others`, whatever it is called."""
        directories = (*self.roots, *map(real_path, others))
        return is_in_any(self.paths[1], directories)

    @cached_property
    def directories(self) -> tuple[str, ...] | None:
        """Where the line's commands may run, as far as `cd` says; None if it does not."""
        found = dict.fromkeys([self.effect.cwd or self.project])
        for command in self.seen[0]:
            words, moves = core_words(command.words)
            if words and words[0] in ("cd", "pushd"):
                moves = tuple(word for word in words[1:] if word != "--") or ("~",)
            for move in moves:
                if isinstance(move, Opaque) or move.startswith("-") or len(found) > MAX_DIRECTORIES:
                    return None
                places = [place for directory in found for place in _places(directory, move)]
                found |= dict.fromkeys(map(os.path.normpath, places))
        return tuple(found)

    def files(self, word: str) -> Iterator[str]:
        """
        Every path that a word of a command may name: by itself, behind a `=`, `:`, `@` or `,` in it, or behind the letters of options.

        They are absolute, but not normal: what comes before a `..` may be a link.
        """
        pieces = dict.fromkeys([word, *re.split(r"[=:@,]", word)])
        if re.match(r"-\w", word):
            pieces |= dict.fromkeys(word[start:] for start in range(2, min(len(word), MAX_LETTERS)))
        for directory in dict.fromkeys((*(self.directories or ()), *self.roots)):
            for piece in filter(None, pieces):
                yield from _places(directory, piece[:4096])

    @cached_property
    def _targets(self) -> dict[str, tuple[str, ...]]:
        return {}

    def targets(self, word: str) -> tuple[str, ...] | None:
        """The files that a word may name, as they are called and as they are; None if that is more than is looked up."""
        known = self._targets.get(word)
        if known is not None or sum(map(len, self._targets.values())) > MAX_REAL_PATHS:
            return known
        found = dict[str, None]()
        for file in self.files(word):
            found[os.path.normpath(file)] = None
            if "/" in word or os.path.lexists(file):
                found[real_path(file)] = None
            if len(found) > MAX_REAL_PATHS:
                return None
        self._targets[word] = tuple(found)
        return self._targets[word]


def _places(directory: str, name: str) -> tuple[str, ...]:
    """Where a name leads from a directory. One with a `~` leads home, or, if that was quoted, to a file which is called so."""
    names = {name: None}
    with suppress(ValueError):  # no user has such a name
        names[os.path.expanduser(name)] = None  # noqa: PTH111 - the same name as text
    return tuple(os.path.join(directory, each) for each in names)  # noqa: PTH118


# --- Rules that deny or ask: anything that matches is enough -------------------------------------------------------------------

Verdict = Literal["no", "maybe", "yes"]


def forbids(rule: Rule, use: Use) -> Verdict:
    """Whether a rule that denies or asks holds for any of what can be seen of `use`."""
    if use.effect.kind == "run" and rule.path:
        return _forbids_words(rule, use) if rule.tool != "web_fetch" else "no"
    if not _concerns(rule, use.effect):
        return "no"
    if rule.command:
        return _forbids_command(rule, use)
    if rule.path:
        return _worst(_guards(rule.path, use, path) for path in use.paths)
    if rule.host:
        return "yes" if _is_host(rule.host, use.effect.host, any_port=True) else "no"
    return "yes"


def unguarded(rules: Sequence[Rule], project: str) -> Callable[[str], bool] | None:
    """What says of a path whether no rule forbids to read it, or asks about that; None if there is no such rule."""
    roots = (project, real_path(project))
    guards = [
        _path_pattern(rule.path, roots, is_anywhere=True, is_folded=True)
        for rule in rules
        if rule.action != "allow" and rule.path and rule.tool in ("read", "*")
    ]
    return (
        (lambda path: not any(guard(name) for guard in guards for name in (path, real_path(path))))
        if guards
        else None
    )


_KIND_OF = {"bash": "run", "read": "read", "web_fetch": "fetch", "edit": "write", "write": "write"}
_TOOLS_OF = {
    "command": ("bash", "*"),
    "path": ("bash", "read", "edit", "write", "*"),
    "host": ("web_fetch", "*"),
}


def _concerns(rule: Rule, effect: Effect) -> bool:
    """Whether the rule is about what this tool does at all."""
    matcher = {"run": "command", "fetch": "host"}.get(effect.kind, "path")
    if (rule.command or rule.path or rule.host) and not getattr(rule, matcher):
        return False
    if rule.tool == "*":
        return True
    if rule.action == "allow" and effect.kind == "write":
        return rule.tool == effect.tool
    return _KIND_OF[rule.tool] == effect.kind


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"


def _guards(glob: str, use: Use, path: str) -> Verdict:
    """Whether a rule's path is this one; where only upper and lower case differ, the file system would have to say."""
    if _path_pattern(glob, use.roots, is_anywhere=True)(path):
        return "yes"
    is_like = _path_pattern(glob, use.roots, is_anywhere=True, is_folded=True)(path)
    return "maybe" if is_like else "no"


def _forbids_command(rule: Rule, use: Use) -> Verdict:
    commands, problem = use.seen
    verdict = _worst(_begins(rule.command, command) for command in commands)
    return "maybe" if verdict == "no" and problem else verdict


def _begins(pattern: str, command: Command) -> Verdict:
    """Whether the command begins with the pattern's words; one that runs another may have it anywhere."""
    expected, is_exact = _pattern_of(pattern)
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
def _is_wrapper(command: Command) -> bool:
    return command.is_guess or runs_more(command.words) != "" or runner_length(command.words) > 0


def _begins_at(words: Words, expected: tuple[str, ...], *, is_exact: bool) -> Verdict:
    """Whether these words begin with the expected ones, or may when it is known what they become and where options can stand."""
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
    """Whether the name stands in a word, as in `alias x=rm`, `--to-command=rm`, `-Irm`, or before options of the program's own."""
    if _is_named(words[0], name) != "no":
        return True
    literal = [word for word in words[1:] if isinstance(word, str)]
    if runs_more(words) and any(_says(word, name) for word in literal):
        return True
    pieces = [
        word.partition("=")[2] or word[2:] for word in literal if "=" in word or word[:1] == "-"
    ]
    return any(_is_named(piece, name) == "yes" for piece in pieces)


def _says(code: str, name: str) -> bool:
    """Whether some code, in whatever language, has the name in it."""
    return " " in code and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code) is not None


_SHORT = {"--force": "f", "--recursive": "r", "--delete": "d", "--global": "g", "--yes": "y"}


def _may_have(arguments: Words, wanted: tuple[str, ...]) -> bool:
    """Whether the wanted words are there, with nothing but options and their values between them; options may be anywhere."""
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
    literal = [word for word in arguments if isinstance(word, str) and word.startswith("-")]
    long = [word.partition("=")[0] for word in literal if word.startswith("--")]
    letters = {letter for word in literal if not word.startswith("--") for letter in word[1:]}
    letters |= {_SHORT[name] for name in long if name in _SHORT}
    if option.startswith("--"):
        is_long = any(len(name) > len("--x") and option.startswith(name) for name in long)
        return is_long or _SHORT.get(option) in letters
    return option in literal or {*option[1:].lower()} <= {letter.lower() for letter in letters}


def _forbids_words(rule: Rule, use: Use) -> Verdict:
    """A path that a rule guards, seen in a command: any word for rules about reading, what is written to for the others."""
    commands, problem = use.seen
    is_reading = rule.tool in ("read", "bash", "*")
    words = [
        word
        for command in commands
        for word in (
            *(command.words[1:] if is_reading else ()),
            *(redirection.target for redirection in command.redirections),
        )
    ]
    verdict = _worst(_named_files(rule, use, [word for word in words if isinstance(word, str)]))
    is_unclear = (
        problem != ""
        or use.directories is None
        or any(isinstance(word, Opaque) for word in words)
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


MIN_LITERAL = 3
"""How many characters of a rule's path must stand in a program for it to ask: fewer are in too many words."""


def _may_reach(glob: str, command: Command) -> bool:
    """Whether a program in another language (`sed 'r.env'`), or one that is not seen, may be about a path of that name."""
    if not runs_more(command.words):
        return False
    literal = max(re.split(r"[/*?\[\]]+", folded(glob)), key=len)
    words = [folded(word) for word in command.words[1:] if isinstance(word, str)]
    is_in = len(literal) >= MIN_LITERAL and any(
        literal in word or (re.search(r"[*?\[]", word) and fnmatch.fnmatchcase(literal, word))
        for word in words
    )
    return is_in or runs_unseen(command.words)


# --- Rules that allow: all of it must be covered -------------------------------------------------------------------------------


def _covers(rule: Rule, use: Use) -> bool:
    """Whether a rule that allows covers a read, a write or a fetch."""
    if not _concerns(rule, use.effect):
        return False
    if rule.host:
        return _is_host(rule.host, use.effect.host, any_port=False)
    if rule.path:
        pattern = _path_pattern(rule.path, use.roots, is_anywhere=False)
        is_named = use.protected <= set(rule.path.split("/"))
        return pattern(use.paths[1]) and (is_named or use.effect.kind != "write")
    return use.effect.kind == "fetch" or (use.is_inside() and not use.protected)


def _uncovered(
    use: Use, rules: Sequence[Rule], *, is_confined: bool = True, only_rules: bool = False
) -> tuple[str, Rule | None]:
    """Why a line asks, "" if it does not; and the last of the rules that it needs."""
    if use.parsed.problem:
        return f"The command is not understood: {use.parsed.problem}.", None
    if not use.parsed.commands:
        return "There is nothing to run.", None
    needed = None
    for command in use.parsed.commands:
        if problem := _side_effect(command):
            return problem, None
        if not (is_confined or only_rules) and not _looks_inside(_inputs(command), use):
            return f"It reads outside of the project: '{command.text[:80]}'.", None
        reads = not only_rules and _is_read_only(command.words, use, is_confined=is_confined)
        if reads or not command.words:
            continue
        needed = next((rule for rule in rules if _covers_words(rule, command, use)), None)
        if needed is None:
            more = runs_more(command.words)
            return f"No rule covers '{command.text[:80]}'{more and ': '}{more}.", None
    return "", needed


def _side_effect(command: Command) -> str:
    """What a command does beside running its words that could matter."""
    for name, value in command.assignments:
        if not _is_harmless_assignment(name, value, is_alone=not command.words):
            return f"It sets '{name}', which can change what runs."
    for redirection in command.redirections:
        if not _is_harmless_redirection(redirection):
            return f"It is redirected to a file: '{command.text[:80]}'."
    return ""


def _covers_words(rule: Rule, command: Command, use: Use) -> bool:
    if not command.words or not _concerns(rule, use.effect):
        return False
    expected, is_exact = _pattern_of(rule.command)
    if expected[:1] not in ((), command.words[:1]):
        return False  # as with most rules; the rest costs more
    if is_exact:
        return command.words == expected and _is_at_home(command.words, use)
    words, moves = core_words(command.words)
    runner = runner_length(words)
    names_only_runner = 0 < runner >= len(expected)
    if tuple(words[: len(expected)]) != expected or names_only_runner:
        return False
    places = (*moves, *(file for file in code_files(words) if file not in expected))
    named = (
        word for word in project_words(words) if isinstance(word, str) and word not in expected
    )
    is_inside = all(_stays_inside(use, place) for place in places) and _works_inside(named, use)
    return not runs_more(words) and is_inside and _is_at_home(words, use)


def _works_inside(words: Iterable[str], use: Use) -> bool:
    """Whether what these words may name is in the project, and not what runs when that is only opened."""
    # A word without a slash is a name, too: of a link, or of the file that an option makes.
    named = tuple(words)
    return _looks_inside(named, use) and not any(
        asked_about(re.split(r"[/=:@,]", word)) for word in named
    )


def _is_at_home(words: Words, use: Use) -> bool:
    """A rule is about a program in this project: elsewhere the same words may mean another one."""
    name = words[0]
    if isinstance(name, str) and "/" in name and not name.startswith("/"):
        return use.directories is not None and set(use.directories) <= {use.project, *use.roots}
    return name == "cd" or _stays_inside(use, "")


def _stays_inside(use: Use, name: str) -> bool:
    """Whether `name` leads nowhere out of the project, from wherever the line may be by then."""
    return use.directories is not None and all(
        is_in_any(path, use.roots)
        for directory in use.directories
        for place in _places(directory, name)
        for path in (os.path.normpath(place), real_path(place))
    )


def _is_harmless_assignment(name: str, value: Word, *, is_alone: bool) -> bool:
    if is_alone:
        return is_plain_variable(name)
    return isinstance(value, str) and is_harmless_setting(name, value)


def _is_harmless_redirection(redirection: Redirection) -> bool:
    """To nowhere, to another descriptor, or from a file that is one."""
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


# --- Patterns ------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _pattern_of(command: str) -> tuple[tuple[str, ...], bool]:
    """The words that a rule's command names, and whether nothing may follow them."""
    words = shlex.split(command)
    is_exact = words[-1:] == ["$"]
    if words[-1:] in (["*"], ["$"]):
        words.pop()
    if is_exact and not words:
        raise ValueError("'$' has to follow a command's words")
    if "*" in words or any(re.search(r"[\n;|&]", word) for word in words[:1]):
        raise ValueError(
            "a command is the words that it begins with; '*' can only be the last of them"
        )
    return tuple(words), is_exact


@lru_cache(maxsize=4096)
def _path_pattern(
    glob: str, roots: tuple[str, ...], *, is_anywhere: bool, is_folded: bool = False
) -> Callable[[str], bool]:
    """
    The test for a path; a glob without a slash, or after `**/`, that `is_anywhere` matches outside of the project, too.

    One that `is_folded` takes what differs in upper and lower case, or in Unicode's forms, for the same.
    """
    glob = f"{glob}**" if glob.endswith("/") else glob
    home = os.path.expanduser("~")  # noqa: PTH111
    if glob.startswith("/"):
        anchored = [("/", glob), ("/", _really(glob))]
    elif glob.startswith("~/"):
        anchored = [(home, glob[2:]), (real_path(home), glob[2:])]
    elif "/" in glob and not glob.startswith("**/"):
        anchored = [(root, glob.removeprefix("./")) for root in roots]
    else:
        anchored = [(root, f"**/{glob}") for root in (("/",) if is_anywhere else roots)]
    fold = folded if is_folded else str
    patterns = [(fold(root), tuple(filter(None, fold(rest).split("/")))) for root, rest in anchored]

    def matches(path: str) -> bool:
        path = fold(path)
        return any(
            is_within(path, root) and _match(parts, path[len(root) :].strip("/").split("/"))
            for root, parts in patterns
        )

    return matches


def _really(glob: str) -> str:
    """An absolute glob with the links in its plain beginning followed."""
    plain = re.match(r"(?:/[^/*?\[]*(?=/|$))*", glob)
    start = plain[0] if plain else ""
    return real_path(start or "/").rstrip("/") + glob[len(start) :]


def _match(parts: tuple[str, ...], names: list[str]) -> bool:
    """Whether the names fit the parts of a glob, where `**` stands for any number of names. Never more than parts x names steps."""
    names = [name for name in names if name]
    at = number = 0
    retry: tuple[int, int] | None = None
    while number < len(names):
        if at < len(parts) and parts[at] == "**":
            retry, at = (at + 1, number), at + 1
        elif at < len(parts) and fnmatch.fnmatchcase(names[number], parts[at]):
            at, number = at + 1, number + 1
        elif retry:
            retry = (retry[0], retry[1] + 1)
            at, number = retry
        else:
            return False
    return all(part == "**" for part in parts[at:])


def _is_host(pattern: str, host: str, *, any_port: bool) -> bool:
    """Whether `host` is meant. A pattern without a port means the usual ones when it allows, any when it does not."""
    name, port = _split_host(host)
    wanted, wanted_port = _split_host(pattern)
    if wanted_port and port != wanted_port:
        return False
    if not wanted_port and not any_port and port not in ("", "80", "443"):
        return False
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


def _split_host(host: str) -> tuple[str, str]:
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?", host.lower())
    return (found[1].rstrip("."), found[2] or "") if found else (host.lower(), "")


# --- Commands that only read ---------------------------------------------------------------------------------------------------


_READING = name_set(
    "ls cat head tail wc echo printf pwd true false : test [ basename dirname realpath readlink stat file cut tr nl tac rev fold fmt"
    " paste comm join column expand unexpand seq sleep cmp diff md5sum sha1sum sha224sum sha256sum sha384sum sha512sum cksum sum"
    " b2sum od hexdump xxd df du free uptime uname whoami id groups nproc arch which type expr grep egrep fgrep rg fd fdfind find"
    " sort uniq shuf tree jq base64 zcat numfmt tsort locale getconf sed awk gawk mawk nawk read"
)
"""Whatever their arguments are, as long as `runs_more` has nothing against them."""
_TELLING_OF_THE_SANDBOX = name_set("env printenv ps")
"""What there is to see in a sandbox is no secret."""
_PRINTING = name_set("echo printf true false : pwd sleep seq read")
"""Those whose words are no files."""
_VERSIONED = name_set(
    "python python3 node ruby perl gcc g++ clang make cmake git docker nvim bash rg jq"
)
"""Those that tell their version before they read anything of the directory: no configuration, no plugin, no version to switch to."""
_SHIMS = name_set("mise rtx asdf volta-shim rustup proto proto-shim aqua-proxy")
"""What runs under the names of others, in the version that a file of the directory asks for."""
_AMONG_INSTALLED = re.compile(r"/\.?(py|rb|nod|j)env/shims/")
"""Those that know a version only by its name, not by a path."""
_GIT_READING = name_set(
    "status diff log show blame annotate rev-parse describe ls-files ls-tree shortlog rev-list merge-base cat-file grep name-rev"
    " count-objects check-ignore check-attr diff-tree diff-files diff-index show-ref show-branch whatchanged cherry range-diff"
    " for-each-ref version"
)
_GIT_LISTING = {
    "branch": r"-[arv]+|-vv|-a?vv|--(all|remotes|verbose|show-current|ignore-case|no-color)|--(sort|format|color|points-at)=.*",
    "tag": r"-n\d*|--(sort|format)=.*",
    "remote": r"-v|--verbose",
    "symbolic-ref": r"--short|-q|--quiet|HEAD",
    "submodule": r"status|--recursive|--cached",
    "reflog": r"-\d+|--oneline|--all|--(date|format)=.*",
}
_GIT_FILTERS = {
    "branch": r"--(list|merged|no-merged|contains|no-contains)(=.*)?",
    "tag": r"-l|--(list|merged|no-merged|contains|no-contains)(=.*)?",
}
"""With one of these, the other words say what is listed; without, they would be made."""
_GIT_PHRASES = {
    "remote": ("get-url",),
    "stash": ("list", "show"),
    "worktree": ("list",),
    "reflog": ("show",),
    "config": ("--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"),
}


def _is_read_only(words: Words, use: Use, *, is_confined: bool) -> bool:
    """Whether it can be seen that the command changes nothing, and, without a sandbox, looks at nothing outside of the project."""
    if not words or isinstance(words[0], Opaque):
        return False
    name, arguments = words[0], words[1:]
    is_seen = is_confined or _may_look(name, arguments, use)
    if not is_seen or _is_of_the_directory(name, use, is_confined=is_confined):
        return False
    if name in _VERSIONED and tuple(arguments) == ("--version",):
        return True
    if check := _SPECIAL.get(name):
        return check(arguments, use)
    if runs_more(core_words(words)[0]):
        return False
    is_reading = name in _READING or (is_confined and name in _TELLING_OF_THE_SANDBOX)
    return is_reading or (name == "git" and _is_git_reading(words, use, is_confined=is_confined))


def _is_of_the_directory(name: str, use: Use, *, is_confined: bool) -> bool:
    """
    Whether PATH leads to a program of the project's, or to one that the project chooses, or that a command can have made.

    The sandbox may hide what comes first: then it is the next.
    """
    return any(
        _is_chosen_here(found, use, is_confined=is_confined) for found in _program_files(name, use)
    )


def _is_chosen_here(found: str, use: Use, *, is_confined: bool) -> bool:
    real = real_path(found)
    is_among_installed = is_confined and _AMONG_INSTALLED.search(found)
    return (
        any(is_in_any(path, use.roots) for path in (found, real))
        or real.rpartition("/")[2] in _SHIMS
        or ("/shims/" in found and not is_among_installed)
        or (is_confined and leads_to_hidden(found))
    )


def _program_files(name: str, use: Use) -> Iterator[str]:
    """
    What PATH leads to, as far as the sandbox may hide it and go on: what belongs to the system is shown.

    Where a part of PATH is relative, it is so from wherever the line may be.
    """
    for part in os.get_exec_path():
        for directory in use.directories or (use.project,):
            file = os.path.join(directory, part, name)  # noqa: PTH118
            if os.access(file, os.X_OK) and os.path.isfile(file):  # noqa: PTH113
                found = os.path.normpath(file)
                yield found
                if found.startswith("/usr/") and real_path(found).startswith("/usr/"):
                    return


def _only_moves(arguments: Words, use: Use) -> bool:
    operand = arguments[0] if len(arguments) == 1 else Opaque(can_be_option=True)
    return isinstance(operand, str) and operand[:1] not in ("-", "") and _stays_inside(use, "")


def _only_looks_up(arguments: Words, _use: Use) -> bool:
    return arguments[:1] in (("-v",), ("-V",)) and all(isinstance(word, str) for word in arguments)


def _only_tells_the_time(arguments: Words, _use: Use) -> bool:
    harmless = r"\+.*|-u|-R|-I[a-z]*|--utc|--iso-8601.*|--rfc-3339=.*|--date=.*"
    return all(isinstance(word, str) and re.fullmatch(harmless, word) for word in arguments)


def _only_tells(pattern: str) -> Callable[[Words, Use], bool]:
    """The check of a program that changes nothing with words of this pattern."""

    def check(arguments: Words, _use: Use) -> bool:
        literal = [word for word in arguments if isinstance(word, str)]
        is_known = len(literal) == len(arguments)
        return is_known and re.fullmatch(pattern, " ".join(literal)) is not None

    return check


_PIP = _only_tells(r"(list|show|freeze|check)( --format=\w+| --local| --user| [\w.]+[\w.-]*)*")
_PYTHON_VERSION = _only_tells(r"-V|--version")
_SPECIAL: dict[str, Callable[[Words, Use], bool]] = {
    "cd": _only_moves,
    "command": _only_looks_up,
    "date": _only_tells_the_time,
    "hostname": _only_tells(r""),
    "node": _only_tells(r"-v"),
    "python": _PYTHON_VERSION,
    "python3": _PYTHON_VERSION,
    "pip": _PIP,
    "pip3": _PIP,
}


def _is_git_reading(words: Words, use: Use, *, is_confined: bool) -> bool:
    """Its configuration can name programs and places, so that unconfined only the project's own is trusted, if it names no place."""
    rest, moves = core_words(words)
    if not all(_stays_inside(use, move) for move in moves):
        return False
    is_at_root = use.directories in ((use.project,), use.roots) and {*moves} <= {".", use.project}
    if not is_confined and not (is_at_root and has_its_files_around(use.project)):
        return False
    subcommand, arguments = (rest[1] if len(rest) > 1 else ""), rest[2:]
    if isinstance(subcommand, Opaque):
        return False
    if arguments and arguments[0] in _GIT_PHRASES.get(subcommand, ()):
        # The person's own, with what is secret in it.
        is_elsewhere = subcommand == "config" and not is_confined
        return not is_elsewhere and _has_no_options(arguments[1:])
    if subcommand == "config":
        keys = [word for word in arguments if word not in ("--global", "--local")]
        is_known = is_confined or is_harmless_config_key(keys[0] if keys else "")
        return len(keys) == 1 and is_config_key(keys[0]) and is_known
    return subcommand in _GIT_READING or _is_git_listing(subcommand, arguments)


def _is_git_listing(subcommand: str, arguments: Words) -> bool:
    options = _GIT_LISTING.get(subcommand)
    if options is None:
        return False
    filters = _GIT_FILTERS.get(subcommand, r"(?!)")
    is_filter = [isinstance(word, str) and re.fullmatch(filters, word) for word in arguments]
    unknown = [
        word
        for word in arguments
        if not (isinstance(word, str) and re.fullmatch(f"{options}|{filters}", word))
    ]
    return not unknown or (any(is_filter) and _has_no_options(unknown))


def _has_no_options(words: Words) -> bool:
    plain = r"--(global|local|system|show-origin|show-scope|stat|name-only|oneline|porcelain)|-p|-z|[^-].*"
    return all(
        re.fullmatch(plain, word, re.DOTALL) if isinstance(word, str) else not word.can_be_option
        for word in words
    )


_SEEING_MORE = {
    name: re.compile(words)
    for names, words in {
        # Options that follow links, and those that name a list of files to read.
        "grep egrep fgrep": r"-\w*R|--der",
        "ls": r"-\w*[LH]|--deref",
        "rg": r"-[^-]*L|--fo",
        "fd fdfind": r"-[^-]*L|--fo",
        "find": r"-[LH]|-follow|-files0",
        "tree": r"-\w*l|--fromf|--fromt",
        "du": r"-\w*[LDH]|--de|--f",
        "diff": r"(?!--?(u|U\d+|w|b|B|i|q|y|c|brief|unified(=\d+)?|side-by-side|color(=\w+)?|stat)$)-",
        "sort": r"--fi",
        "wc": r"--f",
        "file": r"-\w*f|--f",
        "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum": r"-\w*c|--c",
        "zcat": r"-\w*r|--r",
        # Words of a language that reads the environment, or files that the line does not name.
        "jq": r"-\w*[fL]|--from-f|--lib|(?s:.*)(?<![.\w])(import|include|env|ENV|inputs?|modulemeta|get_search_list)\b|(?s:.*)\$(ENV|__prog)",
        "awk gawk mawk nawk": r"(?s:.*)(ENVIRON|PROCINFO|FUNCTAB)",
        # What these tell is not the project's.
        "pip pip3": r"(?!--version$)",
    }.items()
    for name in names.split()
}
"""The words with which a program sees more than the files that are named."""


def _may_look(name: str, arguments: Words, use: Use) -> bool:
    """
    Whether all that a command looks at can be seen to be in the project.

    What is only known when it runs could be anything, if only a secret of the environment that is printed.
    """
    more = _SEEING_MORE.get(name)
    literal = [word for word in arguments if isinstance(word, str)]
    if len(literal) < len(arguments) or (more and any(map(more.match, literal))):
        return False
    if name == "diff" and any(os.path.isdir(file) for word in literal for file in use.files(word)):  # noqa: PTH112
        return False  # it follows the links in them
    return name in _PRINTING or _looks_inside(arguments, use)


def _inputs(command: Command) -> Words:
    return [found.target for found in command.redirections if found.operator == "<"]


def _looks_inside(arguments: Sequence[Word], use: Use) -> bool:
    return all(
        isinstance(word, str)
        and use.directories is not None
        and all(
            file == "/dev/null" or is_in_any(real_path(file), use.roots) for file in use.files(word)
        )
        for word in arguments
    )
