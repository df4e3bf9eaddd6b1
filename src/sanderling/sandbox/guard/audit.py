"""The audit: what git would run, and what else the project holds, compared with how it was at the start."""

import os
import stat
from collections.abc import Callable, Iterator
from importlib import import_module

from sanderling.paths import is_within
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.git_program import UnclearError, leads_to
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.protection import GitProtection
from sanderling.sandbox.guard.quarantine import Quarantine
from sanderling.sandbox.guard.repositories import (
    MAX_CONFIG_BYTES,
    Repository,
    Survey,
    alternates,
    clear_repository,
    find_repository,
    git_directories,
    read_file,
    survey,
)
from sanderling.sandbox.guard.restoring import Restorer
from sanderling.sandbox.guard.running_code import RunningCode
from sanderling.sandbox.guard.settings import executable_settings, relative_settings
from sanderling.sandbox.guard.tree import identity, open_directory, open_up

MAX_TOLD = 30
HAS_ANOTHER_NAME = (
    "is protected, and has another name that is not: what is written there changes it, too"
)
MAY_RUN = ", and may run something or instruct an agent when you open, enter or commit the project"


class Audit:
    """A look at what git would run in `project` and what the table of names has there, against what was `found` at the start."""

    def __init__(
        self,
        project: GuardedProject,
        quarantine: Quarantine,
        restorer: Restorer,
        found: Survey,
        protection: GitProtection,
    ) -> None:
        self._project = project
        self._quarantine = quarantine
        self._restorer = restorer
        self._git = found.git
        self._settings_of: dict[bytes, frozenset[str]] = {}
        self._known = {
            entry: (identity(entry), clear_repository(entry)) for entry in self._entries(found)
        }
        self._stamps = self._stamped(found.named)
        self._users = relative_settings(found.git)
        if self._users:  # now, for where the project is our own checkout, a command can change it
            import_module("sanderling.sandbox.guard.command_lines")
        self._absent = protection.absent
        self._linked = {path: listed.stamp(path) for path in protection.linked}
        self._runs = RunningCode(project, protection)

    def warn(self) -> None:
        """Tell of what cannot be held, before anything runs."""
        self._runs.warn()
        for path in self._linked:
            self._project.tell("warned", path, HAS_ANOTHER_NAME)

    def look(self, between: Callable[[], object], *, is_routine: bool) -> None:
        """Walk the project and judge what is there. `between` is called now and then, for what cannot wait."""
        try:
            found = survey(self._project.path, self._git, between)
            if sum(self._make_listable(path) for path in found.unlistable):
                found = survey(self._project.path, self._git, between)
        except OSError as error:
            self._project.tell("failed", self._project.path, f"cannot be walked: {error.strerror}")
            return
        # The repositories that others lead to come first: what is wrong with them is not the fault of who leads there.
        entries = self._entries(found)
        entries.sort(key=lambda path: (is_within(path, self._project.path), len(path)))
        for entry in entries:
            try:
                between()
                self._judge(entry)
            except OSError as error:
                self._project.tell("failed", entry, f"cannot be judged: {error.strerror}")
        for path, setting in self._absent:
            if os.path.lexists(path):
                self._quarantine.take(path, f"must not appear, for {setting} has git run it")
        if not is_routine:
            self._tell_of_names(found.named)
            self._runs.tell_of_changes()
            self._tell_of_linked()

    def _entries(self, found: Survey) -> list[str]:
        directories = git_directories(found, self._project.roots[1:])
        return list(dict.fromkeys((*found.repositories, *directories)))

    def _judge(self, entry: str) -> None:
        found = identity(entry)
        if found is None:
            return
        was_identity, was_repository = self._known.get(entry, (None, None))
        is_known = was_identity == found or entry in self._project.roots
        try:
            repository = find_repository(entry)
            faults = list(self._faults(repository, was_repository)) if repository else []
        except UnclearError as error:
            repository = None
            faults = [(entry, str(error))] if not is_known or was_repository else []
        if not faults:
            self._known[entry] = (found, repository)
        elif is_known:
            for path, reason in faults:
                if self._quarantine.take(path, reason) and path in self._project.kept:
                    self._restorer.put_back(path)
        else:
            self._quarantine.take(entry, "; ".join(sorted({reason for _, reason in faults})))

    def _faults(self, now: Repository, was: Repository | None) -> Iterator[tuple[str, str]]:
        """Find what git would run or trust by way of this repository that it did not at the start: the path and the reason."""
        is_outside = not (
            self._project.is_inside(now.git_dir) or self._project.is_inside(now.common_dir)
        )
        if was is not None and is_outside and now.git_dir == was.git_dir:
            return  # the host's business: a worktree that is repaired, a repository that is back
        if was is None or (now.git_dir, now.common_dir) != (was.git_dir, was.common_dir):
            if was is not None:
                is_moved = now.git_dir == was.git_dir
                path = f"{now.git_dir}/commondir" if is_moved else now.entry
                yield path, "leads elsewhere than it did"
            if not (
                self._project.is_inside(now.git_dir) and self._project.is_inside(now.common_dir)
            ):
                yield now.entry, "leads out of the project"
                return
        elif not self._project.is_inside(now.common_dir):
            return  # where it always led, and where the sandbox cannot write
        configs = (f"{now.common_dir}/config", f"{now.common_dir}/config.worktree")
        for path in dict.fromkeys((*configs, f"{now.git_dir}/config.worktree")):
            if reason := self._fault_of_config(path):
                yield path, reason
        yield from self._faults_of_hooks(f"{now.common_dir}/hooks")
        yield from self._faults_of_users_settings(now.entry)
        store = f"{now.common_dir}/objects"
        path = f"{store}/info/alternates"
        if not self._project.is_as_it_was(path) and not all(
            map(self._project.is_inside, alternates(store))
        ):
            yield path, "borrows objects from outside the project"

    def _tell_of_names(self, named: list[str]) -> None:
        """Tell of names that the table has and nothing held; they stay."""
        before, self._stamps = self._stamps, self._stamped(named)
        news = [
            path
            for path, stamp in self._stamps.items()
            if stamp and stamp != before.get(path) and not self._is_copy(path)
        ]
        for path in news[:MAX_TOLD]:
            self._project.tell(
                "noticed", path, ("was changed" if path in before else "is new") + MAY_RUN
            )
        if (more := len(news) - MAX_TOLD) > 0:
            self._project.tell(
                "noticed", news[MAX_TOLD], f"is new or changed, as are {more - 1} others{MAY_RUN}"
            )

    def _tell_of_linked(self) -> None:
        """Tell of files that have changed by another name, perhaps; where nothing is mounted they were put back."""
        for path, before in () if self._project.restores else tuple(self._linked.items()):
            self._linked[path] = now = listed.stamp(path)
            if now and now != before:
                reason = f"was changed, perhaps by another name that is not protected{MAY_RUN}"
                self._project.tell("noticed", path, reason)

    def _is_copy(self, path: str) -> bool:
        """Say whether the project holds the same nearer its root: `path` is of a worktree, or a clone, that was made inside."""
        parts = os.path.relpath(path, self._project.path).split("/")
        nearer = ("/".join((self._project.path, *parts[n:])) for n in range(1, len(parts)))
        return any(
            self._project.is_as_it_was(original) and listed.is_copy(path, original)
            for original in nearer
        )

    def _stamped(self, named: list[str]) -> dict[str, tuple[object, ...]]:
        """Return a stamp of each path; what is held needs no looking at."""
        return {
            path: () if self._project.is_as_it_was(path) else listed.stamp(path) for path in named
        }

    def _fault_of_config(self, path: str) -> str:
        if self._project.is_as_it_was(path):
            return ""
        try:
            content = read_file(path, MAX_CONFIG_BYTES, follows=False)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:
            return "has a config that is no plain file"
        was = self._project.kept.get(path)
        added = self._settings(content) - self._settings(was.content if was else b"")
        settings = [setting.partition("\n") for setting in added]
        directory = os.path.dirname(path)
        keys = sorted(
            {
                key
                for key, _, value in settings
                # A submodule's leads back to where it is checked out; elsewhere a `git checkout` would write as the user.
                if key != "core.worktree" or not self._project.is_inside(leads_to(directory, value))
            }
        )
        return f"has a config that sets {', '.join(keys)}" if keys else ""

    def _faults_of_hooks(self, directory: str) -> Iterator[tuple[str, str]]:
        if self._project.is_as_it_was(directory):
            return
        try:
            if stat.S_ISLNK(os.lstat(directory).st_mode):
                yield directory, "has a link for its hooks"
                return
            names = os.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            yield directory, "has hooks that cannot be listed"
            return
        for name in names:
            path = f"{directory}/{name}"
            if not name.endswith(".sample") and not self._project.is_as_it_was(path):
                yield path, f"has a hook {name}"

    def _faults_of_users_settings(self, entry: str) -> Iterator[tuple[str, str]]:
        """Find what the user's own settings run in every repository, by a path from its top."""
        worktree = os.path.dirname(entry) if os.path.basename(entry) == ".git" else entry
        if not self._users:
            return
        from sanderling.sandbox.guard.command_lines import found_in_line

        for key, value in self._users:
            if key == "core.hookspath":
                yield from self._faults_of_hooks(os.path.normpath(f"{worktree}/{value}"))
                continue
            for path in sorted(found_in_line(value, worktree).files):
                if is_within(path, worktree) and not self._project.is_as_it_was(path):
                    yield path, f"has what your own {key} has git run"

    def _settings(self, content: bytes) -> frozenset[str]:
        if not content.strip():
            return frozenset()
        if content not in self._settings_of:
            self._settings_of[content] = executable_settings(content, self._git)
        return self._settings_of[content]

    def _make_listable(self, path: str) -> bool:
        """
        Let the owner list a directory that can be entered.

        Git finds a repository in it by a path from the index, and a walk does not.
        """
        try:
            mode = os.lstat(path).st_mode
            if not mode & stat.S_IXUSR or mode & stat.S_IRUSR:
                return False
            parent = open_directory(os.path.dirname(path))
        except OSError:
            return False
        try:
            open_up(parent, os.path.basename(path))
        except OSError:
            return False  # another user's: the sandbox cannot write there either
        finally:
            os.close(parent)
        self._project.tell(
            "restored", path, "could be entered but not listed, so a repository could hide in it"
        )
        return True
