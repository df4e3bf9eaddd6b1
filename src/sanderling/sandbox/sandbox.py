"""
The host's side of the sandbox: opens it for a project, spawns commands, changes its network, and reports what it refused.

A command starts in a **view**: a zygote for one combination of mode, network and grants. Views are opened when first needed, and share
the session's namespaces, so that a server started in one is reachable from the next.
"""

import itertools
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.config import Credential
from sanderling.errors import ConfigError, SandboxError
from sanderling.paths import own_command
from sanderling.protocol.modes import Level, NetworkMode
from sanderling.sandbox import wire
from sanderling.sandbox.channels import (
    SupervisorChannel,
    receive,
    receive_report,
    refusing_on_os_errors,
    started,
)
from sanderling.sandbox.credentials import CredentialUse, placeholder_environment, read_secret
from sanderling.sandbox.denials import Denial, denials_in, programs_denied
from sanderling.sandbox.disk import DiskFull, DiskWatch
from sanderling.sandbox.environment import (
    environment,
    new_mark,
    proxy_environment,
    resolver_environment,
)
from sanderling.sandbox.files import Files
from sanderling.sandbox.gitconfig import write_gitconfig
from sanderling.sandbox.kernel.programs import with_programs
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.network.serving import HostNetwork
from sanderling.sandbox.policy import LEVELS, PROXY_PORT, UNMOUNTED, SandboxPolicy, resolve_policy
from sanderling.sandbox.processes import DEVNULL, PIPE, STDOUT, Process, stream_in, stream_out
from sanderling.sandbox.report import (
    LAYERS,
    ROUTINE_SHARE,
    SEATBELT,
    SELF_TEST_FAILED,
    GuardEvent,
    LayerReport,
)
from sanderling.sandbox.terminals import FIRST_TERMINAL, NO_TERMINALS, CommandTerminal, on_terminal
from sanderling.sandbox.versions import write_versions
from sanderling.sandbox.views import SandboxView, SandboxViews

if TYPE_CHECKING:
    from sanderling.sandbox.network.credentials import SecretProxy

SUPERVISORS = {
    "linux": "sanderling.sandbox.inside.supervisor",
    "darwin": "sanderling.sandbox.seatbelt.supervisor",
}
WITH_OWN_TERMINALS: tuple[Level, ...] = ("full", "namespaces")
"""Levels at which each command has its own /dev/pts. At others, another command could read what the user types in a terminal."""
NO_PROXY = "The proxy needs namespaces, which this machine does not allow."
VERIFYING = "The sandbox is tested on this Mac, as after each start and update. That takes some seconds, and commands wait for it."
DISK_CHECK_S = 0.1
AUDIT_S = 1.0
IDLE = 10
"""How much less often these checks run while only servers run. Servers mostly wait, and each of their calls is audited."""

_sessions = itertools.count()

SandboxEvent = GuardEvent | Denial | DiskFull | CredentialUse
"""An unsolicited event in a sandbox: the guard intervened, something was refused, the disk was nearly full, or a secret was used."""


