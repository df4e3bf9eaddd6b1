"""The audit: compares what git would run, and the project's listed names, with their state when the sandbox opened."""

import os
import stat
from collections.abc import Callable, Iterator
from importlib import import_module

from sanderling.paths import closed_after, is_within
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.git_program import AmbiguousPathError, leads_to
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
    links_in,
    read_file,
    survey,
)
from sanderling.sandbox.guard.restoring import ProjectRestorer
from sanderling.sandbox.guard.running_code import RunningCode
from sanderling.sandbox.guard.settings import executable_settings, relative_settings
from sanderling.sandbox.guard.tree import identity, open_directory, open_up

MAX_REPORTED = 30
HAS_ANOTHER_NAME = "is protected, but has a hard link that is not: writing there changes it, too"
WRITES_ELSEWHERE = "is a link that makes your git write to another file when you commit"
MAY_RUN = ", and may run code or instruct an agent when you open, enter or commit the project"


class Audit:
    """Checks what git would run in `project`, and its listed names, against the state `found` when the sandbox opened."""

    def __init__(
        self,
        project: GuardedProject,
        quarantine: Quarantine,
        restorer: ProjectRestorer,
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
        self._links = self._git_links(found, lambda _: False)
        self._stamps = self._stamped(found.named)
        self._users = relative_settings(found.git)
        if self._users:  # imported now, because a command can change it if the project is Sanderling's own checkout
            import_module("sanderling.sandbox.guard.command_lines")
        self._absent = protection.absent
        self._linked = {path: listed.stamp(path) for path in protection.linked}
        self._runs = RunningCode(project, protection)

    def warn(self) -> None:
        """Report what cannot be protected, before anything runs."""
        self._runs.warn()
        for path in self._linked:
            self._project.tell("warned", path, HAS_ANOTHER_NAME)

    def look(self, between: Callable[[], object], *, is_routine: bool) -> None:
        """Walk the project and check everything. `between` is called regularly, for urgent work."""
        try:
            found = survey(self._project.path, self._git, between, self._make_listable)
        except OSError as error:
            self._project.tell("failed", self._project.path, f"cannot be scanned: {error.strerror}")
            return
        # Shared repositories first: their faults must not be blamed on the worktrees that point to them.
        entries = self._entries(found)
        entries.sort(key=lambda path: (is_within(path, self._project.path), len(path)))
        for entry in entries:
            try:
                between()
                self._judge(entry)
            except OSError as error:
                self._project.tell("failed", entry, f"cannot be checked: {error.strerror}")
        for path, target in self._git_links(found, self._make_listable).items():
            if self._links.get(path) != target:
                self._quarantine.take(path, WRITES_ELSEWHERE)
        for path, setting in self._absent:
            if os.path.lexists(path):
                self._quarantine.take(path, f"must not appear, because {setting} makes git run it")
        if not is_routine:
            self._report_names(found.named)
            self._runs.report_changes()
            self._report_linked()

    def _git_links(self, found: Survey, makes_listable: Callable[[str], bool]) -> dict[str, str]:
        """
        Return the links in the git directories that commands can write, with their targets.

        Git follows a link when it writes a message (`COMMIT_EDITMSG`) or a reflog. So the user's next commit would write the model's
        text to any file of the user's.
        """
        links: dict[str, str] = {}
        for directory in git_directories(found, self._project.roots[1:]):
            links |= links_in(directory, makes_listable)
        return links

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
        except AmbiguousPathError as error:
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
        """Yield the path and the reason of everything that git would run or trust in this repository and did not before."""
        is_outside = not (
            self._project.is_inside(now.git_dir) or self._project.is_inside(now.common_dir)
        )
        if was is not None and is_outside and now.git_dir == was.git_dir:
            return  # changed by the host: a repaired worktree, or a repository that is back
        if was is None or (now.git_dir, now.common_dir) != (was.git_dir, was.common_dir):
            if was is not None:
                is_moved = now.git_dir == was.git_dir
                path = f"{now.git_dir}/commondir" if is_moved else now.entry
                yield path, "now points elsewhere"
            if not (
                self._project.is_inside(now.git_dir) and self._project.is_inside(now.common_dir)
            ):
                yield now.entry, "points outside the project"
                return
        elif not self._project.is_inside(now.common_dir):
            return  # unchanged, and the sandbox cannot write there
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

    def _report_names(self, named: list[str]) -> None:
        """Report new and changed names of the table that were not protected. They stay."""
        before, self._stamps = self._stamps, self._stamped(named)
        news = [
            path
            for path, stamp in self._stamps.items()
            if stamp and stamp != before.get(path) and not self._is_copy(path)
        ]
        for path in news[:MAX_REPORTED]:
            self._project.tell(
                "noticed", path, ("was changed" if path in before else "is new") + MAY_RUN
            )
        if (more := len(news) - MAX_REPORTED) > 0:
            self._project.tell(
                "noticed",
                news[MAX_REPORTED],
                f"is new or changed, as are {more - 1} others{MAY_RUN}",
            )

    def _report_linked(self) -> None:
        """Report protected files that may have changed through a hard link. Without mounts they were restored."""
        for path, before in () if self._project.restores else tuple(self._linked.items()):
            self._linked[path] = now = listed.stamp(path)
            if now and now != before:
                reason = f"was changed, perhaps through an unprotected hard link{MAY_RUN}"
                self._project.tell("noticed", path, reason)

    def _is_copy(self, path: str) -> bool:
        """Return whether the project has the same file nearer to its root, because `path` is in a worktree or clone inside the project."""
        parts = os.path.relpath(path, self._project.path).split("/")
        nearer = ("/".join((self._project.path, *parts[n:])) for n in range(1, len(parts)))
        return any(
            self._project.is_as_it_was(original) and listed.is_copy(path, original)
            for original in nearer
        )

    def _stamped(self, named: list[str]) -> dict[str, tuple[object, ...]]:
        """Return a stamp of each path, empty for paths that are protected."""
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
            return "has a config that is not a regular file"
        was = self._project.kept.get(path)
        added = self._settings(content) - self._settings(was.content if was else b"")
        settings = [setting.partition("\n") for setting in added]
        directory = os.path.dirname(path)
        keys = sorted(
            {
                key
                for key, _, value in settings
                # A submodule's worktree is where it is checked out. Any other path would let `git checkout` write there as the user.
                if key != "core.worktree" or not self._project.is_inside(leads_to(directory, value))
            }
        )
        return f"has a config that sets {', '.join(keys)}" if keys else ""

    def _faults_of_hooks(self, directory: str) -> Iterator[tuple[str, str]]:
        if self._project.is_as_it_was(directory):
            return
        try:
            if stat.S_ISLNK(os.lstat(directory).st_mode):
                yield directory, "has a link as its hooks directory"
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
        """Yield files that the user's own settings make git run in every repository, by a path relative to its top."""
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
                    yield path, f"is what your own {key} makes git run"

    def _settings(self, content: bytes) -> frozenset[str]:
        if not content.strip():
            return frozenset()
        if content not in self._settings_of:
            self._settings_of[content] = executable_settings(content, self._git)
        return self._settings_of[content]

    def _make_listable(self, path: str) -> bool:
        """
        Make a directory listable that can be entered but not read.

        Git finds a repository in it by a path from the index, but a walk does not.
        """
        try:
            mode = os.lstat(path).st_mode
            if not mode & stat.S_IXUSR or mode & stat.S_IRUSR:
                return False
            with closed_after(open_directory(os.path.dirname(path))) as parent:
                open_up(parent, os.path.basename(path))
        except OSError:
            return False  # gone, or another user's directory, where the sandbox cannot write either
        self._project.tell(
            "restored", path, "could be entered but not listed, so a repository could hide in it"
        )
        return True
