"""
What programs do beyond what their first words tell: run another program, write where an option says, change the shell.

A table of programs, their options and the languages of their arguments; it is never complete. So a program that it does not know is
judged by its words alone: what is said of it here only ever takes away from what a rule for its name would allow.
"""

import posixpath
import re
from collections.abc import Callable

import msgspec

from sanderling.commands.variables import is_plain_variable
from sanderling.permissions.shell.grammar import Command, Opaque, Parsed, Word, Words, parse
from sanderling.text import name_set

MAX_NESTED_LINES, MAX_NESTED_DEPTH = 32, 3
"""How many lines inside of a line (`bash -c '…'`) are looked into, and how deep."""


# --- The tables ----------------------------------------------------------------------------------------------------------------

_WRAPPERS = name_set(
    # Programs that run another.
    "timeout nice nohup sudo doas su xargs watch ionice setsid stdbuf time strace ltrace gdb ssh parallel sem flock chroot unshare"
    " nsenter busybox toybox runuser pkexec systemd-run script expect chrt taskset numactl unbuffer dbus-run-session firejail bwrap"
    " proot fakeroot start-stop-daemon run-parts entr at batch crontab screen tmux rlwrap valgrind perf hyperfine caffeinate"
    " torsocks proxychains proxychains4 chronic ifne pee sg newgrp setarch linux32 linux64 prlimit capsh setpriv socat xvfb-run"
    " choom cgexec faketime dtach daemonize direnv sshpass mosh rsh telnet nc ncat netcat dc ld.so m4 ssh-agent dbus-launch"
    " watchexec nodemon concurrently cross-env foreman honcho overmind tini dumb-init gosu su-exec setuidgid chpst runcon eatmydata"
    " cpulimit run0 machinectl xdg-open open"
    # Programs that a person talks to: they run what they are told.
    " vim vi view nvim ex rvim gvim vimdiff emacs emacsclient ed nano pico less more most man info ftp sftp lftp top htop"
    " psql mysql mariadb mongo mongosh redis-cli irb pry ghci jshell iex erl ipython bpython ptpython R octave gnuplot"
    # Parts of the shell that run words, or change what words mean from here on.
    " command builtin exec eval source . coproc trap alias unalias set shopt enable hash declare typeset export readonly local unset"
    " let getopts bind complete compgen compopt fc history mapfile readarray pushd popd dirs logout suspend emulate zmodload"
    " autoload print noglob nocorrect"
)
_SHELLS = name_set("bash sh dash zsh ksh mksh ash fish csh tcsh rbash pwsh nu xonsh elvish")
_RUNNERS = [
    tuple(words.split())
    for words in re.split(
        r",\s*",
        "uv run, poetry run, pipenv run, pdm run, hatch run, rye run, bundle exec, npx, npm exec, npm x, pnpm exec, pnpm dlx, pnpx,"
        "yarn exec, yarn dlx, bunx, bun x, uvx, uv tool run, pipx run, conda run, mamba run, mise exec, asdf exec,"
        "nix run, nix shell, nix develop, nix-shell, opam exec, stack exec, cabal exec, dotenv run, doppler run, op run, tox exec",
    )
]
"""Programs that run another in an environment of its own: that one is judged like any other, by a rule that names it."""

UNKNOWN_OPTION = "one of its arguments is only known when it runs, and may be an option"


class _Options(msgspec.Struct, frozen=True):
    """The options with which a program runs or writes something: long ones (also cut short), letters, whole words."""

    long: str = ""
    letters: str = ""
    words: str = ""

    def problem(self, arguments: Words) -> str:
        for word in arguments:
            if isinstance(word, Opaque):
                if word.can_be_option:
                    return UNKNOWN_OPTION
            elif self._names(word):
                return f"'{word[:80]}' can make it run or write something else"
        return ""

    def _names(self, word: str) -> bool:
        name = word.partition("=")[0]
        if name in self.words.split():
            return True
        if name.startswith("--"):
            return name != "--" and any(long.startswith(name) for long in self.long.split())
        return name[:1] == "-" and any(letter in self.letters for letter in name[1:])


