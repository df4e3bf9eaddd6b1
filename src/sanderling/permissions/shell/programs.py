"""
Programs whose first words do not say all they do: they run other programs, write where an option says, or change the shell.

The tables of programs, options and argument languages are never complete. So an unknown program is judged by its words alone, and an
entry can only take away from what a rule for that program would allow.
"""

import re

import msgspec

from sanderling.permissions.shell.checks import (
    CHECKS,
    RUNS_INPUT,
    does_more,
    is_device,
    program_name,
)
from sanderling.permissions.shell.grammar import Opaque, Parsed, Words, literals, parse
from sanderling.permissions.shell.tables import (
    INTERPRETERS,
    OF_THE_PROJECT,
    RUNNERS,
    SHELLS,
    WRAPPERS,
)

MAX_NESTED_LINES, MAX_NESTED_DEPTH = 32, 3
"""How many lines inside a line (`bash -c '…'`) are checked, and how deep."""


# --- The first words of a command ---------------------------------------------------------------------------------------------


class _Beginning(msgspec.Struct, frozen=True):
    """The options before a subcommand: harmless ones, and those naming the directory to run in."""

    harmless: str
    directory: tuple[str, ...]


_BEGINNINGS = {
    "git": _Beginning(r"--no-pager|-P|--no-optional-locks|--literal-pathspecs", ("-C",)),
    "make": _Beginning(r"-j\d*|-[ks]|--silent|--quiet|--keep-going|--no-print-directory", ("-C",)),
    "ninja": _Beginning(r"-j\d+|-v", ("-C",)),
    "npm": _Beginning(r"-s|--silent", ("--prefix",)),
    "pnpm": _Beginning(r"-s|--silent", ("-C", "--dir")),
    "yarn": _Beginning(r"-s|--silent", ("--cwd",)),
    "go": _Beginning(r"(?!)", ("-C",)),
}
_PLAIN_DIRECTORY = re.compile(r"(?!-)[^=\s]+")


def core_words(words: Words) -> tuple[Words, tuple[str, ...]]:
    """Return a command without the harmless options before its subcommand, and the directories that some of these name (`git -C sub …`)."""
    name = words[0] if words else ""
    beginning = _BEGINNINGS.get(name) if isinstance(name, str) else None
    if beginning is None:
        return words, ()
    rest, directories = list(words[1:]), list[str]()
    while rest and isinstance(rest[0], str):
        directory = rest[1] if len(rest) > 1 and rest[0] in beginning.directory else ""
        if re.fullmatch(beginning.harmless, rest[0]):
            del rest[0]
        elif isinstance(directory, str) and _PLAIN_DIRECTORY.fullmatch(directory):
            directories.append(directory)
            del rest[:2]
        else:
            break
    return (name, *rest), tuple(directories)


def runner_length(words: Words) -> int:
    """Return how many first words only choose the environment of a program: 2 for `uv run pytest`."""
    return max(
        (len(runner) for runner in RUNNERS if tuple(words[: len(runner)]) == runner), default=0
    )


def runs_more(words: Words) -> str:
    """
    Return why the first words of a command do not say what it does; "" if they do.

    It may run another program, write where an option says, or change the shell for later commands.
    """
    if not words or isinstance(words[0], Opaque):
        return "which program it runs is only known when it runs"
    if length := runner_length(words):
        inner = words[length:]
        is_plain = inner and isinstance(inner[0], str) and not inner[0].startswith("-")
        if not is_plain or runner_length(inner):
            return f"'{words[0]}' runs another program"
        return does_more(str(inner[0]), inner[1:])
    return does_more(words[0], core_words(words)[0][1:])


def runs_unseen(words: Words) -> bool:
    """Return True if a command runs what it reads from its input, so that its effect is unknown (`… | sudo sh`, `xargs bash`)."""
    is_value = False
    words = words[runner_length(words) :]
    for number, word in enumerate(words):
        if isinstance(word, Opaque):
            return False
        name, arguments = program_name(word), words[number + 1 :]
        if name in INTERPRETERS:
            return _reads_its_program(name, arguments)
        if name in ("xargs", "parallel", "source", "."):
            return any(is_device(argument) or argument in SHELLS for argument in arguments)
        if name == "command" and arguments[:1] in (("-v",), ("-V",)):
            break
        if not (is_value or name in WRAPPERS or name == "env" or re.search(r"^[-\d]|=", word)):
            break
        is_value = word.startswith("-")
    return False


def _reads_its_program(name: str, arguments: Words) -> bool:
    problem = CHECKS[name](arguments)
    has_operand = any(isinstance(word, Opaque) or word[:1] != "-" for word in arguments)
    is_asked_to = name in SHELLS and any(re.fullmatch(r"-\w*s\w*", str(word)) for word in arguments)
    return problem == RUNS_INPUT or (problem != "" and (is_asked_to or not has_operand))


def project_words(words: Words) -> Words:
    """Return the arguments that must stay inside the project, of a program that works on its files; else none."""
    rest = words[runner_length(words) :]
    name = program_name(rest[0]) if rest and isinstance(rest[0], str) else ""
    if name == "python":
        at = rest.index("-m") if "-m" in rest else len(rest)
        rest = rest[at + 1 :]
        name = rest[0] if rest and isinstance(rest[0], str) else ""
    return rest[1:] if name in OF_THE_PROJECT else ()


def code_files(words: Words) -> tuple[str, ...]:
    """Return the files and directories whose code pytest, an interpreter or cmake is asked to run."""
    arguments = literals(words[runner_length(words) :])
    name = program_name(arguments.pop(0)) if arguments else ""
    if name == "python" and arguments[:2] == ["-m", "pytest"]:
        name, arguments = "pytest", arguments[2:]
    operands = [word for word in arguments if not word.startswith("-")]
    if name in ("pytest", "py.test"):
        return tuple(word.partition("::")[0] for word in operands)
    if name == "cmake":
        attached = (word[2:] for word in arguments if word.startswith(("-S", "-B")))
        return (*operands, *filter(None, attached))
    is_module = operands and "-m" in arguments[: arguments.index(operands[0])]
    return tuple(operands[:1]) if name in INTERPRETERS and not is_module else ()


# --- Lines inside of lines ---------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"[\w\])}'\"][\s;&|<>]|[;&|<>$`(]\s*+[\w$'\"]")
"""A match makes a word look like a command line of its own."""
_ATTACHED = re.compile(r"^-(?:\w|-[\w-]+=)")
"""An option with its value attached: `-c'…'`, `--to-command='…'`."""


def all_commands(parsed: Parsed) -> Parsed:
    """
    Return the commands of a line and of the lines that it passes to other programs, with the first problem in any of them.

    Such lines are `bash -c '…'` and `eval "…"`. Deny and ask rules use this: they apply wherever something is visible.
    """
    found, problem, inputs = list(parsed.commands), parsed.problem, list(parsed.inputs)
    waiting = [(command, 0) for command in parsed.commands]
    lines = 0
    while waiting:
        command, depth = waiting.pop()
        for word in command.words[1:] if runs_more(command.words) else ():
            if not isinstance(word, str) or not _LINE.search(word):
                continue
            lines += 1
            if lines > MAX_NESTED_LINES or depth > MAX_NESTED_DEPTH:
                return Parsed(tuple(found), problem or "it is nested too deeply", tuple(inputs))
            inner = parse(_ATTACHED.sub("", word))
            problem = problem or inner.problem
            found += inner.commands
            inputs += inner.inputs
            waiting += [(inside, depth + 1) for inside in inner.commands]
    return Parsed(tuple(found), problem, tuple(inputs))
