"""Proposes the narrowest rule that would have allowed a use."""

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from sanderling.paths import is_within
from sanderling.permissions.allowing import uncovered_commands
from sanderling.permissions.decide import applies, decide
from sanderling.permissions.rules import Examples, Rule
from sanderling.permissions.shell.grammar import SimpleCommand, Word, Words
from sanderling.permissions.shell.programs import core_words, runner_length, runs_more
from sanderling.permissions.store import wrong_example
from sanderling.permissions.use import Use
from sanderling.text import name_set, visible_exactly
from sanderling.tools.effects import OUTSIDE, Effect

_PREFIXES = frozenset(
    tuple(prefix.split())
    for prefix in re.split(
        r",\s*",
        "git add, git commit, git switch, git stash push, git stash pop, git stash apply,"
        "pytest, mypy, pyright, basedpyright, black, ruff check, ruff format, tsc, eslint, prettier,"
        "python -m pytest, python -m mypy, python -m black, python3 -m pytest, python3 -m mypy, python3 -m black,"
        "npm test, npm run *, npm ci, pnpm test, pnpm run *, yarn test, yarn run *,"
        "cargo build, cargo check, cargo clippy, cargo doc, cargo fmt, cargo test, go build, go fmt, go test, go vet,"
        "docker compose logs, docker compose ps, docker compose up,"
        "podman compose logs, podman compose ps, podman compose up",
    )
)
"""
Beginnings that say what a command does whatever follows, because `runs_more` knows their programs' options; `*` is a name.

For all other commands, and for those that publish, the rule names the exact command.
"""

MAX_PREFIX = max(map(len, _PREFIXES))

_ONLY_EXACTLY = name_set(
    "install add uninstall remove publish deploy delete destroy apply run exec down prune push release"
    " eval repl console runner shell x dlx rename purge unpublish yank login upgrade update global node start"
)
"""Names of scripts that concern more than the project."""

_INSTALLED = re.compile(r"^(\./)?(\.?venv/bin|node_modules/\.bin|vendor/bin)/")
"""Directories in which a project keeps the programs installed for it."""

_SCRIPT = re.compile(r"[A-Za-z][\w:.-]*", re.ASCII)

MAX_EXACT_CHARS = 300


def propose(effect: Effect, *, project: str) -> Rule | None:
    """Return the rule for "always": as narrow as is useful; None if there is no safe one. It always covers `effect`."""
    match "call" if effect.does else effect.kind:
        case "run":
            return _propose_command(effect, project)
        case "fetch":
            return _checked({"tool": effect.tool, "host": effect.host.lower()}, effect, project)
        case "write" if len(effect.paths) > 1:
            return None
        case "write" | "read":
            return _propose_path(effect, project)
        case "call" | "delegate" if not effect.leaves_sandbox:
            return _checked({"tool": _literal(effect.tool)}, effect, project)
        case _:
            return None


def propose_wider(effect: Effect) -> Rule | None:
    """Return the rule for all tools of the server that is called; None for all other effects."""
    if effect.kind != "call" or OUTSIDE not in effect.tool or effect.leaves_sandbox:
        return None
    server = effect.tool.rpartition(OUTSIDE)[0]
    return Rule(action="allow", tool=f"{_literal(server)}{OUTSIDE}*")


def _checked(fields: Mapping[str, object], effect: Effect, project: str) -> Rule | None:
    """Return an allow rule with these fields, if it is valid, can be read, and covers `effect`."""
    try:
        rule = msgspec.convert({"action": "allow", **fields}, Rule)
    except msgspec.ValidationError:
        return None
    if visible_exactly(str(rule)) != str(rule):
        return None
    return rule if applies(rule, effect, project=project) else None


def _propose_command(effect: Effect, project: str) -> Rule | None:
    commands = uncovered_commands(effect, project=project)
    rules = {rule.command: rule for command in commands or () if (rule := _rule_for(command))}
    if not commands or len(rules) != 1:
        return None
    (rule,) = rules.values()
    effect = msgspec.structs.replace(effect, exported=())  # a rule is about the command
    now = decide(effect, "ask", [rule], project=project, is_confined=True)
    return rule if now.action == "allow" and not wrong_example(rule, project) else None


def _rule_for(command: SimpleCommand) -> Rule | None:
    words = core_words(command.words)[0]
    if runs_more(words) or words[0] == "cd":
        return None
    if prefix := _defining_words(words):
        pattern, another = shlex.join(prefix), f"{shlex.join(prefix)}x"
    elif _is_literal(command):
        pattern, another = f"{shlex.join(map(str, command.words))} $", f"{command.text} x"
    else:
        return None
    example = pattern if "\n" in command.text else command.text
    examples = Examples((example,), (another, f"{example} && rm -rf ."))
    with suppress(ValueError):  # a word that means something else in a rule: `*`
        return Rule(action="allow", tool="bash", command=pattern, examples=examples)
    return None


def _defining_words(words: Words) -> tuple[str, ...]:
    """Return the first words that say what a command does, whatever follows; () if only the whole command says it."""
    runner = runner_length(words)
    inner = (_INSTALLED.sub("", str(words[runner])), *words[runner + 1 :]) if words[runner:] else ()
    for length in range(1, min(len(inner), MAX_PREFIX) + 1):
        start, last = inner[: length - 1], inner[length - 1]
        is_of_a_script = (*start, "*") in _PREFIXES and _is_harmless_name(last)
        # Yarn also runs installed programs: `tsx`.
        if start[:1] == ("yarn",) and runs_more((last,)):
            is_of_a_script = False
        if (*start, last) in _PREFIXES or is_of_a_script:
            return tuple(map(str, words[: runner + length]))
    return ()


def _is_harmless_name(word: Word) -> bool:
    is_name = isinstance(word, str) and _SCRIPT.fullmatch(word) is not None
    return is_name and word not in _ONLY_EXACTLY


def _is_literal(command: SimpleCommand) -> bool:
    is_known = all(isinstance(word, str) for word in command.words)
    return is_known and len(command.text) <= MAX_EXACT_CHARS and "\n" not in command.text


def _propose_path(effect: Effect, project: str) -> Rule | None:
    """Propose the directory of a file in the project; the file itself at the root, outside, and where writing is protected."""
    tool = "read" if effect.kind == "read" else effect.tool
    is_inside = is_within(effect.path, project)
    inside = _literal(effect.path[len(project) :].strip("/"))
    file = f"./{inside}" if is_inside else _literal(effect.path)
    directory = file.rpartition("/")[0]
    if is_inside and directory != "." and not Use(effect, project).protected:
        around = _checked({"tool": tool, "path": f"{directory}/**"}, effect, project)
        if around:
            return around
    return _checked({"tool": tool, "path": file}, effect, project)


def _literal(text: str) -> str:
    """Return a glob that matches only `text`."""
    return re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", text)
