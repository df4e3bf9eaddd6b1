"""
The supervisor of a session's sandbox: a process outside of it that guards the project and forks zygotes.

It lives as long as the host keeps its channel open. Then, however the host ended, it kills all remaining processes, runs a last audit,
removes its files from the project, and exits.
"""

import gc
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import NamedTuple, NoReturn

from sanderling.errors import NoRoomError, SandboxError
from sanderling.paths import is_within
from sanderling.protocol.modes import Level
from sanderling.sandbox import wire
from sanderling.sandbox.guard import protection, repositories, sentinels, settings
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.guard.guard import Guard
from sanderling.sandbox.inside import bubblewrap, init
from sanderling.sandbox.inside.stillness import everything_still, go_on
from sanderling.sandbox.inside.zygote import Zygote, ZygoteView
from sanderling.sandbox.kernel import namespaces
from sanderling.sandbox.kernel.layout import (
    Layout,
    Protection,
    listening_sockets,
    mounted_layout,
    private_directory,
    remove_temporary_directories,
    remove_temporary_files_of_the_dead,
    unmounted_layout,
)
from sanderling.sandbox.kernel.syscalls import prctl, syscall
from sanderling.sandbox.policy import UNMOUNTED, ResourceLimits, SandboxPolicy, check_identities
from sanderling.sandbox.report import EXIT_REFUSED, ROUTINE_SHARE, GuardEvent

LAST_LOOK_S = 60
VANISHING_S = 5.0  # for files that come and go while the view is prepared
LANDLOCK = "sanderling.sandbox.kernel.landlock"
"""Only zygotes need this module. It is imported while git runs."""


class VanishedError(SandboxError):
    """A file that should be hidden was removed meanwhile. The next attempt will not find it."""


def main(channel: int) -> NoReturn:
    run_supervisor(Supervisor(socket.socket(fileno=channel)))


def run_supervisor(supervisor: "Supervisor") -> NoReturn:
    signal.signal(signal.SIGTERM, lambda _number, _frame: supervisor.end())
    try:
        supervisor.serve()
    finally:  # after a bug, too: commands must end, and the audit must run
        supervisor.end()


class NamespaceOwner(NamedTuple):
    """The owner of namespaces: a server, or the session's commands if empty; and whether they include a network namespace."""

    server: str
    has_own_network: bool


