"""
The host's side of the sandbox: open it for a project, spawn commands in it, change its network, hear what it refused.

A command starts in a **view**: a zygote for one combination of mode, network and grants. Views are opened when they are first
needed and share the session's namespaces, so that a server started in one answers in the next.
"""

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

import anyio
from anyio.abc import TaskGroup

from sanderling.errors import SandboxError
from sanderling.remedies import remedies
from sanderling.sandbox import wire
from sanderling.sandbox.denials import Denial, denials_in, programs_denied
from sanderling.sandbox.disk import DiskFull, DiskWatch
from sanderling.sandbox.environment import environment
from sanderling.sandbox.files import Files
from sanderling.sandbox.gitconfig import write_gitconfig
from sanderling.sandbox.kernel.programs import programs_of
from sanderling.sandbox.network.denied import LISTED_ONLY
from sanderling.sandbox.network.hosts import HostRules
from sanderling.sandbox.network.names import answer_names
from sanderling.sandbox.network.proxy import proxy_environment, serve_proxy
from sanderling.sandbox.policy import (
    LEVELS,
    PROXY_PORT,
    Level,
    NetworkMode,
    SandboxPolicy,
    resolve_policy,
)
from sanderling.sandbox.processes import PipeReader, PipeWriter, Process
from sanderling.sandbox.report import LAYERS, GuardEvent, Report

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
START = (
    "import gc, os, sys; gc.disable(); sys.path += {path!r}; "
    "from sanderling.sandbox.inside.{module} import main; main({channel}); os._exit(0)"
)
# The supervisor asks git what it ignores, for instance.
FOR_GIT = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG")
NETWORK_OFF = "the network is off"
NO_PROXY = "The proxy needs namespaces, which this machine does not allow."
PROXY_BACKLOG = 128
CLOSE_S = 5.0
DISK_CHECK_S = 0.1
AUDIT_S = 1.0

_sessions = itertools.count()

SandboxEvent = GuardEvent | Denial | DiskFull
"""What happens in a sandbox unasked: the guard stepped in, something was refused, or the disk was nearly full."""


class View:
    """One zygote, and what was started in it."""

    def __init__(self, number: int, policy: SandboxPolicy, channel: socket.socket) -> None:
        self.number = number
        self.paths = (policy.read_paths, policy.write_paths, policy.identities)
        self.channel = channel
        self.commands: WeakSet[Process] = WeakSet()
        self.file_workers: WeakSet[Process] = WeakSet()
        self._sending = anyio.Lock()

    def hold(self, path: str) -> None:
        with suppress(OSError):  # it is gone, and what ran in it
            wire.send(self.channel, ("hold", path))

    @property
    def runs_commands(self) -> bool:
        return any(command.is_running for command in self.commands)

    @property
    def is_used(self) -> bool:
        return self.runs_commands or any(worker.is_running for worker in self.file_workers)

    async def holds_memory(self) -> bool:
        """Whether commands have left something there that is on no disk; not, if it does not answer any more."""
        with suppress(OSError, anyio.ClosedResourceError):
            await self.send(("look",), ())
            match await _receive(self.channel):
                case ("holds", is_something), _:
                    return is_something
                case _:
                    pass
        return False

    def kill_commands(self) -> None:
        for command in self.commands:
            command.kill()

    async def send(self, message: wire.Message, descriptors: tuple[int, ...]) -> None:
        """
        Send `message` when the zygote has room for it.

        Raises:
            OSError: it is gone.
        """
        async with self._sending:
            while True:
                with suppress(BlockingIOError):
                    wire.send(self.channel, message, descriptors)
                    return
                await anyio.wait_writable(self.channel)

    def signal(self, key: int, number: int) -> None:
        try:
            wire.send(self.channel, ("signal", key, int(number)))
        except BlockingIOError:  # a zygote that does not listen must not keep anything alive
            self.channel.close()
        except OSError:
            pass  # it is gone, and the command with it


