"""
What a tool use may do without asking: the mode, the rules, and what the use would do, held against each other.

Among rules, deny goes before ask, and ask before allow. A rule that forbids or asks holds as soon as anything that can be seen of a
use matches; where it cannot be ruled out, the person is asked. A rule that allows must cover all of it.
"""

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Literal

import msgspec

from sanderling.events import Mode
from sanderling.shell_grammar import (
    Command,
    Opaque,
    Parsed,
    Redirection,
    Word,
    Words,
    all_commands,
    git_words,
    is_plain_variable,
    parse,
    runner_length,
    runs_more,
)

Action = Literal["allow", "ask", "deny"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Effect(msgspec.Struct, frozen=True):
    """
    What a tool use would do. `kind` says which of the others are set.

    `path` is absolute; `command` is a line for the shell, to be run in `cwd` (empty: the project's root); `host` may end in `:port`.
    `none` touches nothing outside of the conversation. `leaves_sandbox`: it wants more than the session's sandbox gives.
    """

    tool: str
    kind: Literal["none", "read", "write", "run", "fetch"]
    path: str = ""
    command: str = ""
    host: str = ""
    cwd: str = ""
    leaves_sandbox: bool = False


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a rule is for, in the rule's own terms (commands, paths or hosts): checked when it is loaded."""

    matches: tuple[str, ...] = ()
    does_not_match: tuple[str, ...] = ()


Text = Annotated[str, msgspec.Meta(max_length=2_000)]


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
    for `read`, `bash` or `*` are also held against the words of commands.
    """

    action: Action
    tool: Literal["bash", "edit", "write", "read", "web_fetch", "*"] = "*"
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
    the project. Looks at links on the disk, and at nothing else.
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
        case _:
            return ""


def _by_rules(use: "Use", rules: Sequence[Rule], *, is_confined: bool) -> Decision:
    """What the rules that allow make of it. None lets anything leave the sandbox: that is asked each time."""
    effect = use.effect
    if effect.leaves_sandbox:
        return Decision("ask", "It asks for more than the sandbox gives.")
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

PROTECTED = _names(
    ".git .gitmodules .envrc .exrc .nvimrc .nvim.lua .lazy.lua .dir-locals.el .vscode .idea .zed .helix .claude .codex .cursor .gemini"
    " .opencode .mcp.json .sanderling .sanderling.toml AGENTS.md CLAUDE.md"
)
"""What runs, or tells an agent what to do, when a person only opens the project: never written without being asked about."""
MAX_DIRECTORIES, MAX_REAL_PATHS = 32, 200


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
        return tuple({os.path.normpath(self.project): None, os.path.realpath(self.project): None})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The file as it is called, and as it is: a link must not lead past a rule."""
        path = self.effect.path
        return os.path.normpath(path), os.path.realpath(path)

    @cached_property
    def protected(self) -> frozenset[str]:
        """The parts of the path below the project that may not be written just so."""
        root = next((root for root in self.roots if is_within(self.paths[0], root)), "")
        called = self.paths[0].removeprefix(root)
        parts = {*called.split("/"), *self.paths[1].removeprefix(self.roots[-1]).split("/")}
        return PROTECTED & parts

    def is_inside(self, others: Sequence[str] = ()) -> bool:
        """Whether the file really is in the project, or in one of `others`, whatever it is called."""
        directories = (*self.roots, *map(os.path.realpath, others))
        return any(is_within(self.paths[1], directory) for directory in directories)

    @cached_property
    def directories(self) -> tuple[str, ...] | None:
        """Where the line's commands may run, as far as `cd` says; None if it does not."""
        found = dict.fromkeys([self.effect.cwd or self.project])
        for command in self.seen[0]:
            words, moves = git_words(command.words)
            if words and words[0] in ("cd", "pushd"):
                moves = tuple(word for word in words[1:] if word != "--") or ("~",)
            for move in moves:
                if isinstance(move, Opaque) or move.startswith("-") or len(found) > MAX_DIRECTORIES:
                    return None
                found |= dict.fromkeys([_joined(directory, move) for directory in found])
        return tuple(found)

    def files(self, word: str) -> Iterator[str]:
        """Every path that a word of a command may name: by itself, or behind a `=`, `:`, `@` or `,` in it."""
        pieces = dict.fromkeys([word, *re.split(r"[=:@,]", word)])
        for directory in (*(self.directories or ()), *self.roots):
            for piece in filter(None, pieces):
                yield _joined(directory, piece[:4096])


def is_within(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or lies below it; both are absolute and normal."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _joined(directory: str, name: str) -> str:
    return os.path.normpath(os.path.join(directory, os.path.expanduser(name)))  # noqa: PTH111, PTH118 - the same names as text


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
        pattern = _path_pattern(rule.path, use.roots, is_anywhere=True)
        return "yes" if any(map(pattern, use.paths)) else "no"
    if rule.host:
        return "yes" if _is_host(rule.host, use.effect.host, any_port=True) else "no"
    return "yes"


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


def _forbids_command(rule: Rule, use: Use) -> Verdict:
    commands, problem = use.seen
    verdicts = {_begins(rule.command, command) for command in commands}
    if "yes" in verdicts:
        return "yes"
    return "maybe" if problem or "maybe" in verdicts else "no"


def _begins(pattern: str, command: Command) -> Verdict:
    """Whether the command begins with the pattern's words; one that runs another may have it anywhere."""
    expected, is_exact = _pattern_of(pattern)
    words, _ = git_words(command.words)
    if not words:
        return "no"
    if not expected:
        return "yes"
    is_wrapper = command.is_guess or runs_more(words) != "" or runner_length(words) > 0
    verdicts = {
        _begins_at(words[start:], expected, is_exact=is_exact and not is_wrapper)
        for start in range(len(words) if is_wrapper else 1)
        if isinstance(words[start], Opaque) or _is_named(words[start], expected[0])
    }
    if is_wrapper and "yes" not in verdicts and _is_named(words[0], expected[0]):
        return "maybe"  # `git -c … push` for `git push`
    return "yes" if "yes" in verdicts else "maybe" if "maybe" in verdicts else "no"


def _is_named(word: Word, name: str) -> bool:
    return isinstance(word, str) and (word == name or word.rpartition("/")[2] == name)


def _begins_at(words: Words, expected: tuple[str, ...], *, is_exact: bool) -> Verdict:
    is_sure = True
    for number, wanted in enumerate(expected):
        if number >= len(words):
            return "no" if is_sure else "maybe"
        word = words[number]
        if isinstance(word, Opaque):
            is_sure = False
        elif word != wanted and not (number == 0 and _is_named(word, wanted)):
            return "no" if is_sure else "maybe"
    if is_exact and len(words) > len(expected):
        return "no" if is_sure else "maybe"
    return "yes" if is_sure else "maybe"


def _forbids_words(rule: Rule, use: Use) -> Verdict:
    """A path that a rule guards, seen in a command: any word for rules about reading, what is written to for the others."""
    commands, problem = use.seen
    words = [
        word
        for command in commands
        for word in (
            *(command.words[1:] if rule.tool in ("read", "bash", "*") else ()),
            *(redirection.target for redirection in command.redirections),
        )
    ]
    pattern = _path_pattern(rule.path, use.roots, is_anywhere=True)
    looked_up = 0
    for word in words:
        for file in use.files(word) if isinstance(word, str) else ():
            if pattern(file):
                return "yes"
            if looked_up < MAX_REAL_PATHS and os.path.lexists(file):
                looked_up += 1
                if pattern(os.path.realpath(file)):
                    return "yes"
    is_unclear = (
        problem or use.directories is None or any(isinstance(word, Opaque) for word in words)
    )
    return "maybe" if is_unclear else "no"


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
    if is_exact:
        return command.words == expected and _is_at_home(command.words, use)
    words, moves = git_words(command.words)
    if runs_more(words) or not all(_stays_inside(use, move) for move in moves):
        return False
    runner = runner_length(words)
    is_named = len(expected) > runner or not runner
    return is_named and tuple(words[: len(expected)]) == expected and _is_at_home(words, use)


def _is_at_home(words: Words, use: Use) -> bool:
    """A rule is about a program in this project: elsewhere the same words may mean another one."""
    name = words[0]
    if isinstance(name, str) and "/" in name and not name.startswith("/"):
        return use.directories is not None and set(use.directories) <= {use.project, *use.roots}
    return name == "cd" or _stays_inside(use, "")


def _stays_inside(use: Use, name: str) -> bool:
    """Whether `name` leads nowhere out of the project, from wherever the line may be by then."""
    return use.directories is not None and all(
        any(is_within(path, root) for root in use.roots)
        for directory in use.directories
        for path in (_joined(directory, name), os.path.realpath(_joined(directory, name)))
    )


_HARMLESS_VARIABLE = re.compile(
    r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|CI|PYTHONUNBUFFERED"
    r"|PYTHONDONTWRITEBYTECODE|RUST_BACKTRACE|CARGO_TERM_COLOR"
)
_HARMLESS_VALUE = re.compile(r"[\w.,@+-]{0,64}", re.ASCII)


def _is_harmless_assignment(name: str, value: Word, *, is_alone: bool) -> bool:
    if is_alone:
        return is_plain_variable(name)
    is_plain = isinstance(value, str) and _HARMLESS_VALUE.fullmatch(value) is not None
    return is_plain and _HARMLESS_VARIABLE.fullmatch(name) is not None


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
def _path_pattern(glob: str, roots: tuple[str, ...], *, is_anywhere: bool) -> Callable[[str], bool]:
    """The test for a path; a glob without a slash that `is_anywhere` matches outside of the project, too."""
    glob = f"{glob}**" if glob.endswith("/") else glob
    home = os.path.expanduser("~")  # noqa: PTH111
    if glob.startswith("/"):
        anchored = [("/", glob), ("/", _really(glob))]
    elif glob.startswith("~/"):
        anchored = [(home, glob[2:]), (os.path.realpath(home), glob[2:])]
    elif "/" in glob:
        anchored = [(root, glob.removeprefix("./")) for root in roots]
    else:
        anchored = [(root, f"**/{glob}") for root in (("/",) if is_anywhere else roots)]
    patterns = [(root, tuple(filter(None, rest.split("/")))) for root, rest in anchored]

    def matches(path: str) -> bool:
        return any(
            is_within(path, root) and _match(parts, path[len(root) :].strip("/").split("/"))
            for root, parts in patterns
        )

    return matches


def _really(glob: str) -> str:
    """An absolute glob with the links in its plain beginning followed."""
    plain = re.match(r"(?:/[^/*?\[]*(?=/|$))*", glob)
    start = plain[0] if plain else ""
    return os.path.realpath(start or "/").rstrip("/") + glob[len(start) :]


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


_READING = _names(
    "ls cat head tail wc echo printf pwd true false : test [ basename dirname realpath readlink stat file cut tr nl tac rev fold fmt"
    " paste comm join column expand unexpand seq sleep cmp diff md5sum sha1sum sha224sum sha256sum sha384sum sha512sum cksum sum"
    " b2sum od hexdump xxd df du free uptime uname whoami id groups nproc arch which type expr grep egrep fgrep rg fd fdfind find"
    " sort uniq shuf tree jq base64 zcat numfmt tsort locale getconf sed awk gawk mawk nawk read"
)
"""Whatever their arguments are, as long as `runs_more` has nothing against them."""
_PRINTING = _names("echo printf true false : test [ pwd sleep seq read")
"""Those whose words are no files."""
_VERSIONED = _names(
    "python python3 node npm npx pnpm yarn bun deno ruby gem perl php java javac rustc cargo rustup gcc g++ clang make cmake git"
    " docker pip pip3 uv poetry ruff mypy pytest pyright tsc eslint prettier nvim bash rg jq"
)
_GIT_READING = _names(
    "status diff log show blame annotate rev-parse describe ls-files ls-tree shortlog rev-list merge-base cat-file grep name-rev"
    " count-objects check-ignore check-attr diff-tree diff-files diff-index show-ref show-branch whatchanged cherry range-diff"
    " for-each-ref version"
)
_GIT_LISTING = {
    "branch": r"-[arv]+|-vv|-a?vv|--(all|remotes|verbose|show-current|ignore-case|no-color)|--(sort|format|color|points-at)=.*",
    "tag": r"-n\d*|--(sort|format)=.*",
    "remote": r"-v|--verbose",
}
_GIT_FILTERS = {
    "branch": r"--(list|merged|no-merged|contains|no-contains)(=.*)?",
    "tag": r"-l|--(list|merged|no-merged|contains|no-contains)(=.*)?",
    "remote": r"get-url",
}
"""With one of these, the other words say what is listed; without, they would be made."""
_GIT_PHRASES = {
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
    if not is_confined and name not in _PRINTING and not _looks_inside(arguments, use):
        return False
    if check := _SPECIAL.get(name):
        return check(arguments, use)
    if runs_more(git_words(words)[0]):
        return False
    if name in _VERSIONED and tuple(arguments) in (("--version",), ("-V",)):
        return True
    return name in _READING or (
        name == "git" and _is_git_reading(words, use, is_confined=is_confined)
    )


def _only_moves(arguments: Words, use: Use) -> bool:
    operand = arguments[0] if len(arguments) == 1 else Opaque(can_be_option=True)
    return isinstance(operand, str) and operand[:1] not in ("-", "") and _stays_inside(use, "")


def _only_looks_up(arguments: Words, _use: Use) -> bool:
    return arguments[:1] in (("-v",), ("-V",)) and all(isinstance(word, str) for word in arguments)


def _only_tells_the_time(arguments: Words, _use: Use) -> bool:
    harmless = r"\+.*|-u|-R|-I[a-z]*|--utc|--iso-8601.*|--rfc-3339=.*|--date=.*"
    return all(isinstance(word, str) and re.fullmatch(harmless, word) for word in arguments)


def _only_tells_its_version(arguments: Words, _use: Use) -> bool:
    return tuple(arguments) == ("version",)


_SPECIAL: dict[str, Callable[[Words, Use], bool]] = {
    "cd": _only_moves,
    "command": _only_looks_up,
    "date": _only_tells_the_time,
    "go": _only_tells_its_version,
    "hostname": lambda arguments, _use: not arguments,
}


def _is_git_reading(words: Words, use: Use, *, is_confined: bool) -> bool:
    """Its configuration can name programs, so that unconfined only the project's own is trusted."""
    rest, moves = git_words(words)
    if not all(_stays_inside(use, move) for move in moves):
        return False
    if not is_confined and use.directories not in ((use.project,), use.roots):
        return False
    subcommand, arguments = (rest[1] if len(rest) > 1 else ""), rest[2:]
    if isinstance(subcommand, Opaque):
        return False
    if phrases := _GIT_PHRASES.get(subcommand):
        return arguments[:1] != () and arguments[0] in phrases and _has_no_options(arguments[1:])
    if options := _GIT_LISTING.get(subcommand):
        filters = _GIT_FILTERS[subcommand]
        known = [
            isinstance(word, str) and re.fullmatch(f"{options}|{filters}", word)
            for word in arguments
        ]
        is_filtered = any(
            isinstance(word, str) and re.fullmatch(filters, word) for word in arguments
        )
        return all(known) or (is_filtered and _has_no_options(_unknown(arguments, known)))
    return subcommand in _GIT_READING


def _unknown(words: Words, known: Sequence[object]) -> Words:
    return [word for word, is_known in zip(words, known, strict=True) if not is_known]


def _has_no_options(words: Words) -> bool:
    plain = r"--(global|local|system|show-origin|show-scope|stat|name-only|oneline)|-p|-z|[^-].*"
    return all(
        re.fullmatch(plain, word, re.DOTALL) if isinstance(word, str) else not word.can_be_option
        for word in words
    )


def _looks_inside(arguments: Words, use: Use) -> bool:
    return all(
        isinstance(word, str)
        and use.directories is not None
        and all(
            file == "/dev/null"
            or any(is_within(os.path.realpath(file), root) for root in use.roots)
            for file in use.files(word)
        )
        for word in arguments
    )
