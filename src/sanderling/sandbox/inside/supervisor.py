"""
The supervisor of one session's sandbox: a process outside of it that guards the project and forks zygotes.

It lives as long as the host holds its channel. Then, however the host ended, it kills what is left, lets the guard look once
more, removes what was placed in the project, and goes.
"""

import gc
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import NamedTuple, NoReturn

from sanderling.errors import SandboxError
from sanderling.protocol.modes import Level
from sanderling.sandbox import wire
from sanderling.sandbox.guard import protection, repositories, sentinels, settings
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.guard.guard import Guard
from sanderling.sandbox.inside import bubblewrap, init
from sanderling.sandbox.inside.stillness import everything_still, go_on
from sanderling.sandbox.inside.zygote import View, Zygote
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
from sanderling.sandbox.policy import Limits, SandboxPolicy, check_identities
from sanderling.sandbox.report import EXIT_REFUSED, ROUTINE_SHARE, GuardEvent
from sanderling.sandbox.shortage import NoRoomError

LAST_LOOK_S = 60
VANISHING_S = 5.0  # for files that come and go while the view is looked at
LANDLOCK = "sanderling.sandbox.kernel.landlock"
"""The module that only zygotes need: it loads while git is waited for."""


class VanishedError(SandboxError):
    """A file that was to be hidden was gone by then: whoever looks again does not find it."""


def main(channel: int) -> NoReturn:
    supervisor = Supervisor(socket.socket(fileno=channel))
    signal.signal(signal.SIGTERM, lambda _number, _frame: supervisor.end())
    try:
        supervisor.serve()
    finally:  # after a defect, too: what runs must end, and what it left must be looked at
        supervisor.end()


