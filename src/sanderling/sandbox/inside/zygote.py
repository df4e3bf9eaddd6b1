"""
A zygote: the process in which the commands of one view start.

Commands start from a zygote instead of subprocess with preexec_fn. With preexec_fn CPython forks the whole host, and a command cost 8 to
16 times a plain `subprocess.run`, growing with the host's memory. A Python launcher per command cost 45 to 52 times. The zygote
does once what is slow (namespaces, the root directory, Landlock rules, the seccomp program). A command then costs one small fork, made in
advance, and one `posix_spawn`: 2 to 3 times, independent of the host's size. Run `make bench` before changing this.

The next fork is made when a command has ended or has run for a moment, because it would take CPU time from one that has just started. It
is made at once where the process limit counts all running processes. `unshare(CLONE_NEWPID)` puts the next fork into its own pid
namespace; `setns` to the zygote's own namespace undoes that for the fork after it.
"""

import gc
import marshal
import os
import select
import signal
import socket
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, NoReturn

from sanderling.errors import SandboxError
from sanderling.platforms.endings import ExitWatch
from sanderling.protocol.modes import Level
from sanderling.sandbox import wire
from sanderling.sandbox.inside import init
from sanderling.sandbox.inside.init import Confinement
from sanderling.sandbox.kernel import namespaces, seccomp
from sanderling.sandbox.kernel.layout import LandlockAccess, Layout
from sanderling.sandbox.kernel.syscalls import prctl, syscall
from sanderling.sandbox.policy import NAME_PORT, PROXY_PORT, ResourceLimits
from sanderling.sandbox.report import NOT_STARTED

PID_MAX_IS_OURS = (6, 14)  # since this Linux version, pid_max belongs to the pid namespace
RESERVED_PIDS = 300  # low pids that a namespace does not reuse
OOM_SCORE_ADJ = "500"  # when memory runs out, commands are killed first
MEMORY = ("/dev/shm", "/dev/mqueue")
SPARE_AFTER_MS, AFTER_FAILURE_MS = 8, 1000
BACKLOG = 64
LISTS_OF_MEMORY = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")


class ZygoteView(NamedTuple):
    """
    The view that all commands of a zygote share.

    `has_own_network`: the network is only a loopback of the session. `is_for_one`: only one command will run, a server.
    """

    level: Level
    layout: Layout
    limits: ResourceLimits
    has_own_network: bool
    can_use_network: bool
    is_for_one: bool = False

    @property
    def is_mounted(self) -> bool:
        return self.level != "landlock"

    @property
    def can_nest(self) -> bool:
        return self.level in ("full", "namespaces")

    def confinement(self) -> Confinement:
        """
        Return the confinement for the view's commands.

        Raises:
            SandboxError: the kernel lacks a part of the level.
        """
        landlock = None
        if self.level != "namespaces":
            from sanderling.sandbox.kernel.landlock import Ruleset

            access = self.layout.access
            landlock = Ruleset(
                read=access.readable,
                write=access.writable,
                devices=access.devices,
                sockets=access.private,
                deny_tcp=not self.has_own_network and not self.can_use_network,
            )
        return Confinement(
            is_mounted=self.is_mounted,
            has_own_pids=self.can_nest,
            limits=self.limits,
            landlock=landlock,
            seccomp=seccomp.program(
                has_namespaces=self.is_mounted, has_host_network=self.can_use_network
            ),
        )

    def as_data(self) -> tuple[Any, ...]:
        """Return what `main` needs, for `marshal`. The root directory exists already."""
        access, limits = tuple(self.layout.access), tuple(self.limits)
        return (self.level, access, limits, *self[3:])


def main(channel: int, view: int, entered: int) -> NoReturn:
    """Run a zygote as a program: `view` is a file with a view's data, and its start is reported on `entered`."""
    wire.send(socket.socket(fileno=entered), ("entered",))
    with os.fdopen(view, "rb") as file:
        level, access, limits, *more = marshal.load(file)  # noqa: S302
    its_view = ZygoteView(level, Layout(LandlockAccess(*access)), ResourceLimits(*limits), *more)
    Zygote(its_view, socket.socket(fileno=channel)).serve()


