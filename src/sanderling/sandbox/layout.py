"""Which parts of the machine a view holds: a policy, looked at together with what is on the disk now."""

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from sanderling.sandbox.policy import SandboxPolicy

SYSTEM = (
    "bin",
    "etc",
    "gnu",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "nix",
    "opt",
    "sbin",
    "snap",
    "sys",
    "usr",
)
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
"""Of /var, what tools need to know about the system. Its logs, mail, spools and databases are nobody's business."""

TOOLCHAINS = (
    ".asdf",
    ".bun/bin",
    ".bun/install/global",
    ".cabal/bin",
    ".cargo/bin",
    ".deno/bin",
    ".elan",
    ".fnm",
    ".ghcup/bin",
    ".ghcup/ghc",
    ".jenv",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx/venvs",
    ".local/share/fnm",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".local/share/pipx/venvs",
    ".local/share/pnpm",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/state/nix/profiles",
    ".nix-profile",
    ".nodenv",
    ".nvm",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman/candidates",
    ".volta",
    "anaconda3",
    "go/bin",
    "miniconda3",
    "miniforge3",
)
"""Below HOME, what commands are started from. None of these directories holds a key or a token."""

DEVICES = ("null", "zero", "full", "random", "urandom")
RESOLVER = "nameserver 127.0.0.1\nsearch .\noptions timeout:1 attempts:1\n"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """`source` outside appears as `target` inside. `is_private`: what stands in the way of the target may be removed."""

    source: str
    target: str
    is_writable: bool = False
    is_private: bool = False


@dataclass(kw_only=True)
class Layout:
    """
    A root directory, built at `staging`.

    It holds directories, links and files of its own, then `binds` in their order; later ones cover earlier ones. `readable`,
    `writable`, `devices` and `private`, where sockets may be connected to, are for Landlock, as paths inside.
    """

    staging: str = ""
    shm_bytes: int = 0
    directories: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    binds: list[Bind] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Protection:
    """
    What the project needs besides its tree.

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
    home, tmp = private_directory(policy, "home"), temporary_directory(policy)
    layout = Layout(
        staging=private_directory(policy, "root"),
        shm_bytes=policy.limits.shm_bytes,
        directories=["/dev", "/proc", "/run", "/var"],
        links=[("/var/run", "/run")],
        readable=["/"],
        devices=["/dev"],
        private=["/tmp", "/var/tmp", policy.home],
    )
    for name in SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            layout.links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            layout.binds.append(Bind(source=path, target=path))
    layout.binds += [Bind(source=path, target=path) for path in _present(SYSTEM_STATE)]
    _add_resolver(layout, policy, has_own_network=has_own_network)
    layout.binds += [
        Bind(source=tmp, target="/tmp", is_writable=True),
        Bind(source=tmp, target="/var/tmp", is_writable=True),
        Bind(source=home, target=policy.home, is_writable=True),
    ]
    layout.binds += _runtime_and_toolchains(policy.home)
    layout.binds += [
        Bind(source=f"{policy.state_dir}/{name}", target=f"{policy.home}/{target}", is_private=True)
        for name, target in (("gitconfig", ".gitconfig"), ("gitignore", ".config/git/ignore"))
    ]
    layout.binds += _project_binds(policy, protection)
    layout.binds += _masks(policy, protection)
    layout.writable += ["/dev/shm", *(bind.target for bind in layout.binds if bind.is_writable)]
    return layout


def unmounted_layout(policy: SandboxPolicy, protection: Protection) -> Layout:
    """The same where there are no mounts: what may be read and written. Nothing below a writable directory can be excepted."""
    project = [policy.project, *protection.writable]
    can_write = policy.mode == "rw"
    private = [private_directory(policy, "home"), temporary_directory(policy)]
    readable = (
        *(f"/{name}" for name in SYSTEM if name != "etc"),
        *(_all_but("/etc", frozenset(_root_only("/etc"))) if os.geteuid() == 0 else ["/etc"]),
        *SYSTEM_STATE,
        "/proc",
        *(bind.source for bind in _runtime_and_toolchains(policy.home)),
        *(f"{policy.state_dir}/{name}" for name in ("gitconfig", "gitignore")),
        *policy.read_paths,
        *protection.readable,
        *([] if can_write else project),
    )
    return Layout(
        readable=[os.path.realpath(path) for path in readable],  # Landlock rules follow no link
        writable=[*private, *policy.write_paths, *(project if can_write else [])],
        devices=[f"/dev/{name}" for name in DEVICES],
        private=private,
    )


def private_directory(policy: SandboxPolicy, name: str) -> str:
    path = f"{policy.state_dir}/{name}"
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def temporary_directory(policy: SandboxPolicy) -> str:
    """What is /tmp inside: the session's own, which goes with it."""
    os.makedirs(policy.tmp_dir, exist_ok=True)
    os.chmod(policy.tmp_dir, 0o1777)  # noqa: S103 - the directories above it are ours alone
    return policy.tmp_dir


