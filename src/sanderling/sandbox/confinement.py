"""A session's sandbox, switched on and off by the user alone."""

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
"""An unsolicited event: from the sandbox, or a replaced project directory."""


def policy_for(settings: Settings, project: str) -> SandboxPolicy:
    """Return the initial policy of a session of `project`. Its network is off."""
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
    Controls how a session's commands are confined. Commands start on `ground`; `confined` is where access can be granted.

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
        Confine commands started from now on, or not. The user must have typed the second.

        Without confinement, an open sandbox and its guard are not needed. It rests at once, unless something in it would be lost.
        """
        self.ground = self.confined if is_on else self._unconfined
        self._end_servers_of_other_terms()
        if not is_on:
            self.keeper.rest_soon()
        self._on_change()

    @property
    def ahead(self) -> Ground | None:
        """
        The current ground, for inspecting files ahead of any need. Such use does not keep the sandbox from resting.

        None if nothing is confined: there, an unneeded inspection could not be interrupted.
        """
        return self._ahead if self.ground is self.confined else None

    @property
    def can_write(self) -> bool:
        return not self.ground.is_confined or self.admissions.is_writable

    def confines(self, *, is_confined: bool) -> bool:
        """Return whether a program started now is confined, given the user's setting `is_confined` for it."""
        return is_confined and self.ground.is_confined

    def is_weaker_than(self, ground: Ground) -> bool:
        """Return whether commands started now are unconfined, although `ground` confines them."""
        return ground.is_confined and not self.ground.is_confined

    async def get_ready(self) -> None:
        """Open the sandbox ahead of its use if possible. Errors are reported at the first use."""
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
        Start the server `name` on the current ground, with its own `env` and `grant`.

        A command ends, but a server does not. So it is killed when the user switches the sandbox on or off, enters or leaves plan mode,
        or opens or closes the network: it must not keep its previous access.
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
        Start a third-party program, such as an external agent, in the same way.

        It shares no directories or namespaces with commands and servers, so `name` must be unique. If it is not to be confined, the user
        has configured that for this program. Then later changes of the session's sandbox do not affect it, and it is not killed.
        """
        spawn = self.spawn_server if is_confined else self._unconfined.spawn_server
        return await spawn(name, argv, env=env, grant=grant, on_denied=on_denied, is_stranger=True)

    @property
    def terms(self) -> tuple[object, ...]:
        """Everything that the user may change about a server's access."""
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
        Return whether the guard would undo a change of `path`, even an approved one.

        The guard works while a sandbox is open, even while commands run without it.
        """
        sandbox = self.keeper.sandbox
        return sandbox is not None and await sandbox.undoes(real_path(path))

    async def set_network(self, mode: NetworkMode) -> None:
        """
        Change the network of commands started from now on. "off" also revokes granted hosts.

        Raises:
            SandboxError: this level does not support it, or there is no sandbox.
        """
        await self.ground.set_network(mode)
        self._end_servers_of_other_terms()

    def set_mode(self, mode: ProjectAccess) -> None:
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
        """Audit the project after a `command`, and return the denials that explain its failure."""
        sandbox = self.keeper.sandbox
        if not sandbox:
            return ()
        sandbox.audit()
        if not has_failed:
            return ()
        return (*sandbox.denials_in(output, cwd, status=status or 1, command=command),)
