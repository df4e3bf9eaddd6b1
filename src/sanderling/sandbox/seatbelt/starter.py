"""
The starter of one view on macOS: it starts each command with `sandbox-exec`, and ends what it has started.

It speaks the same wire as a zygote (`inside/zygote.py`). There is no pid namespace, so a command's processes are found in the list of the
machine's processes: by parent, by group, and by a marker in their environment (`ProcessTree`).
"""

import errno
import os
import resource
import secrets
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

from sanderling.errors import SandboxError
from sanderling.platforms.endings import ExitWatch
from sanderling.platforms.processes import ProcessTree, rows
from sanderling.sandbox import wire
from sanderling.sandbox.policy import ResourceLimits
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, NOT_STARTED
from sanderling.sandbox.seatbelt.profile import launcher, with_environment

LOOK_MS = 200
"""How often the processes of running commands are listed. One that leaves its group and loses its parent sooner may escape."""
MARKER = "SANDERLING_TREE"
WORKER = (
    "import gc, os, socket, sys; gc.disable(); sys.path += {path!r}; "
    "from sanderling.sandbox.inside.worker import serve; serve(socket.socket(fileno=0))"
)
RESET = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1),
    *(signal.SIGUSR2, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD),
)


class StarterView(NamedTuple):
    """What the commands of a view share. `program` is `sandbox-exec`."""

    profile: str
    limits: ResourceLimits
    program: str


class _Running(NamedTuple):
    """A command. `status` is its status pipe, kept open until all of its processes are gone."""

    key: int
    pid: int
    status: int
    tree: ProcessTree
    watch: ExitWatch


class _NotStartedError(Exception):
    """The program is missing or cannot be executed, as the `status` of a shell says. `sandbox-exec` would only say 71."""

    def __init__(self, status: int) -> None:
        self.status = status


class Starter:
    """Starts commands for requests on `channel`, until the host closes it or the supervisor has ended, which closes `alive`."""

    def __init__(self, view: StarterView, channel: socket.socket, alive: int) -> None:
        self._view = view
        self._channel = channel
        self._alive = alive
        self._running: dict[int, _Running] = {}  # by the descriptor of `watch`
        self._poll = select.poll()

    def serve(self, listener: socket.socket | None) -> None:
        """Announce the view, with the socket of its proxy, and serve it. At the end, also after a bug, no command is left."""
        # The supervisor's handlers were inherited, and would have this process clean up in its place.
        signal.pthread_sigmask(signal.SIG_BLOCK, RESET)
        _limit(self._view.limits)
        if listener:
            wire.send(self._channel, ("ready", ["proxy"]), (listener.fileno(),))
            listener.close()
        else:
            wire.send(self._channel, ("ready", []))
        for each in (self._channel.fileno(), self._alive):
            self._poll.register(each, select.POLLIN)
        try:
            while self._goes_on():
                for each in self._running.values():
                    each.tree.look()
        finally:
            for each in self._running.values():
                each.tree.kill()

    def _goes_on(self) -> bool:
        """Do what is due. Return False at the end."""
        for descriptor, _ in self._poll.poll(LOOK_MS if self._running else None):
            if descriptor in self._running:
                self._finish(descriptor)
            elif descriptor == self._alive:
                return False
            elif received := wire.receive(self._channel):
                self._handle(*received)
            else:
                return False
        return True

    def _handle(self, message: wire.Message, descriptors: list[int]) -> None:
        match message:
            case ("launch", key, argv, environment, cwd):
                self._launch(key, argv, environment, cwd, descriptors)
            case ("look",):
                wire.send(self._channel, ("holds", False))  # memory without a file is refused
            case ("listen", _):
                wire.send(self._channel, ("listening", []))  # the loopback is the machine's own
            case ("signal", key, number):
                self._signal(key, number)
            case _:
                raise SandboxError(f"Unknown message to a starter: {message[0]!r}.")

    def _launch(
        self, key: int, argv: list[str], environment: dict[str, str], cwd: str, ends: list[int]
    ) -> None:
        *streams, status = ends
        marker = f"{key}-{secrets.token_hex(8)}"
        pid = 0
        try:
            pid = self._spawned(argv, environment, marker, cwd, streams)
            watch = ExitWatch(pid)
        except _NotStartedError as error:
            _say(status, wire.STATUS.pack(error.status << 8, True))
        except (SandboxError, ValueError) as error:
            _say(status, str(error).encode())
        except OSError as error:
            if pid:  # there is no descriptor left to watch it
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            _say(status, NOT_STARTED.format(reason=error.strerror).encode())
        else:
            tree = ProcessTree(pid, f"{MARKER}={marker}".encode())
            self._running[watch.fileno()] = _Running(key, pid, status, tree, watch)
            self._poll.register(watch, select.POLLIN)
            ends = streams
        for descriptor in ends:
            os.close(descriptor)

    def _spawned(
        self,
        argv: list[str],
        environment: dict[str, str],
        marker: str,
        cwd: str,
        streams: list[int],
    ) -> int:
        """Start the command, or the file worker if there is none. Return its pid."""
        try:
            os.chdir(cwd)
        except OSError:
            raise SandboxError(f"{cwd} is not a directory inside the sandbox.") from None
        if argv and (code := _why_not_found(argv[0], environment)):
            os.write(
                streams[2], f"{argv[0]}: {os.strerror(code)}\n".encode(errors="surrogateescape")
            )
            raise _NotStartedError(EXIT_NOT_FOUND if code == errno.ENOENT else EXIT_NOT_EXECUTABLE)
        if not argv:
            code = WORKER.format(path=sys.path)
            argv = [os.path.realpath(sys.executable), "-I", "-S", "-c", code]
        actions = [(os.POSIX_SPAWN_DUP2, each, target) for target, each in enumerate(streams)]
        command = with_environment(argv, environment | {MARKER: marker})
        return os.posix_spawn(
            self._view.program,
            [*launcher(self._view.profile, self._view.program), *command],
            {MARKER: marker},
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=RESET,
        )

    def _signal(self, key: int, number: int) -> None:
        for each in self._running.values():
            if each.key != key:
                continue
            if number == signal.SIGKILL:
                each.tree.kill()
            else:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(each.pid, number)

    def _finish(self, descriptor: int) -> None:
        """Report how a command ended, and whether it left processes. Then end these."""
        ended = self._running.pop(descriptor)
        self._poll.unregister(descriptor)
        ended.watch.close()
        _, status = os.waitpid(ended.pid, 0)
        is_alone = not ended.tree.look()
        _say(ended.status, wire.STATUS.pack(status, is_alone))
        if not is_alone:
            ended.tree.kill()
        os.close(ended.status)


def _why_not_found(name: str, environment: dict[str, str]) -> int:
    """Return the error of looking up a program as execvp(3) does, or 0."""
    code = errno.ENOENT
    directories = [""] if "/" in name else environment.get("PATH", os.defpath).split(":")
    for directory in directories:
        path = os.path.join(directory or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return 0
            code = errno.EACCES
    return code


def _say(status: int, words: bytes) -> None:
    with suppress(OSError):  # the host may have stopped waiting
        os.write(status, words)


def _limit(limits: ResourceLimits) -> None:
    """Limit this process, and so the commands. macOS counts all processes of the user."""
    running = sum(each.uid == os.getuid() for each in rows())
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes + running),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(OSError, ValueError):  # above the system's own
            resource.setrlimit(kind, (limit, limit))
