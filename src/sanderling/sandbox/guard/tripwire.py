"""The tripwire: with inotify, reacts within a millisecond to forbidden names, and to protected files that were removed or replaced."""

import errno
import os
import stat
from contextlib import suppress
from typing import Literal, NamedTuple

from sanderling.errors import NoRoomError
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.protection import GitProtection
from sanderling.sandbox.guard.quarantine import Quarantine
from sanderling.sandbox.guard.repositories import SURFACE, WORKTREE_SURFACE
from sanderling.sandbox.guard.restoring import ProjectRestorer
from sanderling.sandbox.guard.tree import (
    READS_AT_A_TIME,
    identity,
    identity_of,
    look,
    open_directory,
    snapshot,
)
from sanderling.sandbox.kernel import inotify
from sanderling.sandbox.kernel.inotify import (
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
)

JUDGED_NAMES = frozenset({".git", *SURFACE, *WORKTREE_SURFACE})
"""Names that the audit judges by their content. The host may remove and recreate them, as with worktrees or submodules."""

GENEROUS: dict[Literal["instances", "watches"], int] = {"instances": 1024, "watches": 524_288}
"""inotify limits that suffice for several editors."""


def _no_room(what: Literal["instances", "watches"]) -> NoRoomError:
    limit = inotify.limit(what)
    return NoRoomError(
        f"Cannot watch the project: no inotify {what} left (limit {limit}). Raise the limit and try again: "
        f"`sudo sysctl fs.inotify.max_user_{what}={max(2 * limit, GENEROUS[what])}`. "
        "Or close programs that watch files. Help: sanderling-inotify"
    )


class _Watch(NamedTuple):
    directory: str
    fd: int


_Times = tuple[int, int, int] | None
"""The inode, mtime and ctime of a directory."""


def _times(directory: str) -> _Times:
    try:
        found = os.lstat(directory)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