def _private_file(policy: SandboxPolicy, name: str, text: str) -> str:
    path = f"{policy.state_dir}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _add_resolver(layout: Layout, policy: SandboxPolicy, *, has_own_network: bool) -> None:
    """`/etc/resolv.conf` is a file, or a link into /run, which is empty inside: then what it names is put there."""
    path = os.path.realpath("/etc/resolv.conf")
    if not os.path.isfile(path):
        return
    if has_own_network:
        resolver = _private_file(policy, "resolv.conf", RESOLVER)
        layout.binds.append(Bind(source=resolver, target=path))
    elif path.startswith("/run/"):
        layout.binds.append(Bind(source=path, target=path))


def _runtime_and_toolchains(home: str) -> list[Bind]:
    """What runs: this Python, for the file worker; the compilers and interpreters that live in the person's HOME."""
    paths = (sys.base_prefix, *sys.path, *(f"{home}/{name}" for name in TOOLCHAINS))
    return [
        Bind(source=os.path.realpath(path), target=path, is_private=True)
        for path in _present(paths)
        if not _is_system(path)
    ]


def _project_binds(policy: SandboxPolicy, protection: Protection) -> Iterator[Bind]:
    """A later one covers an earlier one: so the wider goes first, and what the person has granted by name goes last."""
    can_write = policy.mode == "rw"
    inside = {
        path for path in (*policy.read_paths, *policy.write_paths) if _lies_in(path, policy.project)
    }
    for path in (*protection.readable, *policy.read_paths):
        if path not in inside:
            yield Bind(source=path, target=path, is_private=True)
    for path in (policy.project, *protection.writable):
        yield Bind(source=path, target=path, is_writable=can_write, is_private=True)
    for path in policy.write_paths:
        if path not in inside:
            yield Bind(source=path, target=path, is_writable=True, is_private=True)
    for path in sorted(protection.pinned):
        yield Bind(source=path, target=path, is_writable=can_write)
    for path in sorted(protection.read_only):
        yield Bind(source=path, target=path)
    for path in sorted(inside):
        yield Bind(source=path, target=path, is_writable=path in policy.write_paths)


def _masks(policy: SandboxPolicy, protection: Protection) -> Iterator[Bind]:
    """Empty files and directories over what must not be seen, unless the person has granted exactly that."""
    granted = {*policy.read_paths, *policy.write_paths}
    secrets = list(_root_only("/etc")) if os.geteuid() == 0 else []
    no_file = _private_file(policy, "nothing", "")
    no_directory = private_directory(policy, "nowhere")
    for path in (*secrets, *protection.masked):
        if path not in granted and os.path.lexists(path):
            yield Bind(source=no_directory if os.path.isdir(path) else no_file, target=path)


def listening_sockets(roots: tuple[str, ...]) -> list[str]:
    """The unix sockets of the host below `roots`, as far as they were bound by their whole path."""
    with open("/proc/net/unix", "rb") as file:
        names = [line.split(None, 7)[-1].rstrip() for line in file.readlines()[1:]]
    paths = {os.fsdecode(name) for name in names if name.startswith(b"/")}
    return [path for path in sorted(paths) if any(_lies_in(path, root) for root in roots)]


def _lies_in(path: str, directory: str) -> bool:
    return path.startswith(f"{directory}/")


def _present(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def _is_system(path: str) -> bool:
    return path.strip("/").split("/")[0] in SYSTEM


def _root_only(directory: str) -> Iterator[str]:
    """What root can read below `directory`, and nobody else: Sanderling does run as root, in containers."""
    for entry in os.scandir(directory):
        if entry.is_symlink():
            continue
        is_directory = entry.is_dir()
        readable = stat.S_IROTH | stat.S_IXOTH if is_directory else stat.S_IROTH
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
