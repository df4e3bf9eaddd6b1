"""
What git would run, and where it reads that from.

Plain `git status` runs `core.fsmonitor` and hooks, so whoever writes a repository's config runs code as the user. Git finds
that config in steps: a `.git` entry, which is a directory, a link or a file `gitdir: PATH`; in the git directory a file
`commondir`, which names another one; in that `config`, `hooks` and `objects`; `config.worktree` in the first; and whatever files
the config names (gitrepository-layout(5), git-config(1)). Mounts hold what exists of these; `guard.py` watches the rest.

One name is special: an absent `commondir` cannot be mounted over, and one small file there moves config and hooks elsewhere. So
a **sentinel** is placed, a `commondir` that leads back to its own directory, which changes nothing for git, libgit2 and gitoxide;
it is removed when the last session that needs it ends, or by the next one to start should all have been killed.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from sanderling.sandbox import names as listed
from sanderling.sandbox.policy import is_in_any, is_within

SENTINEL = b"./\n"
"""The slash matters: libgit2 looks for packed refs in the wrong place after a plain `.`"""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CLAIM_TRIES, CLAIM_S = 20, 0.2
MAX_POINTER_BYTES = 1 << 20
"""What git reads of a `.git` file; however much of it is line ends, they are cut off."""
MAX_CONFIG_BYTES = 1 << 20
MAX_HOOK_BYTES = 64 << 10
MAX_NAMED = 2_000
MAX_CHAIN = 10
"""Steps to follow from one include, or one store of objects, to the next; git itself takes 10 and 5."""
GIT_TIMEOUT_S = 2
"""For one call, and for all calls about `.env` files together: a repository may include a FIFO, which git waits for."""

TELLING = frozenset(("HEAD", "objects", "refs", "commondir"))
"""What makes a directory look like a repository to git."""

SURFACE = ("config", "config.worktree", "hooks", "commondir")
WORKTREE_SURFACE = ("config.worktree", "commondir", "gitdir")
OTHER_SURFACE = {
    ".hg": ("hgrc", "hgrc-not-shared", "requires", "sharedpath"),
    ".jj": ("workspace-config.toml",),
    ".jj/repo": ("config.toml",),
}
"""The same for version control that a shell's prompt or an editor's gutter asks as eagerly."""
NAMED_IN_A_HOOK = re.compile(
    r"([\w.@+-]*(?:/[\w.@+-]+)+)|(?:\b(?:sh|bash|dash|zsh|python3?|node|ruby|perl|source)|(?<![^\s;&|(])\.)\s+[\"']?"
    r"([\w.@+-]+)(?![\w/.@+-])"
)
"""What is a path, or stands behind an interpreter: any word that is a file's name would hold `package.json`, for instance."""
_WORK_TREE = re.compile(rb"(^|\])\s*worktree\s*=", re.IGNORECASE | re.MULTILINE)
PUBLIC_ENV_ENDINGS = (".example", ".sample", ".template", ".dist")


class UnclearError(ValueError):
    """A pointer that two readers may read differently. `str(error)` continues "it …"."""


class Repository(NamedTuple):
    """Where git goes from `entry`: its own directory, and the one that it shares with other worktrees. All resolved."""

    entry: str
    git_dir: str
    common_dir: str


class Survey(NamedTuple):
    """
    What one walk of the project found, absolute; nothing inside `.git` directories, nothing through links.

    `repositories`: entries named `.git` and bare repositories. `env_files`: regular files that may hold secrets, by their name.
    `unlistable`: directories which may be entered but not read. `named`: what the table of names has, links included.
    """

    project: str
    repositories: list[str]
    env_files: list[str]
    sockets: list[str]
    unlistable: list[str]
    named: list[str]


class GitProtection(NamedTuple):
    """
    What the mounts must do for git; all paths absolute.

    `write`, `read`: directories outside the project that git needs, writable or not. `pin`: directories to be bound onto
    themselves, so that they cannot be renamed away. `read_only`: files and directories to be bound read-only. `watch`: the names
    that must not appear in a directory.
    """

    write: tuple[str, ...]
    read: tuple[str, ...]
    pin: tuple[str, ...]
    read_only: tuple[str, ...]
    watch: tuple[tuple[str, frozenset[str]], ...]


