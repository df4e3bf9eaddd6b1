"""Checks of programs whose first words may not say what they do. A check returns the reason, or "" if the words do say it."""

import posixpath
import re
from collections.abc import Callable

from sanderling.permissions.shell.git import git_check
from sanderling.permissions.shell.grammar import Opaque, Word, Words, literals
from sanderling.permissions.shell.tables import (
    BY_OPTION,
    COMPILER,
    OF_THE_PROJECT,
    SHELLS,
    UNKNOWN_OPTION,
    WRAPPERS,
    ProgramOptions,
)
from sanderling.text import name_set
from sanderling.tools.commands.variables import is_plain_variable


def does_more(program: str, arguments: Words) -> str:
    name = program_name(program)
    if name in WRAPPERS or (name == "env" and arguments):
        return f"'{name}' runs other commands, or changes what they do"
    if check := CHECKS.get(name):
        return check(arguments)
    options = BY_OPTION.get(name)
    return options.problem(arguments) if options else ""


def is_device(word: Word) -> bool:
    return isinstance(word, str) and _DEVICE.match(posixpath.normpath(word)) is not None


def program_name(word: str) -> str:
    """Return the name that a program is known by, without directory and version (`python3.11`, `lua5.4`, `gcc-12`)."""
    name = word.rpartition("/")[2]
    plain = re.sub(r"(?<=\w|\+)-?\d[\d.]*$", "", name)
    plain = "python" if plain == "pypy" else plain
    return plain if name not in _KNOWN and plain in _KNOWN else name


RUNS_INPUT = "it runs what it reads"

_DEVICE = re.compile(r"(?:/+|(?:\.\./)+)(?:dev|proc)/")


def _interpreter(harmless: str) -> Callable[[Words], str]:
    """Return the check of an interpreter: it runs a file that is not its input, with only `harmless` options before it."""
    is_harmless = re.compile(harmless)

    def check(arguments: Words) -> str:
        for word in arguments:
            if isinstance(word, Opaque):
                return (
                    UNKNOWN_OPTION
                    if word.can_be_option
                    else "which file it runs is only known when it runs"
                )
            if not word.startswith(("-", "+")):
                return RUNS_INPUT if is_device(word) else ""
            if not is_harmless.fullmatch(word):
                return f"'{word[:80]}' can make it run something else"
        needs_no_file = {"--version", "-V", "-v", "--test"}.intersection(map(str, arguments))
        return "" if needs_no_file else RUNS_INPUT

    return check


def _without(options: str, what: str) -> Callable[[Words], str]:
    """Return the check of a program that is harmless without options like these; `what` says what they do."""
    harmful = re.compile(options)

    def check(arguments: Words) -> str:
        for word in arguments:
            if isinstance(word, Opaque):
                if word.can_be_option:
                    return UNKNOWN_OPTION
            elif harmful.match(word):
                return f"'{word[:80]}' {what}"
        return ""

    return check


def _unless(pattern: str, problem: str, options: ProgramOptions) -> Callable[[Words], str]:
    """Return a check that reports `problem` for a word that matches `pattern`, and else checks the `options`."""
    harmful = re.compile(pattern)

    def check(arguments: Words) -> str:
        is_harmful = any(map(harmful.match, literals(arguments)))
        return problem if is_harmful else options.problem(arguments)

    return check


_PYTHON_OPTIONS = r"-[uBOsSEIPq]+|-W[a-z]+|--version|-V"

_PYTHON_WRAPPERS = name_set(
    "timeit trace pdb code cProfile profile runpy coverage debugpy viztracer asyncio IPython bpython ptpython ipykernel jupyter"
    " pyinstrument scalene kernprof line_profiler memory_profiler"
)


def _python(arguments: Words) -> str:
    rest = list(arguments)
    while rest and isinstance(rest[0], str) and re.fullmatch(_PYTHON_OPTIONS, rest[0]):
        del rest[0]
    if rest[:1] != ["-m"]:
        return _interpreter(_PYTHON_OPTIONS)(arguments)
    module = rest[1] if len(rest) > 1 else Opaque(can_be_option=True)
    if isinstance(module, Opaque):
        return UNKNOWN_OPTION
    if module in OF_THE_PROJECT:
        return does_more(module, tuple(rest[2:]))
    return f"'{module[:80]}' runs other code" if module in _PYTHON_WRAPPERS else ""


_pytest_options = _without(
    r"--(basetemp|pastebin|pdbcls|rootdir|confcutdir|config-file|override-ini|junit-?xml|log-file|debug|report-log|html|pyargs"
    r"|tx|px|rsyncdir|alluredir|csv|(json-)?report-file|json-report-file|benchmark-(json|storage)|durations-path|profile-svg)(=|$)"
    r"|--cov-(report|config)=.*/|-[dfhilqsvxV]*[co]|@"
    r"|(-\w*W|--pythonwarnings=)?(default|error|ignore|always|module|once|[deiamo]\w*):[^:]*:\w+\.\w",
    "can make it write, or run something else",
)