_PACKAGES = _Options(
    "--script-shell --shell --node-options --prefix --userconfig --globalconfig --cwd --dir --git --call --registry --use-yarnrc",
    "C",
)
_COMPILER = _Options(
    "--specs --ld-path",
    "B",
    "-wrapper -fplugin -specs -fuse-ld -load -Xclang -fpass-plugin",
)
_BY_OPTION = {
    "fd": _Options("--exec --exec-batch", "xX"),
    "fdfind": _Options("--exec --exec-batch", "xX"),
    "rg": _Options("--pre --hostname-bin"),
    "sort": _Options("--output --compress-program", "o"),
    "base64": _Options("--output", "o"),
    "getconf": _Options(words="-v"),
    "shuf": _Options("--output", "o"),
    "tree": _Options("--output", "oR"),
    "file": _Options("--compile --magic-file --no-sandbox", "CmS"),
    "tar": _Options(
        "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command --rmt-command",
        "IF",
    ),
    "rsync": _Options("--rsh --rsync-path --log-file --write-batch --config", "e"),
    "zip": _Options("--unzip-command --test", "T", "-TT"),
    "split": _Options("--filter"),
    "ctest": _Options("--script --build-and-test", "S"),
    "cmake": _Options("--toolchain", "PECD"),
    "cargo": _Options(
        "--config --manifest-path --target-dir --artifact-dir --out-dir --lockfile-path --open",
        "CZ",
    ),
    "pip": _Options("--python --log"),
    "scp": _Options("", "SoFD"),
    "install": _Options("--strip-program"),
    "patch": _Options("--ed --get", "eg"),
    "ninja": _Options("", "Cf"),
    "just": _Options(
        "--justfile --working-directory --shell --shell-arg --command --edit --choose --chooser --set --dotenv-path --global-justfile",
        "fdceg",
    ),
    "rake": _Options("--rakefile --execute --require --libdir --rakelibdir", "fepErIRE"),
    "gradle": _Options(
        "--init-script --build-file --project-dir --settings-file --include-build --gradle-user-home",
        "Ibpcg",
    ),
    "mvn": _Options("--file --settings --global-settings --toolchains", "", "-f -s -gs -t"),
    "ssh-keygen": _Options("", "D"),
    "curl": _Options(
        "--output --output-dir --remote-name --remote-name-all --config --upload-file --trace --trace-ascii --libcurl --dump-header"
        " --cookie-jar --stderr --etag-save --hsts --alt-svc --engine",
        "oOKTDcJ",
    ),
    "wget": _Options(
        "--use-askpass --execute --post-file --body-file --input-file --config --output-document --output-file --append-output"
        " --directory-prefix --save-cookies --warc-file --rejected-log --hsts-file",
        "eioaPO",
    ),
    "yq": _Options("--inplace --in-place --split-exp", "is"),
    "xxd": _Options("", "r"),
    "date": _Options("--set", "s"),
    "npm": _PACKAGES,
    "pnpm": _PACKAGES,
    "yarn": _PACKAGES,
    "bun": _Options(f"{_PACKAGES.long} --eval --print --preload --require --import", "Cepr"),
    "mypy": _Options(
        "--config-file --python-executable --custom-typing-module --custom-typeshed-dir --shadow-file --junit-xml --cache-dir"
        " --install-types --non-interactive --any-exprs-report --cobertura-xml-report --html-report --linecount-report"
        " --linecoverage-report --lineprecision-report --txt-report --xml-report --xslt-html-report --xslt-txt-report"
        " --cache-map --line-checking-stats --timing-stats --custom-plugin",
    ),
    "pyright": _Options(
        "--pythonpath --venvpath --venv-path --typeshedpath --typeshed-path --createstub --writebaseline --baselinefile",
        "tv",
    ),
    "ruff": _Options("--output-file --config --cache-dir --extension --add-noqa", "o"),
    "black": _Options("--config --code", "c"),
    "eslint": _Options(
        "--config --rulesdir --plugin --parser --resolve-plugins-relative-to --format --output-file --cache-location --cache-file"
        " --init --inspect-config --mcp --flag --ignore-path --stdin-filename --eslintrc-path",
        "cfo",
    ),
    "prettier": _Options(
        "--config --plugin --plugin-search-dir --cache-location --ignore-path --find-config-path --find-config-file --file-info",
    ),
}
_BY_OPTION["basedpyright"] = _BY_OPTION["pyright"]
_OF_THE_PROJECT = name_set(
    "pytest py.test mypy pyright basedpyright ruff black eslint prettier tsc cargo go npm pnpm yarn bun"
)
"""What a rule lets loose on the project's files: with a word that leads out of it, no rule for less than all its words covers them."""
_GIT_OPTIONS = _Options(
    "--output --ext-diff --textconv --filters --open-files-in-pager --upload-pack --receive-pack --exec --extcmd --template --config"
    " --config-env --output-directory --export-marks --index-output --in-place --separate-git-dir --help"
    " --submodule --ignore-submodules"  # with them, git runs in submodules, by what is configured there
)
_GIT_SUBCOMMANDS = name_set(
    "bisect submodule filter-branch difftool mergetool instaweb web--browse help daemon upload-pack receive-pack shell credential"
    " hook maintenance for-each-repo send-email svn p4 cvsserver remote-ext remote-fd merge-index filter-repo gui citool imap-send"
    " credential-store credential-cache http-backend upload-archive quiltimport"
)
_GIT_TRANSPORTS = name_set("fetch pull push clone ls-remote remote archive fetch-pack send-pack")
_GIT_SUBCOMMAND_OPTIONS = {
    "commit": _Options("--amend --file --template --pathspec-from-file", "Ft"),
    "describe": _Options("--dirty --broken"),
    "switch": _Options(
        "--force --discard-changes --force-create --orphan --merge --conflict", "fCm"
    ),
    "add": _Options("--pathspec-from-file --edit", "e"),
    "apply": _Options("--unsafe-paths --directory"),
    "grep": _Options(letters="O"),
    "rebase": _Options(letters="x"),
    "archive": _Options(letters="o"),
    "clone": _Options(letters="cu"),
    "format-patch": _Options(letters="o"),
    "config": _Options("--edit --file --blob", "ef"),
    "checkout-index": _Options("--prefix"),
    "bugreport": _Options(letters="o"),
    "diagnose": _Options(letters="o"),
}
_SUBMODULE_STATUS = name_set("submodule status --recursive --cached")
_GIT_HARMLESS_KEYS = r"user\.(name|email)|init\.defaultbranch|push\.default|pull\.(rebase|ff)|core\.(autocrlf|eol|quotepath)|(color|advice)\..*"