class Spare(NamedTuple):
    """An init that waits for its command."""

    pid: int
    channel: socket.socket


class RunningInit(NamedTuple):
    """An init with its command. `status` is the command's status pipe, kept open until all of its processes are gone."""

    key: int
    pid: int
    status: int
    watch: ExitWatch


class Zygote:
    """Starts commands for requests on `channel`, until the host closes it. Then the zygote exits, and everything in it."""

    def __init__(self, view: ZygoteView, channel: socket.socket) -> None:
        self.view = view
        self.channel = channel
        self._confinement = view.confinement()
        self._running: dict[int, RunningInit] = {}  # by the descriptor of `watch`
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._spare: Spare | None = None
        self._spare_after_ms = SPARE_AFTER_MS

    def serve(self) -> NoReturn:
        _limit_ourselves(self.view)
        listeners = _listeners() if self.view.has_own_network else {}
        descriptors = tuple(listener.fileno() for listener in listeners.values())
        wire.send(self.channel, ("ready", list(listeners)), descriptors)
        for listener in listeners.values():
            listener.close()
        prctl(init.PR_SET_DUMPABLE, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, init.FORWARDED)  # inits inherit that
        gc.disable()  # a collection would touch pages that forks share
        self._spare = self._fork_init()
        self._poll.register(self.channel, select.POLLIN)
        while True:
            happened = self._poll.poll(self._spare_after_ms if self._lacks_spare else None)
            if not happened:
                self._make_spare()
            for descriptor, _ in happened:
                if descriptor in self._running:
                    self._finish(descriptor)
                elif received := wire.receive(self.channel):
                    self._handle(*received)
                else:
                    self._end()

    @property
    def _lacks_spare(self) -> bool:
        return self._spare is None and not self.view.is_for_one

    def _handle(self, message: wire.Message, descriptors: list[int]) -> None:
        match message:
            case ("launch", key, *launch):
                self._launch(key, tuple(launch), descriptors)
            case ("look",):
                wire.send(self.channel, ("holds", self.view.is_mounted and _holds_memory()))
            case ("hold", path):
                with suppress(OSError):  # the file is gone, so there is nothing to protect
                    namespaces.hold(path)
            case ("listen", places):
                self._listen(places)
            case ("signal", key, number):
                for running in self._running.values():
                    if running.key == key:
                        os.kill(running.pid, number)
            case _:
                raise SandboxError(f"Unknown message to a zygote: {message[0]!r}.")

    def _listen(self, places: list[tuple[str, int]]) -> None:
        """Send listening sockets at these addresses of the loopback. A place that is taken, or not ours, is left out."""
        found = list[socket.socket]()
        taken = list[tuple[str, int]]()
        for host, port in places:
            kind = socket.AF_INET6 if ":" in host else socket.AF_INET
            with suppress(OSError):
                # It listens at once, because SO_REUSEADDR would let a command bind a port on which nothing listens.
                found.append(socket.create_server((host, port), family=kind, backlog=BACKLOG))
                taken.append((host, port))
        wire.send(self.channel, ("listening", taken), tuple(each.fileno() for each in found))
        for each in found:
            each.close()

    def _launch(self, key: int, launch: wire.Message, descriptors: list[int]) -> None:
        status = descriptors[init.STATUS_FD]
        to_close = [each for each in descriptors if each != status]
        pid = 0
        try:
            pid = self._handed_over(launch, tuple(descriptors))
            watch = ExitWatch(pid)
        except OSError as error:  # running commands have used up a resource
            if pid:
                _end(pid)
            with suppress(OSError):  # the host may have stopped waiting
                os.write(status, NOT_STARTED.format(reason=error.strerror).encode())
            to_close.append(status)
        else:
            self._running[watch.fileno()] = RunningInit(key, pid, status, watch)
            self._poll.register(watch, select.POLLIN)
        for descriptor in to_close:
            os.close(descriptor)
        if not self.view.can_nest and not self.view.is_for_one:
            self._make_spare()  # at once, because its limit counts all existing processes

    def _handed_over(self, launch: wire.Message, descriptors: tuple[int, ...]) -> int:
        """Hand the command to the spare init, or to a new one if that was killed while waiting. Return its pid."""
        spare, self._spare = self._spare or self._fork_init(), None
        try:
            return _hand_over(spare, launch, descriptors)
        except ConnectionError:
            return _hand_over(self._fork_init(), launch, descriptors)

    def _make_spare(self) -> None:
        self._spare_after_ms = AFTER_FAILURE_MS
        with suppress(OSError):  # there may be room later; otherwise the next launch reports it
            self._spare = self._fork_init()
            self._spare_after_ms = SPARE_AFTER_MS

    def _fork_init(self) -> Spare:
        here, there = wire.socket_pair()
        with there, ExitStack() as unless_forked:
            unless_forked.enter_context(here)
            ours = os.getpid()
            if (pid := self._fork()) == 0:
                try:
                    self.channel.close()  # or the host would take the zygote for alive while only this init is
                    init.run(there, self._confinement, ours)
                finally:
                    os._exit(1)
            unless_forked.pop_all()
        return Spare(pid, here)

    def _fork(self) -> int:
        """Fork, into a new pid namespace if possible."""
        if not self.view.can_nest:
            return os.fork()
        namespaces.unshare(namespaces.CLONE_NEWPID)
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:  # in the parent
                syscall("setns", self._own_pids, namespaces.CLONE_NEWPID)
        return pid

    def _finish(self, descriptor: int) -> None:
        ended = self._running.pop(descriptor)
        self._poll.unregister(descriptor)
        os.waitpid(ended.pid, 0)
        ended.watch.close()
        if not self.view.can_nest:
            init.kill_tree(self._inits())
        os.close(ended.status)  # this tells the host that the whole tree has ended
        if self._lacks_spare:
            self._make_spare()

    def _inits(self) -> frozenset[int]:
        spare = {self._spare.pid} if self._spare else set[int]()
        return frozenset({running.pid for running in self._running.values()} | spare)

    def _end(self) -> NoReturn:
        if not self.view.can_nest:
            init.kill_tree()
        os._exit(0)


