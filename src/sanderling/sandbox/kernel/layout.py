"""The parts of the machine that a view holds: a policy, looked at together with what is on the disk now."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox.kernel.programs import SYSTEM, is_system, path_entries, present
from sanderling.sandbox.policy import SandboxPolicy, private_home

PROGRAMS = ("/usr/bin", "/bin", "/run/current-system/sw/bin")
SYSTEM_STATE = (
    "/var/cache/fontconfig",
    "/var/cache/man",
    "/var/lib/alternatives",
    "/var/lib/apt/lists",
    "/var/lib/dpkg",
    "/var/lib/gems",
    "/var/lib/ghc",
    "/var/lib/pacman",
    "/var/lib/rpm",
    "/var/lib/snapd",
    "/var/lib/texmf",
)
"""The parts of /var that tools need to know about the system. Its logs, mail, spools and databases are nobody's business."""
DEVICES = ("null", "zero", "full", "random", "urandom")
RESOLVER = "nameserver 127.0.0.1\nsearch .\noptions timeout:1 attempts:1\n"


class Bind(NamedTuple):
    """
    `source` outside appears as `target` inside.

    `is_private`: what stands in the way of the target may be removed. `may_vanish`: the target is the system's own, and may be gone
    by then. `is_step`: a directory of a private one, made if it is not there, and bound onto itself.
    """

    source: str
    target: str
    is_writable: bool = False
    is_private: bool = False
    may_vanish: bool = False
    is_step: bool = False


class Access(NamedTuple):
    """The access that Landlock is to allow, as paths inside. In `private` directories sockets may be connected to."""

    readable: list[str]
    writable: list[str]
    devices: list[str]
    private: list[str]


class Layout(NamedTuple):
    """
    The layout of a view: what it holds, and the root directory that is built for it at `staging`, if there are mounts.

    It has links of its own, then `binds` in their order; later ones cover earlier ones.
    """

    access: Access
    staging: str = ""
    shm_bytes: int = 0
    links: Sequence[tuple[str, str]] = ()
    binds: Sequence[Bind] = ()

    @property
    def has_vanished(self) -> bool:
        """Say whether a target that may vanish is gone."""
        return any(bind.may_vanish and not os.path.lexists(bind.target) for bind in self.binds)

    def private_places(self, bind: Bind) -> Iterator[tuple[str, str]]:
        """Find where the target is made in private directories: each of them, by its path outside, and the path in it."""
        for directory in self.binds:
            if _is_kept_elsewhere(directory) and bind.target.startswith(f"{directory.target}/"):
                yield directory.source, bind.target.removeprefix(f"{directory.target}/")


class Protection(NamedTuple):
    """
    The needs of the project besides its tree.

    `writable` and `readable` lie outside of it and belong to its repositories; `pinned` directories cannot be moved, `read_only`
    ones not be changed; `masked` files look empty.
    """

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()


def mounted_layout(
    policy: SandboxPolicy, protection: Protection, *, has_own_network: bool
) -> Layout:
    """The root directory of a view."""
    home, tmp = home_directory(policy), temporary_directory(policy)
    system = [f"/{name}" for name in SYSTEM]
    private = [
        Bind(tmp, "/tmp", is_writable=True),
        Bind(tmp, "/var/tmp", is_writable=True),
        Bind(home, policy.home, is_writable=True),
    ]
    shown = [
        *_runtime(),
        *program_binds(policy),
        *_git_configuration(policy),
        *_project_binds(policy, protection),
        *_masks(policy, protection),
    ]
    steps = _steps_to(shown, private)
    binds = [
        *(Bind(path, path) for path in system if os.path.isdir(path) and not os.path.islink(path)),
        *(Bind(path, path) for path in present(SYSTEM_STATE)),
        *_resolver(policy, has_own_network=has_own_network),
        *sorted((*private, *steps), key=lambda bind: bind.target),
        *shown,
    ]
    access = Access(
        readable=["/"],
        writable=["/dev/shm", *(bind.target for bind in binds if bind.is_writable)],
        devices=["/dev"],
        private=["/tmp", "/var/tmp", policy.home],
    )
    return Layout(
        access,
        staging=private_directory(policy, "root"),
        shm_bytes=policy.limits.shm_bytes,
        links=[(path, os.readlink(path)) for path in system if os.path.islink(path)],
        binds=binds,
    )


def _is_kept_elsewhere(bind: Bind) -> bool:
    """Say whether a directory is private: what is written there lies in our state."""
    return bind.is_writable and bind.source != bind.target and not bind.is_step