# --- The first words of a command ---------------------------------------------------------------------------------------------


class _Beginning(msgspec.Struct, frozen=True):
    """The options before a subcommand that matter to nobody, and those that name the directory to run in."""

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
    """A command without the harmless options before its subcommand, and the directories that some of them name (`git -C sub …`)."""
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
    """How many of the first words only say in which environment a program runs: 2 for `uv run pytest`."""
    return max(
        (len(runner) for runner in _RUNNERS if tuple(words[: len(runner)]) == runner), default=0
    )


def runs_more(words: Words) -> str:
    """
    Why the first words of this command do not say what it does; "" if they do.

    It may run another program, write where an option says, or change the shell for what follows.
    """
    if not words or isinstance(words[0], Opaque):
        return "which program it runs is only known when it runs"
    if length := runner_length(words):
        inner = words[length:]
        is_plain = inner and isinstance(inner[0], str) and not inner[0].startswith("-")
        if not is_plain or runner_length(inner):
            return f"'{words[0]}' runs another program"
        return _does_more(str(inner[0]), inner[1:])
    return _does_more(words[0], core_words(words)[0][1:])


def _does_more(program: str, arguments: Words) -> str:
    name = _program(program)
    if name in _WRAPPERS or (name == "env" and arguments):
        return f"'{name}' runs other commands, or changes what they do"
    if check := _CHECKS.get(name):
        return check(arguments)
    options = _BY_OPTION.get(name)
    return options.problem(arguments) if options else ""


def runs_unseen(words: Words) -> bool:
    """Whether it runs what comes in with its input, so that nothing can be said of it (`… | sudo sh`, `xargs bash`)."""
    is_value = False
    words = words[runner_length(words) :]
    for number, word in enumerate(words):
        if isinstance(word, Opaque):
            return False
        name, arguments = _program(word), words[number + 1 :]
        if name in _INTERPRETERS:
            return _reads_its_program(name, arguments)
        if name in ("xargs", "parallel", "source", "."):
            return any(_is_device(argument) or argument in _SHELLS for argument in arguments)
        if name == "command" and arguments[:1] in (("-v",), ("-V",)):
            break
        if not (is_value or name in _WRAPPERS or name == "env" or re.search(r"^[-\d]|=", word)):
            break
        is_value = word.startswith("-")
    return False


