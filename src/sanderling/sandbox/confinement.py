"""The sandbox in a session's life: the ground on which its commands run, which the person alone can switch."""

import os
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from sanderling.config import Settings
from sanderling.paths import real_path, state_directory
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.admissions import Admissions
from sanderling.sandbox.confined import Confined
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.ground import Facts, Ground, Serving
from sanderling.sandbox.keeper import Keeper
from sanderling.sandbox.place import ProjectPlace
from sanderling.sandbox.policy import NO_GRANT, Grant, ProjectAccess, SandboxPolicy
from sanderling.sandbox.report import ProjectReplaced
from sanderling.sandbox.sandbox import SandboxEvent
from sanderling.sandbox.unconfined import Unconfined

SessionEvent = SandboxEvent | ProjectReplaced
"""An event that nobody asked for: in a sandbox, or because the project is another directory."""


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
    The hold on a session's commands: `ground` is the one on which they start now, `confined` where more can be let in.

    `keeper.serve` must run as long as the session lives. `on_change` is called when `facts` changed.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[SessionEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self._on_change = on_change
        self.place = ProjectPlace(policy.project, on_event)
        self.admissions = Admissions(policy, on_event, on_change)
        self.keeper = Keeper(self.admissions, self.place, on_event, on_change)
        self.confined = Confined(self.admissions, self.place, self.keeper)
        self._ahead = Confined(self.admissions, self.place, self.keeper, is_ahead=True)
        self._unconfined = Unconfined(policy, self.keeper.look_at_project)
        self.ground: Ground = self.confined
        self._servers = WeakKeyDictionary[Serving, tuple[object, ...]]()

    @property
    def facts(self) -> Facts:
        facts = self.confined.facts
        return facts if self.ground.is_confined else facts._replace(level="off")

    def switch(self, *, is_on: bool) -> None:
        """
        Confine the commands that are started from now on, or do not: the second only when the person has typed it.

        Then nothing needs a sandbox that is open, and its guard: it rests, unless something in it would be lost.
        """
        self.ground = self.confined if is_on else self._unconfined
        self._end_servers_of_other_terms()
        if not is_on:
            self.keeper.rest_soon()
        self._on_change()

    @property
    def ahead(self) -> Ground | None:
        """
        The ground of now, for files that nobody has asked for yet: the sandbox rests as if they had not been looked at.

        None where nothing is confined: a look that nobody needs any more could not be cut off there.
        """
        return self._ahead if self.ground is self.confined else None

    @property
    def can_write(self) -> bool:
        """Say whether what starts now may change the project."""
        return not self.ground.is_confined or self.admissions.is_writable

    def confines(self, *, is_confined: bool) -> bool:
        """Say whether the kernel holds what starts now, of which the person has written down whether it `is_confined`."""
        return is_confined and self.ground.is_confined

    def is_weaker_than(self, ground: Ground) -> bool:
        """Say whether what starts now is confined no more, though on `ground` it would have been."""
        return ground.is_confined and not self.ground.is_confined

    async def get_ready(self) -> None:
        """Open it ahead of its use, if that can be; if it cannot, who needs it is told."""
        if self.ground is self.confined:
            await self.keeper.get_ready()

    async def spawn_server(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        grant: Grant = NO_GRANT,
        on_denied: Callable[[Denial], None] = lambda _: None,
        is_stranger: bool = False,
    ) -> Serving:
        """
        Start the server `name` on the ground of now, with `env` and `grant` for itself alone.

        A command ends, a server does not: so it is killed when the person confines it, switches to plan mode or back, or opens or
        closes the network. What it could do before must not stay with it.
        """
        terms = self.terms
        server = await self.ground.spawn_server(
            name, argv, env=env, grant=grant, on_denied=on_denied, is_stranger=is_stranger
        )
        self._servers[server] = terms
        self._end_servers_of_other_terms()
        return server

    async def spawn_stranger(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        grant: Grant = NO_GRANT,
        on_denied: Callable[[Denial], None] = lambda _: None,
        is_confined: bool = True,
    ) -> Serving:
        """
        Start a program that the person has not made ours, likewise: an agent of somebody else's.

        It shares no place with commands or servers: `name` must be one that none of those has. If it is not to be confined, the person
        has written that down for this one; then nothing that they change here later changes what it can do, and it is left alone.
        """
        spawn = self.spawn_server if is_confined else self._unconfined.spawn_server
        return await spawn(name, argv, env=env, grant=grant, on_denied=on_denied, is_stranger=True)

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

    async def undoes(self, path: str) -> bool:
        """
        Say whether the guard would undo a change of `path`, whoever has approved it.

        It is at work as long as a sandbox is open, also beside what runs without one.
        """
        sandbox = self.keeper.sandbox
        return sandbox is not None and await sandbox.undoes(real_path(path))

    async def set_network(self, mode: NetworkMode) -> None:
        """
        Change the network of what is started from now on; "off" also takes back the hosts that were let in.

        Raises:
            SandboxError: this level cannot do it, or there is no sandbox.
        """
        await self.ground.set_network(mode)
        self._end_servers_of_other_terms()

    def set_mode(self, mode: ProjectAccess) -> None:
        """Let what is started from now on write the project, or not."""
        self.admissions.set_mode(mode)
        self._end_servers_of_other_terms()

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
