"""
The host's side of the sandbox: open it for a project, spawn commands in it, change its network, hear what it refused.

A command starts in a **view**: a zygote for one combination of mode, network and grants. Views are opened when they are first
needed and share the session's namespaces, so that a server started in one answers in the next.
"""

import itertools
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import ClassVar

import anyio
from anyio.abc import TaskGroup

from sanderling.errors import SandboxError
from sanderling.protocol.modes import Level, NetworkMode
from sanderling.sandbox import wire
from sanderling.sandbox.channels import (
    SupervisorChannel,
    receive_report,
    refusing_on_os_errors,
    started,
)
from sanderling.sandbox.denials import Denial, denials_in, programs_denied
from sanderling.sandbox.disk import DiskFull, DiskWatch
from sanderling.sandbox.environment import environment, proxy_environment
from sanderling.sandbox.files import Files
from sanderling.sandbox.gitconfig import write_gitconfig
from sanderling.sandbox.kernel.programs import programs_of
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.network.serving import HostNetwork
from sanderling.sandbox.policy import LEVELS, PROXY_PORT, SandboxPolicy, resolve_policy
from sanderling.sandbox.processes import DEVNULL, PIPE, STDOUT, Process, stream_in, stream_out
from sanderling.sandbox.report import LAYERS, ROUTINE_SHARE, GuardEvent, Report
from sanderling.sandbox.views import View, Views

NO_PROXY = "The proxy needs namespaces, which this machine does not allow."
DISK_CHECK_S = 0.1
AUDIT_S = 1.0
IDLE = 10
"""So many times as seldom these looks are taken while nothing runs but servers, which mostly wait: each call is looked after."""

_sessions = itertools.count()

SandboxEvent = GuardEvent | Denial | DiskFull
"""An event in a sandbox that nobody asked for: the guard stepped in, something was refused, or the disk was nearly full."""