def _reads_its_program(name: str, arguments: Words) -> bool:
    problem = _CHECKS[name](arguments)
    has_operand = any(isinstance(word, Opaque) or word[:1] != "-" for word in arguments)
    is_told_to = name in _SHELLS and any(re.fullmatch(r"-\w*s\w*", str(word)) for word in arguments)
    return problem == RUNS_INPUT or (problem != "" and (is_told_to or not has_operand))


def _is_device(word: Word) -> bool:
    return isinstance(word, str) and _DEVICE.match(posixpath.normpath(word)) is not None


def project_words(words: Words) -> Words:
    """The arguments that must not lead out of the project, of a program that works on its files; else none."""
    rest = words[runner_length(words) :]
    name = _program(rest[0]) if rest and isinstance(rest[0], str) else ""
    if name == "python":
        at = rest.index("-m") if "-m" in rest else len(rest)
        rest = rest[at + 1 :]
        name = rest[0] if rest and isinstance(rest[0], str) else ""
    return rest[1:] if name in _OF_THE_PROJECT else ()


def code_files(words: Words) -> tuple[str, ...]:
    """The files and directories whose code a command runs, as far as they are named as such: of `pytest`, an interpreter, `cmake`."""
    arguments = [word for word in words[runner_length(words) :] if isinstance(word, str)]
    name = _program(arguments.pop(0)) if arguments else ""
    if name == "python" and arguments[:2] == ["-m", "pytest"]:
        name, arguments = "pytest", arguments[2:]
    operands = [word for word in arguments if not word.startswith("-")]
    if name in ("pytest", "py.test"):
        return tuple(word.partition("::")[0] for word in operands)
    if name == "cmake":
        attached = (word[2:] for word in arguments if word.startswith(("-S", "-B")))
        return (*operands, *filter(None, attached))
    is_module = operands and "-m" in arguments[: arguments.index(operands[0])]
    return tuple(operands[:1]) if name in _INTERPRETERS and not is_module else ()


def _program(word: str) -> str:
    """The name that a program is known by: without its directory, and without its version (`python3.11`, `lua5.4`, `gcc-12`)."""
    name = word.rpartition("/")[2]
    plain = re.sub(r"(?<=\w|\+)-?\d[\d.]*$", "", name)
    plain = "python" if plain == "pypy" else plain
    return plain if name not in _KNOWN and plain in _KNOWN else name


# --- One check for each program with a language or a mind of its own ------------------------------------------------------------

RUNS_INPUT = "it runs what it reads"
_DEVICE = re.compile(r"(?:/+|(?:\.\./)+)(?:dev|proc)/")


def _interpreter(harmless: str) -> Callable[[Words], str]:
    """The check of a program that runs a file: with no other option before that file than `harmless` ones, and not its input."""
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
                return RUNS_INPUT if _is_device(word) else ""
            if not is_harmless.fullmatch(word):
                return f"'{word[:80]}' can make it run something else"
        needs_no_file = {"--version", "-V", "-v", "--test"}.intersection(map(str, arguments))
        return "" if needs_no_file else RUNS_INPUT

    return check


def _without(options: str, what: str) -> Callable[[Words], str]:
    """The check of a program that is harmless without the options that begin so; `what` these do."""
    is_telling = re.compile(options)

    def check(arguments: Words) -> str:
        for word in arguments:
            if isinstance(word, Opaque):
                if word.can_be_option:
                    return UNKNOWN_OPTION
            elif is_telling.match(word):
                return f"'{word[:80]}' {what}"
        return ""

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
    if module in _OF_THE_PROJECT:
        return _does_more(module, tuple(rest[2:]))
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
    """The tests of the project, by its own configuration. A plugin is any module, and is run; one that is left out (`no:…`) is not."""
    for number, word in enumerate(arguments):
        found = _PLUGIN.fullmatch(word) if isinstance(word, str) else None
        following = arguments[number + 1 : number + 2]
        plugin = (found[1] or (following[0] if following else "")) if found else "no:"
        if not (isinstance(plugin, str) and plugin.startswith("no:")):
            return "a plugin can make it run anything"
    return _pytest_options(arguments)