class Sandbox:
    """A session's sandbox: `report` is what the kernel here can do, `level` what is made of it."""

    _report_of_kernel: ClassVar[Report | None] = None

    def __init__(
        self,
        policy: SandboxPolicy,
        report: Report,
        supervisor: socket.socket,
        tasks: TaskGroup,
        on_event: Callable[[SandboxEvent], None],
    ) -> None:
        self.policy = policy
        self.report = report
        self.level: Level = policy.level or report.level
        self.has_ended = anyio.Event()
        self._supervisor = supervisor
        self._listening = anyio.CancelScope(shield=True)
        self._tasks = tasks
        self._on_event = on_event
        self._views: dict[object, View] = {}
        self._left: list[
            View
        ] = []  # in which something still runs, and nothing is started any more
        self._opening = anyio.Lock()
        self._keys = itertools.count()
        self._view_numbers = itertools.count()
        self._is_watching = False
        self._asked: dict[int, anyio.Event] = {}
        self._answers: dict[int, bool] = {}
        self._host_rules = HostRules(policy.hosts)
        self._proxies: list[socket.socket] = []
        self._proxy_scopes: list[anyio.CancelScope] = []

    @classmethod
    async def probe(cls) -> Report:
        """What the kernel can enforce, found out by doing it; once, for it does not change while we run."""
        if cls._report_of_kernel is None:
            try:
                _check_system()
            except SandboxError:
                reason = f"it needs Linux, this is {sys.platform}"
                return Report(reasons=dict.fromkeys(LAYERS, reason), landlock_abi=0)
            async with _started("probe") as prober:
                cls._report_of_kernel = await _receive_report(prober)
        return cls._report_of_kernel

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        policy: SandboxPolicy,
        on_event: Callable[[SandboxEvent], None] = lambda _: None,
        report: Report | None = None,
    ) -> AsyncGenerator["Sandbox"]:
        """
        Open the sandbox of a session. When the context ends, everything that was started in it is gone.

        With a `tmp_dir` in `policy`, whose owner removes it, it goes on where one has come to rest. What the kernel can do is found out beside that, unless
        `report` says it, or it is known.

        Raises:
            SandboxError: the policy cannot be enforced here, at a level that it accepts.
        """
        _check_system()
        policy = resolve_policy(policy)
        policy = policy._replace(programs=programs_of(policy))
        goes_on = bool(policy.tmp_dir)
        if not goes_on:
            path = f"{policy.state_dir}/tmp/{os.getpid()}-{next(_sessions)}"
            policy = policy._replace(tmp_dir=path)
        async with _started("supervisor") as supervisor, _task_group() as tasks:
            with _refusing_on_os_errors():  # while the supervisor starts
                report = report or await cls.probe()
                await write_gitconfig(policy)
            check_level(policy, report)
            sandbox = cls(policy, report, supervisor, tasks, on_event)
            tasks.start_soon(sandbox._listen)
            try:
                with _refusing_on_os_errors():
                    await sandbox.set_network(policy.network)
                yield sandbox
            finally:
                with anyio.CancelScope(shield=True):
                    await sandbox._close(keeps_tmp=goes_on)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        stdin: int = DEVNULL,
        stdout: int = PIPE,
        stderr: int = PIPE,
        policy: SandboxPolicy | None = None,
    ) -> Process:
        """
        Start a command.

        `cwd` is the project's root if it is empty; `env` comes on top of what the policy lets in; a stream is `PIPE`, `DEVNULL`, a
        file descriptor, or for stderr `STDOUT`. `policy` is this launch's own: `self.policy` with grants.

        Raises:
            SandboxError: it cannot be started. A program that is missing is not that: it ends with status 127.
        """
        policy = resolve_policy(policy) if policy else self.policy
        variables = environment(os.environ, policy, self.level)
        if policy.network == "proxy":
            variables |= proxy_environment(PROXY_PORT)
        variables |= env or {}
        with _refusing_on_os_errors(), ExitStack() as theirs, ExitStack() as unless_started:
            stdin_end, our_stdin = _input(stdin, theirs, unless_started)
            stdout_end, our_stdout = _output(stdout, theirs, unless_started)
            stderr_end, our_stderr = (
                (stdout_end, None) if stderr == STDOUT else _output(stderr, theirs, unless_started)
            )
            status_end, our_status = _output(PIPE, theirs, unless_started)
            assert our_status
            key = next(self._keys)
            ends = (stdin_end, stdout_end, stderr_end, status_end)
            launch = ("launch", key, list(argv), variables, cwd or policy.project)
            view = await self._send(policy, launch, ends)
            unless_started.pop_all()
        signal_it = partial(view.signal, key)
        process = Process(signal_it, our_status, our_stdin, our_stdout, our_stderr)
        if not argv:
            view.file_workers.add(process)
            return process
        view.commands.add(process)
        if not self._is_watching:
            self._is_watching = True
            self._tasks.start_soon(self._watch)
        return process

    async def open_files(self, policy: SandboxPolicy | None = None) -> Files:
        """
        Start a file worker, which sees and may write what a command of now does; `policy` is as for `spawn`.

        Raises:
            SandboxError: it cannot be started.
        """
        with _refusing_on_os_errors():
            ours, theirs = wire.socket_pair()
        with ExitStack() as unless_started:
            unless_started.enter_context(ours)
            with theirs:
                end = theirs.fileno()
                process = await self.spawn(
                    [], stdin=end, stdout=DEVNULL, stderr=DEVNULL, policy=policy
                )
            unless_started.pop_all()
        return Files(ours, process)

    async def set_network(self, mode: NetworkMode, hosts: tuple[str, ...] | None = None) -> None:
        """
        Change the network of what is started from now on; what runs keeps the one that it has.

        `hosts` replaces the list of the proxy, which all of the session can use while the mode is "proxy".

        Raises:
            SandboxError: a host is malformed, or this level cannot do it.
        """
        if mode == "proxy" and self.level == "landlock":
            raise SandboxError(NO_PROXY)
        policy = self.policy._replace(network=mode)
        if hosts is not None:
            policy = policy._replace(hosts=hosts)
        HostRules(policy.hosts)
        await self._view(policy)
        before, self.policy = self.policy, policy
        self._host_rules.change(policy.hosts)
        if mode == before.network:
            return
        self._stop_proxies()
        try:
            for listener in self._proxies:
                self._start_proxy(listener)
        except OSError as error:  # a command has taken the port
            self._stop_proxies()
            self.policy = before
            self._host_rules.change(before.hosts)
            for listener in self._proxies:
                with suppress(OSError):
                    self._start_proxy(listener)
            raise SandboxError(f"The proxy cannot listen on port {PROXY_PORT}: {error}.") from error

    def audit(self, *, is_routine: bool = False) -> None:
        """Have the guard look at the whole project, or if it `is_routine`, if that is cheap; what it finds comes as events."""
        with suppress(OSError):  # the supervisor is gone: it looked before it went
            wire.send(self._supervisor, ("audit", is_routine))

    def denials_in(
        self, output: str, cwd: str = "", *, status: int = 1, command: str = ""
    ) -> list[Denial]:
        """
        The paths that a `command` which ran in `cwd` complains of, and that were refused to it; empty is the project's root.

        So are the directories of programs that it did not find: `status` is what it has failed with.
        """
        return [
            *programs_denied(output, status, command, self.policy),
            *denials_in(output, self.policy, cwd or self.policy.project),
        ]

    async def undoes(self, path: str) -> bool:
        """Whether the guard would undo a change of `path`, which is real; not, if there is none any more."""
        number = next(self._keys)
        answered = self._asked[number] = anyio.Event()
        try:
            wire.send(self._supervisor, ("undoes", number, path))
            if not self.has_ended.is_set():
                await answered.wait()
        except OSError:
            return False
        else:
            return self._answers.pop(number, False)
        finally:
            del self._asked[number]

    async def _watch(self) -> None:
        """As long as something runs: have the guard look now and then, and kill it all before it has filled the disk."""
        paths = (self.policy.project, self.policy.state_dir, *self.policy.write_paths)
        watch = DiskWatch(paths)
        next_audit = anyio.current_time() + AUDIT_S
        try:
            while self.runs_commands:
                await anyio.sleep(DISK_CHECK_S)
                self.retire_views()
                if anyio.current_time() >= next_audit:
                    self.audit(is_routine=True)
                    next_audit = anyio.current_time() + AUDIT_S
                if full := watch.look():
                    for view in (*self._views.values(), *self._left):
                        view.kill_commands()
                    self._on_event(full)
                    return
        finally:
            self._is_watching = False

    def retire_views(self) -> None:
        """End the views of other grants than `self.policy`'s, if nothing runs there."""
        for view in list(self._views.values()):
            policy = self.policy
            of_now = (policy.read_paths, policy.write_paths, policy.identities)
            is_of_now = view.paths == of_now
            if not is_of_now and not view.is_used:
                self._retire(view)

    def _retire(self, view: View) -> None:
        """Nothing runs there any more: what was made for its mounts goes."""
        self._drop(view)
        with suppress(OSError):  # the supervisor is gone, and cleans up
            wire.send(self._supervisor, ("retire", view.number))

    def _drop(self, view: View) -> None:
        """Nothing is started there any more; what runs there goes on, with its mounts."""
        self._views = {key: other for key, other in self._views.items() if other is not view}
        self._left = [other for other in (*self._left, view) if other.runs_commands]
        anyio.notify_closing(view.channel)
        view.channel.close()

    # --- views ---------------------------------------------------------------------------------------------------------

    async def _send(
        self, policy: SandboxPolicy, message: wire.Message, descriptors: tuple[int, ...]
    ) -> "View":
        """Send `message` to the view of `policy`, once more if the zygote has died; return the view."""
        for is_last_try in (False, True):
            view = await self._view(policy)
            try:
                await view.send(message, descriptors)
            except OSError as error:
                self._retire(view)
                if is_last_try:
                    raise SandboxError(f"The sandbox has ended: {error}.") from error
            else:
                return view
        raise AssertionError

    async def _view(self, policy: SandboxPolicy) -> "View":
        """The view of `policy`, opened if there is none. A zygote may outlive its supervisor by a moment; nothing starts there."""
        if self.has_ended.is_set():
            raise SandboxError("The sandbox has ended.")
        key = _view_key(policy)
        async with self._opening:
            if key not in self._views:
                number = next(self._view_numbers)
                self._views[key] = View(number, policy, await self._open_view(number, policy))
            return self._views[key]

    def _hold_again(self, path: str) -> None:
        """The host has replaced a file, which took its mount away: mount it again, or where that cannot be, end the view."""
        for view in list(self._views.values()):
            if self.level == "full-bwrap":
                self._drop(view)
            elif self.level != "landlock":
                view.hold(os.path.join(self.policy.project, path))

    async def _open_view(self, number: int, policy: SandboxPolicy) -> socket.socket:
        with _refusing_on_os_errors():
            ours, theirs = wire.socket_pair()
        ours.setblocking(False)
        with ExitStack() as unless_ready:
            unless_ready.enter_context(ours)
            with theirs:
                limits = tuple(policy.limits)
                request = ("open", number, self.level, tuple(policy._replace(limits=limits)))
                try:
                    wire.send(self._supervisor, request, (theirs.fileno(),))
                except OSError as error:
                    raise SandboxError(f"The sandbox has ended: {error}.") from error
            with _refusing_on_os_errors():
                received = await _receive(ours)
            match received:
                case ("ready", names), descriptors:
                    for name, descriptor in zip(names, descriptors, strict=True):
                        self._serve(name, socket.socket(fileno=descriptor))
                    unless_ready.pop_all()
                case ("refused", reason), _:
                    raise SandboxError(f"The sandbox cannot be set up: {reason}")
                case _:
                    raise SandboxError("The sandbox's supervisor has ended.")
        return ours

    def _serve(self, name: str, listener: socket.socket) -> None:
        """What a new view's loopback has for the host to answer on."""
        listener.setblocking(False)
        if name == "proxy":
            self._proxies.append(listener)
            self._start_proxy(listener)
        else:
            self._tasks.start_soon(self._answer_names, listener)

    async def _answer_names(self, responder: socket.socket) -> None:
        await answer_names(responder, self._report_name, NETWORK_OFF)

    def _report_name(self, denial: Denial) -> None:
        is_off = self.policy.network == "off"
        self._on_event(denial if is_off else replace(denial, rule=LISTED_ONLY))

    def _stop_proxies(self) -> None:
        for scope in self._proxy_scopes:
            scope.cancel()
        self._proxy_scopes = []

    def _start_proxy(self, listener: socket.socket) -> None:
        if self.policy.network == "proxy":
            scope = anyio.CancelScope()
            self._proxy_scopes.append(scope)
            listener.listen(PROXY_BACKLOG)
            self._tasks.start_soon(self._serve_proxy, listener, scope)

    async def _serve_proxy(self, listener: socket.socket, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await serve_proxy(listener.dup(), self._host_rules, self._on_event)
            finally:
                if self.policy.network != "proxy":  # else another task has taken over
                    with suppress(OSError):  # closed, with the sandbox
                        listener.shutdown(socket.SHUT_RDWR)  # refuses at once, and can listen again

    # --- the supervisor ------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear what the supervisor says, also while we are being cancelled, for it has last words."""
        with self._listening:
            while (received := await _receive(self._supervisor)) is not None:
                match received:
                    case (("guard", *details), _):
                        event = GuardEvent(*details)
                        if event.kind == "replaced":
                            self._hold_again(event.path)
                        self._on_event(event)
                    case (("undoes", number, is_undone), _):
                        if number in self._asked:  # else who asked waits no more
                            self._answers[number] = is_undone
                            self._asked[number].set()
                    case (("closed",), _):
                        break
                    case _:
                        raise SandboxError(f"The host knows no {received[0]!r}.")
        self.has_ended.set()
        for answered in self._asked.values():
            answered.set()

    @property
    def runs_commands(self) -> bool:
        return any(view.runs_commands for view in (*self._views.values(), *self._left))

    async def holds_memory(self) -> bool:
        """Whether commands have left what would go with our processes: shared memory, semaphores or message queues."""
        return any([await view.holds_memory() for view in list(self._views.values())])

    async def rest(self) -> None:
        """End all processes. What commands have left in /tmp stays, for `open` with this policy's `tmp_dir`."""
        await self._end(keeps_tmp=True)

    async def _close(self, *, keeps_tmp: bool) -> None:
        await self._end(keeps_tmp=keeps_tmp)
        self._listening.cancel()
        for view in self._views.values():
            view.channel.close()
        for listener in self._proxies:
            listener.close()

    async def _end(self, *, keeps_tmp: bool) -> None:
        """Let the supervisor kill what runs, look once more and clean up; hear what it says about that."""
        with suppress(OSError), anyio.move_on_after(CLOSE_S):
            wire.send(self._supervisor, ("close", keeps_tmp))
            await self.has_ended.wait()


def _check_system() -> None:
    if sys.platform != "linux":
        raise SandboxError(f"The sandbox needs Linux; this is {sys.platform}.")


@contextmanager
def _refusing_on_os_errors() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxError(f"The sandbox cannot be set up: {error}.") from error


def check_level(policy: SandboxPolicy, report: Report) -> None:
    """
    Hold what `policy` asks for against what works here.

    Raises:
        SandboxError: it asks for more.
    """
    level = policy.level or report.level
    if reason := report.why_not(level):
        raise SandboxError(f"The sandbox level '{level}' does not work here: {reason}.")
    if LEVELS.index(level) > LEVELS.index(policy.min_level):
        wanted = policy.min_level
        least = f"'{wanted}' is the least that is accepted"
        if reason := report.why_not(wanted):
            raise SandboxError(
                f"The sandbox can only reach level '{level}' here, and {least} ({reason})."
            )
        raise SandboxError(f"Level '{level}' was asked for, and {least}.")


def _view_key(policy: SandboxPolicy) -> object:
    paths = (policy.read_paths, policy.write_paths, policy.identities)
    return (policy.mode, policy.network == "on", *paths)


def _input(kind: int, theirs: ExitStack, ours: ExitStack) -> tuple[int, PipeWriter | None]:
    if kind != PIPE:
        return _given(kind, theirs), None
    reader, writer = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, reader)
    stream = PipeWriter(writer)
    ours.callback(stream.close)
    return reader, stream