class Tripwire:
    """
    Watches the directories of forbidden and protected names in `project`.

    Raises:
        NoRoomError: no inotify instance or watch is left.
    """

    def __init__(
        self,
        project: GuardedProject,
        quarantine: Quarantine,
        restorer: ProjectRestorer,
        protection: GitProtection,
    ) -> None:
        self._project = project
        self._quarantine = quarantine
        self._restorer = restorer
        held = protection.read_only
        self._forbidden = {directory: set(names) for directory, names in protection.watch}
        root_names = {name for name in listed.AT_ROOT if "/" not in name}
        absent = {name for name in root_names if f"{project.path}/{name}" not in held}
        self._forbidden.setdefault(project.path, set()).update(absent)
        # Links cannot be mounted over, so the user's own links are recognized by their targets.
        self._links = {
            path: link
            for directory, names in self._forbidden.items()
            for name in names
            if (link := look(path := f"{directory}/{name}")) and link.kind == stat.S_IFLNK
        }
        self._homes = {directory: identity(directory) for directory in map(os.path.dirname, held)}
        self._held: dict[str, set[str]] = {}
        for path in held:
            directory, name = os.path.split(path)
            self._held.setdefault(directory, set()).add(name)
        self._vanished: set[str] = set()
        self._moved = (0, "")  # cookie and old name of the last protected file that was renamed
        self._watches: dict[int, _Watch] = {}
        self._fd = self._opened()
        for directory in self._forbidden.keys() | self._held.keys():
            self._watch(directory)

    def _opened(self) -> int:
        try:
            return inotify.instance()
        except OSError as error:
            raise _no_room("instances") from error

    def fileno(self) -> int:
        return self._fd

    def is_kept_from(self, path: str) -> bool:
        directory, name = os.path.split(path)
        is_gits = name in SURFACE and ".git" in directory.split("/")
        is_put_back = self._project.restores and name in self._held.get(directory, ())
        return is_gits or is_put_back or name in self._forbidden.get(directory, ())

    def _watch(self, directory: str) -> None:
        try:
            fd = open_directory(directory)
        except OSError:
            return  # missing; the audit checks again
        mask = IN_CREATE | IN_MOVED_TO
        mask |= (
            IN_MOVE_SELF | IN_DELETE_SELF if self._project.restores else IN_MOVED_FROM | IN_DELETE
        )
        try:
            wd = inotify.watch(self._fd, f"/proc/self/fd/{fd}", mask)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.ENOSPC:
                raise _no_room("watches") from error
            return
        if wd in self._watches:
            os.close(self._watches[wd].fd)
        self._watches[wd] = _Watch(directory, fd)

    def read_events(self) -> None:
        for event in inotify.events(self._fd, READS_AT_A_TIME):
            if not self._project.is_lost():
                self._handle(*event)

    def _handle(self, wd: int, mask: int, cookie: int, name: str) -> None:
        if mask & IN_Q_OVERFLOW:
            self.check_all()
            return
        watch = self._watches.get(wd)
        if watch is None:
            return
        path = f"{watch.directory}/{name}"
        if mask & IN_IGNORED:
            os.close(self._watches.pop(wd).fd)
        elif mask & (IN_MOVE_SELF | IN_DELETE_SELF):
            self._restorer.put_all_back()
        elif mask & (IN_DELETE | IN_MOVED_FROM):
            if name in self._held.get(watch.directory, ()):
                self._moved = (cookie, path)
                self._handle_vanished(path)
        elif mask & IN_MOVED_TO and (cookie, path) == (self._moved[0], f"{self._moved[1]}~"):
            self._hold_again(self._moved[1])
        elif name in self._forbidden.get(watch.directory, ()):
            self._handle_forbidden(watch, name)
        elif name in self._held.get(watch.directory, ()):
            self._handle_replaced(path, is_certain=True)

    def _handle_forbidden(self, watch: _Watch, name: str) -> None:
        path = f"{watch.directory}/{name}"
        link = self._links.get(path)
        if link and look(name, watch.fd) == link:
            return
        reason = "must not appear"
        if path in self._vanished:
            reason = "was removed by the host and came back while the sandbox was open; if it is yours, take it back from there"
        if self._quarantine.take_at(watch.fd, name, path, reason) and link:
            self._project.kept[path] = link
            self._restorer.put_back(path)
            self._project.kept.pop(path, None)

    def _handle_vanished(self, path: str) -> None:
        """
        Handle the removal of a protected file by the host. Its mount is gone with it, so commands could create the name.

        The tripwire cannot know who creates it, so from now on the name is forbidden, although it may be `git checkout` that creates it
        again.
        """
        directory, name = os.path.split(path)
        if identity(directory) != self._homes[directory]:
            return
        self._held[directory].discard(name)
        self._project.bound.pop(path, None)
        if name not in JUDGED_NAMES and path not in self._project.below_root:
            self._forbidden.setdefault(directory, set()).add(name)
            self._vanished.add(path)

    def _hold_again(self, path: str) -> None:
        """Protect a file again that an editor saves: it renamed the old file to `NAME~`, which commands cannot, and writes a new one."""
        directory, name = os.path.split(path)
        self._held[directory].add(name)
        self._forbidden.get(directory, set()).discard(name)
        self._vanished.discard(path)
        self._project.bound[path] = None

    def _handle_replaced(self, path: str, *, is_certain: bool = False) -> None:
        """Handle the replacement of a protected file. `is_certain`: an event reported it, so an equal inode number does not disprove it."""
        if self._project.restores:
            if path in self._project.kept:
                self._restorer.put_back(path)
        elif path in self._project.bound and (
            is_certain or identity(path) != self._project.bound[path]
        ):
            directory = os.path.dirname(path)
            if identity(directory) != self._homes[directory]:
                del self._project.bound[path]
                return  # a parent directory was moved, which commands can do; the audit judges it
            # Commands cannot do this, because of the mount, so it was the host. They can write to the new file until it is mounted again.
            self._project.bound[path] = identity(path)
            self._project.replaced.add(path)
            if path not in self._project.trees:
                self._project.kept |= snapshot([path])
            self._project.tell(
                "replaced", path, "was replaced by the host, so it is mounted no more"
            )

    def check_all(self) -> None:
        """Check everything as if all events had been lost: by name, in directories that may have been replaced."""
        current = {watch.directory: watch for watch in self._watches.values()}
        for directory in self._forbidden.keys() | self._held.keys():
            watch = current.get(directory)
            if watch is None or identity(directory) != identity_of(watch.fd):
                self._watch(directory)
        for watch in list(self._watches.values()):
            for name in list(self._forbidden.get(watch.directory, ())):
                if identity(name, watch.fd):
                    self._handle_forbidden(watch, name)
            for name in list(self._held.get(watch.directory, ())) if self._project.bound else ():
                if identity(name, watch.fd):
                    self._handle_replaced(f"{watch.directory}/{name}")
                else:
                    self._handle_vanished(f"{watch.directory}/{name}")

    def close(self) -> None:
        for watch in self._watches.values():
            os.close(watch.fd)
        if self._fd >= 0:
            os.close(self._fd)


class PolledTripwire(Tripwire):
    """
    A tripwire for macOS, without inotify: it compares the times of its directories at each call.

    A profile protects names, whatever file has them. So commands cannot have replaced or removed a protected file, and the one that the host
    puts in its place is protected, too.

    A kqueue would need one open file for each protected file to notice its replacement, and tells no names either.
    """

    def _opened(self) -> int:
        self._times = dict[str, _Times]()
        return -1

    def _watch(self, directory: str) -> None:
        with suppress(OSError):  # missing; the audit checks again
            fd = open_directory(directory)
            if watch := self._watches.get(self._number(directory)):
                os.close(watch.fd)
            self._watches[self._number(directory)] = _Watch(directory, fd)
            self._times[directory] = _times(directory)

    def _number(self, directory: str) -> int:
        known = {watch.directory: number for number, watch in self._watches.items()}
        return known.get(directory, len(known))

    def read_events(self) -> None:
        now = {directory: _times(directory) for directory in self._times}
        if now == self._times or self._project.is_lost():
            return
        self._times = (
            now  # before the checks, so that what happens meanwhile is seen at the next call
        )
        self.check_all()

    def _handle_vanished(self, path: str) -> None:
        pass

    def _handle_replaced(self, path: str, *, is_certain: bool = False) -> None:  # noqa: ARG002
        self._project.bound[path] = identity(path)