class Sandbox:
    """A session's sandbox. `report` says what the kernel can do here, `level` what is used of it."""

    _report_of_kernel: ClassVar[LayerReport | None] = None
    _self_test: ClassVar[anyio.Lock] = anyio.Lock()

    def __init__(
        self,
        policy: SandboxPolicy,
        report: LayerReport,
        supervisor: SupervisorChannel,
        tasks: TaskGroup,
        on_event: Callable[[SandboxEvent], None],
        *,
        platform: str,
    ) -> None:
        self.policy = policy
        self.report = report
        self.level: Level = policy.level or report.level
        self._supervisor = supervisor
        self._tasks = tasks
        self._on_event = on_event
        self._secrets = self._secret_proxy() if policy.credentials else None
        self._gh_config = ""  # the directory of gh's settings, as commands see it
        self._network = HostNetwork(policy.network, policy.hosts, tasks, on_event, self._secrets)
        self._servers: dict[str, HostNetwork] = {}  # by name
        self._views = SandboxViews(self.level, platform, supervisor, self._answer_on)
        self._platform = platform
        self._keys = itertools.count()
        self._is_watching = False
        self._is_needed = anyio.Event()  # a command was started alongside servers

    @classmethod
    async def probe(cls) -> LayerReport:
        """Probe what the kernel can enforce, by trying it. The result is cached, except on macOS if the self-test failed."""
        if sys.platform == "darwin":
            async with cls._self_test:  # sessions that start together wait for one
                cls._report_of_kernel = await _report_of_macos(cls._report_of_kernel)
                return cls._report_of_kernel
        if cls._report_of_kernel is None:
            if sys.platform != "linux":
                reason = f"it needs Linux or macOS, this is {sys.platform}"
                return LayerReport(reasons=dict.fromkeys(LAYERS, reason), landlock_abi=0)
            async with started("sanderling.sandbox.inside.probe") as prober:
                cls._report_of_kernel = await receive_report(prober)
        return cls._report_of_kernel

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        policy: SandboxPolicy,
        on_event: Callable[[SandboxEvent], None] = lambda _: None,
        report: LayerReport | None = None,
        platform: str = sys.platform,
        sandbox_exec: str = "",
    ) -> AsyncGenerator["Sandbox"]:
        """
        Open the sandbox of a session. At the end of the context, everything started in it has ended.

        With a `tmp_dir` in the policy, this continues a sandbox that was put to rest, and the caller removes that directory. The kernel
        is probed meanwhile, unless `report` is given or the result is known. `platform` and
        `sandbox_exec`, the program that confines commands there, are for tests.

        Raises:
            SandboxError: the policy cannot be enforced here, at a level that it accepts.
        """
        if platform not in SUPERVISORS:
            raise SandboxError(f"The sandbox needs Linux or macOS; this is {platform}.")
        policy = resolve_policy(policy)
        if platform != "linux":  # there, the self-test may have to run first
            report = report or await cls.probe()
            check_level(policy, report)
        policy = await to_thread.run_sync(with_programs, policy)
        goes_on = bool(policy.tmp_dir)
        if not goes_on:
            path = f"{policy.state_dir}/tmp/{os.getpid()}-{next(_sessions)}"
            policy = policy._replace(tmp_dir=path)
        programs = (sandbox_exec,) if sandbox_exec else ()
        async with (
            started(SUPERVISORS[platform], platform, *programs) as supervisor,
            _task_group() as tasks,
        ):
            with refusing_on_os_errors():  # while the supervisor starts
                report = report or await cls.probe()
                await write_gitconfig(policy)
                await to_thread.run_sync(write_versions, policy)
            check_level(policy, report)
            sandbox = cls(
                policy, report, SupervisorChannel(supervisor), tasks, on_event, platform=platform
            )
            tasks.start_soon(sandbox._supervisor.listen, sandbox._on_guard_event)
            try:
                with refusing_on_os_errors():
                    await sandbox.set_network(policy.network)
                    sandbox._open_gateway()
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
        has_terminal: bool = False,
    ) -> Process:
        """
        Start a command.

        `cwd` defaults to the project's root. `env` is added to the variables that the policy allows. A stream is `PIPE`, `DEVNULL`, a
        file descriptor, or for stderr `STDOUT`; with `has_terminal` all are the process's `terminal`. `policy` applies to this command only:
        `self.policy` with grants.

        Raises:
            SandboxError: it cannot be started. A missing program is not an error: it ends with status 127.
        """
        if has_terminal and self.level not in WITH_OWN_TERMINALS:
            raise SandboxError(NO_TERMINALS.format(level=self.level))
        policy = resolve_policy(policy) if policy else self.policy
        variables = environment(os.environ, policy, self.level)
        # What the network refuses a server is reported by its own network.
        mark = "" if policy.server or policy.network == "on" else new_mark()
        if mark:
            variables |= resolver_environment(mark)
        if policy.network == "proxy":
            view = await self._views.get(policy)
            variables |= proxy_environment(view.proxy_port, mark)
            # Plan mode changes nothing elsewhere either, and servers that share the commands' namespaces are not commands.
            if self._secrets and mark and policy.mode == "rw" and not is_server:
                self._secrets.admit(mark)
                variables |= placeholder_environment(
                    policy.credentials, mark, variables, policy.remotes
                )
                if self._gh_config:
                    variables["GH_CONFIG_DIR"] = self._gh_config
        variables |= env or {}
        with refusing_on_os_errors(), ExitStack() as theirs, ExitStack() as unless_started:
            channel_end: tuple[int, ...] = ()
            channel = None
            if has_terminal:
                channel, their_channel = wire.socket_pair(self._platform)
                unless_started.callback(channel.close)
                theirs.callback(their_channel.close)
                channel_end = (their_channel.fileno(),)
                argv, stdout = on_terminal(argv, FIRST_TERMINAL), DEVNULL
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
            if argv:
                await self._forward(policy)
            ends = (stdin_end, stdout_end, stderr_end, status_end, *channel_end)
            launch = ("launch", key, list(argv), variables, cwd or policy.project)
            view = await self._views.send(policy, launch, ends)
            unless_started.pop_all()
        signal_it = partial(view.signal, key)
        process = Process(signal_it, our_status, our_stdin, our_stdout, our_stderr)
        process.mark = mark
        if channel:
            process.terminal = await _terminal_from(channel, process)
        if argv:
            self._keep_watch(view, process, is_server=is_server)
        else:
            view.file_workers.add(process)
        return process

    def _open_gateway(self) -> None:
        """Let gh use the secrets, where commands can use unix sockets."""
        if self._secrets and self.level not in UNMOUNTED:
            from sanderling.sandbox.network.gateway import open_gateway

            listener, self._gh_config = open_gateway(self.policy.tmp_dir, "/tmp")
            self._network.serve("proxy", listener)

    def _secret_proxy(self) -> "SecretProxy":
        from sanderling.sandbox.network.credentials import SecretProxy  # rarely needed

        def read(name: str, credential: Credential) -> str:
            policy = self.policy
            writable = (policy.project, *policy.write_paths, policy.state_dir)
            return read_secret(name, credential, writable)

        return SecretProxy(self.policy.credentials, read, self._on_event, self._why_no_secrets)

    def _why_no_secrets(self) -> str:
        if self.policy.mode == "ro":  # also for a command that was started before
            return "not for plan mode"
        return "" if self.policy.network == "proxy" else "only for the network 'proxy'"

    def _keep_watch(self, view: SandboxView, process: Process, *, is_server: bool) -> None:
        """Monitor the running commands, now including `process`."""
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
        cwd: str = "",
        env: Mapping[str, str],
        policy: SandboxPolicy,
        on_denied: Callable[[Denial], None],
    ) -> Process:
        """
        Start a server that communicates over stdin and stdout.

        If `policy.server` is set, it has its own network, whose denials are passed to `on_denied`.

        Raises:
            SandboxError: it cannot be started, as for `spawn`.
        """
        is_alone = policy.server and policy.network != "on"
        if is_alone and policy.server not in self._servers:
            network = HostNetwork(policy.network, policy.hosts, self._tasks, on_denied)
            self._servers[policy.server] = network
        return await self.spawn(argv, cwd=cwd, env=env, stdin=PIPE, policy=policy, is_server=True)

    async def _forward(self, policy: SandboxPolicy) -> None:
        """Make the allowed loopback ports of this machine reachable on the loopback of the policy's view, too."""
        network = self._network_of(policy)
        if places := network.places_to_forward() if policy.network == "proxy" else ():
            view = await self._views.get(policy)
            if missing := network.missing_in(view.number, places):
                network.forward(view.number, await view.listeners(missing))

    def _network_of(self, policy: SandboxPolicy) -> HostNetwork:
        return self._servers[policy.server] if policy.server else self._network

    def _answer_on(self, policy: SandboxPolicy, name: str, listener: socket.socket) -> None:
        """Serve a listener on a view's loopback, by the session's network or a server's."""
        self._network_of(policy).serve(name, listener)

    async def open_files(self, policy: SandboxPolicy | None = None) -> Files:
        """
        Start a file worker with the current access of commands. `policy` is as for `spawn`.

        Raises:
            SandboxError: it cannot be started.
        """
        with refusing_on_os_errors():
            ours, theirs = wire.socket_pair(self._platform)
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
        Change the network of commands started from now on. Running commands keep theirs.

        `hosts` replaces the list of the proxy, which the whole session can use while the mode is "proxy".

        Raises:
            SandboxError: a host is malformed, or this level does not support the mode.
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
        """Have the guard audit the project. With a `share`, skip it if audits took more than that fraction, 1/`share`, of the time."""
        with suppress(OSError):  # the supervisor is gone, and has run a last audit
            self._supervisor.send(("audit", share))

    def denials_in(
        self, output: str, cwd: str = "", *, status: int = 1, command: str = ""
    ) -> list[Denial]:
        """
        Return the denials behind the output of a failed `command`: paths that were refused, and hidden directories with its programs.

        `cwd` is where it ran, by default the project's root; `status` is its exit status.
        """
        return [
            *programs_denied(output, status, command, self.policy),
            *denials_in(output, self.policy, cwd or self.policy.project),
        ]

    async def _watch(self) -> None:
        """Monitor commands: run audits from time to time, and kill everything before the disk is full."""
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
        return await self._views.holds_memory()

    async def undoes(self, path: str) -> bool:
        return await self._supervisor.undoes(path)

    async def rest(self) -> None:
        """End all processes, but keep /tmp, for `open` with this policy's `tmp_dir`."""
        await self._supervisor.end(keeps_tmp=True)

    async def _close(self, *, keeps_tmp: bool) -> None:
        await self._supervisor.end(keeps_tmp=keeps_tmp)
        self._supervisor.stop_listening()
        self._views.close()
        for network in (self._network, *self._servers.values()):
            network.close()