def _tsc(arguments: Words) -> str:
    """Its options may be written in any case, with one dash or two."""
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
    """Its scripts can write (w) and run (e): only those of a plain kind are known not to."""
    # With more words, what they write to is opened before it is told.
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
    """A program without pipes, redirections, `system`, `getline` and indirect calls only prints."""
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
    """Only `print` writes to where a `>` says; before the first one, that compares."""
    before, print_, after = re.sub(r"\|\||>=", " ", program).partition("print")
    text = before.replace(">", " ") + print_ + after
    return not re.search(r"[|>@`]|system|getline|ARGV|SYMTAB", text)


def _make(arguments: Words) -> str:
    """It takes a variable from any word with a `=`, spaces or not."""
    for word in arguments:
        if isinstance(word, Opaque):
            return UNKNOWN_OPTION
        if "=" in word and not word.startswith("-"):
            return f"'{word[:80]}' sets a variable, which can make it run anything"
    return _Options(
        "--file --makefile --directory --eval --environment-overrides --include-dir", "fCEIeV"
    ).problem(arguments)


_CONTAINER_SUBCOMMANDS = name_set("run exec create debug attach plugin edit proxy context")
_CONTAINER_OPTIONS = _Options(
    "--kubeconfig --context --cluster --server --host --enable-exec --enable-alpha-plugins --exec-command"
)


def _container(arguments: Words) -> str:
    """`docker`: another daemon, and programs in a container, are nobody's first words."""
    if arguments and (isinstance(arguments[0], Opaque) or arguments[0].startswith("-")):
        return "the options before its subcommand can make it act elsewhere"
    if any(isinstance(word, Opaque) or word in _CONTAINER_SUBCOMMANDS for word in arguments):
        return "it runs another program in a container"
    return _CONTAINER_OPTIONS.problem(arguments)


def _git(arguments: Words) -> str:
    subcommand = arguments[0] if arguments else ""
    if isinstance(subcommand, Opaque) or subcommand.startswith("-"):
        is_harmless = subcommand == "--version" and len(arguments) == 1
        return "" if is_harmless else "options before its subcommand can make 'git' run anything"
    is_name = re.fullmatch(r"[a-z][a-z0-9-]*|", subcommand)  # `git a/b` would run ./git-a/b
    if not is_name or (
        subcommand in _GIT_SUBCOMMANDS and not _SUBMODULE_STATUS.issuperset(arguments)
    ):
        return f"'git {subcommand[:80]}' runs other programs"
    if subcommand == "config":
        return _git_config(arguments[1:])
    if subcommand in _GIT_TRANSPORTS and any(isinstance(word, Opaque) for word in arguments):
        return UNKNOWN_OPTION
    if any(isinstance(word, str) and ("ext::" in word or "fd::" in word) for word in arguments):
        return "a transport of 'git' can run anything"
    own = _GIT_SUBCOMMAND_OPTIONS.get(subcommand, _GIT_OPTIONS)
    return _GIT_OPTIONS.problem(arguments) or own.problem(arguments)


def is_config_key(word: Word) -> bool:
    """Whether `git config` with this word alone tells its value."""
    return isinstance(word, str) and re.fullmatch(r"[a-zA-Z][\w-]*\.\S+", word) is not None


def is_harmless_config_key(word: Word) -> bool:
    """Whether what `git config` says of this key, and makes of it, is no secret and runs nothing."""
    return isinstance(word, str) and re.fullmatch(_GIT_HARMLESS_KEYS, word.lower()) is not None


