"""Git's settings: which of them can run code, and which files with secrets are not in the repository."""

import os
import re
import shlex
import time
from collections.abc import Iterator
from itertools import pairwise

from sanderling.sandbox.guard.git_program import GIT_TIMEOUT_S, TrustedGit
from sanderling.sandbox.guard.repositories import MAX_CONFIG_BYTES, Survey, read_file

PUBLIC_ENV_ENDINGS = (".example", ".sample", ".template", ".dist")

VARIABLES = {
    "GIT_EXTERNAL_DIFF": "diff.external",
    "GIT_EDITOR": "core.editor",
    "GIT_SEQUENCE_EDITOR": "sequence.editor",
    "GIT_PAGER": "core.pager",
    "GIT_SSH": "core.sshcommand",
    "GIT_SSH_COMMAND": "core.sshcommand",
    "GIT_ASKPASS": "core.askpass",
    "GIT_PROXY_COMMAND": "core.gitproxy",
    "GIT_TEMPLATE_DIR": "init.templatedir",
}
"""The variables of the user's environment that git takes for a setting. It reads those named GIT_CONFIG_* itself."""
IN_NO_WORKTREE = ("alias.", "include.", "includeif.", "safe.", "url.", "http.")
"""Sections of the user's own settings that run nothing from the current repository, unless the user types it."""
_MAY_BE_RELATIVE = re.compile(
    r"(?:^|[\s\"'=;&|<(])[\w.@+-]+/|\$|`|\b(?:sh|bash|dash|zsh|source|python[\d.]*|node|ruby|perl)[\"']?[\s<]"
)
_OPTION_THAT_RUNS = re.compile(r"-x|-O|--(?:ex|op|up|rec|[\w-]+-(?:cmd|filter)\b)|(?:foreach|run)$")
"""Of git's own commands: `rebase --exec`, `difftool --extcmd`, `grep --open-files-in-pager`, `fetch --upload-pack`, `bisect run`."""
INERT = {
    "advice": "*",
    "author": "*",
    "branch": "*",
    "color": "*",
    "committer": "*",
    "core": "abbrev attributesfile autocrlf bare bigfilethreshold checkstat commitgraph compression deltabasecachelimit eol"
    " excludesfile filemode hidedotfiles ignorecase ignorestat logallrefupdates longpaths loosecompression multipackindex"
    " notesref packedgitlimit packedgitwindowsize precomposeunicode preloadindex protecthfs protectntfs quotepath"
    " repositoryformatversion safecrlf sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks trustctime"
    " untrackedcache warnambiguousrefs whitespace",
    "diff": "algorithm colormoved ignoresubmodules mnemonicprefix noprefix renames submodule",
    "extensions": "compatobjectformat noop objectformat preciousobjects refstorage relativeworktrees worktreeconfig",
    "fetch": "*",
    "gc": "auto autodetach autopacklimit pruneexpire reflogexpire worktreepruneexpire",
    "i18n": "*",
    "index": "*",
    "init": "defaultbranch",
    "lfs": "access locksverify repositoryformatversion",
    "log": "*",
    "merge": "conflictstyle ff renames",
    "pull": "*",
    "push": "*",
    "rebase": "*",
    "remote": "fetch followremotehead mirror prune prunetags push pushurl skipdefaultupdate skipfetchall tagopt url",
    "rerere": "*",
    "status": "*",
    "submodule": "active alternateerrorstrategy alternatelocation branch fetchrecursesubmodules ignore path"
    " propagatebranches recurse shallow url",
    "tag": "*",
    "user": "*",
}
"""
Settings that run nothing, by section (`*`: all of them). An allow-list, because git keeps gaining new ways to run something.

`remote.*.url` may be `ext::COMMAND`, but git refuses that unless `protocol.ext.allow` is set. A promisor remote (`remote.*.promisor`,
`extensions.partialClone`) is missing here, because a mere `git status` asks it for missing objects. The guard checks where
`core.worktree` points.
"""


def is_inert(key: str) -> bool:
    section, _, rest = key.partition(".")
    names = INERT.get(section, "")
    return names == "*" or rest.rpartition(".")[2] in names.split()


def runs_of_alias(value: str) -> Iterator[tuple[str, str]]:
    """Yield the key and value of each setting that an alias of git's own commands makes, and itself, by "alias.", if its options run something."""
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    for option, word in pairwise(words):
        key, _, setting = word.partition("=")
        if option == "-c":
            yield key.lower(), setting
    if any(map(_OPTION_THAT_RUNS.match, words)):
        yield "alias.", value


def may_run_something(content: bytes) -> bool:
    """Check quickly whether a config may run something, with false positives. Used for configs that only the user could write."""
    section = ""
    for line in os.fsdecode(content).lower().splitlines():
        text = line.strip()
        if text.endswith("\\"):
            return True  # the value may continue on the next line
        if text.startswith("["):
            section = text.strip("[]").partition(" ")[0]
            if text.find("]") != len(text) - 1:
                return True
        elif text and text[0] not in "#;":
            name = text.partition("=")[0].strip()
            if not is_inert(f"{section}.{name}"):
                return True
    return False


