"""The protection of a project's repositories: which paths are mounted read-only, watched by the guard, or hidden."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.git_program import AmbiguousPathError, follow_links, leads_to
from sanderling.sandbox.guard.links import MAX_OTHER_NAMES, other_names
from sanderling.sandbox.guard.repositories import (
    MAX_CHAIN,
    MAX_CONFIG_BYTES,
    OTHER_SURFACE,
    SURFACE,
    WORKTREE_SURFACE,
    Repository,
    Survey,
    alternates,
    clear_repository,
    git_directories,
    pointer,
    read_file,
)
from sanderling.sandbox.guard.settings import (
    is_inert,
    may_run_something,
    relative_settings,
    runs_of_alias,
    settings_of,
    settings_of_environment,
)

MAX_SHOWN_CHARS = 100


class Run(NamedTuple):
    """
    A git setting that runs project code which cannot be protected.

    Attributes:
        setting, origin: the setting as shown to the user, and the file that it comes from.
        trees: directories that it loads from. Protected by mounts; without mounts, the guard warns of them and reports changes.
        ruling: files that decide what it runs, such as a Makefile. The guard warns of them and reports changes.
        nearby: directories from which it may load more code. The guard reports changes.
        is_unclear: the setting does not show what it runs.
    """

    setting: str
    origin: str
    trees: tuple[str, ...]
    ruling: tuple[str, ...]
    nearby: tuple[str, ...]
    is_unclear: bool


class GitProtection(NamedTuple):
    """
    What mounts and guard must do for git. All paths are absolute.

    Attributes:
        write, read: directories outside the project that git needs, writable or read-only.
        pin: directories to bind onto themselves, so that renaming them fails with EBUSY. Otherwise `mv .git` would make room for a new one.
        read_only: files and directories to bind read-only.
        watch: per directory, the names that must not appear.
        trees: the paths of `read_only` that are too large to scan.
        absent: paths in directories that do not exist yet, and the setting that would run a file there.
        runs: settings whose code cannot be protected.
        linked: protected files with a hard link that was not found.
        shared: the project's core.sharedRepository.
        heads: the branches that are checked out in other worktrees, as files. Mounts or a profile hold them.
    """

    write: tuple[str, ...]
    read: tuple[str, ...]
    pin: tuple[str, ...]
    read_only: tuple[str, ...]
    watch: tuple[tuple[str, frozenset[str]], ...]
    trees: frozenset[str] = frozenset()
    absent: tuple[tuple[str, str], ...] = ()
    runs: tuple[Run, ...] = ()
    linked: tuple[str, ...] = ()
    shared: str = ""
    heads: tuple[str, ...] = ()

    def names_never_made(self) -> Iterator[tuple[str, str]]:
        """Yield the names that must not appear, as a directory that exists and the name there, which may have several parts."""
        for directory, names in self.watch:
            yield from ((directory, name) for name in sorted(names))
        for path, _ in self.absent:
            directory = os.path.dirname(path)
            while not os.path.isdir(directory):
                directory = os.path.dirname(directory)
            yield directory, os.path.relpath(path, directory)


def protection(
    survey: Survey, granted: tuple[str, ...] = (), *, is_worktree: bool = False
) -> GitProtection:
    """
    Compute the protection of the project and its repositories in their current state, which includes the sentinels.

    Names from the table that do not exist in the project's root are left to the guard, unless they belong into a subdirectory that
    exists.

    A repository outside the project becomes writable only if it is the project's own and points back to the project. Hard links to
    protected files are also searched in the `granted` directories.

    With `is_worktree`, only the parts of that repository are writable that commits need: objects, refs, and the worktree's own git
    directory. So no command reaches the user's index, HEAD, configuration or hooks, nor another worktree.
    """
    plan = _Plan(survey)
    for directory, names in OTHER_SURFACE.items():
        plan.hold_names(f"{survey.project}/{directory}", names, survey.project)
    for git_dir in git_directories(survey, plan.write):
        plan.hold_git_directory(git_dir)
    for entry in survey.repositories:
        plan.hold_entry(entry)
    plan.hold_listed(survey.named)
    plan.hold_other_names(granted)
    found = GitProtection(
        tuple(plan.write),
        tuple(plan.read),
        tuple(sorted(path for path in plan.pin if not plan.is_read_only(path))),
        tuple(sorted(plan.read_only)),
        tuple((directory, frozenset(names)) for directory, names in sorted(plan.watch.items())),
        frozenset(plan.trees),
        tuple(sorted(plan.absent.items())),
        tuple(plan.runs.values()),
        tuple(plan.linked),
        plan.shared,
    )
    return _narrowed(found, plan.own) if is_worktree and plan.own and plan.write else found


def _narrowed(found: GitProtection, own: Repository) -> GitProtection:
    common = own.common_dir
    names = ("objects", "refs", "logs/refs")
    parts = [path for name in names if os.path.isdir(path := f"{common}/{name}")]
    write = (*parts, own.git_dir)
    heads = tuple(_heads_elsewhere(own))

    def is_left(path: str) -> bool:
        return not is_within(path, common) or is_in_any(path, write)

    return found._replace(
        write=write,
        read=(common, *found.read),
        pin=tuple(path for path in found.pin if is_left(path) and path not in write),
        heads=heads,
    )


def _heads_elsewhere(own: Repository) -> Iterator[str]:
    """
    Yield the files of the branches that are checked out in the repository itself and in its other worktrees.

    A branch without such a file is packed. Then a command can create the file: no mount can prevent that, and the guard could not tell
    it from the user's own commit.
    """
    worktrees = f"{own.common_dir}/worktrees"
    others = os.listdir(worktrees) if os.path.isdir(worktrees) else []
    for git_dir in (own.common_dir, *(f"{worktrees}/{name}" for name in others)):
        if git_dir == own.git_dir:
            continue
        with suppress(OSError):
            head = os.fsdecode(read_file(f"{git_dir}/HEAD", MAX_CONFIG_BYTES)).strip()
            path = os.path.normpath(f"{own.common_dir}/{head.removeprefix('ref: ')}")
            if head.startswith("ref: refs/heads/") and os.path.isfile(path):
                yield path


class _Plan:
    def __init__(self, survey: Survey) -> None:
        self.project = survey.project
        self.git = survey.git
        self.own = own_repository(survey.project)
        self.write = outside(self.own, survey)
        self.read: list[str] = []
        self.pin: set[str] = set()
        self.read_only: set[str] = set()
        self.trees: set[str] = set()
        self.absent: dict[str, str] = {}
        self.runs: dict[tuple[str, str], Run] = {}  # by worktree and setting
        self.linked: list[str] = []
        self.shared = ""
        self.watch: dict[str, set[str]] = {}
        self.users = relative_settings(survey.git)
        self._seen: set[tuple[str, str]] = set()  # configs, by the worktree they were read for
        self._has_hooks = False

    def is_read_only(self, path: str) -> bool:
        return is_in_any(path, self.read_only)

    def hold_entry(self, entry: str) -> None:
        if os.path.islink(entry):
            self._watch(entry)
        elif os.path.isfile(entry):
            self.read_only.add(entry)
        repository = clear_repository(entry)
        if not repository or not self._is_inside(repository.common_dir):
            return
        worktree = os.path.dirname(entry) if os.path.basename(entry) == ".git" else entry
        for config in (f"{repository.common_dir}/config", f"{repository.git_dir}/config.worktree"):
            self._hold_what_config_names(worktree, config)
        if entry == f"{self.project}/.git":
            for origin, key, value in settings_of(self.git, cwd=self.project):
                self._hold_setting(worktree, origin, key, value)
                if key == "core.sharedrepository":
                    self.shared = value
            for key, value in settings_of_environment():
                self._hold_setting(worktree, "", key, value)
            self._hold_alternates(repository.common_dir)
        else:
            for key, value in self.users:
                self._hold_setting(worktree, "", key, value)

    def hold_git_directory(self, git_dir: str) -> None:
        if not (repository := clear_repository(git_dir)):
            return
        is_main = repository.git_dir == repository.common_dir
        names = SURFACE if is_main else WORKTREE_SURFACE
        self.hold_names(git_dir, names, self._top(git_dir))
        self._hold_what_hooks_name(f"{git_dir}/hooks")

    def hold_listed(self, named: Iterable[str]) -> None:
        """Protect the names of the table. Links cannot be mounted over, so the guard watches them, and their targets are protected."""
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

    def hold_other_names(self, granted: tuple[str, ...]) -> None:
        found, missing = other_names(self.read_only, (self.project, *self.write, *granted))
        self.read_only.update(found[:MAX_OTHER_NAMES])
        self.linked = [*found[MAX_OTHER_NAMES:], *missing]

    def _hold_what_hooks_name(self, hooks: str) -> None:
        """Protect the targets of links in `hooks`, the files that hooks name, and the files that these name in turn."""
        try:
            names = os.listdir(hooks)
        except OSError:
            return
        scripts: list[str] = []
        for name in names:
            hook = f"{hooks}/{name}"
            if os.path.islink(hook):
                self._hold_target(hook)
            if not name.endswith(".sample") and os.path.isfile(hook):
                scripts.append(hook)
        if not scripts:
            return
        from sanderling.sandbox.guard.command_lines import scripts_named_by  # few need it: 7 ms

        self._has_hooks = True
        # Relative to the hook (`$(dirname "$0")/lint`), or to the root, where git runs it.
        around = os.path.dirname(hooks)
        for path in scripts_named_by(
            scripts, (self.project, hooks, around, os.path.dirname(around))
        ):
            self._hold_path(path)

    def hold_names(self, directory: str, names: Iterable[str], top: str) -> None:
        """Protect `names` in `directory`, and pin every directory from there to `top`, inclusive unless it is the project."""
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
        with suppress(AmbiguousPathError):  # a link that leads nowhere
            self._hold_path(follow_links(link))

    def _hold_path(self, path: str) -> None:
        """Protect `path` if it is in the project. Its parents may be missing, or links."""
        path = os.path.normpath(path)
        if not self._is_inside(path) or path in (self.project, *self.write):
            return
        while not os.path.isdir(parent := os.path.dirname(path)):
            path = parent
        try:
            real = follow_links(parent)
        except AmbiguousPathError:
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
        if not depth or (worktree, config) in self._seen or not may_run_something(content):
            return
        self._seen.add((worktree, config))
        settings = settings_of(self.git, "--no-includes", "--file", config)
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
            # Husky's: each file in this directory runs the file of the same name one level up.
            if name == "_" and around != self.project:
                self._hold_path(around)
                self._hold_what_hooks_name(around)
        elif key == "init.templatedir":  # its hooks are copied into every new clone
            template = os.path.normpath(os.path.join(worktree, os.path.expanduser(value)))
            self._hold_path(template)
            self._hold_what_hooks_name(f"{template}/hooks")
        elif key.startswith("alias.") and not value.startswith("!"):
            for name, line in runs_of_alias(value):
                if name == "alias.":
                    self._hold_command_line(worktree, origin, key, line)
                else:
                    self._hold_setting(worktree, origin, name, line)
        elif value and not is_inert(key):
            self._hold_command_line(worktree, origin, key, value.lstrip("!"))

    def _hold_command_line(self, worktree: str, origin: str, key: str, line: str) -> None:
        from sanderling.sandbox.guard.command_lines import found_in_line

        found = found_in_line(line, worktree)
        is_typed = key.startswith("alias.")
        trees = [real for path in sorted(found.trees) if (real := self._hold_tree(path))]
        for path in sorted(found.files):
            if not self.is_read_only(path):
                self._hold_path(path)
        for path in filter(self._is_inside, found.absent):
            if is_typed and f"./{os.path.basename(path)}" not in line:
                continue  # probably a file argument, not a program
            if os.path.isdir(os.path.dirname(path)):
                self._hold_path(path)
            else:  # forbidding `tools` because of `tools/x` would forbid too much
                self.absent[path] = key
        ruling, nearby = (
            tuple(sorted(filter(self._is_inside, paths))) for paths in (found.ruling, found.nearby)
        )
        if not is_typed and (trees or ruling or nearby or found.is_unclear):
            shown = line if len(line) <= MAX_SHOWN_CHARS else f"{line[:MAX_SHOWN_CHARS]}…"
            run = Run(f"{key} = {shown}", origin, tuple(trees), ruling, nearby, found.is_unclear)
            self.runs.setdefault((worktree, run.setting), run)

    def _hold_tree(self, path: str) -> str:
        """Protect a directory of packages, with too many files to keep their content. Return its real path if it is protected."""
        with suppress(AmbiguousPathError):
            real = follow_links(path)
            if self._is_inside(real) and real not in (self.project, *self.write):
                self._hold_path(real)
                if real in self.read_only:
                    self.trees.add(real)
                    return real
        return ""

    def _hold_alternates(self, common_dir: str) -> None:
        """Make the repository's alternates readable, and protect the list, so that commands cannot extend it."""
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
        """Return the topmost directory around `path` whose name matters: that of its git directory, else the project."""
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


