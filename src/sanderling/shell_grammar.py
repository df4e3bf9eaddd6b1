"""
What a line for the shell says: its commands as words, or why that cannot be told before it runs.

Two readers must agree. tree-sitter's grammar of bash gives the structure; a lexer of a page, which knows only the plain part of
the language, says where each word begins and ends. Grammars for editors guess where a shell is strict, and whoever writes the
line may want exactly that; so what one of them reads differently, or does not know, counts as not understood.

`runs_more` says which commands do more than their first words tell: those that run another, write where an option says, or change
the shell for what follows.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARACTERS = 10_000
MAX_PARTS, MAX_WORDS = 500, 2_000
"""The grammar's time grows with the square of some of a line's operators: 1.1 s for 5,000 pipes, 10 ms for 500."""
MAX_GUESSED = 50_000
"""How much is searched of a line that is too long to be read: enough for what a person's rule forbids to be seen."""
MAX_DEPTH = 100
"""How far a line may be nested before it is not read on."""
MAX_NESTED_LINES, MAX_NESTED_DEPTH = 32, 3
"""How many lines inside of a line (`bash -c '…'`) are looked into, and how deep."""


@dataclass(frozen=True)
class Opaque:
    """A word that the shell makes only when the line runs, of a variable or a glob; it may become several."""

    can_be_option: bool
    can_be_many: bool = True


Word = str | Opaque


@dataclass(frozen=True)
class Redirection:
    """`descriptor` is "" if none is written; `target` is a descriptor, "-", or a file."""

    descriptor: str
    operator: str
    target: Word


