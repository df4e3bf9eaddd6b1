"""
The guard: what no mount can prevent is noticed and undone, from outside.

A mount protects what exists. Three things are left: a name that does not exist, yet or any more (`.envrc`), a new
repository whose own config or hooks run something, and, where there are no namespaces, every file of the project. For the first
there is a **tripwire**: inotify tells of the name, and within a millisecond it is renamed into the quarantine. For the second an
**audit** after commands: what git would run is compared with what it ran at the start. For the third the audit **restores**.

The guard works as the user, with all of the user's rights, in a tree that an attacker may change at the same moment. So it
*reads* by path, for a wrong answer then is repeated at the next audit, but *writes* only by descriptor: a rename or a file is
relative to a directory that was reached without following one link. Nothing in the tree makes these methods raise.
"""

import ctypes
import errno
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from sanderling.errors import SandboxError
from sanderling.paths import is_in_any, is_within
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.git_program import UnclearError, leads_to
from sanderling.sandbox.guard.protection import GitProtection
from sanderling.sandbox.guard.quarantine import TooMuchError, move
from sanderling.sandbox.guard.repositories import (
    MAX_CONFIG_BYTES,
    SURFACE,
    WORKTREE_SURFACE,
    Repository,
    Survey,
    alternates,
    clear_repository,
    find_repository,
    git_directories,
    read_file,
    survey,
)
from sanderling.sandbox.guard.settings import executable_settings
from sanderling.sandbox.guard.tree import (
    DIRECTORY,
    READS_AT_A_TIME,
    Identity,
    change_mode,
    identity,
    identity_at,
    identity_of,
    look,
    open_directory,
    open_up,
    put,
    rename_back,
    snapshot,
)
from sanderling.sandbox.report import GuardEvent

JUDGED_NAMES = frozenset({".git", *SURFACE, *WORKTREE_SURFACE})
"""What the audit judges by what it holds: the host may remove and make it again, as with a worktree or a submodule."""

MAX_TOLD = 30
MAY_RUN = ", and may run something or instruct an agent when you open, enter or commit the project"

IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF = 0x400, 0x800
IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR = 0x4000, 0x8000, 0x0100_0000
EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


class _Watch(NamedTuple):
    directory: str
    fd: int


