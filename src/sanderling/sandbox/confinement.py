"""A session's sandbox, switched on and off by the user alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.paths import real_path, state_directory
from sanderling.protocol.modes import Mode, NetworkMode
from sanderling.sandbox.confined import Confined
from sanderling.sandbox.credentials import check_credentials, with_canonical_hosts
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.effective_policy import EffectivePolicy
from sanderling.sandbox.execution_environment import (
    ExecutionEnvironment,
    RunningServer,
    SandboxState,
)
from sanderling.sandbox.gaps import OUTER
from sanderling.sandbox.manager import SandboxManager
from sanderling.sandbox.outer import VARIABLE, is_outer
from sanderling.sandbox.policy import NO_GRANT, Grant, ProjectAccess, SandboxPolicy
from sanderling.sandbox.project_location import ProjectLocation
from sanderling.sandbox.report import ProjectReplaced
from sanderling.sandbox.sandbox import SandboxEvent
from sanderling.sandbox.unconfined import Outer, Unconfined

SessionEvent = SandboxEvent | ProjectReplaced
"""An unsolicited event: from the sandbox, or a replaced project directory."""


def policy_for(settings: Settings, project: str) -> SandboxPolicy:
    """
    Return the initial policy of a session of `project`. Its network is off.

    Raises:
        ConfigError: the user wants a container to be the sandbox, where that cannot be, or a credential is incomplete.
    """
    outer = is_outer()
    if outer and settings.sandbox_min_level not in ("landlock", "none"):
        raise ConfigError(
            f"sandbox.min_level is '{settings.sandbox_min_level}', so the container cannot be the sandbox (${VARIABLE})",
            ("sandbox", "min_level"),
        )
    check_credentials(settings.sandbox_credentials, settings.sandbox_env)
    return SandboxPolicy(
        project=project,
        home=os.path.expanduser("~"),
        state_dir=state_directory(str(settings.sandbox_dir), project),
        read_paths=settings.sandbox_read,
        write_paths=settings.sandbox_write,
        hosts=settings.sandbox_hosts,
        env_pass=settings.sandbox_env,
        credentials=with_canonical_hosts(settings.sandbox_credentials),
        min_level=settings.sandbox_min_level,
        state_root=settings.state_dir,
        is_outer=outer,
    )


class SessionSandbox:
    """
    Controls how a session's commands are confined. Commands start on `environment`; `confined` is where access can be granted.

    `boundary` is where programs run that must be confined even while the user has switched the sandbox off.
    `manager.serve` must run as long as the session lives. `on_change` is called when `facts` changed.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[SessionEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self._on_change = on_change
        self.own_programs: Callable[[], tuple[str, ...]] = lambda: ()
        """Returns the directories that come first on PATH of confined commands: the directories of a trusted project's own programs."""
        self.location = ProjectLocation(policy.project, on_event)
        self.effective_policy = EffectivePolicy(policy, on_event, on_change)
        self.manager = SandboxManager(self.effective_policy, self.location, on_event, on_change)
        self.confined = Confined(self.effective_policy, self.location, self.manager)
        self._ahead = Confined(self.effective_policy, self.location, self.manager, is_ahead=True)
        self._unconfined = Unconfined(policy, self.manager.look_at_project)
        self.boundary: ExecutionEnvironment = self.confined
        if policy.is_outer:
            self.boundary = Outer(policy, self.manager.look_at_project)
        self.environment = self.boundary
        self._servers = WeakKeyDictionary[RunningServer, tuple[object, ...]]()

    @property
    def facts(self) -> SandboxState:
        if isinstance(self.environment, Outer):
            return SandboxState("outer", "on", OUTER)
        facts = self.confined.facts
        return facts if self.environment.is_confined else facts._replace(level="off")

    def switch(self, *, is_on: bool) -> None:
        """
        Confine commands started from now on, or not. The user must have typed the second. A session that is always read-only stays confined.

        Without confinement, an open sandbox and its guard are not needed. It rests at once, unless something in it would be lost.
        """
        is_on = is_on or self.effective_policy.is_always_read_only
        self.environment = self.boundary if is_on else self._unconfined
        self._end_servers_of_other_terms()
        if not is_on:
            self.manager.rest_soon()
        self._on_change()

    def first_on_path(self, environment: ExecutionEnvironment) -> str:
        """Return the directories that come first on PATH of a command in `environment`, separated by colons."""
        return os.pathsep.join(self.own_programs()) if environment.is_confined else ""

    @property
    def ahead(self) -> ExecutionEnvironment | None:
        """
        The current execution environment, for inspecting files ahead of any need. Such use does not keep the sandbox from resting.

        None if nothing is confined: there, an unneeded inspection could not be interrupted.
        """
        return self._ahead if self.environment is self.confined else None

    @property
    def can_write(self) -> bool:
        return not self.environment.is_confined or self.effective_policy.is_writable

    def is_bounded(self, environment: ExecutionEnvironment, mode: Mode) -> bool:
        """Return whether what runs in `environment` stays within bounds. A container's bounds are wider than plan mode's."""
        return environment.is_confined or (mode != "plan" and isinstance(environment, Outer))

    def confines(self, *, is_confined: bool) -> bool:
        """Return whether a program started now is confined, given the user's setting `is_confined` for it."""
        return is_confined and self.environment.is_confined

    def is_weaker_than(self, environment: ExecutionEnvironment) -> bool:
        """Return whether commands started now are unconfined, although `environment` confines them."""
        return environment.is_confined and not self.environment.is_confined

    async def get_ready(self) -> None:
        if self.environment is self.confined:
            await self.manager.get_ready()

    async def spawn_server(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str = "",
        grant: Grant = NO_GRANT,
        on_denied: Callable[[Denial], None] = lambda _: None,
        is_third_party: bool = False,
    ) -> RunningServer:
        """
        Start the server `name` on the current execution environment, with its own `env`, `cwd` and `grant`.

        A command ends, but a server does not. So it is killed when the user switches the sandbox on or off, enters or leaves plan mode,
        or opens or closes the network: it must not keep its previous access.
        """
        terms = self.terms
        server = await self.environment.spawn_server(
            name,
            argv,
            env=env,
            cwd=cwd,
            grant=grant,
            on_denied=on_denied,
            is_third_party=is_third_party,
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
    ) -> RunningServer:
        """
        Start a third-party program, such as an external agent, in the same way.

        It shares no directories or namespaces with commands and servers, so `name` must be unique. If it is not to be confined, the user
        has configured that for this program. Then later changes of the session's sandbox do not affect it, and it is not killed.
        """
        spawn = self.spawn_server if is_confined else self._unconfined.spawn_server
        return await spawn(
            name, argv, env=env, grant=grant, on_denied=on_denied, is_third_party=True
        )

    @property
    def terms(self) -> tuple[object, ...]:
        """Everything that the user may change about a server's access."""
        if not self.environment.is_confined:
            return (self.environment,)
        return (
            self.environment,
            self.effective_policy.policy.mode,
            self.environment.network == "on",
        )

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
        sandbox = self.manager.sandbox
        return sandbox is not None and await sandbox.undoes(real_path(path))

    async def set_network(self, mode: NetworkMode) -> None:
        """Change the network, as `ExecutionEnvironment.set_network` does, and end servers that have the previous one."""
        await self.environment.set_network(mode)
        self._end_servers_of_other_terms()

    def set_mode(self, mode: ProjectAccess) -> None:
        self.effective_policy.set_mode(mode)
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
        sandbox = self.manager.sandbox
        if not sandbox:
            return ()
        sandbox.audit()
        if not has_failed:
            return ()
        return (*sandbox.denials_in(output, cwd, status=status or 1, command=command),)