_PLUGIN = re.compile(r"-[dfhilqsvxV]*p(.*)")


def _pytest(arguments: Words) -> str:
    """Check pytest, which runs the project's tests with its configuration. `-p` runs any module, unless it is `-p no:…`."""
    for number, word in enumerate(arguments):
        found = _PLUGIN.fullmatch(word) if isinstance(word, str) else None
        following = arguments[number + 1 : number + 2]
        plugin = (found[1] or (following[0] if following else "")) if found else "no:"
        if not (isinstance(plugin, str) and plugin.startswith("no:")):
            return "a plugin can make it run anything"
    return _pytest_options(arguments)


def _tsc(arguments: Words) -> str:
    """Check tsc, whose options may be in any case, with one dash or two."""
    lowered = tuple(word.lower() if isinstance(word, str) else word for word in arguments)
    return _tsc_options(lowered)


_tsc_options = _without(
    r"--?(outfile|outdir|declarationdir|tsbuildinfofile|generatetrace|generatecpuprofile|init|plugins|out|o)(=|$)|@",
    "can make it write somewhere else",
)

_find = _without(r"-(exec|ok|delete|fprint|fls)", "makes 'find' run or write something")

_SED_SCRIPT = re.compile(
    r"(?:(?:\d+|\$|/[^/\\\n]*/)(?:,(?:\d+|\$|/[^/\\\n]*/))?)?!?(?:[pdq=]|s(?P<mark>[/|#,])[^\n\\/|#,]*(?P=mark)[^\n\\/|#,]*(?P=mark)[gpiI\d]*)"
)


def _sed(arguments: Words) -> str:
    """Check sed, whose scripts can write (w) and run (e): only plain scripts are known not to."""
    # With more words, sed opens the files that it would write before it prints its version.
    if tuple(arguments) == ("--version",):
        return ""
    scripts: list[str] = []
    is_script_next, has_expression = False, False
    for word in arguments:
        if isinstance(word, Opaque):
            if word.can_be_option or is_script_next or not scripts:
                return UNKNOWN_OPTION
        elif is_script_next or (not word.startswith("-") and not scripts and not has_expression):
            scripts.append(word)
            is_script_next = False
        elif re.fullmatch(r"-[nErsuz]*e", word):
            has_expression = is_script_next = True
        elif word.startswith("-") and not re.fullmatch(r"-[nErsuz]+|--quiet", word):
            return f"'{word[:80]}' can make 'sed' write or run something"
    pieces = [piece.strip() for script in scripts for piece in script.split(";")]
    if pieces and all(map(_SED_SCRIPT.fullmatch, pieces)):
        return ""
    return "a script for 'sed' can write files and run commands"


def _awk(arguments: Words) -> str:
    """Check awk: a program without pipes, redirections, `system`, `getline` and indirect calls only prints."""
    is_value = False
    for word in arguments:
        if isinstance(word, Opaque):
            if not is_value or word.can_be_many:
                return UNKNOWN_OPTION
        elif not is_value and not word.startswith("-"):
            return (
                ""
                if _is_plain_awk(word)
                else "a program for 'awk' can write files and run commands"
            )
        elif not is_value and not word.startswith(("-F", "-v")):
            return f"'{word[:80]}' can make it run or write something else"
        is_value = not is_value and word in ("-F", "-v")
    return RUNS_INPUT


def _is_plain_awk(program: str) -> bool:
    """Return True if the program only prints. A `>` before the first `print` compares; after it, it writes to a file."""
    before, print_, after = re.sub(r"\|\||>=", " ", program).partition("print")
    text = before.replace(">", " ") + print_ + after
    return not re.search(r"[|>@`]|system|getline|ARGV|SYMTAB", text)


def _make(arguments: Words) -> str:
    """Check make, which takes any word with a `=` for a variable, spaces or not."""
    for word in arguments:
        if isinstance(word, Opaque):
            return UNKNOWN_OPTION
        if "=" in word and not word.startswith("-"):
            return f"'{word[:80]}' sets a variable, which can make it run anything"
    return ProgramOptions(
        "--file --makefile --directory --eval --environment-overrides --include-dir", "fCEIeV"
    ).problem(arguments)


_CONTAINER_SUBCOMMANDS = name_set("run exec create debug attach plugin edit proxy context")

_CONTAINER_OPTIONS = ProgramOptions(
    "--kubeconfig --context --cluster --server --host --enable-exec --enable-alpha-plugins --exec-command"
)


