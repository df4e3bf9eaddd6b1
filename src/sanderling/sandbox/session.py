"""The sandbox in a session's life: opened when it is first needed, again after a mishap, and switched off by the person alone."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from sanderling.config import Settings
from sanderling.errors import SandboxError
from sanderling.sandbox.environment import state_directory
from sanderling.sandbox.files import Files, UnconfinedFiles
from sanderling.sandbox.gaps import missing_at
from sanderling.sandbox.policy import (
    NO_GRANT,
    Grant,
    Level,
    NetworkMode,
    SandboxPolicy,
    resolve,
)
from sanderling.sandbox.policy import Mode as ProjectMode
from sanderling.sandbox.processes import Process
from sanderling.sandbox.report import Report
from sanderling.sandbox.sandbox import STDOUT, Sandbox, SandboxEvent, check_level
from sanderling.sandbox.unconfined import UnconfinedProcess, spawn_unconfined

SHELL = ("/bin/sh", "-c")


def policy_for(settings: Settings, project: str) -> SandboxPolicy:
    """The policy with which a session of `project` begins: its network is off."""
    return SandboxPolicy(
        project=project,
        home=os.path.expanduser("~"),
        state_dir=state_directory(str(settings.sandbox_dir), project),
        read_paths=settings.sandbox_read,
        write_paths=settings.sandbox_write,
        hosts=settings.sandbox_hosts,
        env_pass=settings.sandbox_env,
        min_level=settings.sandbox_min_level,
    )


class SessionSandbox:
    """
    What confines a session's commands.

    `serve` must run as long as the session lives. `on_change` is called when `level`, `network`, `missing` or `problem` changed.
    """

    _report: Report | None = None

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[SandboxEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.problem = ""
        self._policy = policy
        self._on_event = on_event
        self._on_change = on_change
        self.is_off = False
        self._sandbox: Sandbox | None = None
        self._is_wanted = anyio.Event()
        self._is_decided = anyio.Event()
        self._files: Files | None = None
        self._files_are_for: object = None
        self._opening_files = anyio.Lock()

    @property
    def level(self) -> Level | None:
        """The level that is in force; None while it is not known."""
        return self._report.level if self._report else None

    @property
    def network(self) -> NetworkMode:
        return self._policy.network

    @property
    def missing(self) -> tuple[str, ...]:
        """What the level leaves open, in sentences."""
        report = self._report
        return tuple(gap["what"] for gap in missing_at(report, report.level)) if report else ()

    async def serve(self) -> None:
        """Find out what the kernel can do; then hold the sandbox open from its first use on."""
        try:
            self._report = await Sandbox.probe()
            check_level(self._policy, self._report)
        except SandboxError as error:
            self.problem = str(error)
        self._on_change()
        while True:
            await self._is_wanted.wait()
            await self._hold_open()
            self._sandbox, self._is_wanted = None, anyio.Event()
            self._is_decided.set()
            self._on_change()

    async def _hold_open(self) -> None:
        try:
            async with Sandbox.open(self._policy, self._on_event, self._report) as sandbox:
                self._sandbox, self.problem = sandbox, ""
                self._is_decided.set()
                await sandbox.has_ended.wait()
        except SandboxError as error:
            self.problem = str(error)
        finally:
            if self._files:
                self._files.close()

    async def _opened(self) -> Sandbox:
        if self._sandbox is None:
            if not self._is_wanted.is_set():
                self._is_decided = anyio.Event()
                self._is_wanted.set()
            await self._is_decided.wait()
        if self._sandbox is None:
            raise SandboxError(self.problem)
        return self._sandbox

    async def spawn_shell(self, command: str) -> Process | UnconfinedProcess:
        """Start a line for the shell in the project's root, as `spawn` does."""
        return await self.spawn([*SHELL, command])

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,
    ) -> Process | UnconfinedProcess:
        """
        Start a command, its errors in with its output, its input empty.

        `cwd` is the project's root if it is empty; `env` comes on top of what the policy lets in; the paths of `grant` are for this
        command alone.

        Raises:
            SandboxError: it cannot be confined, so it was not started.
            OSError: there is no sandbox, and it cannot be started.
        """
        if self.is_off:
            return await spawn_unconfined(argv, cwd=cwd or self._policy.project, env=env)
        sandbox = await self._opened()
        policy = grant.added_to(sandbox.policy) if grant != NO_GRANT else None
        return await sandbox.spawn(argv, cwd=cwd, env=env, stderr=STDOUT, policy=policy)

    async def files(self, grant: Grant = NO_GRANT) -> Files:
        """
        Files as a command of now would see them; without a sandbox, as the person does. Ask anew for each use.

        Raises:
            SandboxError: they cannot be confined.
        """
        if self.is_off:
            return UnconfinedFiles()
        sandbox = await self._opened()
        async with self._opening_files:
            policy = grant.added_to(sandbox.policy)
            wanted = (sandbox, policy.mode, policy.read_paths, policy.write_paths)
            if self._files and (self._files.has_ended or self._files_are_for != wanted):
                await self._files.retire()
                self._files = None
            if self._files is None:
                self._files, self._files_are_for = await sandbox.open_files(policy), wanted
            return self._files

    async def extend(self, grant: Grant) -> None:
        """
        Let `grant` in for the rest of the session: its hosts through the proxy, unless the network is open anyway.

        Raises:
            SandboxError: a path holds too much, or a host needs a proxy that this level does not have.
        """
        sandbox = await self._opened()
        resolve(grant.added_to(self._policy))
        if grant.hosts and self.network != "on":
            await self.set_network("proxy", grant.added_to(self._policy).hosts)
        self._policy = grant.added_to(self._policy)
        sandbox.policy = grant.added_to(sandbox.policy)

    @asynccontextmanager
    async def lending(self, hosts: tuple[str, ...]) -> AsyncGenerator[None]:
        """Let these hosts through the proxy in this context, for whatever is started in it; then things are as they were."""
        if not hosts or self.network == "on":
            yield
            return
        before = self._policy
        await self.set_network("proxy", Grant(hosts=hosts).added_to(before).hosts)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.set_network(before.network, before.hosts)

    async def set_network(self, mode: NetworkMode, hosts: tuple[str, ...] | None = None) -> None:
        """
        Change the network of what is started from now on; `hosts` replaces what the proxy lets through.

        Raises:
            SandboxError: this level cannot do it, or there is no sandbox.
        """
        if self.is_off:
            raise SandboxError("The sandbox is off, and with it any hold on the network.")
        sandbox = await self._opened()
        await sandbox.set_network(mode, hosts)
        self._policy = replace(
            self._policy, network=mode, hosts=self._policy.hosts if hosts is None else hosts
        )
        self._on_change()

    async def scratch(self) -> tuple[str, str]:
        """
        The session's temporary directory: its path for us, and for its commands.

        Raises:
            SandboxError: there is no sandbox to be had.
        """
        sandbox = await self._opened()
        path = sandbox.policy.tmp_dir
        return path, path if sandbox.level == "landlock" else "/tmp"

    def set_mode(self, mode: ProjectMode) -> None:
        """Whether what is started from now on can write the project."""
        self._policy = replace(self._policy, mode=mode)
        if self._sandbox:
            self._sandbox.policy = replace(self._sandbox.policy, mode=mode)

    @property
    def write_paths(self) -> tuple[str, ...]:
        """What can be written beside the project."""
        return self._policy.write_paths

    def switch(self, *, is_on: bool) -> None:
        """Confine the commands that are started from now on, or do not: the second only when the person has typed it."""
        self.is_off = not is_on
        self._on_change()

    def look_after(self, output: str, *, has_failed: bool, cwd: str = "") -> None:
        """A command has ended: have the guard look at the project, and report what the failure says was refused."""
        if self._sandbox:
            self._sandbox.audit()
            for denial in self._sandbox.denials_in(output, cwd) if has_failed else ():
                self._on_event(denial)