def _git_config(arguments: Words) -> str:
    """What it reads is harmless; of what it sets, a few keys are known to be."""
    if _GIT_OPTIONS.problem(arguments) or _GIT_SUBCOMMAND_OPTIONS["config"].problem(arguments):
        return "its options can make 'git config' write or run something else"
    words = [word for word in arguments if word not in ("--global", "--local")]
    if len(words) == 1 and is_config_key(words[0]):
        return ""
    if words and re.fullmatch(r"--get(-all|-regexp)?|--list|-l|get|list", str(words[0])):
        return ""
    key = words[1] if words[:1] == ["set"] and len(words) > 1 else words[0] if words else ""
    if is_harmless_config_key(key):
        return ""
    return "what 'git config' sets can make 'git' run anything"


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
    """`-v` computes subscripts, which can run commands: a word that may become one must stand where only a value can."""
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
        """What comes after `--` is the script's. To `npm`, an option is one with any number of dashes."""
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if own and own[0] in _PACKAGE_SUBCOMMANDS and "get" not in own[1:2]:
            return f"'{name} {own[0]}' can set anything, or runs other programs"
        dashed = [
            re.sub(r"^-{1,}(?=\w{2})", "--", word) if isinstance(word, str) else word
            for word in own
        ]
        if any(isinstance(word, str) and word.startswith("--config.") for word in own):
            return "its options can set anything"
        if "-" in own:
            return RUNS_INPUT
        return _BY_OPTION[name].problem(own) or _BY_OPTION[name].problem(dashed)

    return check


def _with_option_files(name: str) -> Callable[[Words], str]:
    def check(arguments: Words) -> str:
        """`@FILE` stands for the options that are written there."""
        if any(isinstance(word, str) and word.startswith("@") for word in arguments):
            return "it takes its options from a file"
        return _BY_OPTION[name].problem(arguments)

    return check


def _tar(arguments: Words) -> str:
    """Its first word holds letters even without a dash."""
    letters = arguments[0] if arguments else ""
    if isinstance(letters, Opaque) or re.search(r"[IF]", letters.partition("=")[0]):
        return "its letters can make 'tar' run something"
    return _BY_OPTION["tar"].problem(arguments)


def _uniq(arguments: Words) -> str:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    operands = [
        word
        for word in arguments[:end]
        if isinstance(word, Opaque) or word == "-" or not word.startswith("-")
    ]
    return _writes_second([*operands, *arguments[end + 1 :]])


def _xxd(arguments: Words) -> str:
    """What follows its first file is the second, even with a dash."""
    rest = list(arguments)
    while rest and isinstance(rest[0], str) and re.fullmatch(r"-[a-zA-Z]+\d*", rest[0]):
        del rest[: 2 if rest[0] in ("-c", "-g", "-l", "-n", "-o", "-s") else 1]
    return _writes_second(rest) or _BY_OPTION["xxd"].problem(arguments)


def _writes_second(operands: Words) -> str:
    is_sure = len(operands) <= 1 and not any(isinstance(word, Opaque) for word in operands)
    return "" if is_sure else "it writes to its second file"


_SQLITE_OPTIONS = re.compile(
    r"--?(header|noheader|csv|json|line|list|column|box|table|markdown|html|quote|tabs|readonly|batch|bail)"
)


def _sqlite(arguments: Words) -> str:
    """A database and statements: without them it runs what it reads, and a line with a dot or some functions do anything."""
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
    is_remote = any(isinstance(word, str) and re.match(r"[a-z]+:", word) for word in arguments)
    return "it runs code from elsewhere" if is_remote else ""


def _go(arguments: Words) -> str:
    if any(isinstance(word, str) and "extld" in word for word in arguments):
        return "flags for the linker can make 'go' run anything"
    if arguments[:1] == ("env",) and "-w" in arguments:
        return "it changes what 'go' does from now on"
    names = "exec toolexec vettool modfile overlay gccgoflags compiler pkgdir outputdir C"
    return _Options(
        " ".join(f"--{name}" for name in names.split()),
        words=" ".join(f"-{name}" for name in names.split()),
    ).problem(arguments)


def _compiler(arguments: Words) -> str:
    if any(isinstance(word, str) and word.startswith("@") for word in arguments):
        return "it takes its options from a file"
    return _COMPILER.problem(arguments)


def _curl(arguments: Words) -> str:
    if any(
        isinstance(word, str) and re.search(r"^--expand-|%output\{", word) for word in arguments
    ):
        return "it can write any file"
    return _BY_OPTION["curl"].problem(arguments)


