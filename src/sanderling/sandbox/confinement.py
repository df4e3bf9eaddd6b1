"""The sandbox in a session's life: the ground on which its commands run, which the person alone can switch."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from weakref import WeakKeyDictionary

from sanderling.config import Settings
from sanderling.paths import real_path
from sanderling.sandbox.admissions import Admissions
from sanderling.sandbox.confined import Confined
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.environment import state_directory
from sanderling.sandbox.files import Files
from sanderling.sandbox.ground import Facts, Ground, Running, Serving
from sanderling.sandbox.keeper import Keeper
from sanderling.sandbox.place import ProjectPlace
from sanderling.sandbox.policy import NO_GRANT, Grant, NetworkMode, ProjectAccess, SandboxPolicy
from sanderling.sandbox.report import ProjectReplaced
from sanderling.sandbox.sandbox import SandboxEvent
from sanderling.sandbox.unconfined import Unconfined

SHELL = ("/bin/sh", "-c")

SessionEvent = SandboxEvent | ProjectReplaced
"""What happens unasked: in a sandbox, or because the project is another directory."""


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
    The hold on a session's commands: `ground` is the one on which they start now.

    `serve` must run as long as the session lives. `on_change` is called when `facts` changed.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[SessionEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self._on_event = on_event
        self._on_change = on_change
        self._place = ProjectPlace(policy.project, on_event)
        self.admissions = Admissions(policy, on_event, on_change)
        self.keeper = Keeper(self.admissions, self._place, on_event, on_change)
        self._confined = Confined(self.admissions, self._place, self.keeper)
        self._unconfined = Unconfined(policy, self.keeper.look_at_project)
        self.ground: Ground = self._confined
        self._servers = WeakKeyDictionary[Serving, tuple[object, ...]]()

    @property
    def facts(self) -> Facts:
        facts = self._confined.facts
        return facts if self.ground.is_confined else facts._replace(level="off")

    def switch(self, *, is_on: bool) -> None:
        """
        Confine the commands that are started from now on, or do not: the second only when the person has typed it.

        Then nothing needs a sandbox that is open, and its guard: it rests, unless something in it would be lost.
        """
        self.ground = self._confined if is_on else self._unconfined
        self._end_servers_of_other_terms()
        if not is_on:
            self.keeper.rest_soon()
        self._on_change()

    def is_weaker_than(self, ground: Ground) -> bool:
        """Say whether what starts now is confined no more, though on `ground` it would have been."""
        return ground.is_confined and not self.ground.is_confined

    async def serve(self) -> None:
        """Open the sandbox whenever it is wanted, until it can rest."""
        await self.keeper.serve()

    async def find_level(self) -> None:
        """Find out what the kernel can do, for those who want to see it before anything is opened."""
        await self.keeper.find_level()

    def kept_open(self) -> AbstractContextManager[None]:
        """Keep it open in this context, once it is open; afterwards it rests at once if nobody has needed it."""
        return self.keeper.kept_open()

    async def get_ready(self) -> None:
        """Open it ahead of its use, if that can be; if it cannot, who needs it is told."""
        if self.ground is self._confined:
            await self.keeper.get_ready()

    def take_replaced(self) -> bool:
        """Say whether the project's directory was replaced since this was asked last."""
        return self._place.take_replaced()

    async def spawn_shell(self, command: str, grant: Grant = NO_GRANT) -> Running:
        """Start a line for the shell in the project's root, as `spawn` does."""
        return await self.spawn([*SHELL, command], grant=grant)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,
    ) -> Running:
        """Start a command on the ground of now."""
        return await self.ground.spawn(argv, cwd=cwd, env=env, grant=grant)

    async def spawn_server(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        grant: Grant = NO_GRANT,
        on_denied: Callable[[Denial], None] = lambda _: None,
    ) -> Serving:
        """
        Start the server `name` on the ground of now, with `env` and `grant` for itself alone.

        A command ends, a server does not: so it is killed when the person confines it, switches to plan mode or back, or opens or
        closes the network. What it could do before must not stay with it.
        """
        terms = self.terms
        server = await self.ground.spawn_server(
            name, argv, env=env, grant=grant, on_denied=on_denied
        )
        self._servers[server] = terms
        self._end_servers_of_other_terms()
        return server

    @property
    def terms(self) -> tuple[object, ...]:
        """All that the person may change of what a server can do."""
        if not self.ground.is_confined:
            return (self.ground,)
        return (self.ground, self.admissions.policy.mode, self.ground.network == "on")

    def _end_servers_of_other_terms(self) -> None:
        terms = self.terms
        for server, its_terms in list(self._servers.items()):
            if its_terms != terms:
                del self._servers[server]
                server.kill()

    async def files(self, grant: Grant = NO_GRANT) -> Files:
        """Return the files as a command of now would see them; ask anew for each use."""
        return await self.ground.files(grant)

    async def scratch(self) -> tuple[str, str]:
        """Return the session's temporary directory: its path for us, and for its commands."""
        return await self.ground.scratch()

    def leads_to(self, host: str) -> bool:
        """Say whether the network of now leads to `host`, with or without `:port`; to its own loopback each does."""
        return self.ground.leads_to(host)

    def lending(self, grant: Grant) -> AbstractAsyncContextManager[None]:
        """Let the hosts of `grant` through in this context, for all commands of the session; then take all of it back."""
        return self.ground.lending(grant)

    async def undoes(self, path: str) -> bool:
        """
        Say whether the guard would undo a change of `path`, whoever has approved it.

        It is at work as long as a sandbox is open, also beside what runs without one.
        """
        sandbox = self.keeper.sandbox
        return sandbox is not None and await sandbox.undoes(real_path(path))

    def check_grant(self, grant: Grant) -> None:
        """
        Return if the person could let that in.

        Raises:
            SandboxError: a path holds too much, a host needs a proxy that this level does not have, or there is no project.
        """
        self._confined.check_grant(grant)

    async def extend(self, grant: Grant) -> None:
        """
        Let `grant` in for the rest of the session: its hosts through the proxy, unless the network is open anyway.

        Raises:
            SandboxError: a path holds too much, or a host needs a proxy that this level does not have.
        """
        await self._confined.extend(grant)

    async def set_network(self, mode: NetworkMode) -> None:
        """
        Change the network of what is started from now on; "off" also takes back the hosts that were let in.

        Raises:
            SandboxError: this level cannot do it, or there is no sandbox.
        """
        await self.ground.set_network(mode)
        self._end_servers_of_other_terms()

    @property
    def is_writable(self) -> bool:
        """Say whether anything of the person's can be written: in plan mode nothing can."""
        return self.admissions.policy.mode == "rw"

    def set_mode(self, mode: ProjectAccess) -> None:
        """Let what is started from now on write the project, or not."""
        self.admissions.set_mode(mode)
        self._end_servers_of_other_terms()

    @property
    def write_paths(self) -> tuple[str, ...]:
        """The paths that can be written beside the project."""
        return self.admissions.write_paths

    def look_after(
        self,
        output: str,
        *,
        has_failed: bool,
        cwd: str = "",
        status: int | None = None,
        command: str = "",
    ) -> tuple[Denial, ...]:
        """Have the guard look at the project after a `command`; return what its failure says was refused."""
        sandbox = self.keeper.sandbox
        if not sandbox:
            return ()
        sandbox.audit()
        if not has_failed:
            return ()
        return (*sandbox.denials_in(output, cwd, status=status or 1, command=command),)
