"""Commands and files in the sandbox of a session."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.effective_policy import EffectivePolicy, policy_of_now
from sanderling.sandbox.execution_environment import LOCAL_DISK, SandboxState
from sanderling.sandbox.files import Files
from sanderling.sandbox.gaps import missing_at
from sanderling.sandbox.manager import SandboxManager
from sanderling.sandbox.policy import NO_GRANT, UNMOUNTED, Grant
from sanderling.sandbox.processes import STDOUT, Process
from sanderling.sandbox.project_location import ProjectLocation
from sanderling.sandbox.sandbox import Sandbox


class Confined:
    """Runs commands and opens files with the access that `effective_policy` allows. With `is_ahead`, before they are needed."""

    is_confined = True
    disk = LOCAL_DISK

    def __init__(
        self,
        effective_policy: EffectivePolicy,
        location: ProjectLocation,
        manager: SandboxManager,
        *,
        is_ahead: bool = False,
    ) -> None:
        self._effective_policy = effective_policy
        self._location = location
        self._manager = manager
        self._is_ahead = is_ahead

    @property
    def network(self) -> NetworkMode:
        return self._effective_policy.in_force.network

    @property
    def facts(self) -> SandboxState:
        report, level = self._manager.report, self._manager.level
        gaps = missing_at(report, level) if report and level else []
        missing = tuple(gap["what"] for gap in gaps)
        return SandboxState(level or "", self.network, missing, self._manager.problem)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,
        has_terminal: bool = False,
    ) -> Process:
        async def start(sandbox: Sandbox) -> Process:
            self._effective_policy.revoke_changed()
            policy = policy_of_now(sandbox, grant)
            return await sandbox.spawn(
                argv, cwd=cwd, env=env, stderr=STDOUT, policy=policy, has_terminal=has_terminal
            )

        return await self._manager.using(start, is_ahead=self._is_ahead)

    async def spawn_server(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str = "",
        grant: Grant,
        on_denied: Callable[[Denial], None],
        is_third_party: bool = False,
    ) -> Process:
        async def start(sandbox: Sandbox) -> Process:
            policy = sandbox.policy
            # Otherwise it shares the commands' namespaces.
            if env or grant != NO_GRANT or is_third_party:
                policy = self._effective_policy.of_server(sandbox, name, grant)
            if is_third_party:
                policy = policy._replace(env_pass=())
            return await sandbox.spawn_server(
                argv, cwd=cwd, env=env, policy=policy, on_denied=on_denied
            )

        return await self._manager.using(start)

    async def files(self, grant: Grant = NO_GRANT) -> Files:
        async def start(sandbox: Sandbox) -> Files:
            self._effective_policy.revoke_changed()
            return await self._manager.workers.of(sandbox, grant)

        return await self._manager.using(start, is_ahead=self._is_ahead)

    async def scratch(self) -> tuple[str, str]:
        sandbox = await self._manager.opened()
        path = sandbox.policy.tmp_dir
        return path, path if sandbox.level in UNMOUNTED else "/tmp"

    def leads_to(self, host: str) -> bool:
        return self._effective_policy.leads_to(host)

    def hides(self, path: str) -> bool:
        return self.disk.exists(path)

    def is_scratch(self, path: str) -> bool:
        return self._manager.level not in UNMOUNTED and self._effective_policy.is_scratch(path)

    def needed_to_write(self, path: str) -> Grant:
        if self.is_scratch(path):
            return NO_GRANT
        return self._effective_policy.needed_to_write(path)

    def check_grant(self, grant: Grant) -> None:
        """
        Check that the user could grant this.

        Raises:
            SandboxError: a path is too wide, a host needs a proxy that this level does not support, or the project is gone.
        """
        self._location.require()
        self._effective_policy.check(grant, self._manager.level)

    async def extend(self, grant: Grant) -> None:
        """
        Apply `grant` for the rest of the session. Its hosts are allowed through the proxy, unless the network is open anyway.

        Raises:
            SandboxError: as for `check_grant`, or the sandbox cannot be opened.
        """
        sandbox = await self._manager.opened()
        self.check_grant(grant)
        await self._effective_policy.extend(sandbox, grant)

    @asynccontextmanager
    async def lending(self, grant: Grant) -> AsyncGenerator[None]:
        if grant == NO_GRANT:
            yield
            return
        borrower = object()
        try:
            await self._effective_policy.allow(borrower, grant.hosts)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._effective_policy.allow(borrower, ())
                await self._manager.workers.retire(grant)
                if self._manager.sandbox:
                    self._manager.sandbox.retire_views()

    async def set_network(self, mode: NetworkMode) -> None:
        await self._manager.opened()
        await self._effective_policy.set_network(mode)
