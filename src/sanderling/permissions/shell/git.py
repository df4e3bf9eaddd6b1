"""git: subcommands and options that do more than read or record the project's files."""

import re

from sanderling.permissions.shell.grammar import Opaque, Word, Words, literals
from sanderling.permissions.shell.tables import UNKNOWN_OPTION, ProgramOptions
from sanderling.text import name_set

_OPTIONS = ProgramOptions(
    "--output --ext-diff --textconv --filters --open-files-in-pager --upload-pack --receive-pack --exec --extcmd --template --config"
    " --config-env --output-directory --export-marks --index-output --in-place --separate-git-dir --help"
    " --submodule --ignore-submodules"  # with these, git runs in submodules, with their configuration
)

_SUBCOMMANDS = name_set(
    "bisect submodule filter-branch difftool mergetool instaweb web--browse help daemon upload-pack receive-pack shell credential"
    " hook maintenance for-each-repo send-email svn p4 cvsserver remote-ext remote-fd merge-index filter-repo gui citool imap-send"
    " credential-store credential-cache http-backend upload-archive quiltimport"
)

_TRANSPORTS = name_set("fetch pull push clone ls-remote remote archive fetch-pack send-pack")

_SUBCOMMAND_OPTIONS = {
    "commit": ProgramOptions("--amend --file --template --pathspec-from-file", "Ft"),
    "describe": ProgramOptions("--dirty --broken"),
    "switch": ProgramOptions(
        "--force --discard-changes --force-create --orphan --merge --conflict", "fCm"
    ),
    "add": ProgramOptions("--pathspec-from-file --edit", "e"),
    "apply": ProgramOptions("--unsafe-paths --directory"),
    "grep": ProgramOptions(letters="O"),
    "rebase": ProgramOptions(letters="x"),
    "archive": ProgramOptions(letters="o"),
    "clone": ProgramOptions(letters="cu"),
    "format-patch": ProgramOptions(letters="o"),
    "config": ProgramOptions("--edit --file --blob", "ef"),
    "checkout-index": ProgramOptions("--prefix"),
    "bugreport": ProgramOptions(letters="o"),
    "diagnose": ProgramOptions(letters="o"),
}

_SUBMODULE_STATUS = name_set("submodule status --recursive --cached")

_HARMLESS_KEYS = r"user\.(name|email)|init\.defaultbranch|push\.default|pull\.(rebase|ff)|core\.(autocrlf|eol|quotepath)|(color|advice)\..*"


def git_check(arguments: Words) -> str:
    subcommand = arguments[0] if arguments else ""
    if isinstance(subcommand, Opaque) or subcommand.startswith("-"):
        is_harmless = subcommand == "--version" and len(arguments) == 1
        return "" if is_harmless else "options before its subcommand can make 'git' run anything"
    is_name = re.fullmatch(r"[a-z][a-z0-9-]*|", subcommand)  # `git a/b` would run ./git-a/b
    if not is_name or (subcommand in _SUBCOMMANDS and not _SUBMODULE_STATUS.issuperset(arguments)):
        return f"'git {subcommand[:80]}' runs other programs"
    if subcommand == "config":
        return _config(arguments[1:])
    if subcommand in _TRANSPORTS and any(isinstance(word, Opaque) for word in arguments):
        return UNKNOWN_OPTION
    if any("ext::" in word or "fd::" in word for word in literals(arguments)):
        return "a transport of 'git' can run anything"
    if subcommand == "commit":
        arguments = _without_message_from_input(arguments)
    own = _SUBCOMMAND_OPTIONS.get(subcommand, _OPTIONS)
    return _OPTIONS.problem(arguments) or own.problem(arguments)


def _without_message_from_input(arguments: Words) -> Words:
    """Remove the options that make `git commit` read its message from standard input rather than from a file."""
    rest: list[Word] = []
    for word in arguments:
        if word == "-" and rest and re.fullmatch(r"-[aqsv]*F|--file", str(rest[-1])):
            del rest[-1]
        elif word not in ("-F-", "--file=-"):
            rest.append(word)
    return rest


def is_config_key(word: Word) -> bool:
    """Return True if `git config` with only this word prints a value."""
    return isinstance(word, str) and re.fullmatch(r"[a-zA-Z][\w-]*\.\S+", word) is not None


def is_harmless_config_key(word: Word) -> bool:
    """Return True if the key's value is no secret, and makes git run nothing."""
    return isinstance(word, str) and re.fullmatch(_HARMLESS_KEYS, word.lower()) is not None


def _config(arguments: Words) -> str:
    """Check `git config`: reading is harmless, setting is so only for a few known keys."""
    if _OPTIONS.problem(arguments) or _SUBCOMMAND_OPTIONS["config"].problem(arguments):
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