class Guard:
    """
    Watch over one project from now on. `found` and `protection` describe it as it is and as the mounts hold it.

    `restores`: nothing is mounted; the guard puts back what changed.

    Raises:
        SandboxError: the kernel has no inotify watch to give.
    """

    def __init__(
        self, found: Survey, protection: GitProtection, quarantine_dir: str, *, restores: bool
    ) -> None:
        self._project = found.project
        self._git = found.git
        self._project_identity = identity(found.project)
        self._roots = (found.project, *protection.write)
        self._quarantine_dir = quarantine_dir
        self._restores = restores
        self._events: list[GuardEvent] = []
        self._settings_of: dict[bytes, frozenset[str]] = {}
        held = protection.read_only
        self._kept = snapshot(held)
        # Whoever opened one of these before it was mounted again can write it for ever: they are judged by content.
        self._replaced: set[str] = set()
        self._bound: dict[str, Identity | None] = (
            {} if restores else {path: identity(path) for path in held}
        )
        self._known = {
            entry: (identity(entry), clear_repository(entry)) for entry in self._entries(found)
        }
        self._pins = {path: os.open(path, DIRECTORY) for path in protection.pin if restores}
        self._pin_modes = {path: os.fstat(fd).st_mode for path, fd in self._pins.items()}

        self._forbidden = {directory: set(names) for directory, names in protection.watch}
        root_names = {name for name in listed.AT_ROOT if "/" not in name}
        absent = {name for name in root_names if f"{found.project}/{name}" not in held}
        self._forbidden.setdefault(found.project, set()).update(absent)
        # Below the root a directory may go with what is held in it, and come back: that is told, not undone.
        self._below_root = {
            path
            for path in listed.held(found.named)
            if os.path.dirname(path) != found.project and self._shown(path) not in listed.AT_ROOT
        }
        self._stamps = self._stamped(found.named)
        # Nothing can be mounted over a link, so that the user's own are told by where they lead.
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
        self._moved = (0, "")  # the cookie and the old name of the last held file that was renamed

        os.makedirs(quarantine_dir, mode=0o700, exist_ok=True)
        self._quarantine_fd = os.open(quarantine_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd == -1:
            raise SandboxError(
                "The kernel has no inotify instance left, so nobody could guard the project."
            )
        self._watches: dict[int, _Watch] = {}
        for directory in self._forbidden.keys() | self._held.keys():
            self._watch(directory)

    def fileno(self) -> int:
        """The inotify descriptor: readable when `handle_events` has something to do."""
        return self._fd

    def handle_events(self) -> list[GuardEvent]:
        self._read_events()
        return self._taken()

    def undoes(self, path: str) -> bool:
        """
        Whether a change of `path`, which is real, would not last: of what is forbidden or held, of git's own, or of anything below.

        Whoever can be told beforehand need not see it taken away.
        """
        if self._is_inside(path) and os.path.basename(path) == ".git":
            return True
        while self._is_inside(path) and path not in self._roots:
            if self._is_kept_from(path):
                return True
            path = os.path.dirname(path)
        return False

    def _is_kept_from(self, path: str) -> bool:
        directory, name = os.path.split(path)
        is_gits = name in SURFACE and ".git" in directory.split("/")
        is_put_back = self._restores and name in self._held.get(directory, ())
        return is_gits or is_put_back or name in self._forbidden.get(directory, ())

    def audit(self, *, is_routine: bool = False) -> list[GuardEvent]:
        """
        Look at everything, after a command and before anything of the host is run again.

        Takes some 30 ms per 20 000 files, in which the tripwire still works. What could not be held is told, unless it `is_routine`:
        while a command runs, it may remove what it has made.
        """
        self._read_events()
        if self._has_lost_project():
            return self._taken()
        if self._restores:
            self._restore()
        self._check_watched()
        try:
            found = survey(self._project, self._git, self._read_events)
            if sum(self._make_listable(path) for path in found.unlistable):
                found = survey(self._project, self._git, self._read_events)
        except OSError as error:
            self._tell("failed", self._project, f"cannot be walked: {error.strerror}")
            return self._taken()
        # The repositories that others lead to come first: what is wrong with them is not the fault of who leads there.
        entries = self._entries(found)
        entries.sort(key=lambda path: (is_within(path, self._project), len(path)))
        for entry in entries:
            try:
                self._read_events()
                self._judge(entry)
            except OSError as error:
                self._tell("failed", entry, f"cannot be judged: {error.strerror}")
        if not is_routine:
            self._tell_of_names(found.named)
        return self._taken()

    def close(self) -> list[GuardEvent]:
        """The last audit, when every process of the session is gone."""
        events = self.audit()
        fds = [watch.fd for watch in self._watches.values()]
        for fd in (*fds, *self._pins.values(), self._quarantine_fd, self._fd):
            os.close(fd)
        return events

    def _has_lost_project(self) -> bool:
        """
        Whether something else is in the project's place: then that is none of ours, and what was moved away is left as it is.

        No command can do that, for the directory above is not theirs to write.
        """
        return identity(self._project) != self._project_identity

    def _taken(self) -> list[GuardEvent]:
        events, self._events = self._events, []
        return events

    def _tell(
        self,
        kind: Literal["quarantined", "restored", "replaced", "noticed", "failed"],
        path: str,
        reason: str,
        kept_at: str = "",
    ) -> None:
        self._events.append(GuardEvent(kind, self._shown(path), reason, kept_at))

    def _shown(self, path: str) -> str:
        return path.removeprefix(f"{self._project}/")

    # The tripwire.

    def _watch(self, directory: str) -> None:
        try:
            fd = open_directory(directory)
        except OSError:
            return  # not there: the audit looks again
        mask = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR
        mask |= IN_MOVE_SELF | IN_DELETE_SELF if self._restores else IN_MOVED_FROM | IN_DELETE
        wd: int = _libc.inotify_add_watch(self._fd, f"/proc/self/fd/{fd}".encode(), mask)
        if wd == -1:
            os.close(fd)
            if ctypes.get_errno() == errno.ENOSPC:
                raise SandboxError(
                    "The kernel has no inotify watch left, so nobody could guard the project."
                )
            return
        if wd in self._watches:
            os.close(self._watches[wd].fd)
        self._watches[wd] = _Watch(directory, fd)

    def _read_events(self) -> None:
        for _ in range(READS_AT_A_TIME):
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:
                return
            if self._has_lost_project():
                continue
            position = 0
            while position < len(data):
                wd, mask, cookie, length = EVENT.unpack_from(data, position)
                position += EVENT.size + length
                name = os.fsdecode(data[position - length : position].rstrip(b"\0"))
                self._handle(wd, mask, cookie, name)

    def _handle(self, wd: int, mask: int, cookie: int, name: str) -> None:
        if mask & IN_Q_OVERFLOW:
            self._check_watched()
            return
        watch = self._watches.get(wd)
        if watch is None:
            return
        path = f"{watch.directory}/{name}"
        if mask & IN_IGNORED:
            os.close(self._watches.pop(wd).fd)
        elif mask & (IN_MOVE_SELF | IN_DELETE_SELF):
            self._restore()
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
        if self._quarantine_at(watch.fd, name, path, reason) and link:
            self._kept[path] = link
            self._restore_item(path)
            self._kept.pop(path, None)

    def _handle_vanished(self, path: str) -> None:
        """
        The host removed what a mount held, and so the mount: inside, the name can be made now.

        Who makes it cannot be told, so that it is forbidden from now on, although `git checkout` may have made it again.
        """
        directory, name = os.path.split(path)
        if identity(directory) != self._homes[directory]:
            return
        self._held[directory].discard(name)
        self._bound.pop(path, None)
        if name not in JUDGED_NAMES and path not in self._below_root:
            self._forbidden.setdefault(directory, set()).add(name)
            self._vanished.add(path)

    def _hold_again(self, path: str) -> None:
        """An editor saves: it has renamed the file to `NAME~`, which the sandbox cannot, and writes a new one."""
        directory, name = os.path.split(path)
        self._held[directory].add(name)
        self._forbidden.get(directory, set()).discard(name)
        self._vanished.discard(path)
        self._bound[path] = None

    def _handle_replaced(self, path: str, *, is_certain: bool = False) -> None:
        """`is_certain`: an event says so; the new file may have got the number that the old one had."""
        if self._restores:
            if path in self._kept:
                self._restore_item(path)
        elif path in self._bound and (is_certain or identity(path) != self._bound[path]):
            directory = os.path.dirname(path)
            if identity(directory) != self._homes[directory]:
                del self._bound[path]
                return  # a directory above it was moved away, which the sandbox can do: the audit judges
            # Inside, the mount forbids it: this was the host. Until it is mounted again the sandbox can write it.
            self._bound[path] = identity(path)
            self._replaced.add(path)
            self._kept |= snapshot([path])
            self._tell("replaced", path, "was replaced by the host, so it is mounted no more")

    def _check_watched(self) -> None:
        """As if every event had been lost: by name, in directories that may be others by now."""
        current = {watch.directory: watch for watch in self._watches.values()}
        for directory in self._forbidden.keys() | self._held.keys():
            watch = current.get(directory)
            if watch is None or identity(directory) != identity_of(watch.fd):
                self._watch(directory)
        for watch in list(self._watches.values()):
            for name in list(self._forbidden.get(watch.directory, ())):
                if identity_at(watch.fd, name):
                    self._handle_forbidden(watch, name)
            for name in list(self._held.get(watch.directory, ())) if self._bound else ():
                if identity_at(watch.fd, name):
                    self._handle_replaced(f"{watch.directory}/{name}")
                else:
                    self._handle_vanished(f"{watch.directory}/{name}")

    # The quarantine.

    def _quarantine(self, path: str, reason: str) -> bool:
        if not self._is_inside(path):
            return False
        try:
            parent = open_directory(os.path.dirname(path))
        except OSError:
            return False  # its directory is gone, or a link by now, and it with it
        try:
            return self._quarantine_at(parent, os.path.basename(path), path, reason)
        finally:
            os.close(parent)

    def _quarantine_at(self, parent: int, name: str, path: str, reason: str) -> bool:
        """Move `name` in the directory `parent` away, and tell. Whether it is gone from there."""
        try:
            try:
                kept_at = self._move_away(parent, name, path)
            except PermissionError:
                # A directory moves only if it is writable, and out of a writable one.
                open_up(parent, name)
                kept_at = self._move_away(parent, name, path)
        except OSError as error:
            if identity_at(parent, name) is None:
                return True
            self._tell("failed", path, f"{reason}, but cannot be moved away: {error.strerror}")
            return False
        self._tell("quarantined", path, reason, kept_at)
        return True

    def _move_away(self, parent: int, name: str, path: str) -> str:
        shown = os.fsencode(self._shown(path).strip("/").replace("/", "%"))[-150:]
        kept_name = f"{time.time_ns()}-{os.fsdecode(shown)}"
        kept_at = f"{self._quarantine_dir}/{kept_name}"
        try:
            os.rename(name, kept_name, src_dir_fd=parent, dst_dir_fd=self._quarantine_fd)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return kept_at
        # Another file system: the name must go at once, the copy may take its time.
        harmless = f".quarantined-{kept_name}"
        os.rename(name, harmless, src_dir_fd=parent, dst_dir_fd=parent)
        try:
            move(f"/proc/self/fd/{parent}/{harmless}", kept_at)
        except (OSError, RecursionError, TooMuchError):
            with suppress(OSError):
                change_mode(parent, harmless, 0)
            return f"{os.path.dirname(path)}/{harmless}"
        return kept_at

    # The audit.

    def _entries(self, found: Survey) -> list[str]:
        directories = git_directories(found, self._roots[1:])
        return list(dict.fromkeys((*found.repositories, *directories)))

    def _judge(self, entry: str) -> None:
        found = identity(entry)
        if found is None:
            return
        was_identity, was_repository = self._known.get(entry, (None, None))
        is_known = was_identity == found or entry in self._roots
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
                if self._quarantine(path, reason) and path in self._kept:
                    self._restore_item(path)
        else:
            self._quarantine(entry, "; ".join(sorted({reason for _, reason in faults})))

    def _faults(self, now: Repository, was: Repository | None) -> Iterator[tuple[str, str]]:
        """What git would run or trust by way of this repository that it did not at the start: the path and the reason."""
        is_outside = not (self._is_inside(now.git_dir) or self._is_inside(now.common_dir))
        if was is not None and is_outside and now.git_dir == was.git_dir:
            return  # the host's business: a worktree that is repaired, a repository that is back
        if was is None or (now.git_dir, now.common_dir) != (was.git_dir, was.common_dir):
            if was is not None:
                is_moved = now.git_dir == was.git_dir
                path = f"{now.git_dir}/commondir" if is_moved else now.entry
                yield path, "leads elsewhere than it did"
            if not (self._is_inside(now.git_dir) and self._is_inside(now.common_dir)):
                yield now.entry, "leads out of the project"
                return
        elif not self._is_inside(now.common_dir):
            return  # where it always led, and where the sandbox cannot write
        configs = (f"{now.common_dir}/config", f"{now.common_dir}/config.worktree")
        for path in dict.fromkeys((*configs, f"{now.git_dir}/config.worktree")):
            if reason := self._fault_of_config(path):
                yield path, reason
        yield from self._faults_of_hooks(f"{now.common_dir}/hooks")
        store = f"{now.common_dir}/objects"
        path = f"{store}/info/alternates"
        if not self._is_as_it_was(path) and not all(map(self._is_inside, alternates(store))):
            yield path, "borrows objects from outside the project"

    def _tell_of_names(self, named: list[str]) -> None:
        """What the table has and nothing held: it stays, and the person is told."""
        before, self._stamps = self._stamps, self._stamped(named)
        news = [
            path
            for path, stamp in self._stamps.items()
            if stamp and stamp != before.get(path) and not self._is_copy(path)
        ]
        for path in news[:MAX_TOLD]:
            self._tell("noticed", path, ("was changed" if path in before else "is new") + MAY_RUN)
        if (more := len(news) - MAX_TOLD) > 0:
            self._tell(
                "noticed", news[MAX_TOLD], f"is new or changed, as are {more - 1} others{MAY_RUN}"
            )

    def _is_copy(self, path: str) -> bool:
        """Whether the project holds the same nearer its root: `path` is of a worktree, or a clone, that was made inside."""
        parts = os.path.relpath(path, self._project).split("/")
        nearer = ("/".join((self._project, *parts[n:])) for n in range(1, len(parts)))
        return any(
            self._is_as_it_was(original) and listed.is_copy(path, original) for original in nearer
        )

    def _stamped(self, named: list[str]) -> dict[str, tuple[object, ...]]:
        """What is held needs no looking at."""
        return {path: () if self._is_as_it_was(path) else listed.stamp(path) for path in named}

    def _fault_of_config(self, path: str) -> str:
        if self._is_as_it_was(path):
            return ""
        try:
            content = read_file(path, MAX_CONFIG_BYTES, follows=False)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:
            return "has a config that is no plain file"
        was = self._kept.get(path)
        added = self._settings(content) - self._settings(was.content if was else b"")
        settings = [setting.partition("\n") for setting in added]
        directory = os.path.dirname(path)
        keys = sorted(
            {
                key
                for key, _, value in settings
                # A submodule's leads back to where it is checked out; elsewhere a `git checkout` would write as the user.
                if key != "core.worktree" or not self._is_inside(leads_to(directory, value))
            }
        )
        return f"has a config that sets {', '.join(keys)}" if keys else ""

    def _faults_of_hooks(self, directory: str) -> Iterator[tuple[str, str]]:
        if self._is_as_it_was(directory):
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
            if not name.endswith(".sample") and not self._is_as_it_was(path):
                yield path, f"has a hook {name}"

    def _settings(self, content: bytes) -> frozenset[str]:
        if not content.strip():
            return frozenset()
        if content not in self._settings_of:
            self._settings_of[content] = executable_settings(content, self._git)
        return self._settings_of[content]

    def _is_as_it_was(self, path: str) -> bool:
        """Whether a mount still holds `path`, or it is what it was at the start."""
        around = path
        while around not in self._bound and self._is_inside(around):
            around = os.path.dirname(around)
        if around in self._bound and around not in self._replaced:
            return identity(around) == self._bound[around]
        return path in self._kept and look(path) == self._kept[path]

    def _is_inside(self, path: str) -> bool:
        return is_in_any(path, self._roots)

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
        self._tell(
            "restored", path, "could be entered but not listed, so a repository could hide in it"
        )
        return True

    # Putting back.

    def _restore(self) -> None:
        for path in sorted(self._pins):
            try:
                self._restore_pin(path)
            except OSError as error:
                self._tell("failed", path, f"cannot be put back: {error.strerror}")
        for path in sorted(self._kept):
            self._restore_item(path)

    def _restore_pin(self, path: str) -> None:
        """Put the directory itself back, with all that is in it, from wherever it is now."""
        fd, mode = self._pins[path], self._pin_modes[path]
        parent, name = open_directory(os.path.dirname(path)), os.path.basename(path)
        try:
            if identity_at(parent, name) != identity_of(fd):
                self._quarantine_at(parent, name, path, "took the place of a protected directory")
                if os.fstat(fd).st_nlink:
                    rename_back(fd, parent, name)
                    self._tell("restored", path, "was moved away")
                else:
                    os.mkdir(name, stat.S_IMODE(mode), dir_fd=parent)
                    self._pins[path] = os.open(name, DIRECTORY, dir_fd=parent)
                    os.close(fd)
                    self._tell(
                        "failed", path, "was deleted; only its protected files can be put back"
                    )
            if os.fstat(self._pins[path]).st_mode != mode:
                os.chmod(f"/proc/self/fd/{self._pins[path]}", stat.S_IMODE(mode))
                self._tell("restored", path, "had another mode")
        finally:
            os.close(parent)

    def _restore_item(self, path: str) -> None:
        kept = self._kept[path]
        try:
            parent = open_directory(os.path.dirname(path))
        except OSError:
            # With its directory it is out of git's sight; what comes back is new.
            del self._kept[path]
            if not is_in_any(path, self._below_root):
                self._tell("failed", path, "is gone with its directory, so it cannot be put back")
            return
        name = os.path.basename(path)
        try:
            now = look(name, parent)
            if now == kept:
                return
            if now and now.kind == kept.kind and now.mode != kept.mode:
                change_mode(parent, name, kept.mode)
                self._tell("restored", path, "had another mode")
                now = look(name, parent)
            if now and now.kind == kept.kind == stat.S_IFDIR:
                for new in now.names - kept.names:
                    self._quarantine(f"{path}/{new}", "must not appear in a protected directory")
            elif now != kept and self._quarantine_at(
                parent, name, path, "is protected and was changed"
            ):
                put(parent, name, kept)
                self._tell("restored", path, "is as it was")
        except OSError as error:
            self._tell("failed", path, f"cannot be put back: {error.strerror}")
        finally:
            os.close(parent)