def _output(kind: int, theirs: ExitStack, ours: ExitStack) -> tuple[int, PipeReader | None]:
    if kind != PIPE:
        return _given(kind, theirs), None
    reader, writer = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, writer)
    stream = PipeReader(reader)
    ours.callback(stream.close)
    return writer, stream


def _given(kind: int, theirs: ExitStack) -> int:
    """The descriptor that `kind` is, or one of /dev/null."""
    if kind != DEVNULL:
        return kind
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    theirs.callback(os.close, descriptor)
    return descriptor


async def _receive(channel: socket.socket) -> tuple[wire.Message, list[int]] | None:
    await anyio.wait_readable(channel)
    return wire.receive(channel)


async def _receive_report(prober: socket.socket) -> Report:
    match await _receive(prober):
        case (("report", reasons, landlock_abi), _):
            return Report(reasons=reasons, landlock_abi=landlock_abi)
        case _:
            raise SandboxError("The sandbox's probe has ended before it could answer.")


@asynccontextmanager
async def _started(module: str) -> AsyncGenerator[socket.socket]:
    """The channel to a process of our own that runs `module`, and ends when the context does."""
    with _refusing_on_os_errors():
        ours, theirs = wire.socket_pair()
    ours.setblocking(False)
    with ExitStack() as unless_started, theirs:
        unless_started.enter_context(ours)
        path = [str(_directory_above(name)) for name in ("sanderling", "landlock")]
        code = START.format(path=path, module=module, channel=theirs.fileno())
        with _refusing_on_os_errors():
            process = subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-I", "-S", "-c", code],
                pass_fds=(theirs.fileno(),),
                stdin=DEVNULL,
                stdout=DEVNULL,
                env={name: os.environ[name] for name in FOR_GIT if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
            unless_started.callback(process.wait)
            unless_started.callback(process.kill)
            ended = os.pidfd_open(process.pid)
        unless_started.pop_all()
    try:
        with ours:
            yield ours
    finally:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_S) as waiting:
                await anyio.wait_readable(ended)
            if waiting.cancelled_caught:
                process.returncode = 0  # it still looks at what was left, and needs no one for that
            else:
                process.wait()
        os.close(ended)


def _directory_above(package: str) -> Path:
    spec = find_spec(package)
    if not spec or not spec.origin:
        raise SandboxError(
            f"The sandbox needs the Python package '{package}': build the environment again ({remedies().install})."
        )
    return Path(spec.origin).parent.parent


@asynccontextmanager
async def _task_group() -> AsyncGenerator[TaskGroup]:
    """A task group that ends with its body, and lets a lone exception through as what it is."""
    with alone():
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()


@contextmanager
def alone() -> Generator[None]:
    """Let an exception that is alone in its group through as what it is."""
    try:
        yield
    except BaseExceptionGroup as group:
        first, *others = group.exceptions
        if others:
            raise
        raise first from None