def _container(arguments: Words) -> str:
    """Check docker and the like: options can select another daemon, subcommands run other programs."""
    if arguments and (isinstance(arguments[0], Opaque) or arguments[0].startswith("-")):
        return "the options before its subcommand can make it act elsewhere"
    if any(isinstance(word, Opaque) or word in _CONTAINER_SUBCOMMANDS for word in arguments):
        return "it runs another program in a container"
    return _CONTAINER_OPTIONS.problem(arguments)


_CONVERSION = re.compile(
    r"%(?:%|[-+ #0']*+(?:\d++|\*)?(?:\.(?:\d++|\*)?)?[hlLjzt]*+[diouxXeEfFgGaAcsbqQ]|\([^()]*+\)T)"
)


def _printf(arguments: Words) -> str:
    first = arguments[0] if arguments else ""
    if isinstance(first, Opaque):
        return UNKNOWN_OPTION
    if first.startswith("-") or "%" in _CONVERSION.sub("", first):
        return "'printf' can set a variable"
    return ""


_COMPARISONS = name_set("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")

_TESTS = name_set("-e -f -d -r -w -x -s -L -h -n -z -t -b -c -p -S -O -G")


def _test(arguments: Words) -> str:
    """Check test: `-v` evaluates subscripts, which can run commands. So opaque words may only be where a value must be."""
    match [word for word in arguments if word not in ("!", "]")]:
        case [only]:
            values = [only]
        case [str(test), value] if test in _TESTS:
            values = [value]
        case [value, str(comparison), other] if comparison in _COMPARISONS:
            values = [value, other]
        case words:
            if any(isinstance(word, Opaque) for word in words):
                return UNKNOWN_OPTION
            return "a subscript in a test can run commands" if {"-v", "-R"} & {*words} else ""
    is_split = any(isinstance(value, Opaque) and value.can_be_many for value in values)
    return UNKNOWN_OPTION if is_split else ""


def _read(arguments: Words) -> str:
    is_plain = all(
        isinstance(word, str) and (word == "-r" or is_plain_variable(word)) for word in arguments
    )
    return "" if is_plain else "'read' sets variables of the shell"


_PACKAGE_SUBCOMMANDS = name_set("config set pkg explore edit init create node")


def _package_manager(name: str) -> Callable[[Words], str]:
    def check(arguments: Words) -> str:
        """Check the words before `--`; the others go to the script. npm accepts options with any number of dashes."""
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if own and own[0] in _PACKAGE_SUBCOMMANDS and "get" not in own[1:2]:
            return f"'{name} {own[0]}' can set anything, or runs other programs"
        dashed = [
            re.sub(r"^-{1,}(?=\w{2})", "--", word) if isinstance(word, str) else word
            for word in own
        ]
        if any(word.startswith("--config.") for word in literals(own)):
            return "its options can set anything"
        if "-" in own:
            return RUNS_INPUT
        return BY_OPTION[name].problem(own) or BY_OPTION[name].problem(dashed)

    return check


def _tar(arguments: Words) -> str:
    """Check tar, whose first word contains option letters even without a dash."""
    letters = arguments[0] if arguments else ""
    if isinstance(letters, Opaque) or re.search(r"[IF]", letters.partition("=")[0]):
        return "its letters can make 'tar' run something"
    return BY_OPTION["tar"].problem(arguments)


def _uniq(arguments: Words) -> str:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    operands = [
        word
        for word in arguments[:end]
        if isinstance(word, Opaque) or word == "-" or not word.startswith("-")
    ]
    return _writes_second([*operands, *arguments[end + 1 :]])


def _xxd(arguments: Words) -> str:
    """Check xxd, whose second operand is written to, even if it begins with a dash."""
    rest = list(arguments)
    while rest and isinstance(rest[0], str) and re.fullmatch(r"-[a-zA-Z]+\d*", rest[0]):
        del rest[: 2 if rest[0] in ("-c", "-g", "-l", "-n", "-o", "-s") else 1]
    return _writes_second(rest) or BY_OPTION["xxd"].problem(arguments)


def _writes_second(operands: Words) -> str:
    is_sure = len(operands) <= 1 and not any(isinstance(word, Opaque) for word in operands)
    return "" if is_sure else "it writes to its second file"


_SQLITE_OPTIONS = re.compile(
    r"--?(header|noheader|csv|json|line|list|column|box|table|markdown|html|quote|tabs|readonly|batch|bail)"
)


def _sqlite(arguments: Words) -> str:
    """Check sqlite3: without statements it runs its input; dot commands and some functions can do anything."""
    rest = list(arguments)
    while rest and isinstance(rest[0], str) and _SQLITE_OPTIONS.fullmatch(rest[0]):
        del rest[0]
    if len(rest) == 1:
        return RUNS_INPUT
    for word in rest:
        if isinstance(word, Opaque) or word.startswith("-"):
            return UNKNOWN_OPTION
        if re.search(
            r"(?i)^\s*\.|\b(edit|writefile|load_extension|fts3_tokenizer)\b|\battach\b|\bvacuum\b",
            word,
        ):
            return "its dot commands and some of its functions can run and write anything"
    return "" if rest else RUNS_INPUT


