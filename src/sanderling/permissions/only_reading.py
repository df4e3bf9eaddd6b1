"""Programs that only read: allowed without a rule, unless their options make them do more."""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from sanderling.paths import is_in_any
from sanderling.permissions.shell.git import is_config_key, is_harmless_config_key
from sanderling.permissions.shell.grammar import Opaque, SimpleCommand, Word, Words, literals
from sanderling.permissions.shell.programs import core_words, runs_more
from sanderling.permissions.use import Use, stays_inside
from sanderling.project.programs import PLACES
from sanderling.sandbox.guard.repositories import has_its_files_around
from sanderling.sandbox.kernel.programs import leads_to_hidden
from sanderling.text import name_set

_READING = name_set(
    "ls cat head tail wc echo printf pwd true false : test [ basename dirname realpath readlink stat file cut tr nl tac rev fold fmt"
    " paste comm join column expand unexpand seq sleep cmp diff md5sum sha1sum sha224sum sha256sum sha384sum sha512sum cksum sum"
    " b2sum od hexdump xxd df du free uptime uname whoami id groups nproc arch which type expr grep egrep fgrep rg fd fdfind find"
    " sort uniq shuf tree jq base64 zcat numfmt tsort locale getconf sed awk gawk mawk nawk read"
)
"""They only read, whatever their arguments are, unless `runs_more` objects."""

_SHOWING_THE_SANDBOX = name_set("env printenv ps")
"""Programs that show the environment they run in, which holds no secrets inside the sandbox."""

_PRINTING = name_set("echo printf true false : pwd sleep seq read")
"""Programs whose words are not files."""

_VERSIONED = name_set(
    "python python3 node ruby perl gcc g++ clang make cmake git docker nvim bash rg jq"
)
"""Programs that print their version before they read anything in the directory: no configuration, plugin or version to switch to."""

_PACKERS = "gzip bzip2 xz lz4 lzip lzma lrzip brotli zstd uncompress"
_HELPERS: Mapping[str, str] = {
    **dict.fromkeys(("egrep", "fgrep"), "grep"),
    **dict.fromkeys(("rg", "file"), _PACKERS),
    "zcat": "gzip",
    "git": "basename envsubst gettext gettext.sh sed uname",
}
"""Programs that others find on PATH: some are scripts, such as `egrep` and `git submodule`."""

_SHIMS = name_set("mise rtx asdf volta-shim rustup proto proto-shim aqua-proxy")
"""Version managers, which run under other programs' names, in the version that a file in the directory asks for."""

_AMONG_INSTALLED = re.compile(r"/\.?(py|rb|nod|j)env/shims/")
"""The shims of managers that know a version only by name, not by path."""

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
"""With one of these, the other words select what is listed; without, git would create them."""

_GIT_PHRASES = {
    "remote": ("get-url",),
    "stash": ("list", "show"),
    "worktree": ("list",),
    "reflog": ("show",),
    "config": ("--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"),
}


def is_read_only(words: Words, use: Use, *, is_confined: bool) -> bool:
    """Return True if the command visibly changes nothing and, without a sandbox, reads nothing outside the project."""
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
    is_reading = name in _READING or (is_confined and name in _SHOWING_THE_SANDBOX)
    return is_reading or (name == "git" and _is_git_reading(words, use, is_confined=is_confined))


def _is_of_the_directory(name: str, use: Use, *, is_confined: bool) -> bool:
    """
    Return True if PATH leads to a program in the project, to one that the project selects, or to one that a command may have made.

    The same holds for programs that it starts. The sandbox may hide the first match; then the next one counts.
    """
    return any(
        _is_chosen_here(found, use, is_confined=is_confined)
        for each in (name, *_HELPERS.get(name, "").split())
        for found in _program_files(each, use)
    )


def _is_chosen_here(found: str, use: Use, *, is_confined: bool) -> bool:
    real = use.disk.real_path(found)
    is_among_installed = is_confined and _AMONG_INSTALLED.search(found)
    return (
        any(is_in_any(path, use.roots) for path in (found, real))
        or real.rpartition("/")[2] in _SHIMS
        or ("/shims/" in found and not is_among_installed)
        or (is_confined and leads_to_hidden(found))
    )


