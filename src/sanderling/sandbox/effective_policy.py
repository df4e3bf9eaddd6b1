"""The effective policy of a session: its policy plus what the user has granted since, applied to the open sandbox."""

import re
from collections.abc import Callable
from itertools import chain

import anyio

from sanderling.errors import SandboxError
from sanderling.hosts import is_loopback, split_authority
from sanderling.paths import is_in_any, is_within, real_path
from sanderling.protocol.modes import Level, NetworkMode
from sanderling.protocol.remedies import remedies
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.execution_environment import LOCAL_DISK, existing
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
SCRATCH = ("/tmp", "/var/tmp")
_SERVER = r"[A-Za-z0-9_-]+"


class EffectivePolicy:
    """
    A session's policy and the user's grants. `sandbox`, if one is open, follows changes. A policy that begins read-only stays so.

    `on_event` is called for granted paths that were revoked, `on_change` when the network has changed.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[Denial], None],
        on_change: Callable[[], None],
    ) -> None:
        self.policy = policy
        self.declared = policy
        self.sandbox: Sandbox | None = None
        self._on_event = on_event
        self._on_change = on_change
        self._hosts: dict[object, tuple[str, ...]] = {}  # by whom, or what, they are for
        self._changing_network = anyio.Lock()

    @property
    def in_force(self) -> SandboxPolicy:
        """The policy with granted hosts. While the network is off, only these are allowed."""
        policy = self.policy
        hosts = tuple(dict.fromkeys(chain.from_iterable(self._hosts.values())))
        if not hosts or policy.network == "on":
            return policy
        listed = policy.hosts if policy.network == "proxy" else ()
        return policy._replace(network="proxy", hosts=(*listed, *hosts))

    @property
    def write_paths(self) -> tuple[str, ...]:
        """The paths outside the project that can be written."""
        return without(self.policy, changed_paths(self.policy)).write_paths

    def leads_to(self, host: str) -> bool:
        policy = self.in_force
        if policy.network == "on" or is_loopback(split_authority(host)[0]):
            return True
        return policy.network == "proxy" and HostRules(policy.hosts).allow_all_of(host)

    def is_scratch(self, path: str) -> bool:
        """
        Return whether `path` is in the session's own /tmp, at a level that has one.

        What the user has there is meant first, unless the session has made a file of the same name; it cannot be reached without a grant.
        """
        place = next((each for each in SCRATCH if is_within(path, each)), "")
        policy = self.sandbox.policy if self.sandbox else self.policy
        others = (policy.project, policy.home, policy.state_dir, *policy.read_paths)
        if not place or is_in_any(path, (*others, *policy.write_paths)):
            return False
        if not LOCAL_DISK.exists(path):
            return True
        own, top = real_path(policy.tmp_dir + path[len(place) :]), real_path(policy.tmp_dir)
        return bool(policy.tmp_dir) and is_within(own, top) and LOCAL_DISK.exists(own)

    def needed_to_write(self, path: str) -> Grant:
        inside = [real_path(each) for each in (self.policy.project, *self.write_paths)]
        path = real_path(path)
        if is_in_any(path, inside):
            return NO_GRANT
        return Grant(write_paths=(existing(LOCAL_DISK, path),)).identified()

    def of_server(self, sandbox: Sandbox, name: str, grant: Grant) -> SandboxPolicy:
        """
        Return the current policy of a server: the commands' policy from the settings, without later grants, plus `grant`.

        Its network is separate from the commands' network, unless that is open.

        Raises:
            SandboxError: a host needs a proxy that this level does not support.
        """
        if not re.fullmatch(_SERVER, name):  # used as a directory name
            raise SandboxError(
                f"'{name}' is not a valid server name: use letters, digits, - and _."
            )
        settled = self.declared
        policy = sandbox.policy._replace(
            read_paths=settled.read_paths,
            write_paths=settled.write_paths,
            identities=settled.identities,
            credentials=(),
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
        return self.policy.mode == "rw"

    @property
    def is_always_read_only(self) -> bool:
        return self.declared.mode == "ro"

    def set_mode(self, mode: ProjectAccess) -> None:
        mode = "ro" if self.is_always_read_only else mode
        self.policy = self.policy._replace(mode=mode)
        if self.sandbox:
            self.sandbox.policy = self.sandbox.policy._replace(mode=mode)

    def revoke_changed(self) -> None:
        """Revoke paths that were granted for the session and have been replaced since. They must be approved again."""
        changed = changed_paths(self.policy)
        for path in changed:
            can_write = path in self.policy.write_paths
            self._on_event(Denial("write" if can_write else "read", path, "replaced"))
        if changed:
            self.policy = without(self.policy, changed)
        if changed and self.sandbox:
            self.sandbox.policy = without(self.sandbox.policy, changed)

    def check(self, grant: Grant, level: Level | None) -> None:
        """Check the paths and hosts of a grant, for `Confined.check_grant`."""
        resolve_policy(grant.added_to(self.policy))
        if grant.hosts and self.in_force.network != "on" and level == "landlock":
            raise SandboxError(
                f"{NO_PROXY} The user can open the whole network: `{remedies().network} on`."
            )

    async def extend(self, sandbox: Sandbox, grant: Grant) -> None:
        """Apply `grant` for the rest of the session, starting with the open `sandbox`, for `Confined.extend`."""
        grant = grant if grant.is_identified else grant.identified()
        await self.allow(SESSION, (*self._hosts.get(SESSION, ()), *grant.hosts))
        paths = grant._replace(hosts=())
        self.policy = paths.added_to(self.policy)
        sandbox.policy = paths.added_to(sandbox.policy)

    async def allow(self, whose: object, hosts: tuple[str, ...]) -> None:
        """Allow these `hosts` on behalf of `whose`, replacing its previous ones."""
        before = self._hosts.pop(whose, ())
        if hosts:
            self._hosts[whose] = hosts
        if hosts == before:
            return
        try:
            await self.renew_network()
        except SandboxError:
            if not hosts:
                return  # revoked anyway: the proxy ended with the sandbox
            self._hosts[whose] = before
            raise
        if whose is SESSION:  # hosts allowed for a moment are not shown to the user
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
    """Return the policy for what is started now, or None if it is the sandbox's."""
    policy = _of_mode(grant.added_to(sandbox.policy))
    return None if policy == sandbox.policy else policy


def _of_mode(policy: SandboxPolicy) -> SandboxPolicy:
    """Return the policy, with granted write access reduced to read access in plan mode."""
    if policy.mode == "rw":
        return policy
    return Grant(read_paths=policy.write_paths).added_to(policy._replace(write_paths=()))
