"""The protection of a project's repositories: what is read-only, what is guarded, what is hidden."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.git_program import UnclearError, follow_links, leads_to
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
    A setting that runs more of the project than can be held, as it is shown.

    `ruling` is what decides about it, which the user is warned of, and so are `trees` where nothing is mounted; there and
    `nearby`, where more may be loaded from, changes count. `is_unclear`: the line does not say what it runs.
    """

    setting: str
    origin: str
    trees: tuple[str, ...]
    ruling: tuple[str, ...]
    nearby: tuple[str, ...]
    is_unclear: bool


class GitProtection(NamedTuple):
    """
    The mounts' part for git; all paths absolute.

    `write`, `read`: directories outside the project that git needs, writable or not. `pin`: directories to be bound onto
    themselves, so that they cannot be renamed away. `read_only`: files and directories to be bound read-only. `watch`: the names
    that must not appear in a directory. `trees` are those of `read_only` that are too much to be looked at. `absent`: paths that
    must not come to be, in directories that are not there yet, with the setting that would run them. `runs`: what cannot be held.
    `linked`: held files with another name that was not found. `shared`: the project's core.sharedRepository.
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


def protection(survey: Survey, granted: tuple[str, ...] = ()) -> GitProtection:
    """
    Find what must be protected in the project and its repositories, as they are now: after `place_sentinels`, which this sees.

    The names of the table that are not in the project's root yet are left to the guard, those in directories of its own excepted.

    A repository outside the project is made writable only for the project's own `.git`, and only if it answers to the project. In
    directories that are `granted` as well, other names of what is held are looked for.
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
    return GitProtection(
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

    def hold_other_names(self, granted: tuple[str, ...]) -> None:
        found, missing = other_names(self.read_only, (self.project, *self.write, *granted))
        self.read_only.update(found[:MAX_OTHER_NAMES])
        self.linked = [*found[MAX_OTHER_NAMES:], *missing]

    def _hold_what_hooks_name(self, hooks: str) -> None:
        """Hold what links among `hooks` lead to, the files that hooks name, and those that these name."""
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
        # From where the hook lies (`$(dirname "$0")/lint`), or from the root, where git runs it.
        around = os.path.dirname(hooks)
        for path in scripts_named_by(
            scripts, (self.project, hooks, around, os.path.dirname(around))
        ):
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
            self._hold_path(follow_links(link))

    def _hold_path(self, path: str) -> None:
        """Hold what the project has at `path`, whose parents may be missing or links; nothing outside."""
        path = os.path.normpath(path)
        if not self._is_inside(path) or path in (self.project, *self.write):
            return
        while not os.path.isdir(parent := os.path.dirname(path)):
            path = parent
        try:
            real = follow_links(parent)
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
            # Husky's: what is there runs its namesake one above.
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
                continue  # rather a file that it is about
            if os.path.isdir(os.path.dirname(path)):
                self._hold_path(path)
            else:  # to forbid `tools` because of `tools/x` would forbid too much
                self.absent[path] = key
        ruling, nearby = (
            tuple(sorted(filter(self._is_inside, paths))) for paths in (found.ruling, found.nearby)
        )
        if not is_typed and (trees or ruling or nearby or found.is_unclear):
            shown = line if len(line) <= MAX_SHOWN_CHARS else f"{line[:MAX_SHOWN_CHARS]}…"
            run = Run(f"{key} = {shown}", origin, tuple(trees), ruling, nearby, found.is_unclear)
            self.runs.setdefault((worktree, run.setting), run)

    def _hold_tree(self, path: str) -> str:
        """Hold a directory of packages, so many files that nobody can keep their content; return where it is, if it is held."""
        with suppress(UnclearError):
            real = follow_links(path)
            if self._is_inside(real) and real not in (self.project, *self.write):
                self._hold_path(real)
                if real in self.read_only:
                    self.trees.add(real)
                    return real
        return ""

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


def own_repository(project: str) -> Repository | None:
    return clear_repository(f"{project}/.git")


def outside(own: Repository | None, survey: Survey) -> list[str]:
    """The directories of the project's `own` repository that lie outside of it, if that answers to the project."""
    if own is None or is_within(own.common_dir, survey.project) or not _answers(own, survey):
        return []
    is_one = is_within(own.git_dir, own.common_dir)
    directories = [own.common_dir] if is_one else [own.common_dir, own.git_dir]
    return [path for path in directories if os.path.isdir(path)]


def leads_nowhere(project: str) -> str:
    """Return where the project's `.git` leads, if that is not there: a worktree that was pruned, a repository that was moved."""
    own = own_repository(project)
    return own.git_dir if own and not os.path.isdir(own.git_dir) else ""


def _answers(own: Repository, survey: Survey) -> bool:
    """
    Say whether the repository outside knows of this project: the sandbox can write a pointer to any repository of the user, but no answer.

    A linked worktree is answered by `gitdir`, a submodule by `core.worktree`. One that `git init --separate-git-dir` made says
    nothing; it is told by its place, for others' are called `.git` or lie below one.
    """
    try:
        answer = pointer(f"{own.git_dir}/gitdir")
    except (OSError, UnclearError):
        config = f"{own.git_dir}/config"
        settings = settings_of(survey.git, "--no-includes", "--file", config)
        worktree = [value for _, key, value in settings if key == "core.worktree"]
        if not worktree:
            return ".git" not in own.git_dir.split("/")
        return leads_to(own.git_dir, worktree[-1]) == survey.project
    return leads_to(own.git_dir, answer) == f"{survey.project}/.git"