def _program_files(name: str, use: Use) -> Iterator[str]:
    """
    Yield the files that PATH leads to, up to the first that the sandbox cannot hide: system programs are always visible.

    A relative part of PATH counts from every directory where the line may be. The project's own programs come first if it is trusted.
    """
    for place in PLACES:
        if use.disk.is_program(file := f"{use.project}/{place}/{name}"):
            yield file
    for part in os.get_exec_path():
        for directory in use.directories or (use.project,):
            file = os.path.join(directory, part, name)  # noqa: PTH118
            if use.disk.is_program(file):
                found = os.path.normpath(file)
                yield found
                if found.startswith("/usr/") and use.disk.real_path(found).startswith("/usr/"):
                    return


def _only_moves(arguments: Words, use: Use) -> bool:
    operand = arguments[0] if len(arguments) == 1 else Opaque(can_be_option=True)
    return isinstance(operand, str) and operand[:1] not in ("-", "") and stays_inside(use, "")


def _only_looks_up(arguments: Words, _use: Use) -> bool:
    return arguments[:1] in (("-v",), ("-V",)) and all(isinstance(word, str) for word in arguments)


def _only_shows_the_time(arguments: Words, _use: Use) -> bool:
    harmless = r"\+.*|-u|-R|-I[a-z]*|--utc|--iso-8601.*|--rfc-3339=.*|--date=.*"
    return all(isinstance(word, str) and re.fullmatch(harmless, word) for word in arguments)


def _only_shows(pattern: str) -> Callable[[Words, Use], bool]:
    """Return the check of a program that changes nothing if its arguments match `pattern`."""

    def check(arguments: Words, _use: Use) -> bool:
        literal = literals(arguments)
        is_known = len(literal) == len(arguments)
        return is_known and re.fullmatch(pattern, " ".join(literal)) is not None

    return check


_PIP = _only_shows(r"(list|show|freeze|check)( --format=\w+| --local| --user| [\w.]+[\w.-]*)*")

_PYTHON_VERSION = _only_shows(r"-V|--version")

_SPECIAL: dict[str, Callable[[Words, Use], bool]] = {
    "cd": _only_moves,
    "command": _only_looks_up,
    "date": _only_shows_the_time,
    "hostname": _only_shows(r""),
    "node": _only_shows(r"-v"),
    "python": _PYTHON_VERSION,
    "python3": _PYTHON_VERSION,
    "pip": _PIP,
    "pip3": _PIP,
}


def _is_git_reading(words: Words, use: Use, *, is_confined: bool) -> bool:
    """Return True if git only reads. Its configuration can name programs, so unconfined only the project's own repository is trusted."""
    rest, moves = core_words(words)
    if not all(stays_inside(use, move) for move in moves):
        return False
    is_at_root = use.directories in ((use.project,), use.roots) and {*moves} <= {".", use.project}
    if not is_confined and not (is_at_root and has_its_files_around(use.project)):
        return False
    subcommand, arguments = (rest[1] if len(rest) > 1 else ""), rest[2:]
    if isinstance(subcommand, Opaque):
        return False
    if arguments and arguments[0] in _GIT_PHRASES.get(subcommand, ()):
        # Without a sandbox this would show the user's own configuration, which can hold secrets.
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
        # Options that follow links, or name a list of files to read.
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
        # Programs that show more than the project.
        "pip pip3": r"(?!--version$)",
    }.items()
    for name in names.split()
}
"""Words with which a program reads more than the named files."""


def _may_look(name: str, arguments: Words, use: Use) -> bool:
    """
    Return True if everything that a command reads is visibly in the project.

    A word that is known only at run time could be anything, if only a secret of the environment that is printed.
    """
    more = _SEEING_MORE.get(name)
    literal = literals(arguments)
    if len(literal) < len(arguments) or (more and any(map(more.match, literal))):
        return False
    if name == "diff" and any(
        _is_directory(file, use) for word in literal for file in use.files(word)
    ):
        return False  # diff follows the links in them
    return name in _PRINTING or looks_inside((".", *arguments), use)


def _is_directory(file: str, use: Use) -> bool:
    found = use.disk.status(file)
    return found is not None and stat.S_ISDIR(found.st_mode)


def inputs(command: SimpleCommand) -> Words:
    return [found.target for found in command.redirections if found.operator == "<"]


def looks_inside(arguments: Sequence[Word], use: Use) -> bool:
    return all(
        isinstance(word, str)
        and use.directories is not None
        and all(
            file == "/dev/null" or is_in_any(use.disk.real_path(file), use.roots)
            for file in use.files(word)
        )
        for word in arguments
    )