def executable_settings(content: bytes, git: TrustedGit) -> frozenset[str]:
    """
    Return the settings of a config that may run something: includes, and everything not known as harmless.

    Git itself parses it, so that both read it the same way. `?` means that git cannot parse it.
    """
    arguments = ("config", "--no-includes", "--file", "-", "--list", "-z")
    listed = git.run(*arguments, cwd="/", stdin=content, is_bare=True)
    if listed is None:
        return frozenset("?")
    settings = os.fsdecode(listed).split("\0")
    return frozenset(
        setting for setting in settings if setting and not is_inert(setting.partition("\n")[0])
    )


def settings_of(git: TrustedGit, *arguments: str, cwd: str = "/") -> Iterator[tuple[str, str, str]]:
    """Yield the origin, key and value of each setting that `git config` lists."""
    arguments = ("config", *arguments, "--show-origin", "--list", "-z")
    fields = os.fsdecode(git.run(*arguments, cwd=cwd) or b"").split("\0")
    for origin, setting in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = setting.partition("\n")
        yield origin.removeprefix("file:"), key, value


def relative_settings(git: TrustedGit) -> tuple[tuple[str, str], ...]:
    """
    Return the key and value of the user's own settings that may run code from the current repository.

    They contain a path relative to the top of the worktree, which is a different file in each repository.
    """
    return tuple(
        (key, value)
        for _, key, value in settings_of(git, cwd="/")
        if not is_inert(key) and not key.startswith(IN_NO_WORKTREE) and _is_relative(key, value)
    )


def settings_of_environment() -> Iterator[tuple[str, str]]:
    """Yield the variables that mean the same as a setting, by its key."""
    for variable, key in VARIABLES.items():
        if value := os.environ.get(variable):
            yield key, value


def _is_relative(key: str, value: str) -> bool:
    if key == "core.hookspath":
        return not value.startswith(("/", "~"))
    return _MAY_BE_RELATIVE.search(value) is not None


def shared_umask(shared: str, umask: int) -> int:
    """
    Return the umask for a repository with core.sharedRepository set to `shared`, so that git need not change modes.

    New directories inherit S_ISGID. To make them group-writable, git sets the whole mode including that bit, which the sandbox refuses
    (`kernel/seccomp.py`). With this umask they already have the right mode (`adjust_shared_perm` in git's path.c).
    """
    shared = shared.lower()
    if shared in ("group", "true", "yes", "on", "1"):
        return umask & ~0o070
    if shared in ("all", "world", "everybody", "2"):
        return umask & ~0o075
    if re.fullmatch(r"0?[67][0-7][0-7]", shared):
        readable = int(shared, 8) & 0o666
        return 0o777 & ~(readable | (readable & 0o444) >> 2)
    return umask


def env_files_to_hide(survey: Survey) -> tuple[str, ...]:
    """
    Return the `.env` files to hide: all except examples, and files whose current content is in git anyway.

    `.gitignore`, or a name in the index, does not count, because commands can change both. A tracked file with other content is hidden,
    because the user may have filled in secrets. If git does not answer, all are hidden.
    """
    worktrees = {os.path.dirname(entry) for entry in survey.repositories}
    by_worktree: dict[str, list[str]] = {}
    for path in survey.env_files:
        if path.endswith(PUBLIC_ENV_ENDINGS):
            continue
        directory: str = os.path.dirname(path)
        while directory not in worktrees and directory != survey.project:
            directory = os.path.dirname(directory)
        by_worktree.setdefault(directory, []).append(path)
    deadline = time.monotonic() + GIT_TIMEOUT_S
    hidden: list[str] = []
    for worktree, paths in by_worktree.items():
        blobs = _blobs(survey.git, worktree) if time.monotonic() < deadline else {}
        hidden += [path for path in paths if not _has_content(path, blobs.get(path, ""))]
    return tuple(hidden)


def _blobs(git: TrustedGit, worktree: str) -> dict[str, str]:
    """Return the object ids of the `.env` files in the index."""
    arguments = ("-c", "core.fsmonitor=false", "ls-files", "--stage", "-z", "--")
    patterns = (":(glob)**/.env*", ":(glob)**/*.env")
    listed = os.fsdecode(git.run(*arguments, *patterns, cwd=worktree) or b"")
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return {f"{worktree}/{path}": about.split()[1] for about, _, path in entries}


def _has_content(path: str, blob: str) -> bool:
    import hashlib

    try:
        content = read_file(path, MAX_CONFIG_BYTES, follows=False)
    except OSError:
        return False
    data = b"blob %d\0%b" % (len(content), content)
    return blob in (hashlib.sha1(data).hexdigest(), hashlib.sha256(data).hexdigest())  # noqa: S324 - git's own digest