def _deno(arguments: Words) -> str:
    if not arguments or arguments[0] in ("eval", "repl"):
        return "it runs code"
    if "-" in arguments:
        return RUNS_INPUT
    is_remote = any(re.match(r"[a-z]+:", word) for word in literals(arguments))
    return "it runs code from elsewhere" if is_remote else ""


def _go(arguments: Words) -> str:
    if any("extld" in word for word in literals(arguments)):
        return "flags for the linker can make 'go' run anything"
    if arguments[:1] == ("env",) and "-w" in arguments:
        return "it changes what 'go' does from now on"
    names = "exec toolexec vettool modfile overlay gccgoflags compiler pkgdir outputdir C"
    return ProgramOptions(
        " ".join(f"--{name}" for name in names.split()),
        words=" ".join(f"-{name}" for name in names.split()),
    ).problem(arguments)


def _wget(arguments: Words) -> str:
    return BY_OPTION["wget"].problem(
        [word for word in arguments if not (isinstance(word, str) and re.fullmatch(r"-q?O-", word))]
    )


_CMAKE_VALUE = re.compile(
    r"-D(CMAKE_BUILD_TYPE|CMAKE_EXPORT_COMPILE_COMMANDS|(?!CMAKE)\w+)(:\w+)?=(\w*)"
)


def _cmake(arguments: Words) -> str:
    """Check cmake: a definition can name a program, unless its value is a plain word."""
    rest = [
        word for word in arguments if not (isinstance(word, str) and _CMAKE_VALUE.fullmatch(word))
    ]
    return BY_OPTION["cmake"].problem(rest)


def _rustup(arguments: Words) -> str:
    is_running = any(isinstance(word, Opaque) or word == "run" for word in arguments)
    return "it runs another program" if is_running else ""


def _arch(arguments: Words) -> str:
    return "on some systems, it runs another program" if arguments else ""


def _hostname(arguments: Words) -> str:
    plain = all(
        isinstance(word, str) and re.fullmatch(r"-[fsdiIA]|--\w+", word) for word in arguments
    )
    return "" if plain else "it sets the name of the machine"


_OPTION_FILE = ("@", "it takes its options from a file")
_NODE = _interpreter(r"--version|-v|--test|--check|--watch|--no-warnings")

CHECKS: dict[str, Callable[[Words], str]] = (
    dict.fromkeys(SHELLS, _interpreter(r"--version"))
    | dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk)
    | dict.fromkeys(("make", "gmake", "bmake"), _make)
    | dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "lxc"), _container)
    | dict.fromkeys(("test", "["), _test)
    | dict.fromkeys(("find", "gfind"), _find)
    | dict.fromkeys(("sed", "gsed"), _sed)
    | dict.fromkeys(("tar", "gtar", "bsdtar"), _tar)
    | dict.fromkeys(
        ("gcc", "g++", "cc", "c++", "clang", "clang++"), _unless(*_OPTION_FILE, COMPILER)
    )
    | dict.fromkeys(("pytest", "py.test"), _pytest)
    | dict.fromkeys(("tsc",), _tsc)
    | {name: _unless(*_OPTION_FILE, BY_OPTION[name]) for name in ("mypy", "ruff", "cargo")}
    | {name: _package_manager(name) for name in ("npm", "pnpm", "yarn", "bun")}
    | dict.fromkeys(
        name_set("perl lua luajit Rscript osascript tclsh guile julia groovy scala elixir"),
        _interpreter(r"--version|-v"),
    )
    | dict.fromkeys(("node", "nodejs", "tsx", "ts-node"), _NODE)
    | {
        "python": _python,
        "ruby": _interpreter(r"--version|-[wc]+"),
        "php": _interpreter(r"--version|-l"),
        "deno": _deno,
        "git": git_check,
        "go": _go,
        "curl": _unless(r"--expand-|(?s:.*)%output\{", "it can write any file", BY_OPTION["curl"]),
        "wget": _wget,
        "cmake": _cmake,
        "rustup": _rustup,
        "arch": _arch,
        "date": _unless(r"\d{4}[\d.]*$", "it sets the clock", BY_OPTION["date"]),
        "hostname": _hostname,
        "printf": _printf,
        "read": _read,
        "uniq": _uniq,
        "xxd": _xxd,
        "sqlite3": _sqlite,
    }
)

_KNOWN = WRAPPERS | {*CHECKS, *BY_OPTION}
