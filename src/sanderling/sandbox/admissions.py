"""Admissions: a session's policy with what the person has let in since, in force in the sandbox that is open."""

import re
from collections.abc import Callable
from itertools import chain

import anyio

from sanderling.errors import SandboxError
from sanderling.hosts import is_loopback, split_authority
from sanderling.paths import is_in_any, real_path
from sanderling.protocol.modes import Level, NetworkMode
from sanderling.protocol.remedies import remedies
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.ground import LOCAL_DISK, existing
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.policy import (
    NO_GRANT,
    Grant,
    ProjectAccess,
    SandboxPolicy,
    changed_paths,
    resolve_policy,
    without,
)
from sanderling.sandbox.sandbox import NO_PROXY, Sandbox

SESSION = "session"
_SERVER = r"[A-Za-z0-9_-]+"


class Admissions:
    """
    The policy of a session and what the person has added. `sandbox` is the one that is open, and follows.

    `on_event` hears of paths that are let in no more, `on_change` is called when the network has changed.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[Denial], None],
        on_change: Callable[[], None],
    ) -> None:
        self.policy = policy
        self._declared = policy
        self.sandbox: Sandbox | None = None
        self._on_event = on_event
        self._on_change = on_change
        self._hosts: dict[object, tuple[str, ...]] = {}  # by whom, or what, they are for
        self._changing_network = anyio.Lock()

    @property
    def in_force(self) -> SandboxPolicy:
        """The policy with the hosts that the person has let in: while the network is off, those and no others."""
        policy = self.policy
        hosts = tuple(dict.fromkeys(chain.from_iterable(self._hosts.values())))
        if not hosts or policy.network == "on":
            return policy
        listed = policy.hosts if policy.network == "proxy" else ()
        return policy._replace(network="proxy", hosts=(*listed, *hosts))

    @property
    def write_paths(self) -> tuple[str, ...]:
        """The paths that can be written beside the project."""
        return without(self.policy, changed_paths(self.policy)).write_paths

    def leads_to(self, host: str) -> bool:
        policy = self.in_force
        if policy.network == "on" or is_loopback(split_authority(host)[0]):
            return True
        return policy.network == "proxy" and HostRules(policy.hosts).allow_all_of(host)

    def needed_to_write(self, path: str) -> Grant:
        inside = [real_path(each) for each in (self.policy.project, *self.write_paths)]
        path = real_path(path)
        if is_in_any(path, inside):
            return NO_GRANT
        return Grant(write_paths=(existing(LOCAL_DISK, path),)).identified()

    def of_server(self, sandbox: Sandbox, name: str, grant: Grant) -> SandboxPolicy:
        """
        The policy of a server of now: what commands have by the settings, but not what they were granted since; and `grant`.

        The network of commands is not its own, unless that is open.

        Raises:
            SandboxError: a host needs a proxy that this level does not have.
        """
        if not re.fullmatch(_SERVER, name):  # a directory is called so
            raise SandboxError(
                f"'{name}' cannot be a server's name: it is made of letters, digits, - and _."
            )
        settled = self._declared
        policy = sandbox.policy._replace(
            read_paths=settled.read_paths,
            write_paths=settled.write_paths,
            identities=settled.identities,
            server=name,
            tmp_dir=f"{sandbox.policy.tmp_dir}-{name}",
        )
        if policy.network != "on":
            if grant.hosts and sandbox.level == "landlock":
                raise SandboxError(NO_PROXY)
            policy = policy._replace(network="proxy" if grant.hosts else "off", hosts=())
        return _of_mode(grant.added_to(policy))

    @property
    def is_writable(self) -> bool:
        """Say whether anything of the person's can be written: in plan mode nothing can."""
        return self.policy.mode == "rw"

    def set_mode(self, mode: ProjectAccess) -> None:
        self.policy = self.policy._replace(mode=mode)
        if self.sandbox:
            self.sandbox.policy = self.sandbox.policy._replace(mode=mode)

    def take_back_what_changed(self) -> None:
        """Take back paths that were let in for the session and are something else by now: they have to be asked about again."""
        changed = changed_paths(self.policy)
        for path in changed:
            can_write = path in self.policy.write_paths
            self._on_event(Denial("write" if can_write else "read", path, "replaced"))
        if changed:
            self.policy = without(self.policy, changed)
        if changed and self.sandbox:
            self.sandbox.policy = without(self.sandbox.policy, changed)

    def check(self, grant: Grant, level: Level | None) -> None:
        """
        Return if the person could let that in.

        Raises:
            SandboxError: a path holds too much, or a host needs a proxy that this level does not have.
        """
        resolve_policy(grant.added_to(self.policy))
        if grant.hosts and self.in_force.network != "on" and level == "landlock":
            raise SandboxError(
                f"{NO_PROXY} The person can open all of it: `{remedies().network} on`."
            )

    async def extend(self, sandbox: Sandbox, grant: Grant) -> None:
        """
        Let `grant` in for the rest of the session, in `sandbox` at once.

        Raises:
            SandboxError: a host needs a proxy that this level does not have.
        """
        grant = grant if grant.is_identified else grant.identified()
        await self.let_in(SESSION, (*self._hosts.get(SESSION, ()), *grant.hosts))
        paths = grant._replace(hosts=())
        self.policy = paths.added_to(self.policy)
        sandbox.policy = paths.added_to(sandbox.policy)

    async def let_in(self, whose: object, hosts: tuple[str, ...]) -> None:
        """Let these `hosts` in from now on for `whose` sake; none takes them back."""
        before = self._hosts.pop(whose, ())
        if hosts:
            self._hosts[whose] = hosts
        if hosts == before:
            return
        try:
            await self.renew_network()
        except SandboxError:
            if not hosts:
                return  # taken back all the same: with the sandbox the proxy has ended
            self._hosts[whose] = before
            raise
        if whose is SESSION:  # what is lent for a moment is not worth the person's attention
            self._on_change()

    async def set_network(self, mode: NetworkMode) -> None:
        before = self.policy, self._hosts
        self.policy = self.policy._replace(network=mode)
        if mode == "off":
            self._hosts = {}
        try:
            await self.renew_network()
        except SandboxError:
            self.policy, self._hosts = before
            raise
        self._on_change()

    async def renew_network(self) -> None:
        async with self._changing_network:
            wanted, sandbox = self.in_force, self.sandbox
            is_new = sandbox and (wanted.network, wanted.hosts) != (
                sandbox.policy.network,
                sandbox.policy.hosts,
            )
            if sandbox and is_new:
                await sandbox.set_network(wanted.network, wanted.hosts)


def policy_of_now(sandbox: Sandbox, grant: Grant) -> SandboxPolicy | None:
    """Return the policy of what is started now; None: what the sandbox has."""
    policy = _of_mode(grant.added_to(sandbox.policy))
    return None if policy == sandbox.policy else policy


def _of_mode(policy: SandboxPolicy) -> SandboxPolicy:
    """In plan mode nothing is written, whatever was let in."""
    if policy.mode == "rw":
        return policy
    return Grant(read_paths=policy.write_paths).added_to(policy._replace(write_paths=()))