async def _terminal_from(channel: socket.socket, process: Process) -> CommandTerminal:
    """
    Return the terminal that the init of `process` opened.

    Raises:
        SandboxError: it opened none.
    """
    try:
        with channel:
            channel.setblocking(False)
            match await receive(channel):
                case ("terminal", path), [host_end, command_end]:
                    return CommandTerminal(host_end, command_end, path)
                case _:
                    await process.wait()  # it reports what it could not do
    except BaseException:
        process.close()
        raise
    raise SandboxError("The sandbox opened no terminal for the command.")


async def must_verify() -> bool:
    """Return whether the self-test of macOS has yet to run. It takes some seconds, and commands wait for it."""
    if sys.platform != "darwin":
        return False
    from sanderling.config import state_dir
    from sanderling.sandbox.selftest import seatbelt

    with suppress(SandboxError, ConfigError):  # the probe reports them
        return seatbelt.is_due(state_dir(), await seatbelt.current_stamp())
    return False


async def _report_of_macos(known: LayerReport | None) -> LayerReport:
    """
    Return whether Seatbelt was verified on this machine. The first time, that takes some seconds.

    After a failure that is `known`, only the result of another process counts, such as `sanderling sandbox check`.
    """
    from sanderling.config import state_dir
    from sanderling.sandbox.selftest import seatbelt  # only macOS needs it

    if known and known.level != "none":
        return known
    try:
        directory, stamp = state_dir(), await seatbelt.current_stamp()
        reason = (
            seatbelt.why_still_not(directory, stamp, known.reasons[SEATBELT])
            if known
            else await seatbelt.why_not_verified(directory, stamp)
        )
    except (SandboxError, ConfigError) as error:
        reason = str(error).rstrip(".")
    return LayerReport(reasons={SEATBELT: reason}, landlock_abi=0)