def _wget(arguments: Words) -> str:
    return _BY_OPTION["wget"].problem(
        [word for word in arguments if not (isinstance(word, str) and re.fullmatch(r"-q?O-", word))]
    )


_CMAKE_VALUE = re.compile(
    r"-D(CMAKE_BUILD_TYPE|CMAKE_EXPORT_COMPILE_COMMANDS|(?!CMAKE)\w+)(:\w+)?=(\w*)"
)


def _cmake(arguments: Words) -> str:
    """A definition can name a program; one that is a plain word does not."""
    rest = [
        word for word in arguments if not (isinstance(word, str) and _CMAKE_VALUE.fullmatch(word))
    ]
    return _BY_OPTION["cmake"].problem(rest)


def _rustup(arguments: Words) -> str:
    is_running = any(isinstance(word, Opaque) or word == "run" for word in arguments)
    return "it runs another program" if is_running else ""


def _arch(arguments: Words) -> str:
    return "on some systems, it runs another program" if arguments else ""


def _date(arguments: Words) -> str:
    is_setting = any(
        isinstance(word, str) and re.match(r"\d{4}[\d.]*$", word) for word in arguments
    )
    return "it sets the clock" if is_setting else _BY_OPTION["date"].problem(arguments)


def _hostname(arguments: Words) -> str:
    plain = all(
        isinstance(word, str) and re.fullmatch(r"-[fsdiIA]|--\w+", word) for word in arguments
    )
    return "" if plain else "it sets the name of the machine"


_NODE = _interpreter(r"--version|-v|--test|--check|--watch|--no-warnings")
_CHECKS: dict[str, Callable[[Words], str]] = (
    dict.fromkeys(_SHELLS, _interpreter(r"--version"))
    | dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk)
    | dict.fromkeys(("make", "gmake", "bmake"), _make)
    | dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "lxc"), _container)
    | dict.fromkeys(("test", "["), _test)
    | dict.fromkeys(("find", "gfind"), _find)
    | dict.fromkeys(("sed", "gsed"), _sed)
    | dict.fromkeys(("tar", "gtar", "bsdtar"), _tar)
    | dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _compiler)
    | dict.fromkeys(("pytest", "py.test"), _pytest)
    | dict.fromkeys(("tsc",), _tsc)
    | {name: _with_option_files(name) for name in ("mypy", "ruff", "cargo")}
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
        "git": _git,
        "go": _go,
        "curl": _curl,
        "wget": _wget,
        "cmake": _cmake,
        "rustup": _rustup,
        "arch": _arch,
        "date": _date,
        "hostname": _hostname,
        "printf": _printf,
        "read": _read,
        "uniq": _uniq,
        "xxd": _xxd,
        "sqlite3": _sqlite,
    }
)
_KNOWN = _WRAPPERS | {*_CHECKS, *_BY_OPTION}
_INTERPRETERS = _SHELLS | name_set(
    "python perl ruby node nodejs tsx ts-node php lua luajit julia Rscript"
)


# --- Lines inside of lines ---------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"[\w\])}'\"][\s;&|<>]|[;&|<>$`(]\s*+[\w$'\"]")
"""What makes a word look like a line of its own."""
_ATTACHED = re.compile(r"^-(?:\w|-[\w-]+=)")
"""An option that a line is written right behind: `-c'…'`, `--to-command='…'`."""


def all_commands(parsed: Parsed) -> tuple[tuple[Command, ...], str]:
    """
    The commands of a line with those of the lines that it hands to other programs, and what is not understood in any of them.

    Such lines are `bash -c '…'` and `eval "…"`. For rules that forbid: they look wherever something can be seen.
    """
    found, problem = list(parsed.commands), parsed.problem
    waiting = [(command, 0) for command in parsed.commands]
    lines = 0
    while waiting:
        command, depth = waiting.pop()
        for word in command.words[1:] if runs_more(command.words) else ():
            if not isinstance(word, str) or not _LINE.search(word):
                continue
            lines += 1
            if lines > MAX_NESTED_LINES or depth > MAX_NESTED_DEPTH:
                return tuple(found), problem or "it is nested too deeply"
            inner = parse(_ATTACHED.sub("", word))
            problem = problem or inner.problem
            found += inner.commands
            waiting += [(inside, depth + 1) for inside in inner.commands]
    return tuple(found), problem