class Sandbox:
    """A session's sandbox: `report` is what the kernel here can do, `level` what is made of it."""

    _report_of_kernel: ClassVar[Report | None] = None

    def __init__(
        self,
        policy: SandboxPolicy,
        report: Report,
        supervisor: SupervisorChannel,
        tasks: TaskGroup,
        on_event: Callable[[SandboxEvent], None],
    ) -> None:
        self.policy = policy
        self.report = report
        self.level: Level = policy.level or report.level
        self._supervisor = supervisor
        self._tasks = tasks
        self._on_event = on_event
        self._network = HostNetwork(policy.network, policy.hosts, tasks, on_event)
        self._servers: dict[str, HostNetwork] = {}  # by name
        self._views = Views(self.level, supervisor, self._answer_on)
        self._keys = itertools.count()
        self._is_watching = False
        self._is_needed = anyio.Event()  # a command has begun beside servers

    @classmethod
    async def probe(cls) -> Report:
        """Find out what the kernel can enforce, by doing it; once, for it does not change while we run."""
        if cls._report_of_kernel is None:
            try:
                _check_system()
            except SandboxError:
                reason = f"it needs Linux, this is {sys.platform}"
                return Report(reasons=dict.fromkeys(LAYERS, reason), landlock_abi=0)
            async with started("probe") as prober:
                cls._report_of_kernel = await receive_report(prober)
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
        async with started("supervisor") as supervisor, _task_group() as tasks:
            with refusing_on_os_errors():  # while the supervisor starts
                report = report or await cls.probe()
                await write_gitconfig(policy)
            check_level(policy, report)
            sandbox = cls(policy, report, SupervisorChannel(supervisor), tasks, on_event)
            tasks.start_soon(sandbox._supervisor.listen, sandbox._on_guard_event)
            try:
                with refusing_on_os_errors():
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
        is_server: bool = False,
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
        with refusing_on_os_errors(), ExitStack() as theirs, ExitStack() as unless_started:
            stdin_end, our_stdin = stream_in(stdin, theirs, unless_started)
            stdout_end, our_stdout = stream_out(stdout, theirs, unless_started)
            stderr_end, our_stderr = (
                (stdout_end, None)
                if stderr == STDOUT
                else stream_out(stderr, theirs, unless_started)
            )
            status_end, our_status = stream_out(PIPE, theirs, unless_started)
            assert our_status
            key = next(self._keys)
            ends = (stdin_end, stdout_end, stderr_end, status_end)
            launch = ("launch", key, list(argv), variables, cwd or policy.project)
            view = await self._views.send(policy, launch, ends)
            unless_started.pop_all()
        signal_it = partial(view.signal, key)
        process = Process(signal_it, our_status, our_stdin, our_stdout, our_stderr)
        if argv:
            self._keep_watch(view, process, is_server=is_server)
        else:
            view.file_workers.add(process)
        return process

    def _keep_watch(self, view: View, process: Process, *, is_server: bool) -> None:
        """Watch what runs, from now on `process`, too."""
        if not is_server and self._views.only_serve:
            self._is_needed.set()
        (view.servers if is_server else view.commands).add(process)
        if not self._is_watching:
            self._is_watching = True
            self._tasks.start_soon(self._watch)

    async def spawn_server(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        policy: SandboxPolicy,
        on_denied: Callable[[Denial], None],
    ) -> Process:
        """
        Start a server that talks with us over its input and output.

        If it is `policy.server`, its network is its own: what that refuses is told to `on_denied`.

        Raises:
            SandboxError: it cannot be started, as `spawn` says.
        """
        is_alone = policy.server and policy.network != "on"
        if is_alone and policy.server not in self._servers:
            network = HostNetwork(policy.network, policy.hosts, self._tasks, on_denied)
            self._servers[policy.server] = network
        return await self.spawn(argv, env=env, stdin=PIPE, policy=policy, is_server=True)

    def _answer_on(self, policy: SandboxPolicy, name: str, listener: socket.socket) -> None:
        """Answer where a view's loopback is listened on: the session's network does, or a server's."""
        network = self._servers[policy.server] if policy.server else self._network
        network.serve(name, listener)

    async def open_files(self, policy: SandboxPolicy | None = None) -> Files:
        """
        Start a file worker, which sees and may write what a command of now does; `policy` is as for `spawn`.

        Raises:
            SandboxError: it cannot be started.
        """
        with refusing_on_os_errors():
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
        await self._views.get(policy)
        before, self.policy = self.policy, policy
        try:
            self._network.change(mode, policy.hosts)
        except OSError as error:  # a command has taken the port
            self.policy = before
            raise SandboxError(f"The proxy cannot listen on port {PROXY_PORT}: {error}.") from error

    def audit(self, share: int = 0) -> None:
        """Have the guard look at the whole project, or with a `share` of the time, if that is cheap; what it finds comes as events."""
        with suppress(OSError):  # the supervisor is gone: it looked before it went
            self._supervisor.send(("audit", share))

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

    async def _watch(self) -> None:
        """Watch what runs: have the guard look now and then, and kill it all before it has filled the disk."""
        paths = (self.policy.project, self.policy.state_dir, *self.policy.write_paths)
        watch = DiskWatch(paths)
        audited_at = anyio.current_time()
        try:
            while self.runs_commands:
                self._is_needed = anyio.Event()
                with anyio.move_on_after(DISK_CHECK_S * self._idle):
                    await self._is_needed.wait()
                self.retire_views()
                if anyio.current_time() >= audited_at + AUDIT_S * self._idle:
                    self.audit(ROUTINE_SHARE * self._idle)
                    audited_at = anyio.current_time()
                if full := watch.look():
                    self._views.kill_commands()
                    self._on_event(full)
                    return
        finally:
            self._is_watching = False

    @property
    def _idle(self) -> int:
        return IDLE if self._views.only_serve else 1

    def retire_views(self) -> None:
        """End the views of other grants than `self.policy`'s, if nothing runs there."""
        self._views.retire_others(self.policy)

    def _on_guard_event(self, event: GuardEvent) -> None:
        if event.kind == "replaced":
            self._views.hold_again(os.path.join(self.policy.project, event.path))
        self._on_event(event)

    @property
    def has_ended(self) -> anyio.Event:
        return self._supervisor.has_ended

    @property
    def runs_commands(self) -> bool:
        return self._views.runs_commands

    async def holds_memory(self) -> bool:
        """Say whether commands have left what would go with our processes: shared memory, semaphores or message queues."""
        return await self._views.holds_memory()

    async def undoes(self, path: str) -> bool:
        """Say whether the guard would undo a change of `path`, which is real; not, if there is none any more."""
        return await self._supervisor.undoes(path)

    async def rest(self) -> None:
        """End all processes. What commands have left in /tmp stays, for `open` with this policy's `tmp_dir`."""
        await self._supervisor.end(keeps_tmp=True)

    async def _close(self, *, keeps_tmp: bool) -> None:
        await self._supervisor.end(keeps_tmp=keeps_tmp)
        self._supervisor.stop_listening()
        self._views.close()
        for network in (self._network, *self._servers.values()):
            network.close()


def _check_system() -> None:
    if sys.platform != "linux":
        raise SandboxError(f"The sandbox needs Linux; this is {sys.platform}.")


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