class Whose(NamedTuple):
    """Whose namespaces they are: those of the session's commands, or of a server; and whether they hold a network."""

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
        self._namespaces: dict[Whose, list[int]] = {}
        self._placeholders: dict[int, set[str]] = {}  # by the number of the view
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._poll = select.poll()
        self._loading = Thread(target=import_module, args=[LANDLOCK])
        with suppress(RuntimeError):  # there is no room for a thread: it loads when it is needed
            self._loading.start()
        prctl(init.PR_SET_CHILD_SUBREAPER, 1)

    def serve(self) -> NoReturn:
        gc.freeze()  # the modules, nearly all, live as long as the process
        gc.enable()
        self._poll.register(self.channel, select.POLLIN)
        while True:
            _reap()
            for descriptor, _ in self._poll.poll():
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
                policy = policy._replace(limits=Limits(*policy.limits))
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
                raise SandboxError(f"A supervisor knows no {message[0]!r}.")

    def _open(
        self, number: int, level: Level, policy: SandboxPolicy, channel: socket.socket
    ) -> None:
        """Start a zygote that serves `channel`; what keeps it from starting is said there."""
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
        """Fork a zygote. What runs is stopped meanwhile: it must not move what has been looked at and is not yet mounted."""
        has_own_network = policy.network != "on" and level != "landlock"
        whose = Whose(policy.server, has_own_network)
        here, there = wire.socket_pair()
        with here, there, everything_still():
            view = View(
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
        """Have it loaded before a fork, which would keep the locks of an import that goes on, and in a view would find other files."""
        if self._loading.is_alive():
            self._loading.join()
        import_module(LANDLOCK)

    def _has_entered(self, here: socket.socket, whose: "Whose") -> bool:
        """Wait until the zygote is in its view, and keep the namespaces that it has made. False: it has died before."""
        while (received := wire.receive(here)) and received[0] != ("entered",):
            self._namespaces[whose] = received[1]
        return received is not None

    def _become_zygote(
        self, view: View, whose: "Whose", channel: socket.socket, there: socket.socket
    ) -> NoReturn:
        """Enter, in a fork, the view and serve `channel`; the namespaces go to the supervisor, for the views after this one."""
        try:
            prctl(init.PR_SET_PDEATHSIG, signal.SIGKILL)
            if view.is_mounted:
                self._enter_namespaces(whose, there)
                namespaces.enter_root(view.layout)
            wire.send(there, ("entered",))
            # Let go of what is the supervisor's to hold: the host's channel, the guard, the claim to the project.
            init.keep_only(channel.fileno())
            Zygote(view, socket.socket(fileno=init.KEPT_FD)).serve()
        except (OSError, SandboxError) as error:
            wire.send(channel, ("refused", str(error)))
        except BaseException as defect:  # noqa: BLE001 - there is nobody above who could tell of it
            sys.excepthook(type(defect), defect, defect.__traceback__)
        finally:
            os._exit(EXIT_REFUSED)

    def _enter_namespaces(self, whose: "Whose", there: socket.socket) -> None:
        """Join the namespaces that are there for it, or make them; then become process 1 of a pid namespace below."""
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
            prctl(init.PR_SET_PDEATHSIG, signal.SIGKILL)  # entering the namespace has cleared it
            prctl(init.PR_SET_DUMPABLE, 0)
            os.waitpid(pid, 0)
            os._exit(0)
        prctl(init.PR_SET_PDEATHSIG, signal.SIGKILL)  # a fork does not inherit it

    def _look_at(self, policy: SandboxPolicy, level: Level, *, has_own_network: bool) -> Layout:
        """Find what the view of `policy` holds, as things are now. The first look also puts the guard in place."""
        check_identities(policy)  # nothing moves any more
        if self._guard:
            self._audit()  # or we would ask git about a repository that waits for that
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
        in_git = protection.protection(survey, directories)
        # What is forked from now on inherits it: the zygote, and its commands.
        os.umask(settings.shared_umask(in_git.shared, self._umask))
        if policy.has_guard and self._guard is None:
            quarantine = private_directory(policy, "quarantine")
            self._guard = Guard(survey, in_git, quarantine, restores=level == "landlock")
            self._poll.register(self._guard, select.POLLIN)
            self._report(self._guard.warnings())
        granted = [repositories.survey(path, self._git) for path in directories]
        found = [in_git, *map(protection.protection, granted)]
        roots = (policy.project, *(survey.project for survey in granted))
        sockets = listening_sockets((*roots, *policy.read_paths, policy.home))
        protected = Protection(
            writable=in_git.write,
            readable=in_git.read,
            pinned=tuple(path for plan in found for path in plan.pin),
            read_only=tuple(path for plan in found for path in plan.read_only),
            masked=(*settings.env_files_to_hide(survey), *survey.sockets, *sockets),
        )
        if level == "landlock":
            return unmounted_layout(policy, protected)
        return mounted_layout(policy, protected, has_own_network=has_own_network)

    # --- what is made in the private HOME and /tmp, to mount on what the person has granted ------------------------------

    def _note_placeholders(self, number: int, layout: Layout, policy: SandboxPolicy) -> None:
        """The view's mount points that are not there yet, or only as another's."""
        assert self._policy
        settled = {*self._policy.read_paths, *self._policy.write_paths}
        granted = {*policy.read_paths, *policy.write_paths} - settled
        known = set[str]().union(*self._placeholders.values())
        places = _steps(layout, granted)
        self._placeholders[number] = {
            path for path in places if path in known or not os.path.lexists(path)
        }

    def _remove_placeholders(self, number: int) -> None:
        """Remove what no other view needs, and nobody has filled: a command would take it for the file that was granted."""
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
        """Tell the host, if it is still there: what was found is in the quarantine all the same."""
        for event in events:
            with suppress(OSError):
                wire.send(self.channel, ("guard", *event))

    def _audit(self, share: int = 0) -> None:
        """Look at the project; if that is routine, at most one part in `share` of the time goes into it."""
        began = time.monotonic()
        self._report(self._guard.audit(is_routine=share > 0) if self._guard else [])
        now = time.monotonic()
        self._next_routine_audit = now + (share or ROUTINE_SHARE) * (now - began)

    def end(self, *, keeps_tmp: bool = False) -> NoReturn:
        """Kill what runs, look once more, clean up; nobody has to wait for that, and it does not last for ever."""
        signal.alarm(LAST_LOOK_S)
        init.kill_tree()
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


def _steps(layout: Layout, targets: set[str]) -> Iterator[str]:
    """Find what `targets` are mounted on in private directories, and every directory on the way there, by their paths outside."""
    for bind in layout.binds:
        for directory, rest in layout.private_places(bind) if bind.target in targets else ():
            steps = rest.split("/")
            yield from (f"{directory}/{'/'.join(steps[: n + 1])}" for n in range(len(steps)))


def _reap() -> None:
    """Wait for what has ended: zygotes, and whatever became our child when its parent did."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG | init.WALL))[0]:
            if os.WIFSTOPPED(ended[1]):  # one that came to stand still too late
                go_on(*ended)
