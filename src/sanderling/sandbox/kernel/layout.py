"""
The layout of a view: which parts of the machine it contains, computed from a policy and the current state of the disk.

The layout is an allow-list. The root starts as an empty tmpfs and gets only what is named here, so a directory that was forgotten here
does not exist inside. Paths that must not change are bound read-only over themselves.
"""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_in_any, is_within
from sanderling.platforms.processes import is_running
from sanderling.sandbox.kernel.programs import SYSTEM, is_system, path_entries, present
from sanderling.sandbox.policy import SandboxPolicy, private_home

PROGRAMS = ("/usr/bin", "/bin", "/run/current-system/sw/bin")
_SYSTEM_STATE = (
    "/var/cache/fontconfig /var/cache/man /var/lib/alternatives /var/lib/apt/lists /var/lib/dpkg"
    " /var/lib/gems /var/lib/ghc /var/lib/pacman /var/lib/rpm /var/lib/snapd /var/lib/texmf"
)
SYSTEM_STATE = _SYSTEM_STATE.split()
"""The parts of /var in which tools look up the state of the system. Logs, mail, spools and databases stay hidden."""
ASDF_VERSIONS, MISE_VERSIONS = "tool-versions", "mise.toml"
_COPIES = {
    "gitconfig": ".gitconfig",
    "gitignore": ".config/git/ignore",
    ASDF_VERSIONS: ".tool-versions",
    MISE_VERSIONS: ".config/mise/config.toml",
}
"""Harmless parts of the user's settings: the copies in the sandbox's state directory, and their places in its HOME."""
DEVICES = ("null", "zero", "full", "random", "urandom")
RESOLVER = "nameserver 127.0.0.1\nsearch .\noptions timeout:1 attempts:1\n"


class Bind(NamedTuple):
    """
    A bind mount of the host path `source` at `target` inside the view.

    Attributes:
        is_private: existing entries at the target may be removed.
        may_vanish: the target belongs to the system and may have been removed meanwhile.
        is_step: a directory inside a private one, created if missing, and bound onto itself.
    """

    source: str
    target: str
    is_writable: bool = False
    is_private: bool = False
    may_vanish: bool = False
    is_step: bool = False


class LandlockAccess(NamedTuple):
    """The access that Landlock allows, as paths inside the view. Sockets below `private` may be connected to."""

    readable: list[str]
    writable: list[str]
    devices: list[str]
    private: list[str]


class Layout(NamedTuple):
    """
    The content of a view, and the root directory that is built for it at `staging`, if it is mounted.

    `links` are created first, then `binds` are mounted in order, later ones over earlier ones.
    """

    access: LandlockAccess
    staging: str = ""
    shm_bytes: int = 0
    links: Sequence[tuple[str, str]] = ()
    binds: Sequence[Bind] = ()

    @property
    def has_vanished(self) -> bool:
        return any(bind.may_vanish and not os.path.lexists(bind.target) for bind in self.binds)

    def private_places(self, bind: Bind) -> Iterator[tuple[str, str]]:
        """Yield where the target is created in private directories: each directory's path outside, and the path below it."""
        for directory in self.binds:
            if _is_kept_elsewhere(directory) and bind.target.startswith(f"{directory.target}/"):
                yield directory.source, bind.target.removeprefix(f"{directory.target}/")


class Protection(NamedTuple):
    """
    What the project needs in addition to its own tree.

    `writable` and `readable` directories are outside the project and belong to its repositories. `pinned` directories cannot be renamed,
    `read_only` paths cannot be changed, and `masked` paths appear empty. `absent` names, each a directory and the name there, must not
    appear: a profile refuses them, mounts cannot.
    """

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()