def own_repository(project: str) -> Repository | None:
    return clear_repository(f"{project}/.git")


def outside(own: Repository | None, survey: Survey) -> list[str]:
    """Return the directories of the project's `own` repository outside the project, if that repository points back to it."""
    if own is None or is_within(own.common_dir, survey.project) or not _answers(own, survey):
        return []
    is_one = is_within(own.git_dir, own.common_dir)
    directories = [own.common_dir] if is_one else [own.common_dir, own.git_dir]
    return [path for path in directories if os.path.isdir(path)]


def leads_nowhere(project: str) -> str:
    """Return the missing target of the project's `.git`, if it points to a pruned worktree or a moved repository."""
    own = own_repository(project)
    return own.git_dir if own and not os.path.isdir(own.git_dir) else ""


def _answers(own: Repository, survey: Survey) -> bool:
    """
    Return whether the repository outside points back to this project.

    A command can write a `.git` file that points to any repository of the user, but it cannot make that repository point back. A linked
    worktree does so in `gitdir`, a submodule in `core.worktree`. A repository made by `git init --separate-git-dir` does not; it is
    accepted unless it is named `.git` or below such a directory, as other projects' repositories are.
    """
    try:
        answer = pointer(f"{own.git_dir}/gitdir")
    except (OSError, AmbiguousPathError):
        config = f"{own.git_dir}/config"
        settings = settings_of(survey.git, "--no-includes", "--file", config)
        worktree = [value for _, key, value in settings if key == "core.worktree"]
        if not worktree:
            return ".git" not in own.git_dir.split("/")
        return leads_to(own.git_dir, worktree[-1]) == survey.project
    return leads_to(own.git_dir, answer) == f"{survey.project}/.git"
