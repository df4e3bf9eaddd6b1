"""The policy: the access of a command. It is data, checked here and enforced elsewhere."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from sanderling.errors import SandboxError
from sanderling.paths import is_within, real_path
from sanderling.protocol.modes import Level, NetworkMode

if TYPE_CHECKING:
    from sanderling.config import Credential

LEVELS: tuple[Level, ...] = get_args(Level)

UNMOUNTED: tuple[Level, ...] = ("seatbelt", "landlock")
"""The levels without a root of their own: nothing is at another place."""

ProjectAccess = Literal["rw", "ro"]
"""Access to the project: writable, or read-only."""
PROXY_PORT, NAME_PORT = 3128, 53
"""The ports on the session's loopback that the host serves: the proxy and the name server."""

_WIDE = (
    "/ /bin /boot /dev /etc /home /lib /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/local /usr/share"
    " /var /var/lib /var/tmp"
    # of macOS
    " /Applications /Library /Network /System /System/Library /System/Volumes /System/Volumes/Data /Users /Volumes /cores /opt/homebrew"
    " /opt/local /private /private/etc /private/tmp /private/var /private/var/folders"
)
TOO_WIDE = frozenset(map(os.path.realpath, _WIDE.split()))
HOLDS_TOO_MUCH = "holds more than a command may touch: choose a directory below it"


Identity = tuple[str, int, int]
"""A resolved path, with the device and inode that it had when the user was asked about it."""


class ResourceLimits(NamedTuple):
    """The limits of one session: number of processes, bytes per file, bytes of shared memory."""

    processes: int = max(512, 64 * (os.cpu_count() or 1))
    file_bytes: int = 8 << 30
    shm_bytes: int = 512 << 20


class Remote(NamedTuple):
    """
    A remote of the project: the repository `name`, without `.git`, on `host`.

    `start` is its URL up to the name, as written, if git may use the credential's host instead. `port` is that of HTTPS, None for SSH.
    """

    host: str
    name: str
    start: str = ""
    port: int | None = None


class SandboxPolicy(NamedTuple):
    """
    The access of a session's commands, and the requirements for running them.

    Hosts are names, `*.name` for all names below, or addresses, optionally with `:port`.

    Attributes:
        project, home, state_dir: absolute paths. `state_dir` belongs to the project, and contains its private HOME and quarantine.
        read_paths, write_paths, hosts: additional access.
        identities: the paths among these that must not have been replaced.
        tmp_dir: the session's /tmp, chosen when its sandbox opens for the first time.
        programs: paths shown for their programs, nearly all in HOME, determined each time a sandbox opens.
        masked: files among these that hold a token or a password, and appear empty.
        min_level: the weakest level at which commands may run.
        level: exactly this level, if given.
        server: the name of a server with its own HOME, /tmp and namespaces; empty for commands.
        is_worktree: the project is a worktree that Sanderling made. Of its repository, commands may only change what commits need.
        linked: paths among `read_paths` that belong to the project of this worktree: what is hidden there is hidden here, too.
        state_root: contains all of Sanderling's state, with rules, trust and sessions: nothing in it is ever writable.
        is_outer: the container around Sanderling is the sandbox, so nothing here is enforced. `keys` are the variables that may hold a key
            of Sanderling's, which commands do not get then.
        credentials: secrets, by name, that the proxy inserts into commands' requests. Servers have none.
        remotes: the project's remotes, for which git uses these secrets, too.
        shows_env_files: `.env` files have their content, because the project is not the user's.
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
    masked: tuple[str, ...] = ()
    limits: ResourceLimits = ResourceLimits()
    min_level: Level = "landlock"
    level: Level | None = None
    has_guard: bool = True
    server: str = ""
    state_root: str = ""
    is_worktree: bool = False
    is_outer: bool = False
    keys: frozenset[str] = frozenset()
    linked: tuple[str, ...] = ()
    credentials: tuple[tuple[str, "Credential"], ...] = ()
    remotes: tuple[Remote, ...] = ()
    shows_env_files: bool = False


def private_home(policy: SandboxPolicy) -> str:
    """Return the directory that is HOME inside, relative to `state_dir`."""
    return f"servers/{policy.server}/home" if policy.server else "home"


class Grant(NamedTuple):
    """
    The user's grant of exactly these paths and hosts, in addition to the policy.

    `identities` records, for each path, the file that the user was asked about. A link planted there later leads nowhere.
    """

    read_paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    identities: tuple[Identity, ...] = ()

    def identified(self) -> "Grant":
        """Return the grant with its links resolved, and the current identity of each path."""
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
    """Merge identities. The user may have been asked again about a path that changed."""
    return tuple({identity[0]: identity for identity in (*these, *others)}.values())


def _identity(path: str) -> Identity | None:
    """Return the identity of the file at `path`, or None if it is missing or reached through a link."""
    if real_path(path) != path:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return path, found.st_dev, found.st_ino


def changed_paths(policy: SandboxPolicy) -> list[str]:
    """Return the granted paths that are no longer what the user approved: moved, replaced, or behind another link."""
    return [identity[0] for identity in policy.identities if _identity(identity[0]) != identity]


def without(policy: SandboxPolicy, paths: Sequence[str]) -> SandboxPolicy:
    return policy._replace(
        read_paths=tuple(path for path in policy.read_paths if path not in paths),
        write_paths=tuple(path for path in policy.write_paths if path not in paths),
        identities=tuple(identity for identity in policy.identities if identity[0] not in paths),
    )


def check_identities(policy: SandboxPolicy) -> None:
    """
    Check that all granted paths are still what the user approved.

    Raises:
        SandboxError: one was replaced.
    """
    if changed := changed_paths(policy):
        raise SandboxError(
            f"{changed[0]} changed after you approved it, so access was not granted."
        )


def is_too_wide(real: str, home: str) -> bool:
    """Return whether `real`, a resolved path, contains HOME or is a system directory that is too wide to be granted."""
    return real in TOO_WIDE or is_within(home, real)


def resolve_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """
    Return `policy` with all paths resolved.

    Raises:
        SandboxError: a path does not exist, was replaced since it was granted, or is too wide.
    """
    check_identities(policy)
    home = real_path(policy.home)
    state_dir = real_path(policy.state_dir)

    state_root = real_path(policy.state_root) if policy.state_root else state_dir

    def checked(path: str, role: str, *, is_written: bool = False) -> str:
        real = real_path(os.path.expanduser(path))
        if not os.path.exists(real):
            raise SandboxError(f"The {role} {path} does not exist.")
        if is_too_wide(real, home):
            raise SandboxError(f"The {role} {path} {HOLDS_TOO_MUCH}.")
        own = state_root if is_written else state_dir
        if is_within(state_dir, real) or is_within(real, own):
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
        write_paths=tuple(checked(path, "path", is_written=True) for path in policy.write_paths),
    )