class Supervisor:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._git = TrustedGit()
        self._guard: Guard | None = None
        self._policy: SandboxPolicy | None = None
        self._claim: sentinels.Claim | None = None
        self._next_routine_audit = 0.0
        self._namespaces: dict[NamespaceOwner, list[int]] = {}
        self._placeholders: dict[int, set[str]] = {}  # by view number
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._poll = select.poll()
        self._prepare()

    def _prepare(self) -> None:
        self._loading = Thread(target=import_module, args=[LANDLOCK])
        with suppress(RuntimeError):  # no thread available: it is imported when needed
            self._loading.start()
        prctl(init.PR_SET_CHILD_SUBREAPER, 1)

    _look_ms: int | None = None
    """How often the guard looks if nothing wakes it."""

    def _reap(self) -> None:
        _reap()

    def _kill_all(self) -> None:
        init.kill_tree()

    def serve(self) -> NoReturn:
        gc.freeze()  # most modules live as long as the process
        gc.enable()
        self._poll.register(self.channel, select.POLLIN)
        while True:
            self._reap()
            happened = self._poll.poll(self._look_ms)
            if not happened and self._guard:
                self._report(self._guard.handle_events())
            for descriptor, _ in happened:
                if descriptor != self.channel.fileno():
                    self._report(self._guard.handle_events() if self._guard else [])
                elif received := wire.receive(self.channel):
                    self._handle(*received)
                else:
                    self.end()

    def _handle(self, message: wire.Message, descriptors: list[int]) -> None:
        match message:
            case ("open", number, level, fields):
                policy = SandboxPolicy(*fields)
                policy = policy._replace(limits=ResourceLimits(*policy.limits))
                with socket.socket(fileno=descriptors[0]) as channel:
                    self._open(number, level, policy, channel)
            case ("retire", number):
                self._remove_placeholders(number)
            case ("audit", share):
                if not share or time.monotonic() >= self._next_routine_audit:
                    self._audit(share)
            case ("undoes", number, path):
                is_undone = self._guard is not None and self._guard.undoes(path)
                wire.send(self.channel, ("undoes", number, is_undone))
            case ("close", keeps_tmp):
                self.end(keeps_tmp=keeps_tmp)
            case _:
                raise SandboxError(f"Unknown message to the supervisor: {message[0]!r}.")

    def _open(
        self, number: int, level: Level, policy: SandboxPolicy, channel: socket.socket
    ) -> None:
        """Start a zygote that serves `channel`. If that fails, the reason is sent there."""
        try:
            end = time.monotonic() + VANISHING_S
            while True:
                try:
                    return self._start_zygote(number, level, policy, channel)
                except VanishedError:
                    if time.monotonic() > end:
                        raise
        except NoRoomError as error:
            wire.send(channel, ("no room", str(error)))
        except (OSError, SandboxError) as error:
            wire.send(channel, ("refused", str(error)))

    def _start_zygote(
        self, number: int, level: Level, policy: SandboxPolicy, channel: socket.socket
    ) -> None:
        """Fork a zygote. All commands are stopped meanwhile, so that nothing changes between the inspection of files and their mounts."""
        has_own_network = policy.network != "on" and level != "landlock"
        whose = NamespaceOwner(policy.server, has_own_network)
        here, there = wire.socket_pair()
        with here, there, everything_still():
            view = ZygoteView(
                level=level,
                layout=self._look_at(policy, level, has_own_network=has_own_network),
                limits=policy.limits,
                has_own_network=has_own_network,
                can_use_network=policy.network == "on",
                is_for_one=policy.server != "",
            )
            self._note_placeholders(number, view.layout, policy)
            if level == "full-bwrap":
                with bubblewrap.start_zygote(view, channel, there) as stderr:
                    there.close()
                    if not self._has_entered(here, whose):
                        complaint = bubblewrap.complaint_in(stderr)
                        gone = view.layout.has_vanished
                        raise VanishedError(str(complaint)) if gone else complaint
                return
            self._load_landlock()
            if os.fork() == 0:
                here.close()
                self._become_zygote(view, whose, channel, there)
            there.close()
            self._has_entered(here, whose)

    def _load_landlock(self) -> None:
        """Import it before a fork. A fork would inherit the locks of a running import, and in a view would find other files."""
        if self._loading.is_alive():
            self._loading.join()
        import_module(LANDLOCK)

    def _has_entered(self, here: socket.socket, whose: "NamespaceOwner") -> bool:
        """Wait until the zygote is in its view, and keep its new namespaces. Return False if it died before."""
        while (received := wire.receive(here)) and received[0] != ("entered",):
            self._namespaces[whose] = received[1]
        return received is not None

    def _become_zygote(
        self,
        view: ZygoteView,
        whose: "NamespaceOwner",
        channel: socket.socket,
        there: socket.socket,
    ) -> NoReturn:
        """In a fork, enter the view and serve `channel`. New namespaces are sent to the supervisor, for later views."""
        try:
            prctl(init.PR_SET_PDEATHSIG, signal.SIGKILL)
            if view.is_mounted:
                self._enter_namespaces(whose, there)
                namespaces.enter_root(view.layout)
            wire.send(there, ("entered",))
            # Close the supervisor's descriptors: the host's channel, the guard's, and the claim on the project.
            init.keep_only(channel.fileno())
            Zygote(view, socket.socket(fileno=init.KEPT_FD)).serve()
        except (OSError, SandboxError) as error:
            wire.send(channel, ("refused", str(error)))
        except BaseException as defect:  # noqa: BLE001 - nothing above could report it
            sys.excepthook(type(defect), defect, defect.__traceback__)
        finally:
            os._exit(EXIT_REFUSED)

    def _enter_namespaces(self, whose: "NamespaceOwner", there: socket.socket) -> None:
        """Join the existing namespaces, or create them. Then become process 1 of a new pid namespace."""
        if known := self._namespaces.get(whose):
            namespaces.join_session_namespaces(known)
        else:
            network = namespaces.CLONE_NEWNET if whose.has_own_network else 0
            namespaces.enter_new_user_namespace(
                namespaces.CLONE_NEWIPC | namespaces.CLONE_NEWUTS | network
            )
            if whose.has_own_network:
                namespaces.bring_up_loopback()
            new = namespaces.open_session_namespaces(has_own_network=whose.has_own_network)
            wire.send(there, ("namespaces",), tuple(new))
        namespaces.unshare(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWPID)
        if pid := os.fork():
            syscall("close_range", init.KEPT_FD, 0xFFFFFFFF, 0)
            prctl(init.PR_SET_PDEATHSIG, signal.SIGKILL)  # entering the namespace cleared it
            prctl(init.PR_SET_DUMPABLE, 0)
            os.waitpid(pid, 0)
            os._exit(0)
        prctl(init.PR_SET_PDEATHSIG, signal.SIGKILL)  # not inherited by a fork

    def _look_at(self, policy: SandboxPolicy, level: Level, *, has_own_network: bool) -> Layout:
        """Determine the content of the view of `policy`, as things are now."""
        protected = self._protected(policy, level)
        if level in UNMOUNTED:
            return unmounted_layout(policy, protected)
        return mounted_layout(policy, protected, has_own_network=has_own_network)

    def _protected(self, policy: SandboxPolicy, level: Level) -> Protection:
        """Determine what must be protected in a view of `policy`, as things are now. The first call also starts the guard."""
        check_identities(policy)  # nothing moves from here on
        if self._guard:
            self._audit()  # before git is asked about a repository that belongs in quarantine
        self._git.distrust(policy.project, *policy.write_paths)
        survey = repositories.survey(policy.project, self._git)
        if self._policy is None:
            self._policy = policy
            remove_temporary_files_of_the_dead(private_directory(policy, "tmp"))
            sentinels.clean_up_after_the_dead(os.path.dirname(policy.state_dir))
            if there := protection.leads_nowhere(policy.project):
                reason = f"leads to {there}, which does not exist, so git finds no repository"
                self._report([GuardEvent("warned", ".git", reason)])
        if self._claim is None:
            self._claim = sentinels.place_sentinels(policy.state_dir, survey)
        directories = tuple(filter(os.path.isdir, policy.write_paths))
        in_git = protection.protection(survey, directories, is_worktree=policy.is_worktree)
        # Inherited by everything forked from now on: the zygote and its commands.
        os.umask(settings.shared_umask(in_git.shared, self._umask))
        if policy.has_guard and self._guard is None:
            quarantine = private_directory(policy, "quarantine")
            self._guard = Guard(
                survey,
                in_git,
                quarantine,
                restores=level == "landlock",
                is_polled=self._look_ms is not None,
            )
            if self._look_ms is None:
                self._poll.register(self._guard, select.POLLIN)
            self._report(self._guard.warnings())
        granted = [repositories.survey(path, self._git) for path in directories]
        found = [in_git, *map(protection.protection, granted)]
        linked = [repositories.survey_linked(path, self._git) for path in policy.linked]
        roots = (policy.project, *(survey.project for survey in granted))
        sockets = listening_sockets((*roots, *policy.read_paths, policy.home))
        held = () if level == "landlock" else in_git.heads
        return Protection(
            writable=in_git.write,
            readable=in_git.read,
            pinned=(*(path for plan in found for path in plan.pin), *_directories_to(held)),
            read_only=(*(path for plan in found for path in plan.read_only), *held),
            masked=(
                *(path for each in (survey, *linked) for path in _secrets_in(each, policy)),
                *sockets,
            ),
            absent=tuple(name for plan in found for name in plan.names_never_made()),
        )

    # --- mount points in the private HOME and /tmp for granted paths -----------------------------------------------------

    def _note_placeholders(self, number: int, layout: Layout, policy: SandboxPolicy) -> None:
        """Record the view's mount points that do not exist yet, or only for another view."""
        assert self._policy
        settled = {*self._policy.read_paths, *self._policy.write_paths}
        granted = {*policy.read_paths, *policy.write_paths} - settled
        known = set[str]().union(*self._placeholders.values())
        places = _steps(layout, granted)
        self._placeholders[number] = {
            path for path in places if path in known or not os.path.lexists(path)
        }

    def _remove_placeholders(self, number: int) -> None:
        """Remove mount points that no other view needs and that are still empty. A command would mistake them for the granted files."""
        own = self._placeholders.pop(number, set())
        for path in sorted(own.difference(*self._placeholders.values()), reverse=True):
            directory, name = os.path.split(path)
            with suppress(OSError), namespaces.opened(directory) as here:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    os.rmdir(name, dir_fd=here)
                elif stat.S_ISREG(status.st_mode) and not status.st_size:
                    os.unlink(name, dir_fd=here)

    # --- the guard, and the end ----------------------------------------------------------------------------------------

    def _report(self, events: list[GuardEvent]) -> None:
        """Send events to the host, if it is still there. Files in quarantine are kept in any case."""
        for event in events:
            with suppress(OSError):
                wire.send(self.channel, ("guard", *event))

    def _audit(self, share: int = 0) -> None:
        """Audit the project. With a `share`, audits take at most that fraction of the time, 1/`share`."""
        began = time.monotonic()
        self._report(self._guard.audit(is_routine=share > 0) if self._guard else [])
        now = time.monotonic()
        self._next_routine_audit = now + (share or ROUTINE_SHARE) * (now - began)

    def end(self, *, keeps_tmp: bool = False) -> NoReturn:
        """Kill all processes, run a last audit, and clean up. The host need not wait for it, and an alarm limits it."""
        signal.alarm(LAST_LOOK_S)
        self._kill_all()
        guard, self._guard = self._guard, None
        try:
            self._report(guard.close() if guard else [])
        finally:
            for number in list(self._placeholders):
                self._remove_placeholders(number)
            if self._policy and self._claim is not None:
                with suppress(OSError):
                    sentinels.remove_sentinels(self._policy.state_dir, self._claim)
            if self._policy and not keeps_tmp:
                remove_temporary_directories(self._policy.tmp_dir)
            with suppress(OSError):
                wire.send(self.channel, ("closed",))
            os._exit(0)


def _secrets_in(survey: repositories.Survey, policy: SandboxPolicy) -> Iterator[str]:
    if not policy.shows_env_files:
        yield from settings.env_files_to_hide(survey)
    yield from survey.sockets


def _directories_to(heads: Sequence[str]) -> set[str]:
    """Return the directories from `refs/heads` to these branches, which must not be renamed either."""
    found = set[str]()
    for path in heads:
        top = path[: path.index("/refs/heads/") + len("/refs/heads")]
        while is_within(path := os.path.dirname(path), top):
            found.add(path)
    return found


def _steps(layout: Layout, targets: set[str]) -> Iterator[str]:
    """Yield the mount points of `targets` in private directories, and all directories on the way, by their paths outside."""
    for bind in layout.binds:
        for directory, rest in layout.private_places(bind) if bind.target in targets else ():
            steps = rest.split("/")
            yield from (f"{directory}/{'/'.join(steps[: n + 1])}" for n in range(len(steps)))


def _reap() -> None:
    """Reap ended processes: zygotes, and orphans that became children."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG | init.WALL))[0]:
            if os.WIFSTOPPED(ended[1]):  # it stopped only after it was resumed
                go_on(*ended)