def check_level(policy: SandboxPolicy, report: LayerReport) -> None:
    """
    Check that `policy` can be satisfied with `report`.

    Raises:
        SandboxError: it requires more.
    """
    level = policy.level or report.level
    if reason := report.why_not(level):
        raise SandboxError(f"The sandbox level '{level}' does not work here: {reason}.")
    if LEVELS.index(level) > LEVELS.index(policy.min_level):
        if reason := report.reasons.get(SEATBELT):
            is_tried = reason.startswith(SELF_TEST_FAILED)
            remedy = f" Run `{own_command()} sandbox check` to see all and to try again."
            raise SandboxError(
                f"Commands are refused on this Mac, because {reason}.{remedy if is_tried else ''}"
            )
        wanted: Level = policy.min_level
        least = f"at least '{wanted}' is required"
        if reason := report.why_not(wanted):
            raise SandboxError(
                f"The sandbox only reaches level '{level}' here, but {least} ({reason})."
            )
        raise SandboxError(f"Level '{level}' was requested, but {least}.")


@asynccontextmanager
async def _task_group() -> AsyncGenerator[TaskGroup]:
    """A task group that is cancelled at the end of its body, and raises a single exception as such."""
    with alone():
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()


@contextmanager
def alone() -> Generator[None]:
    """Unwrap an exception that is alone in its group."""
    try:
        yield
    except BaseExceptionGroup as group:
        first, *others = group.exceptions
        if others:
            raise
        raise first from None