def survey(project: str, between: Callable[[], object] = lambda: None) -> Survey:
    """
    Walk the project, which is absolute and resolved.

    `between` is called now and then, so that a large tree does not hold up what cannot wait.

    Raises:
        OSError: there is no such directory.
    """
    distrust(project)
    found = Survey(project, [], [], [], [], [])
    root = os.open(project, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    waiting = [""]
    count = 0
    try:
        while waiting:
            directory = waiting.pop()
            count += 1
            if not count % 64:
                between()
            try:
                with _listing(directory or ".", root) as entries:
                    waiting += _sort(entries, f"{directory}/" if directory else "", found)
            except PermissionError:
                found.unlistable.append(f"{project}/{directory}".rstrip("/"))
            except OSError:
                pass  # gone, or replaced, since its name was read
    finally:
        os.close(root)
    return found


def _sort(entries: "Iterable[os.DirEntry[str]]", prefix: str, found: Survey) -> list[str]:
    """Add what one directory holds to `found`; return the directories in it. Runs for every file there is."""
    directories: list[str] = []
    telling: set[str] = set()
    above = prefix.split("/")
    is_foreign = not listed.DEPENDENCIES.isdisjoint(above)
    directory = above[-2] if prefix else ""
    for entry in entries:
        name = entry.name
        if name in TELLING:
            telling.add(name)
        if not is_foreign and listed.is_told(name, directory) and len(found.named) < MAX_NAMED:
            found.named.append(f"{found.project}/{prefix}{name}")
        if name == ".git":
            found.repositories.append(f"{found.project}/{prefix}.git")
        elif entry.is_dir(follow_symlinks=False):
            directories.append(prefix + name)
        elif entry.is_file(follow_symlinks=False):
            if ".env" in name and (name.endswith(".env") or name.startswith(".env.")):
                found.env_files.append(f"{found.project}/{prefix}{name}")
        elif entry.is_symlink():
            if len(found.named) < MAX_NAMED:
                found.named.extend(listed.told_of_link(f"{found.project}/{prefix}{name}"))
        elif _is_socket(entry):
            found.sockets.append(f"{found.project}/{prefix}{name}")
    if "HEAD" in telling and ("commondir" in telling or telling >= {"objects", "refs"}):
        found.repositories.append(f"{found.project}/{prefix}".rstrip("/"))
    return directories


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextmanager
def _listing(directory: str, dir_fd: int | None = None) -> "Generator[Iterator[os.DirEntry[str]]]":
    """The entries of a directory which is not a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(directory, flags, dir_fd=dir_fd)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


def resolve(entry: str) -> Repository | None:
    """
    Where git goes from `entry`, a `.git` or a git directory; None where it goes nowhere.

    Raises:
        UnclearError: a pointer is not written the way git writes it, so that readers may disagree.
    """
    try:
        git_dir = real_path(_git_directory(entry))
    except OSError:
        return None  # nothing there, or in this very moment no more
    try:
        common_dir = real_path(os.path.join(git_dir, _pointer(f"{git_dir}/commondir")))
    except OSError:
        common_dir = git_dir
    return Repository(entry, git_dir, common_dir)


def real_path(path: str) -> str:
    """
    `path` without links; what does not exist stays as it is written.

    Raises:
        UnclearError: there are more links than the kernel would follow, or a loop of them.
    """
    try:
        real = os.path.realpath(path)
    except (OSError, RecursionError) as error:
        raise UnclearError("follows too many links") from error
    if os.path.islink(real):
        raise UnclearError("is a loop of links")
    return real


def _git_directory(entry: str) -> str:
    if os.path.islink(entry):
        if os.path.isfile(entry):
            raise UnclearError("is a link to a pointer, which leads elsewhere for each reader")
        return entry
    if os.path.isdir(entry):
        return entry
    return os.path.join(os.path.dirname(entry), _pointer(entry, b"gitdir: "))


def _pointer(path: str, prefix: bytes = b"") -> str:
    try:
        content = read_file(path, MAX_POINTER_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnclearError("is no plain file that can be read") from error
    line = content.removeprefix(prefix).rstrip(b"\r\n")
    is_plain = bool(line) and line == line.strip() and not any(byte < ord(" ") for byte in line)
    if not (is_plain and content.startswith(prefix)):
        raise UnclearError("is not written the way git writes it")
    return os.fsdecode(line)


def read_file(path: str, limit: int, *, follows: bool = True, dir_fd: int | None = None) -> bytes:
    """
    The content of a regular file of at most `limit` bytes.

    Raises:
        OSError: there is none, or it is no regular file, or longer. A FIFO does not block, a device is not opened for good.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(path, flags if follows else flags | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        content = b""
        while chunk := os.read(fd, limit + 1 - len(content)):
            content += chunk
    finally:
        os.close(fd)
    if len(content) > limit:
        raise OSError(errno.EFBIG, "too large", path)
    return content


def git_directories(survey: Survey, outside: Iterable[str] = ()) -> list[str]:
    """The git directories of the project and of `outside`: those that entries lead to, and those below `modules` and `worktrees`."""
    roots = (survey.project, *outside)
    found: set[str] = set(outside)
    for entry in survey.repositories:
        try:
            repository = resolve(entry)
        except UnclearError:
            continue
        if repository:
            found.update((repository.git_dir, repository.common_dir))
    found = {path for path in found if is_in_any(path, roots)}
    waiting = [f"{path}/{name}" for path in found for name in ("modules", "worktrees")]
    while waiting:
        directory = waiting.pop()
        try:
            with _listing(directory) as entries:
                kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        is_git_dir = "HEAD" in kinds or "commondir" in kinds
        if is_git_dir:
            found.add(directory)
        skipped = ("objects", "refs", "logs", "hooks") if is_git_dir else ()
        waiting += [
            f"{directory}/{name}"
            for name, is_directory in kinds.items()
            if is_directory and name not in skipped
        ]
    return sorted(found)


def protection(survey: Survey) -> GitProtection:
    """
    What must be protected in the project and its repositories, as they are now: after `place_sentinels`, which this sees.

    The names of the table that are not in the project's root yet are left to the guard, those in directories of its own excepted.

    A repository outside the project is made writable only for the project's own `.git`, and only if it answers to the project.
    """
    plan = _Plan(survey)
    for directory, names in OTHER_SURFACE.items():
        plan.hold_names(f"{survey.project}/{directory}", names, survey.project)
    for git_dir in git_directories(survey, plan.write):
        plan.hold_git_directory(git_dir)
    for entry in survey.repositories:
        plan.hold_entry(entry)
    plan.hold_listed(survey.named)
    return GitProtection(
        tuple(plan.write),
        tuple(plan.read),
        tuple(sorted(path for path in plan.pin if not plan.is_read_only(path))),
        tuple(sorted(plan.read_only)),
        tuple((directory, frozenset(names)) for directory, names in sorted(plan.watch.items())),
    )


class _Plan:
    def __init__(self, survey: Survey) -> None:
        self.project = survey.project
        self.own = _own_repository(survey.project)
        self.write = _outside(self.own, survey.project)
        self.read: list[str] = []
        self.pin: set[str] = set()
        self.read_only: set[str] = set()
        self.watch: dict[str, set[str]] = {}
        self._seen: set[tuple[str, str]] = set()  # configs, by the worktree they were read for
        self._has_hooks = False

    def is_read_only(self, path: str) -> bool:
        return is_in_any(path, self.read_only)

    def hold_entry(self, entry: str) -> None:
        if os.path.islink(entry):
            self._watch(entry)
        elif os.path.isfile(entry):
            self.read_only.add(entry)
        try:
            repository = resolve(entry)
        except UnclearError:
            return
        if not repository or not self._is_inside(repository.common_dir):
            return
        worktree = os.path.dirname(entry) if os.path.basename(entry) == ".git" else entry
        for config in (f"{repository.common_dir}/config", f"{repository.git_dir}/config.worktree"):
            self._hold_what_config_names(worktree, config)
        if entry == f"{self.project}/.git":
            settings = _settings(self.project, cwd=self.project)
            for origin, key, value in settings:
                self._hold_setting(worktree, origin, key, value)
            self._hold_alternates(repository.common_dir)

    def hold_git_directory(self, git_dir: str) -> None:
        try:
            repository = resolve(git_dir)
        except UnclearError:
            return
        if not repository:
            return
        is_main = repository.git_dir == repository.common_dir
        names = SURFACE if is_main else WORKTREE_SURFACE
        self.hold_names(git_dir, names, self._top(git_dir))
        self._hold_what_hooks_name(f"{git_dir}/hooks")

    def hold_listed(self, named: Iterable[str]) -> None:
        """Hold what the table says: links cannot be, so that the guard watches them, and what they lead to is."""
        for path in listed.held(named):
            if os.path.islink(path):
                self._hold_target(path)
            else:
                self.read_only.add(path)
        for name in (*listed.AT_ROOT, *(listed.WITH_HOOKS if self._has_hooks else ())):
            directory, _, rest = name.rpartition("/")
            if not directory and name in listed.WITH_HOOKS:
                self._hold(f"{self.project}/{rest}")
            elif directory and _is_plain_directory(f"{self.project}/{directory}"):
                self._pin(f"{self.project}/{directory}", self.project)
                self._hold(f"{self.project}/{name}")

    def _hold_what_hooks_name(self, hooks: str) -> None:
        """What links among them lead to, and one step further: the files that they name."""
        try:
            names = os.listdir(hooks)
        except OSError:
            return
        for name in names:
            hook = f"{hooks}/{name}"
            if os.path.islink(hook):
                self._hold_target(hook)
            if name.endswith(".sample") or not os.path.isfile(hook):
                continue
            self._has_hooks = True
            with suppress(OSError):
                text = os.fsdecode(read_file(hook, MAX_HOOK_BYTES))
                for words in set(NAMED_IN_A_HOOK.findall(text)):
                    self._hold_plain_file(hooks, "".join(words))

    def _hold_plain_file(self, hooks: str, word: str) -> None:
        """
        What a hook names: by its whole path, from where the hook lies (`$(dirname "$0")/lint`), or from the root, where git runs it.

        Not what is a link: a virtual environment's Python is made anew when that is.
        """
        inside, around = word.lstrip("/"), os.path.dirname(hooks)
        places = (self.project, hooks, around, os.path.dirname(around))
        for path in (word, *(f"{place}/{inside}" for place in places)):
            if path.startswith("/") and os.path.isfile(path) and not os.path.islink(path):
                self._hold_path(path)

    def hold_names(self, directory: str, names: Iterable[str], top: str) -> None:
        """Hold `names` in `directory`, and every directory from there up to `top`, which is held too unless it is the project."""
        if not os.path.isdir(directory):
            self._hold_path(directory)
            return
        self._pin(directory, top)
        for name in names:
            self._hold(f"{directory}/{name}")

    def _hold(self, path: str) -> None:
        if os.path.islink(path):
            self._watch(path)
            self._hold_target(path)
        elif os.path.exists(path):
            self.read_only.add(path)
        else:
            self._watch(path)

    def _hold_target(self, link: str) -> None:
        with suppress(UnclearError):  # a link that leads nowhere
            self._hold_path(real_path(link))

    def _hold_path(self, path: str) -> None:
        """Hold what the project has at `path`, whose parents may be missing or links; nothing outside."""
        path = os.path.normpath(path)
        if not self._is_inside(path) or path in (self.project, *self.write):
            return
        while not os.path.isdir(parent := os.path.dirname(path)):
            path = parent
        try:
            real = real_path(parent)
        except UnclearError:
            return
        if real != parent:
            while self._is_inside(parent):
                if os.path.islink(parent):
                    self._watch(parent)
                parent = os.path.dirname(parent)
            self._hold_path(f"{real}/{os.path.basename(path)}")
            return
        self._pin(parent, self._top(path))
        self._hold(path)

    def _hold_what_config_names(self, worktree: str, config: str, depth: int = MAX_CHAIN) -> None:
        try:
            content = read_file(config, MAX_CONFIG_BYTES)
        except OSError:
            return
        if not depth or (worktree, config) in self._seen or not _may_run_something(content):
            return
        self._seen.add((worktree, config))
        settings = _settings(self.project, "--no-includes", "--file", config)
        for origin, key, value in settings:
            self._hold_setting(worktree, origin, key, value, depth)

    def _hold_setting(
        self, worktree: str, origin: str, key: str, value: str, depth: int = 1
    ) -> None:
        value = value.strip()
        if key.startswith(("include.", "includeif.")):
            included = os.path.join(worktree, os.path.dirname(origin), os.path.expanduser(value))
            self._hold_path(included)
            if self._is_inside(os.path.normpath(included)):
                self._hold_what_config_names(worktree, included, depth - 1)
        elif key == "core.hookspath":
            hooks = os.path.normpath(os.path.join(worktree, os.path.expanduser(value)))
            around, name = os.path.split(hooks)
            self._has_hooks = True
            self._hold_path(hooks)
            self._hold_what_hooks_name(hooks)
            # Husky's: what is there runs its namesake one above.
            if name == "_" and around != self.project:
                self._hold_path(around)
                self._hold_what_hooks_name(around)
        elif value and not is_inert(key):
            for word in value.lstrip("!").split():
                path = os.path.join(worktree, word.strip("\"'"))
                if os.path.isfile(path):
                    self._hold_path(path)

    def _hold_alternates(self, common_dir: str) -> None:
        """An alternate of the own repository becomes readable, so the list must not grow from inside."""
        info = f"{common_dir}/objects/info"
        if os.path.isdir(info):
            self.hold_names(info, ("alternates",), common_dir)
        stores = [f"{common_dir}/objects"]
        for store in stores:
            for path in alternates(store) if len(stores) <= MAX_CHAIN else ():
                if path not in stores and os.path.isdir(f"{path}/pack"):
                    stores.append(path)
        self.read = [path for path in stores if not self._is_inside(path)]

    def _pin(self, directory: str, top: str) -> None:
        while is_within(directory, top) and directory != self.project:
            self.pin.add(directory)
            directory = os.path.dirname(directory)

    def _top(self, path: str) -> str:
        """The highest directory whose name matters: that of the git directory around `path`, else the project."""
        for directory in self.write:
            if is_within(path, directory):
                return directory
        head, dot_git, _ = f"{path}/".partition("/.git/")
        if dot_git:
            return f"{head}/.git"
        return path if os.path.exists(f"{path}/HEAD") else self.project

    def _is_inside(self, path: str) -> bool:
        return is_in_any(path, (self.project, *self.write))

    def _watch(self, path: str) -> None:
        directory, name = os.path.split(path)
        self.watch.setdefault(directory, set()).add(name)


def _is_plain_directory(path: str) -> bool:
    return os.path.isdir(path) and os.path.realpath(path) == path


def _own_repository(project: str) -> Repository | None:
    try:
        return resolve(f"{project}/.git")
    except UnclearError:
        return None


def _outside(own: Repository | None, project: str) -> list[str]:
    if own is None or is_within(own.common_dir, project) or not _answers(own, project):
        return []
    is_one = is_within(own.git_dir, own.common_dir)
    directories = [own.common_dir] if is_one else [own.common_dir, own.git_dir]
    return [path for path in directories if os.path.isdir(path)]


def leads_nowhere(project: str) -> str:
    """Where the project's `.git` leads, if that is not there: a worktree that was pruned, a repository that was moved."""
    own = _own_repository(project)
    return own.git_dir if own and not os.path.isdir(own.git_dir) else ""


def _answers(own: Repository, project: str) -> bool:
    """
    Whether the repository outside knows of this project: the sandbox can write a pointer to any repository of the user, but no answer.

    A linked worktree is answered by `gitdir`, a submodule by `core.worktree`. One that `git init --separate-git-dir` made says
    nothing; it is told by its place, for others' are called `.git` or lie below one.
    """
    try:
        answer = _pointer(f"{own.git_dir}/gitdir")
    except (OSError, UnclearError):
        config = f"{own.git_dir}/config"
        settings = _settings(project, "--no-includes", "--file", config)
        worktree = [value for _, key, value in settings if key == "core.worktree"]
        if not worktree:
            return ".git" not in own.git_dir.split("/")
        return leads_to(own.git_dir, worktree[-1]) == project
    return leads_to(own.git_dir, answer) == f"{project}/.git"


def has_its_files_around(project: str) -> bool:
    """
    Whether the files of the project's repository are the project's, for no setting says that they are elsewhere.

    Known without git: it would believe the setting, and show any file that the index names. Where it can make nothing of `.git`, the
    project itself is a repository if it looks like one.
    """
    try:
        found = list(filter(None, map(resolve, (f"{project}/.git", project))))
    except UnclearError:
        return False
    places = {place for each in found for place in (each.git_dir, each.common_dir)}
    for path in (f"{place}/{name}" for place in places for name in ("config", "config.worktree")):
        try:
            if _WORK_TREE.search(read_file(path, MAX_CONFIG_BYTES)):
                return False
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def leads_to(directory: str, path: str) -> str:
    """Where `path`, as it is written in `directory`, leads; empty if that is unclear."""
    try:
        return real_path(os.path.join(directory, path))
    except UnclearError:
        return ""


def alternates(store: str) -> list[str]:
    """The other object stores that `store` names, resolved; what follows too many links, nobody reads."""
    try:
        lines = read_file(f"{store}/info/alternates", MAX_CONFIG_BYTES).splitlines()
    except OSError:
        return []
    named = [line for line in lines if line and not line.startswith(b"#") and b"\0" not in line]
    return [path for line in named if (path := leads_to(store, os.fsdecode(line)))]


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
The settings that run nothing, by section; `*`: all of it. A list of what is harmless, for git grows new ways to run something.

A `remote.*.url` may be `ext::COMMAND`, which git refuses unless `protocol.ext.allow` is set. A promisor (`remote.*.promisor`,
`extensions.partialClone`) is asked for missing objects by a mere `git status`. Where `core.worktree` leads, the guard looks.
"""


def is_inert(key: str) -> bool:
    section, _, rest = key.partition(".")
    names = INERT.get(section, "")
    return names == "*" or rest.rpartition(".")[2] in names.split()


def _may_run_something(content: bytes) -> bool:
    """A quick look, for a config that nobody but the user could write: too strict rather than too lax."""
    section = ""
    for line in os.fsdecode(content).lower().splitlines():
        text = line.strip()
        if text.endswith("\\"):
            return True  # the next line goes on with the value, or so it seems here
        if text.startswith("["):
            section = text.strip("[]").partition(" ")[0]
            if text.find("]") != len(text) - 1:
                return True
        elif text and text[0] not in "#;":
            name = text.partition("=")[0].strip()
            if not is_inert(f"{section}.{name}"):
                return True
    return False


def executable_settings(content: bytes, project: str) -> frozenset[str]:
    """
    The settings in a config of this content that may run something: includes, and what is not known as harmless.

    Git itself parses it, so that nothing is read differently from how git will read it; `?` stands for what it cannot read.
    """
    arguments = ("config", "--no-includes", "--file", "-", "--list", "-z")
    listed = _git(project, *arguments, cwd="/", stdin=content, is_bare=True)
    if listed is None:
        return frozenset("?")
    settings = os.fsdecode(listed).split("\0")
    return frozenset(
        setting for setting in settings if setting and not is_inert(setting.partition("\n")[0])
    )


def _settings(project: str, *arguments: str, cwd: str = "/") -> Iterator[tuple[str, str, str]]:
    """The origin, key and value of what `git config` lists."""
    arguments = ("config", *arguments, "--show-origin", "--list", "-z")
    fields = os.fsdecode(_git(project, *arguments, cwd=cwd) or b"").split("\0")
    for origin, setting in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = setting.partition("\n")
        yield origin.removeprefix("file:"), key, value


def env_files_to_hide(survey: Survey) -> tuple[str, ...]:
    """
    The `.env` files to hide: all but examples, and those whose very content git has, which is in the history anyway.

    Neither `.gitignore` nor the mere name in an index counts, for a command can change both. A tracked file that holds something
    else by now is hidden: what a person fills in there may be secret. Where git does not say, all are hidden.
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
        blobs = _blobs(survey.project, worktree) if time.monotonic() < deadline else {}
        hidden += [path for path in paths if not _has_content(path, blobs.get(path, ""))]
    return tuple(hidden)


def _blobs(project: str, worktree: str) -> dict[str, str]:
    """The object ids of the `.env` files in the index."""
    arguments = ("-c", "core.fsmonitor=false", "ls-files", "--stage", "-z", "--")
    patterns = (":(glob)**/.env*", ":(glob)**/*.env")
    listed = os.fsdecode(_git(project, *arguments, *patterns, cwd=worktree) or b"")
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return {f"{worktree}/{path}": about.split()[1] for about, _, path in entries}


def _has_content(path: str, blob: str) -> bool:
    import hashlib

    try:
        content = read_file(path, MAX_CONFIG_BYTES, follows=False)
    except OSError:
        return False
    data = b"blob %d\0%b" % (len(content), content)
    return blob in (hashlib.sha1(data).hexdigest(), hashlib.sha256(data).hexdigest())  # noqa: S324 - git's


_distrusted: set[str] = set()


def distrust(*roots: str) -> None:
    """Run no git from below `roots` from now on; what is surveyed is distrusted at once."""
    _distrusted.update(roots)


def git_program(roots: Iterable[str]) -> str:
    """The first `git` on PATH that is in none of `roots`, where a command could put one; empty if there is none."""
    for directory in _search_path(tuple(roots)):
        if os.access(f"{directory}/git", os.X_OK):
            return f"{directory}/git"
    return ""


def _search_path(roots: tuple[str, ...]) -> list[str]:
    forbidden = {*roots, *(leads_to("/", root) for root in roots)} - {""}

    def is_outside(directory: str) -> bool:
        places = (os.path.normpath(directory), leads_to("/", directory), leads_to(directory, "git"))
        return all(places) and not any(
            is_within(place, root) for place in places for root in forbidden
        )

    return [item for item in os.get_exec_path() if item.startswith("/") and is_outside(item)]


def _git(
    project: str,
    *arguments: str,
    cwd: str,
    stdin: bytes = b"",
    is_bare: bool = False,
) -> bytes | None:
    """
    What git prints; None if it fails or is not there. `is_bare`: without the user's own configuration.

    It may stand in a repository that a command has made, so it fetches nothing: the config says by which program to fetch.
    """
    import subprocess

    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    roots = (project, *_distrusted)
    environment |= {"PATH": os.pathsep.join(_search_path(roots)), "LC_ALL": "C"}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}
    if is_bare:
        environment |= {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = subprocess.run(  # noqa: S603
            [git_program(roots), *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=environment,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout


class Claim(NamedTuple):
    """
    A session's on its sentinels, in descriptors with shared locks: the session lives as long as a process keeps them open.

    `record` is of the file in its state directory that names them, `directories` are the git directories that need them: a session
    of a linked worktree, of a repository around this one, or with another state directory has a record of its own.
    """

    record: int
    directories: tuple[int, ...]


def place_sentinels(state_dir: str, survey: Survey) -> Claim:
    """
    Put a sentinel into every git directory that has no `commondir`, as far as they can be written to.

    Return what `remove_sentinels` takes. The record is written first: whatever kills this leaves nothing unrecorded. A sentinel of
    which the record is lost, for somebody has deleted that directory, is taken over.

    Raises:
        OSError: the record cannot be written, so that nothing was placed.
    """
    own = _own_repository(survey.project)
    with _only_one(state_dir):
        record = _open_record(state_dir)
        claimed: list[int] = []
        try:
            _remove_if_last(record)
            directories = git_directories(survey, _outside(own, survey.project))
            claimed += [fd for path in directories if (fd := _claimed(path)) is not None]
            wanted = [
                f"{directory}/commondir"
                for directory in directories
                if os.path.isfile(f"{directory}/HEAD") and _is_free(f"{directory}/commondir")
            ]
            _append(record, b"".join(os.fsencode(path) + b"\0" for path in wanted))
        except OSError:
            _close(record, *claimed)
            raise
        for path in wanted:
            _place(path)
        fcntl.flock(record, fcntl.LOCK_SH)
    return Claim(record, tuple(claimed))


def _claimed(directory: str) -> int | None:
    """None: it cannot be opened, or there are no locks."""
    try:
        fd = os.open(directory, DIRECTORY)
    except OSError:
        return None
    for _ in range(CLAIM_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another session's sentinel is removed in this moment
            time.sleep(CLAIM_S / CLAIM_TRIES)
        except OSError:
            break
        else:
            return fd
    os.close(fd)
    return None


def _close(*descriptors: int) -> None:
    for fd in descriptors:
        os.close(fd)


@contextmanager
def _unclaimed(directory: str) -> Generator[bool]:
    """Whether no session needs the sentinel there; none that begins comes in between."""
    try:
        fd = os.open(directory, DIRECTORY)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_unclaimed = True
    except OSError as error:
        is_unclaimed = not isinstance(error, BlockingIOError)
    try:
        yield is_unclaimed
    finally:
        os.close(fd)


def _is_free(path: str) -> bool:
    """Whether nothing is there, or a sentinel: git itself never writes one."""
    try:
        return read_file(path, len(SENTINEL), follows=False) == SENTINEL
    except OSError:
        return not os.path.lexists(path)


def _append(record: int, data: bytes) -> None:
    """All of it or nothing."""
    end = os.lseek(record, 0, os.SEEK_END)
    if os.write(record, data) < len(data):
        os.ftruncate(record, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def remove_sentinels(state_dir: str, claim: Claim) -> None:
    """
    End this session's `claim`; the last session of the project removes what all of them placed.

    The record is read through its descriptor: its directory may be gone. If there is another one by now, that has taken over.
    """
    with ExitStack() as alone:
        with suppress(OSError):  # the directory is gone, or its disk full
            alone.enter_context(_only_one(state_dir))
        fcntl.flock(claim.record, fcntl.LOCK_UN)
        _close(*claim.directories)
        if not _is_succeeded(state_dir, claim.record):
            _remove_if_last(claim.record)
    os.close(claim.record)


def _is_succeeded(state_dir: str, record: int) -> bool:
    try:
        return not os.path.samestat(os.stat(f"{state_dir}/placed"), os.fstat(record))
    except OSError:
        return False


def clean_up_after_the_dead(sandbox_state_root: str) -> None:
    """Remove what killed sessions left in any project; `sandbox_state_root` holds the projects' state directories."""
    try:
        state_dirs = [entry.path for entry in os.scandir(sandbox_state_root) if entry.is_dir()]
    except OSError:
        return
    for state_dir in state_dirs:
        if os.path.exists(f"{state_dir}/placed") and os.path.getsize(f"{state_dir}/placed"):
            with _only_one(state_dir):
                record = _open_record(state_dir)
                _remove_if_last(record)
            os.close(record)


@contextmanager
def _only_one(state_dir: str) -> Generator[None]:
    """One process at a time: a shared lock and an exclusive one are not exchanged in one step."""
    os.makedirs(state_dir, mode=0o700, exist_ok=True)  # the person may have removed it meanwhile
    fd = os.open(f"{state_dir}/placed.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _open_record(state_dir: str) -> int:
    return os.open(f"{state_dir}/placed", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _remove_if_last(record: int) -> None:
    try:
        fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    content = os.pread(record, os.fstat(record).st_size, 0)
    for path in filter(None, os.fsdecode(content).split("\0")):
        with _unclaimed(os.path.dirname(path)) as is_unclaimed:
            for name in (path, f"{path}.new") if is_unclaimed else ():
                with suppress(OSError):  # gone, or something else by now: not ours
                    if read_file(name, len(SENTINEL), follows=False) in (SENTINEL, b""):
                        os.unlink(name)
    os.ftruncate(record, 0)


def _place(path: str) -> None:
    """Never for a moment empty: git refuses a repository with an empty `commondir`."""
    try:
        fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, SENTINEL)
        finally:
            os.close(fd)
        os.rename(f"{path}.new", path)
    except OSError:
        pass  # another user's; the guard watches the name