def _hand_over(spare: Spare, launch: wire.Message, descriptors: tuple[int, ...]) -> int:
    """Send the command to `spare` and return its pid. If that fails, kill it."""
    try:
        with spare.channel:
            wire.send(spare.channel, launch, descriptors)
    except OSError:
        _end(spare.pid)
        raise
    return spare.pid


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _holds_memory() -> bool:
    """Return whether commands left shared memory, semaphores or message queues. True if that cannot be checked."""
    try:
        if any(os.listdir(directory) for directory in filter(os.path.isdir, MEMORY)):
            return True
        for path in filter(os.path.exists, LISTS_OF_MEMORY):
            with open(path, encoding="ascii") as file:
                if len(file.readlines()) > 1:  # the first holds headings
                    return True
    except OSError:
        return True
    return False


def _listeners() -> dict[str, socket.socket]:
    """
    Return sockets for the host on the session's loopback; none if another view of the session already has them.

    A socket keeps the network namespace in which it was created. So the host can serve it directly, without a helper like socat.
    """
    found: dict[str, socket.socket] = {}
    for name, kind, port in (
        ("proxy", socket.SOCK_STREAM, PROXY_PORT),
        ("names", socket.SOCK_DGRAM, NAME_PORT),
    ):
        listener = socket.socket(socket.AF_INET, kind)
        with suppress(OSError):  # in use, or bubblewrap leaves no right to bind the port
            listener.bind(("127.0.0.1", port))
            # Set after binding, or the next view could bind the port, too. It lets the socket listen again while old connections linger.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found[name] = listener
    return found


def _limit_ourselves(view: ZygoteView) -> None:
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(OOM_SCORE_ADJ)
    init.bar_capabilities()
    if not view.can_nest:
        init.adopt_and_die_together(os.getppid())
    elif os.geteuid() == 0 and _kernel_version() >= PID_MAX_IS_OURS:  # RLIMIT_NPROC binds no root
        with open("/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
            file.write(str(view.limits.processes + RESERVED_PIDS))


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor.partition("-")[0])