def _steps_to(binds: Sequence[Bind], private: Sequence[Bind]) -> Iterator[Bind]:
    """
    The directories on the way to what stands in private ones, so that they cannot be renamed.

    Else a command could put others in their place: a project, or programs, that the next command takes for the person's.
    """
    steps = dict[str, str]()
    for bind in (*binds, *private):
        around = [each for each in private if bind.target.startswith(f"{each.target}/")]
        if not around or not (bind.is_private or bind in private):
            continue
        directory = max(around, key=lambda each: len(each.target))
        above = os.path.dirname(bind.target)
        while above != directory.target:
            steps[above] = directory.source + above.removeprefix(directory.target)
            above = os.path.dirname(above)
    for target, source in steps.items():
        yield Bind(source, target, is_writable=True, is_private=True, is_step=True)


def unmounted_layout(policy: SandboxPolicy, protection: Protection) -> Layout:
    """The view where there are no mounts: what may be read and written. Nothing below a writable directory can be excepted."""
    project = [policy.project, *protection.writable]
    can_write = policy.mode == "rw"
    private = [home_directory(policy), temporary_directory(policy)]
    readable = (
        *(f"/{name}" for name in SYSTEM if name != "etc"),
        *(_all_but("/etc", frozenset(_root_only("/etc"))) if os.geteuid() == 0 else ["/etc"]),
        *SYSTEM_STATE,
        "/proc",
        *(bind.source for bind in _runtime()),
        *(bind.source for bind in program_binds(policy)),
        *(f"{policy.state_dir}/{name}" for name in ("gitconfig", "gitignore")),
        *policy.read_paths,
        *protection.readable,
        *([] if can_write else project),
    )
    access = Access(
        readable=[os.path.realpath(path) for path in readable],  # Landlock rules follow no link
        writable=[*private, *policy.write_paths, *(project if can_write else [])],
        devices=[f"/dev/{name}" for name in DEVICES],
        private=private,
    )
    return Layout(access)


def private_directory(policy: SandboxPolicy, name: str) -> str:
    path = f"{policy.state_dir}/{name}"
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def home_directory(policy: SandboxPolicy) -> str:
    """Make what is HOME inside: the project's own, or a server's."""
    return private_directory(policy, private_home(policy))


def temporary_directory(policy: SandboxPolicy) -> str:
    """Make what is /tmp inside: the session's own, which goes with it."""
    os.makedirs(policy.tmp_dir, exist_ok=True)
    os.chmod(policy.tmp_dir, 0o1777)  # noqa: S103 - the directories above it are ours alone
    return policy.tmp_dir


def remove_temporary_directories(tmp_dir: str) -> None:
    """Remove a session's own, and those of its servers."""
    directory, name = os.path.split(tmp_dir)
    with suppress(FileNotFoundError):
        for each in os.listdir(directory):
            if each == name or each.startswith(f"{name}-"):
                remove_tree(f"{directory}/{each}")


def remove_tree(path: str) -> None:
    """Remove a tree by `rm`: one that is too deep for Python's own way is one line of shell. What stays is tried again at the next start."""
    is_there = os.path.lexists(path)
    if is_there and not _runs("rm", "-rf", "--", path):  # a directory in it forbids that; Go's do
        _runs("chmod", "-R", "u+rwX", "--", path)
        _runs("rm", "-rf", "--", path)


def remove_temporary_files_of_the_dead(directory: str) -> None:
    """Remove them: each session's directory begins with the pid of its host."""
    for name in os.listdir(directory):
        if not os.path.exists(f"/proc/{name.partition('-')[0]}"):
            remove_tree(f"{directory}/{name}")


def _runs(name: str, *arguments: str) -> bool:
    """Run a program of the system's; say whether it succeeds. Not PATH's, which may lead into the project; and it is told nothing of ours."""
    program = next((path for at in PROGRAMS if os.access(path := f"{at}/{name}", os.X_OK)), "")
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    try:
        pid = os.posix_spawn(program, (name, *arguments), {}, file_actions=nothing)
    except OSError:
        return False
    return os.waitpid(pid, 0)[1] == 0


def _private_file(policy: SandboxPolicy, name: str, text: str) -> str:
    path = f"{policy.state_dir}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _resolver(policy: SandboxPolicy, *, has_own_network: bool) -> Iterator[Bind]:
    """`/etc/resolv.conf` is a file, or a link into /run, which is empty inside: then what it names is put there."""
    path = os.path.realpath("/etc/resolv.conf")
    if not os.path.isfile(path):
        return
    if has_own_network:
        yield Bind(_private_file(policy, "resolv.conf", RESOLVER), path)
    elif path.startswith("/run/"):
        yield Bind(path, path)