def mounted_layout(
    policy: SandboxPolicy, protection: Protection, *, has_own_network: bool
) -> Layout:
    """Return the layout of a view with its own root directory."""
    home = private_directory(policy, private_home(policy))
    tmp = temporary_directory(policy)
    system = [f"/{name}" for name in SYSTEM]
    private = [
        Bind(tmp, "/tmp", is_writable=True),
        Bind(tmp, "/var/tmp", is_writable=True),
        Bind(home, policy.home, is_writable=True),
    ]
    shown = [
        *_runtime(),
        *program_binds(policy),
        *_copied_settings(policy),
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
    access = LandlockAccess(
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
    """Return whether the content of a bound directory is stored in the sandbox's state directory."""
    return bind.is_writable and bind.source != bind.target and not bind.is_step


def _steps_to(binds: Sequence[Bind], private: Sequence[Bind]) -> Iterator[Bind]:
    """
    Yield the directories between private directories and the mount points below them, so that they cannot be renamed.

    Otherwise a command could replace one of them, and with it a project or programs that the next command takes for the user's.
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
    """Return the layout of a view without mounts: only access rights. It cannot except anything below a writable directory."""
    project = [policy.project, *protection.writable]
    can_write = policy.mode == "rw"
    private = [private_directory(policy, private_home(policy)), temporary_directory(policy)]
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
    access = LandlockAccess(
        # Landlock rules do not follow links.
        readable=[os.path.realpath(path) for path in readable],
        writable=[*private, *policy.write_paths, *(project if can_write else [])],
        devices=[f"/dev/{name}" for name in DEVICES],
        private=private,
    )
    return Layout(access)


def private_directory(policy: SandboxPolicy, name: str) -> str:
    path = f"{policy.state_dir}/{name}"
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def temporary_directory(policy: SandboxPolicy) -> str:
    """Create the directory that is /tmp inside: the session's, removed with it."""
    os.makedirs(policy.tmp_dir, exist_ok=True)
    os.chmod(policy.tmp_dir, 0o1777)  # noqa: S103 - only this user can enter the directories above it
    return policy.tmp_dir


def remove_temporary_directories(tmp_dir: str) -> None:
    """Remove the /tmp directories of a session and its servers."""
    directory, name = os.path.split(tmp_dir)
    with suppress(FileNotFoundError):
        for each in os.listdir(directory):
            if each == name or each.startswith(f"{name}-"):
                remove_tree(f"{directory}/{each}")


def remove_tree(path: str) -> None:
    """
    Remove a tree with `rm`. What remains is removed at the next start.

    Python's shutil fails on trees that are too deep for it, which one line of shell can create.
    """
    is_there = os.path.lexists(path)
    if is_there and not _runs("rm", "-rf", "--", path):  # read-only directories, as Go makes them
        _runs("chmod", "-R", "u+rwX", "--", path)
        _runs("rm", "-rf", "--", path)


def remove_temporary_files_of_the_dead(directory: str) -> None:
    """Remove the /tmp directories of hosts that no longer run. Their names begin with the pid of the host."""
    for name in os.listdir(directory):
        pid = name.partition("-")[0]
        if not (pid.isdecimal() and is_running(int(pid))):
            remove_tree(f"{directory}/{name}")


def _runs(name: str, *arguments: str) -> bool:
    """
    Run a system program and return whether it succeeds.

    It is not looked up in PATH, which may lead into the project, and gets no environment.
    """
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
    """Bind resolv.conf. It may be a link into /run, which is empty inside; then its target is bound there."""
    path = os.path.realpath("/etc/resolv.conf")
    if not os.path.isfile(path):
        return
    if has_own_network:
        yield Bind(_private_file(policy, "resolv.conf", RESOLVER), path)
    elif path.startswith("/run/"):
        yield Bind(path, path)


def _copied_settings(policy: SandboxPolicy) -> Iterator[Bind]:
    for name, target in _COPIES.items():
        if os.path.exists(copy := f"{policy.state_dir}/{name}"):
            yield Bind(copy, f"{policy.home}/{target}", is_private=True)


def _runtime() -> list[Bind]:
    """Bind what the file worker needs: this Python, and ripgrep next to it."""
    paths = (sys.base_prefix, *sys.path, f"{os.path.dirname(sys.executable)}/rg")
    return [
        Bind(os.path.realpath(path), path, is_private=True)
        for path in present(paths)
        if not is_system(path)
    ]


def program_binds(policy: SandboxPolicy) -> Iterator[Bind]:
    """Bind the user's programs, and PATH entries that are links to granted directories."""
    for path in present(policy.programs):
        yield Bind(os.path.realpath(path), path, is_private=True)
    granted = (*policy.read_paths, *policy.write_paths)
    for path in path_entries():
        real = os.path.realpath(path)
        is_link = real != path and not is_system(path) and not is_within(path, policy.project)
        if is_link and path not in policy.programs and is_in_any(real, granted):
            yield Bind(real, path, is_private=True)


def _project_binds(policy: SandboxPolicy, protection: Protection) -> Iterator[Bind]:
    """Bind the project. Later binds cover earlier ones, so wider ones come first, and paths that the user granted by name come last."""
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
    Yield empty files and directories over paths that must stay hidden, unless the user granted exactly that path.

    The empty file is a regular one. A mask with /dev/null makes git report a changed file type, and `git add -A` fail.
    """
    granted = {*policy.read_paths, *policy.write_paths} - {*policy.linked}
    secrets = set(_root_only("/etc")) if os.geteuid() == 0 else set[str]()
    no_file = _private_file(policy, "nothing", "")
    no_directory = private_directory(policy, "nowhere")
    for path in (*secrets, *protection.masked, *policy.masked):
        if path not in granted and os.path.lexists(path):
            nothing = no_directory if os.path.isdir(path) else no_file
            yield Bind(nothing, path, may_vanish=path in secrets)


def listening_sockets(roots: tuple[str, ...]) -> list[str]:
    """Return the host's listening unix sockets below `roots` that were bound by an absolute path."""
    if sys.platform != "linux":  # Seatbelt refuses connections by path
        return []
    with open("/proc/net/unix", "rb") as file:
        names = [line.split(None, 7)[-1].rstrip() for line in file.readlines()[1:]]
    paths = {os.fsdecode(name) for name in names if name.startswith(b"/")}
    return [path for path in sorted(paths) if is_in_any(path, roots)]


def _root_only(directory: str) -> Iterator[str]:
    """Yield paths below `directory` that only root can read. Sanderling may run as root, in containers."""
    for entry in os.scandir(directory):
        if entry.is_symlink():
            continue
        is_directory = entry.is_dir()
        readable = stat.S_IROTH | stat.S_IXOTH if is_directory else stat.S_IROTH
        with suppress(FileNotFoundError):  # removed meanwhile
            if entry.stat().st_mode & readable != readable:
                yield entry.path
            elif is_directory:
                yield from _root_only(entry.path)


def _all_but(directory: str, hidden: frozenset[str]) -> Iterator[str]:
    """Yield `directory`, or its parts without the `hidden` paths."""
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