@dataclass(frozen=True)
class Command:
    """
    One command of a line, after quote removal.

    Without words it only sets variables, or holds the redirections of a group. `is_guess`: the line has no structure that could be
    read, and a program may be anywhere among these words.
    """

    text: str
    words: tuple[Word, ...] = ()
    assignments: tuple[tuple[str, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    is_guess: bool = False


@dataclass(frozen=True)
class Parsed:
    """
    Every command of a line, wherever it stands. `problem` says why they may not be all, or not the right ones; "" if they are.

    With a problem, `commands` are what could be seen.
    """

    commands: tuple[Command, ...]
    problem: str = ""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def parse(line: str) -> Parsed:
    """The commands of `line`, as bash reads it. Never raises; costs at most some milliseconds."""
    if problem := _unreadable(line):
        return Parsed(_guess(line), problem)
    source = line.encode()
    root = _parser().parse(source).root_node
    if root.has_error:
        return Parsed(_guess(line), "it is not a line that the shell's grammar knows")
    reading = _Reading(source)
    reading.walk(root)
    problem = reading.problem
    if not problem and sorted(reading.spans) != _lex(source):
        problem = BEYOND
    return Parsed(tuple(reading.commands), problem)


# --- What is not even looked at ----------------------------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U0001d173-\U0001d17a\U000e0000-\U0010ffff\ud800-\udfff\ue000-\uf8ff]"
)
_PARTS = re.compile(r"[;&|()<>{}`$\[=]")
_QUOTES = re.compile(r"['\"\\]")
_BETWEEN_COMMANDS = re.compile(r"[;&|()<>`{}\n]")


def _unreadable(line: str) -> str:
    if len(line) > MAX_CHARACTERS:
        return f"it is longer than {MAX_CHARACTERS:,} characters"
    if _CONTROL.search(line):
        return "it holds control characters"
    if _INVISIBLE.search(line):
        return "it holds characters that are invisible or change the direction of text"
    words = len(line.split()) + len(_QUOTES.findall(line))
    if len(_PARTS.findall(line)) > MAX_PARTS or words > MAX_WORDS:
        return "it has too many parts"
    if "\\\n" in line:
        return "it continues a line with a backslash"
    return ""


def _guess(line: str) -> tuple[Command, ...]:
    """What may be commands in a line without a structure that can be read."""
    pieces = _BETWEEN_COMMANDS.split(_QUOTES.sub("", line[:MAX_GUESSED]))
    return tuple(
        Command(piece.strip()[:200], tuple(words), is_guess=True)
        for piece in pieces
        if (words := piece.split())
    )


# --- The lexer: the plain part of the language -----------------------------------------------------------------------------------

_VARIABLE = rb"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\?)"
_IN_QUOTES = rb"[^\"\\$`]|\\.|" + _VARIABLE + rb"|\$(?![\w({\[@*#?$!-])"
_PIECE = rb"(?:[^\s;&|()<>'\"\\`$]|\\.|'[^']*'|\"(?:" + _IN_QUOTES + rb")*+\"|" + _VARIABLE + rb")"
_WORD = re.compile(rb"(?s)" + _PIECE + rb"++")
_TOKEN = re.compile(
    rb"(?s)(?P<blank>[ \t\n]++)|(?P<comment>\#[^\n]*+)|(?P<descriptor>\d++(?=[<>]))"
    rb"|(?P<operator>[<>]&-|&&|\|\||;;&|;&|;;|\|&|&>>|&>|>>|>&|<&|>\||[;|()<>])"
    rb"|(?P<word>" + _PIECE + rb"++)"
)

Span = tuple[int, int]


def _lex(source: bytes) -> list[Span] | None:
    """Where the words, operators and comments are; None if there is something that is none of them."""
    spans: list[Span] = []
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            return None
        if found.lastgroup != "blank":
            spans.append(found.span())
        at = found.end()
    return spans


# --- Quote removal ---------------------------------------------------------------------------------------------------------------

_PART = re.compile(
    rb"(?s)'(?P<single>[^']*)'|\"(?P<double>(?:" + _IN_QUOTES + rb")*+)\""
    rb"|\\(?P<escaped>.)|(?P<variable>" + _VARIABLE + rb")|(?P<bare>[^'\"\\$`]++)"
)
_ESCAPED_OR_VARIABLE = re.compile(rb"\\([\"\\$`])|(" + _VARIABLE + rb")")
_GLOB = re.compile(rb"[*?\[]")
_HARMLESS_BRACES = re.compile(rb"[^{}]*+(?:\{\w*\}[^{}]*+)*+")
"""What bash leaves alone: `{}` and `HEAD@{1}`, without a comma or a range in them."""
_PLAIN_START = re.compile(rb"\"?[\w./:@%+,]")


def _unquote(raw: bytes) -> Word:
    """The word that `raw` stands for; opaque as soon as anything in it is made by the shell."""
    if not _WORD.fullmatch(raw):
        return Opaque(can_be_option=True)
    text, is_known, is_split, has_glob = b"", True, False, False
    for part in _PART.finditer(raw):
        match part.lastgroup:
            case "double":
                found = _ESCAPED_OR_VARIABLE.finditer(part["double"])
                is_known &= all(escape[2] is None for escape in found)
                text += _ESCAPED_OR_VARIABLE.sub(rb"\1", part["double"])
            case "variable":
                is_known, is_split = False, is_split or part[0] != b"$?"
            case "bare":
                has_glob |= raw != b"[" and _GLOB.search(part[0]) is not None
                text += part[0]
            case _:
                text += part["single"] or part["escaped"] or b""
    if is_known and not has_glob:
        return text.decode(errors="replace")
    return Opaque(
        can_be_option=is_split or not _PLAIN_START.match(raw),
        can_be_many=is_split or has_glob,
    )


def _oddity(raw: bytes) -> str:
    """What the shell may do to this word beyond removing quotes; "" if nothing."""
    if not _WORD.fullmatch(raw):
        return BEYOND
    if raw.startswith(b"="):
        return "some shells look up a program for a word that begins with '='"
    for part in _PART.finditer(raw):
        if part["bare"] and not _HARMLESS_BRACES.fullmatch(part["bare"]):
            return "it uses brace expansion"
    return ""


# --- The structure -----------------------------------------------------------------------------------------------------------------

BEYOND = "it uses more of the shell's language than is understood"
_STRUCTURE = _names(
    "program list pipeline subshell compound_statement if_statement elif_clause else_clause for_statement while_statement do_group"
    " case_statement case_item negated_command redirected_statement file_redirect variable_assignments"
    " unary_expression binary_expression negated_expression"
)
_COMMANDS = _names("command declaration_command unset_command test_command")
_ATOMS = _names(
    "command_name word string raw_string concatenation number simple_expansion expansion variable_assignment variable_name"
    " test_operator extglob_pattern file_descriptor comment"
)
_INSIDE_WORDS = _ATOMS | {"string_content", "special_variable_name"}
_PROBLEMS = {
    "command_substitution": "it runs a command inside of a word",
    "process_substitution": "it runs a command in the place of a file",
    "arithmetic_expansion": "it computes, which can run commands",
    "function_definition": "it defines a function",
    "heredoc_redirect": "it holds a here-document",
    "herestring_redirect": "it holds a here-string",
    "c_style_for_statement": "it computes, which can run commands",
    "subscript": "it uses arrays, whose subscripts can run commands",
    "array": "it uses arrays, whose subscripts can run commands",
    "ansi_c_string": "it holds a $'…' string",
    "translated_string": 'it holds a $"…" string',
    "brace_expression": "it uses brace expansion",
}
_LEAF_PROBLEMS = {
    "&": "it leaves a command running in the background",
    "[[": "it uses [[ ]], which can run commands",
    "((": "it computes, which can run commands",
    "select": "it asks with a menu",
}
_NAME = re.compile(r"[\w./+:@%-]+|\[", re.ASCII)
_ASSIGNMENT = re.compile(rb"(?s)([A-Za-z_]\w*)=(.*)")


class _Reading:
    """A walk over the tree: what it says, with the spans of all that was understood."""

    def __init__(self, source: bytes) -> None:
        self.commands: list[Command] = []
        self.spans: list[Span] = []
        self.problem = ""
        self._source = source

    def walk(self, root: "Node") -> None:
        """Without recursion: a line may be nested deeper than Python's stack."""
        waiting = [(root, 0, False)]
        while waiting:
            node, depth, is_in_word = waiting.pop()
            if depth > MAX_DEPTH:
                self._doubt("it is nested too deeply")
                continue
            is_atom = node.type in _ATOMS or not node.is_named
            self._look_at(node, is_atom=is_atom, is_in_word=is_in_word)
            # The last first: what is popped, and so reported, comes in the line's order.
            waiting += [
                (child, depth + 1, is_in_word or is_atom) for child in reversed(node.children)
            ]

    def _look_at(self, node: "Node", *, is_atom: bool, is_in_word: bool) -> None:
        if node.type in _COMMANDS:
            self.commands.append(self._command(node))
        elif node.type == "redirected_statement" and node.children[0].type not in _COMMANDS:
            self.commands.append(Command(self._text(node), redirections=self._redirections(node)))
        elif node.type in ("variable_assignment", "for_statement"):
            self._set_variable(node)
        if node.type in _PROBLEMS:
            self._doubt(_PROBLEMS[node.type])
        elif is_in_word:
            if node.is_named and node.type not in _INSIDE_WORDS:
                self._doubt(BEYOND)
        elif is_atom:
            self._atom(node)
        elif node.type not in _STRUCTURE | _COMMANDS:
            self._doubt(BEYOND)

    def _atom(self, node: "Node") -> None:
        raw = self._raw(node)
        if not raw or raw == b"\n":
            return
        self.spans.append((node.start_byte, node.end_byte))
        if not node.is_named:
            self._doubt(_LEAF_PROBLEMS.get(node.type, ""))
        elif node.type != "comment":
            self._doubt(_oddity(raw))

    def _command(self, node: "Node") -> Command:
        words: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        for child in node.children:
            if child.type == "variable_assignment" and node.type == "command":
                assignments.append(self._assignment(child))
            elif child.type != "file_redirect":
                words += [_unquote(self._raw(atom)) for atom in _atoms(child)]
        if node.type == "command":
            self._check_name(words)
        redirections = self._redirections(node)
        if node.parent is not None and node.parent.type == "redirected_statement":
            redirections += self._redirections(node.parent)
        return Command(self._text(node), tuple(words), tuple(assignments), redirections)

    def _check_name(self, words: "Words") -> None:
        name = words[0] if words else ""
        if isinstance(name, Opaque):
            self._doubt("which program it runs is only known when it runs")
        elif not _NAME.fullmatch(name):
            self._doubt("the name of its program is not plain")

    def _set_variable(self, node: "Node") -> None:
        """A variable set by itself, or by a loop; what stands before a command is that command's."""
        if node.type == "for_statement":
            names = [child for child in node.children if child.type == "variable_name"]
            assigned = [(self._text(name), Opaque(can_be_option=True)) for name in names]
        elif node.parent is not None and node.parent.type in _COMMANDS:
            return
        else:
            assigned = [self._assignment(node)]
        self.commands.append(Command(self._text(node), assignments=tuple(assigned)))

    def _assignment(self, node: "Node") -> tuple[str, Word]:
        found = _ASSIGNMENT.fullmatch(self._raw(node))
        if found is None:
            self._doubt("it sets a variable in a way that is not understood")
            return "", Opaque(can_be_option=True)
        return found[1].decode(), _unquote(found[2]) if found[2] else ""

    def _redirections(self, node: "Node") -> tuple[Redirection, ...]:
        found = (child for child in node.children if child.type == "file_redirect")
        return tuple(map(self._redirection, found))

    def _redirection(self, node: "Node") -> Redirection:
        descriptor, operator = "", ""
        targets: list[bytes] = []
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = self._text(child)
            elif not child.is_named:
                operator = self._text(child)
            else:
                targets.append(self._raw(child))
        # The grammar takes words behind a redirection, and numbers before it, for a part of it; bash takes them for arguments.
        if len(targets) != (not operator.endswith("-")):
            self._doubt("words follow a redirection")
        if not (descriptor == "" or descriptor.isdecimal()):
            self._doubt(BEYOND)
        # Behind these, bash takes a "-" for a word of its own, and expands even what stands in single quotes.
        if operator in (">&", "<&") and any(re.search(rb"^-|[$`\\]", raw) for raw in targets):
            self._doubt(BEYOND)
        return Redirection(descriptor, operator, _unquote(targets[0]) if targets else "")

    def _doubt(self, problem: str) -> None:
        """Note a problem; the first that says what it is stays."""
        if problem and self.problem in ("", BEYOND):
            self.problem = problem

    def _raw(self, node: "Node") -> bytes:
        return self._source[node.start_byte : node.end_byte]

    def _text(self, node: "Node") -> str:
        return self._raw(node).decode(errors="replace")


def _atoms(node: "Node") -> "Iterator[Node]":
    """The words below `node`, in their order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node.type in _STRUCTURE:
            waiting += reversed(node.children)
        elif node.end_byte > node.start_byte:
            yield node


@cache
def _parser() -> "Parser":
    # Up to 55 ms and 2 MB, paid by the first command and not by the start.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


# --- Commands that do more than their first words say --------------------------------------------------------------------------

_WRAPPERS = _names(
    # Programs that run another.
    "timeout nice nohup sudo doas su xargs watch ionice setsid stdbuf time strace ltrace gdb ssh parallel sem flock chroot unshare"
    " nsenter busybox toybox runuser pkexec systemd-run script expect chrt taskset numactl unbuffer dbus-run-session firejail bwrap"
    " proot fakeroot start-stop-daemon run-parts entr at batch crontab screen tmux rlwrap valgrind perf hyperfine caffeinate"
    " torsocks proxychains proxychains4 chronic ifne pee sg newgrp setarch linux32 linux64 prlimit capsh setpriv socat xvfb-run"
    " choom cgexec faketime dtach daemonize direnv sshpass mosh rsh telnet nc ncat netcat dc ld.so"
    # Programs that a person talks to: they run what they are told.
    " vim vi view nvim ex rvim gvim vimdiff emacs emacsclient ed nano pico less more most man info ftp sftp lftp top htop"
    # Parts of the shell that run words, or change what words mean from here on.
    " command builtin exec eval source . coproc trap alias unalias set shopt enable hash declare typeset export readonly local unset"
    " let getopts bind complete compgen compopt fc history mapfile readarray pushd popd dirs logout suspend emulate zmodload"
    " autoload print noglob nocorrect"
)
_SHELLS = _names("bash sh dash zsh ksh mksh ash fish csh tcsh rbash pwsh nu xonsh elvish")
_RUNNERS = [
    tuple(words.split())
    for words in re.split(
        r",\s*",
        "uv run, poetry run, pipenv run, pdm run, hatch run, rye run, bundle exec, npx, npm exec, npm x, pnpm exec, pnpm dlx, pnpx,"
        "yarn exec, yarn dlx, bunx, bun x, uvx, uv tool run, pipx run, conda run, mamba run, mise exec, asdf exec, rustup run,"
        "nix run, nix shell, nix develop, nix-shell, opam exec, stack exec, cabal exec, dotenv run, doppler run, op run, tox exec",
    )
]
"""Programs that run another in an environment of its own: that one is judged like any other, by a rule that names it."""

Words = Sequence[Word]
UNKNOWN_OPTION = "one of its arguments is only known when it runs, and may be an option"


@dataclass(frozen=True)
class _Options:
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
    "--script-shell --shell --node-options --prefix --userconfig --globalconfig --cwd --dir", "C"
)
_BY_OPTION = {
    "fd": _Options("--exec --exec-batch", "xX"),
    "fdfind": _Options("--exec --exec-batch", "xX"),
    "rg": _Options("--pre --hostname-bin"),
    "sort": _Options("--output --compress-program", "o"),
    "shuf": _Options("--output", "o"),
    "tree": _Options("", "oR"),
    "file": _Options("--compile --magic-file --no-sandbox", "CmS"),
    "tar": _Options(
        "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command --rmt-command",
        "IF",
    ),
    "rsync": _Options("--rsh --rsync-path", "e"),
    "zip": _Options("--unzip-command --test", "T", "-TT"),
    "split": _Options("--filter"),
    "ctest": _Options("--script --build-and-test", "S"),
    "cmake": _Options("", "PEC"),
    "cargo": _Options("--config"),
    "pytest": _Options("--basetemp --pastebin"),
    "go": _Options(
        "--exec --toolexec --vettool --modfile --overlay",
        words="-exec -toolexec -vettool -modfile -overlay",
    ),
    "gcc": _Options("", "B", "-wrapper -fplugin"),
    "curl": _Options(
        "--output --output-dir --remote-name --remote-name-all --config --upload-file --trace --trace-ascii --libcurl --dump-header"
        " --cookie-jar --stderr --etag-save --hsts --alt-svc",
        "oOKTDcJ",
    ),
    "wget": _Options("--use-askpass --execute --post-file --body-file --input-file --config", "ei"),
    "yq": _Options("--inplace --in-place --split-exp", "is"),
    "xxd": _Options("", "r"),
    "date": _Options("--set", "s"),
    "kubectl": _Options("--kubeconfig"),
    "psql": _Options("--output --log-file --file --command", "oLfc"),
    "sqlite3": _Options("", "", "-cmd -init"),
    "npm": _PACKAGES,
    "pnpm": _PACKAGES,
    "yarn": _PACKAGES,
    "bun": _Options(f"{_PACKAGES.long} --eval --print --preload --require --import", "Cepr"),
}
_GIT_OPTIONS = _Options(
    "--output --ext-diff --textconv --filters --open-files-in-pager --upload-pack --receive-pack --exec --extcmd --template --config"
    " --config-env --output-directory"
)
_GIT_SUBCOMMANDS = _names(
    "bisect submodule filter-branch difftool mergetool instaweb web--browse help daemon upload-pack receive-pack shell credential"
    " hook maintenance for-each-repo send-email svn p4 cvsserver"
)
_GIT_SUBCOMMAND_OPTIONS = {
    "grep": _Options(letters="O"),
    "rebase": _Options(letters="x"),
    "archive": _Options(letters="o"),
    "clone": _Options(letters="cu"),
    "format-patch": _Options(letters="o"),
    "config": _Options("--edit", "e"),
}
_GIT_HARMLESS = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"})


def git_words(words: Words) -> tuple[Words, tuple[str, ...]]:
    """`git …` without the harmless options before its subcommand, and the directories that `-C` names among them."""
    if not words or words[0] != "git":
        return words, ()
    rest, directories = list(words[1:]), list[str]()
    while rest:
        if rest[0] in _GIT_HARMLESS:
            del rest[0]
        elif rest[0] == "-C" and len(rest) > 1 and isinstance(rest[1], str):
            directories.append(rest[1])
            del rest[:2]
        else:
            break
    return ("git", *rest), tuple(directories)


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
        if not inner or isinstance(inner[0], Opaque) or inner[0].startswith("-"):
            return f"'{words[0]}' runs another program"
        return runs_more(inner)
    name = _program(words[0])
    if name in _WRAPPERS or (name == "env" and len(words) > 1):
        return f"'{name}' runs other commands, or changes what they do"
    if check := _CHECKS.get(name):
        return check(git_words(words)[0][1:])
    options = _BY_OPTION.get(name)
    return options.problem(words[1:]) if options else ""


def _program(word: str) -> str:
    name = word.rpartition("/")[2]
    return "python" if re.fullmatch(r"(python|pypy)[\d.]*", name) else name


def _interpreter(harmless: str) -> Callable[[Words], str]:
    """The check of a program that runs a file: with no other option before that file than `harmless` ones, and not its input."""
    is_harmless = re.compile(harmless)

    def check(arguments: Words) -> str:
        for word in arguments:
            if isinstance(word, Opaque):
                return UNKNOWN_OPTION if word.can_be_option else ""
            if not word.startswith(("-", "+")):
                return ""
            if not is_harmless.fullmatch(word):
                return f"'{word[:80]}' can make it run something else"
        needs_no_file = {"--version", "-V", "-v", "--test"}.intersection(map(str, arguments))
        return "" if needs_no_file else "it runs what it reads"

    return check


_PYTHON_OPTIONS = r"-[uBOsSEIPq]+|-W[a-z]+|--version|-V"
_PYTHON_WRAPPERS = _names("timeit trace pdb code cProfile profile runpy coverage debugpy viztracer")


def _python(arguments: Words) -> str:
    rest = list(arguments)
    while rest and isinstance(rest[0], str) and re.fullmatch(_PYTHON_OPTIONS, rest[0]):
        del rest[0]
    if rest[:1] != ["-m"]:
        return _interpreter(_PYTHON_OPTIONS)(arguments)
    module = rest[1] if len(rest) > 1 else Opaque(can_be_option=True)
    if isinstance(module, Opaque):
        return UNKNOWN_OPTION
    if module == "pytest":
        return _BY_OPTION["pytest"].problem(rest[2:])
    return f"'{module[:80]}' runs other code" if module in _PYTHON_WRAPPERS else ""


def _find(arguments: Words) -> str:
    for word in arguments:
        if isinstance(word, Opaque):
            if word.can_be_option:
                return UNKNOWN_OPTION
        elif re.match(r"-(exec|ok|delete|fprint|fls)", word):
            return f"'{word[:80]}' makes 'find' run or write something"
    return ""


_SED_SCRIPT = re.compile(
    r"(?:(?:\d+|\$|/[^/\\\n]*/)(?:,(?:\d+|\$|/[^/\\\n]*/))?)?!?(?:[pdq=]|s(?P<mark>[/|#,])[^\n\\/|#,]*(?P=mark)[^\n\\/|#,]*(?P=mark)[gpiI\d]*)"
)


def _sed(arguments: Words) -> str:
    """Its scripts can write (w) and run (e): only those of a plain kind are known not to."""
    scripts: list[str] = []
    is_script_next, has_expression = False, False
    for word in arguments:
        if isinstance(word, Opaque):
            if word.can_be_option or is_script_next or not scripts:
                return UNKNOWN_OPTION
        elif is_script_next or (not word.startswith("-") and not scripts and not has_expression):
            scripts.append(word)
            is_script_next = False
        elif word in ("-e", "-ne", "-nE", "-nre", "-Ee"):
            has_expression = True
            is_script_next = "e" in word
        elif word.startswith("-") and not re.fullmatch(r"-[nErsuz]+|--quiet|--version", word):
            return f"'{word[:80]}' can make 'sed' write or run something"
    pieces = [piece.strip() for script in scripts for piece in script.split(";")]
    if all(_SED_SCRIPT.fullmatch(piece) for piece in pieces):
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
            is_plain = not re.search(r"[|>@`]|system|getline", word)
            return "" if is_plain else "a program for 'awk' can write files and run commands"
        elif not is_value and not word.startswith(("-F", "-v")):
            return f"'{word[:80]}' can make it run or write something else"
        is_value = not is_value and word in ("-F", "-v")
    return "it runs what it reads"


def _make(arguments: Words) -> str:
    for word in arguments:
        if isinstance(word, str) and re.match(r"[^-\s][^=\s]*=", word):
            return f"'{word[:80]}' sets a variable, which can make it run anything"
    return _Options(
        "--file --makefile --directory --eval --environment-overrides --include-dir", "fCEIe"
    ).problem(arguments)


def _container(arguments: Words) -> str:
    """`docker`: another daemon, and programs in a container, are nobody's first words."""
    if arguments and (isinstance(arguments[0], Opaque) or arguments[0].startswith("-")):
        return "the options before its subcommand can make it act elsewhere"
    for word in arguments[:4]:
        if isinstance(word, Opaque) or word in ("run", "exec"):
            return "it runs another program in a container"
    return ""


def _git(arguments: Words) -> str:
    subcommand = arguments[0] if arguments else ""
    if isinstance(subcommand, Opaque) or subcommand.startswith("-"):
        is_harmless = subcommand == "--version" and len(arguments) == 1
        return "" if is_harmless else "options before its subcommand can make 'git' run anything"
    if subcommand in _GIT_SUBCOMMANDS:
        return f"'git {subcommand}' runs other programs"
    if any(isinstance(word, str) and ("ext::" in word or "fd::" in word) for word in arguments):
        return "a transport of 'git' can run anything"
    own = _GIT_SUBCOMMAND_OPTIONS.get(subcommand, _GIT_OPTIONS)
    return _GIT_OPTIONS.problem(arguments) or own.problem(arguments)


_PRINTS_INTO_A_VARIABLE = re.compile(r"%[-+ #0]*+[\d*]*+(?:\.[\d*]*+)?+[hlLjzt]*+n")


def _printf(arguments: Words) -> str:
    first = arguments[0] if arguments else ""
    if isinstance(first, Opaque):
        return UNKNOWN_OPTION
    if first.startswith("-") or _PRINTS_INTO_A_VARIABLE.search(first):
        return "'printf' sets a variable"
    return ""


_COMPARISONS = _names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")
_TESTS = _names("-e -f -d -r -w -x -s -L -h -n -z -t -b -c -p -S -O -G")


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


def _package_manager(name: str) -> Callable[[Words], str]:
    def check(arguments: Words) -> str:
        """What comes after `--` is the script's."""
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        return _BY_OPTION[name].problem(own)

    return check


def _tar(arguments: Words) -> str:
    """Its first word holds letters even without a dash."""
    if (
        arguments
        and isinstance(arguments[0], str)
        and re.search(r"[IF]", arguments[0].partition("=")[0])
    ):
        return "its letters can make 'tar' run something"
    return _BY_OPTION["tar"].problem(arguments)


def _operands(most: int, options: _Options | None = None) -> Callable[[Words], str]:
    """The check of a program that writes to its second file."""

    def check(arguments: Words) -> str:
        operands = [
            word
            for word in arguments
            if isinstance(word, Opaque) or word == "-" or not word.startswith("-")
        ]
        if len(operands) > most or any(isinstance(word, Opaque) for word in operands):
            return "it writes to its second file"
        return options.problem(arguments) if options else ""

    return check


def _sqlite(arguments: Words) -> str:
    if any(isinstance(word, str) and word.lstrip().startswith(".") for word in arguments):
        return "its dot commands can run and write anything"
    return _BY_OPTION["sqlite3"].problem(arguments)


def _deno(arguments: Words) -> str:
    return "it runs code" if not arguments or arguments[0] in ("eval", "repl") else ""


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


_CHECKS: dict[str, Callable[[Words], str]] = (
    dict.fromkeys(_SHELLS, _interpreter(r"--version"))
    | dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk)
    | dict.fromkeys(("make", "gmake", "bmake"), _make)
    | dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "lxc"), _container)
    | dict.fromkeys(("test", "["), _test)
    | {name: _package_manager(name) for name in ("npm", "pnpm", "yarn", "bun")}
    | dict.fromkeys(
        ("perl", "lua", "luajit", "Rscript", "osascript", "tclsh", "guile"),
        _interpreter(r"--version|-v"),
    )
    | {
        "python": _python,
        "node": _interpreter(r"--version|-v|--test|--check|--watch|--no-warnings"),
        "nodejs": _interpreter(r"--version|-v|--test|--check|--watch|--no-warnings"),
        "ruby": _interpreter(r"--version|-[wc]+"),
        "php": _interpreter(r"--version|-l"),
        "deno": _deno,
        "find": _find,
        "gfind": _find,
        "sed": _sed,
        "gsed": _sed,
        "git": _git,
        "date": _date,
        "hostname": _hostname,
        "printf": _printf,
        "read": _read,
        "tar": _tar,
        "gtar": _tar,
        "bsdtar": _tar,
        "uniq": _operands(1),
        "xxd": _operands(1, _BY_OPTION["xxd"]),
        "sqlite3": _sqlite,
    }
)


def is_plain_variable(name: str) -> bool:
    """Whether nothing but the line itself looks at this variable: those that mean something are written otherwise."""
    return re.fullmatch(r"[a-z][a-z0-9]{0,30}", name) is not None and name not in _SPECIAL_VARIABLES


_SPECIAL_VARIABLES = _names("path cdpath fpath manpath mailpath histchars prompt psvar status argv")


# --- Lines inside of lines ---------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"[\w\])}'\"][\s;&|<>]|[;&|<>$`(]\s*+[\w$'\"]")
"""What makes a word look like a line of its own."""


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
            inner = parse(word)
            problem = problem or inner.problem
            found += inner.commands
            waiting += [(inside, depth + 1) for inside in inner.commands]
    return tuple(found), problem
