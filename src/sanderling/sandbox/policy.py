"""The policy, what a command may touch: data, checked once, enforced elsewhere."""

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from sanderling.errors import SandboxError
from sanderling.paths import is_within, real_path
from sanderling.protocol.modes import Level, NetworkMode

LEVELS: tuple[Level, ...] = get_args(Level)

ProjectAccess = Literal["rw", "ro"]
"""The access to the project: it can be written, or only read."""
PROXY_PORT, NAME_PORT = 3128, 53
"""The ports of the session's loopback at which the host answers: the proxy, and the name server that only says no."""

_WIDE = (
    "/ /bin /boot /dev /etc /home /lib /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/local /usr/share"
    " /var /var/lib /var/tmp"
)
TOO_WIDE = frozenset(map(os.path.realpath, _WIDE.split()))
HOLDS_TOO_MUCH = "holds more than a command may touch: choose a directory below it"


Identity = tuple[str, int, int]
"""A path without links, and the device and inode of what was there when the person was asked about it."""


class Limits(NamedTuple):
    """The limits of one session: processes at a time, bytes per file and in shared memory."""

    processes: int = max(512, 64 * (os.cpu_count() or 1))
    file_bytes: int = 8 << 30
    shm_bytes: int = 512 << 20


class SandboxPolicy(NamedTuple):
    """
    The rights of a session's commands: what they may touch, and what may run them.

    `project`, `home` and `state_dir` are absolute. `state_dir` is the project's own: its private HOME and the quarantine live
    there; `tmp_dir`, which is a session's own, is chosen when its sandbox opens first, and `programs`, what of HOME is shown for the
    programs in it, whenever it opens. `server` is the name of one that has a HOME, a /tmp and namespaces of its own. `read_paths`, `write_paths` and `hosts` widen the policy, and of these paths `identities` says which
    must still be what they were; `min_level` is the weakest level that may run anything; `level` asks for exactly that one. A host is
    a name, `*.name` for every name below, or an address, and may end in `:port`.
    """

    project: str
    home: str
    state_dir: str
    mode: ProjectAccess = "rw"
    network: NetworkMode = "off"
    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    identities: tuple[Identity, ...] = ()
    hosts: tuple[str, ...] = ()
    env_pass: tuple[str, ...] = ()
    tmp_dir: str = ""
    programs: tuple[str, ...] = ()
    limits: Limits = Limits()
    min_level: Level = "landlock"
    level: Level | None = None
    has_guard: bool = True
    server: str = ""


def private_home(policy: SandboxPolicy) -> str:
    """The directory that HOME is inside, by its path below `state_dir`."""
    return f"servers/{policy.server}/home" if policy.server else "home"


class Grant(NamedTuple):
    """
    A grant of the person beside the policy: exactly these paths and hosts.

    `identities` holds for each path what the person was asked about: a link that is put there afterwards leads nowhere.
    """

    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    identities: tuple[Identity, ...] = ()

    def identified(self) -> "Grant":
        """Return it with its links followed, once and for all, and with what it leads to now."""
        reads, writes = (tuple(map(real_path, paths)) for paths in self[:2])
        identities = tuple(filter(None, map(_identity, (*reads, *writes))))
        return Grant(reads, writes, self.hosts, identities)

    @property
    def is_identified(self) -> bool:
        return {path for path, *_ in self.identities} >= {*self.read_paths, *self.write_paths}

    def and_also(self, other: "Grant") -> "Grant":
        return Grant(
            _joined(self.read_paths, other.read_paths),
            _joined(self.write_paths, other.write_paths),
            _joined(self.hosts, other.hosts),
            _newest(self.identities, other.identities),
        )

    def added_to(self, policy: SandboxPolicy) -> SandboxPolicy:
        return policy._replace(
            read_paths=_joined(policy.read_paths, self.read_paths),
            write_paths=_joined(policy.write_paths, self.write_paths),
            hosts=_joined(policy.hosts, self.hosts),
            identities=_newest(policy.identities, self.identities),
        )


NO_GRANT = Grant()


def _joined(these: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*these, *others)))


def _newest(these: tuple[Identity, ...], others: tuple[Identity, ...]) -> tuple[Identity, ...]:
    """The person may have been asked again about a path that had changed."""
    return tuple({identity[0]: identity for identity in (*these, *others)}.values())


def _identity(path: str) -> Identity | None:
    """Return which file is at `path`; None if there is nothing, or a link leads there."""
    if real_path(path) != path:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return path, found.st_dev, found.st_ino


def changed_paths(policy: SandboxPolicy) -> list[str]:
    """The paths that are not any more what the person has let in: moved, replaced, or led elsewhere."""
    return [identity[0] for identity in policy.identities if _identity(identity[0]) != identity]


def without(policy: SandboxPolicy, paths: Sequence[str]) -> SandboxPolicy:
    return policy._replace(
        read_paths=tuple(path for path in policy.read_paths if path not in paths),
        write_paths=tuple(path for path in policy.write_paths if path not in paths),
        identities=tuple(identity for identity in policy.identities if identity[0] not in paths),
    )


def check_identities(policy: SandboxPolicy) -> None:
    """
    Return if all that the person has let in is still what it was.

    Raises:
        SandboxError: something is not.
    """
    if changed := changed_paths(policy):
        raise SandboxError(
            f"{changed[0]} was replaced after the person had been asked about it, so it is not let in."
        )


def is_too_wide(real: str, home: str) -> bool:
    """Say whether `real`, a path without links, holds what no command may have as a whole."""
    return real in TOO_WIDE or is_within(home, real)


def resolve_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """
    Return `policy` with every path made real.

    Raises:
        SandboxError: a path does not exist, or is not what was granted, or a granted one holds what the sandbox is there to hide.
    """
    check_identities(policy)
    home = os.path.realpath(policy.home)
    state_dir = os.path.realpath(policy.state_dir)

    def checked(path: str, role: str) -> str:
        real = real_path(os.path.expanduser(path))
        if not os.path.exists(real):
            raise SandboxError(f"The {role} {path} does not exist.")
        if is_too_wide(real, home):
            raise SandboxError(f"The {role} {path} {HOLDS_TOO_MUCH}.")
        if is_within(state_dir, real) or is_within(real, state_dir):
            raise SandboxError(f"The {role} {path} and Sanderling's own state overlap.")
        return real

    project = checked(policy.project, "project")
    if not os.path.isdir(project):
        raise SandboxError(f"The project {policy.project} is not a directory.")
    return policy._replace(
        project=project,
        home=home,
        state_dir=state_dir,
        read_paths=tuple(checked(path, "path") for path in policy.read_paths),
        write_paths=tuple(checked(path, "path") for path in policy.write_paths),
    )