def _git_configuration(policy: SandboxPolicy) -> Iterator[Bind]:
    for name, target in (("gitconfig", ".gitconfig"), ("gitignore", ".config/git/ignore")):
        yield Bind(f"{policy.state_dir}/{name}", f"{policy.home}/{target}", is_private=True)


def _runtime() -> list[Bind]:
    """Bind what runs: this Python, for the file worker, and ripgrep beside it."""
    paths = (sys.base_prefix, *sys.path, f"{os.path.dirname(sys.executable)}/rg")
    return [
        Bind(os.path.realpath(path), path, is_private=True)
        for path in present(paths)
        if not is_system(path)
    ]


def program_binds(policy: SandboxPolicy) -> Iterator[Bind]:
    """Bind what is shown for its programs, and where PATH leads by way of a link to what was granted."""
    for path in present(policy.programs):
        yield Bind(os.path.realpath(path), path, is_private=True)
    granted = (*policy.read_paths, *policy.write_paths)
    for path in path_entries():
        real = os.path.realpath(path)
        is_link = real != path and not is_system(path) and not is_within(path, policy.project)
        if is_link and path not in policy.programs and is_in_any(real, granted):
            yield Bind(real, path, is_private=True)


def _project_binds(policy: SandboxPolicy, protection: Protection) -> Iterator[Bind]:
    """A later one covers an earlier one: so the wider goes first, and what the person has granted by name goes last."""
    can_write = policy.mode == "rw"
    inside = {
        path
        for path in (*policy.read_paths, *policy.write_paths)
        if path != policy.project and is_within(path, policy.project)
    }
    for path in (*protection.readable, *policy.read_paths):
        if path not in inside:
            yield Bind(path, path, is_private=True)
    for path in (policy.project, *protection.writable):
        yield Bind(path, path, is_writable=can_write, is_private=True)
    for path in policy.write_paths:
        if path not in inside:
            yield Bind(path, path, is_writable=True, is_private=True)
    for path in sorted(protection.pinned):
        yield Bind(path, path, is_writable=can_write)
    for path in sorted(protection.read_only):
        yield Bind(path, path)
    for path in sorted(inside):
        yield Bind(path, path, is_writable=path in policy.write_paths)


def _masks(policy: SandboxPolicy, protection: Protection) -> Iterator[Bind]:
    """
    Empty files and directories over what must not be seen, unless the person has granted exactly that.

    The file is a real one: git takes /dev/null for another type.
    """
    granted = {*policy.read_paths, *policy.write_paths}
    secrets = set(_root_only("/etc")) if os.geteuid() == 0 else set[str]()
    no_file = _private_file(policy, "nothing", "")
    no_directory = private_directory(policy, "nowhere")
    for path in (*secrets, *protection.masked):
        if path not in granted and os.path.lexists(path):
            nothing = no_directory if os.path.isdir(path) else no_file
            yield Bind(nothing, path, may_vanish=path in secrets)


def listening_sockets(roots: tuple[str, ...]) -> list[str]:
    """The unix sockets of the host below `roots`, as far as they were bound by their whole path."""
    with open("/proc/net/unix", "rb") as file:
        names = [line.split(None, 7)[-1].rstrip() for line in file.readlines()[1:]]
    paths = {os.fsdecode(name) for name in names if name.startswith(b"/")}
    return [path for path in sorted(paths) if is_in_any(path, roots)]


def _root_only(directory: str) -> Iterator[str]:
    """Find what root can read below `directory`, and nobody else: Sanderling does run as root, in containers."""
    for entry in os.scandir(directory):
        if entry.is_symlink():
            continue
        is_directory = entry.is_dir()
        readable = stat.S_IROTH | stat.S_IXOTH if is_directory else stat.S_IROTH
        with suppress(FileNotFoundError):  # gone meanwhile
            if entry.stat().st_mode & readable != readable:
                yield entry.path
            elif is_directory:
                yield from _root_only(entry.path)


def _all_but(directory: str, hidden: frozenset[str]) -> Iterator[str]:
    """`directory`, or where something in it is hidden, the rest of it."""
    if not any(path.startswith(f"{directory}/") for path in hidden):
        yield directory
        return
    for entry in os.scandir(directory):
        if entry.path in hidden:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _all_but(entry.path, hidden)
        else:
            yield entry.path
