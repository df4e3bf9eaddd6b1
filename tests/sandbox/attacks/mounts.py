"""Namespaces and mounts: another view of the system, in which nothing is closed."""

# Attacks are system calls.
# ruff: noqa: PTH115

import ctypes
import os
import signal
import struct
from pathlib import Path

from .kernel import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    MS_BIND,
    MS_REC,
    MS_REMOUNT,
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWTIME,
    NEWUSER,
    NEWUTS,
    become_namespace_root,
    reap,
    syscall,
)
from .registry import Stopped, World, attack, root


@attack("unshare-user", kind="namespaces")
def unshare_user(_world: World) -> str:
    syscall("unshare", NEWUSER)
    return "all capabilities in a new user namespace"


for _name, _flag in (
    ("mount", NEWNS),
    ("net", NEWNET),
    ("pid", NEWPID),
    ("uts", NEWUTS),
    ("ipc", NEWIPC),
    ("time", NEWTIME),
    ("cgroup", 0x2000000),
):

    @attack(f"unshare-{_name}", kind="namespaces", needs=(root,))
    def unshare(_world: World, flag: int = _flag) -> str:
        syscall("unshare", flag)
        return "a namespace of our own"


@attack("clone-user", kind="namespaces")
def clone_user(_world: World) -> str:
    pid = syscall("clone", NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    reap(pid)
    return "a child in a new user namespace"


@attack("clone3-user", kind="namespaces")
def clone3_user(_world: World) -> str:
    """The flags lie in memory, where a filter cannot see them."""
    arguments = struct.pack("=8Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = syscall("clone3", ctypes.create_string_buffer(arguments, 64), 64)
    if pid == 0:
        os._exit(0)
    reap(pid)
    return "a child in a new user namespace"


for _name in ("net", "ipc", "uts", "mnt", "cgroup", "pid"):

    @attack(f"setns-{_name}", kind="namespaces", needs=(root,))
    def setns(world: World, name: str = _name) -> str:
        """Into the victim's namespace."""
        fd = os.open(f"/proc/{world.server_pid}/ns/{name}", os.O_RDONLY)
        syscall("setns", fd, 0)
        return "joined"


@attack("setns-pidfd", kind="namespaces", needs=(root,))
def setns_pidfd(world: World) -> str:
    syscall("setns", os.pidfd_open(world.server_pid), NEWNS | NEWNET)
    return "joined"


@attack("namespace-of-ancestor", kind="namespaces")
def namespace_of_ancestor(world: World) -> str:
    return os.readlink(f"/proc/{world.server_pid}/ns/net")


@attack("mount-tmpfs", kind="mounts")
def mount_tmpfs(world: World) -> str:
    become_namespace_root()
    syscall("mount", "tmpfs", world.project, "tmpfs", 0, None)
    return "mounted"


@attack("mount-proc", kind="mounts")
def mount_proc(world: World) -> str:
    """A fresh /proc shows what the masked one hides."""
    become_namespace_root()
    target = Path(world.project, "proc")
    target.mkdir()
    if os.geteuid() == 0 and os.readlink("/proc/self/ns/user") == world.user_namespace:
        syscall("mount", "proc", str(target), "proc", 0, None)
        return "mounted"
    syscall("unshare", NEWPID)
    pid = os.fork()
    if pid == 0:
        try:
            syscall("mount", "proc", str(target), "proc", 0, None)
        except OSError:
            os._exit(1)
        os._exit(0)
    return reap(pid) == 0 and "mounted"


@attack("mount-bind", kind="mounts")
def mount_bind(world: World) -> str:
    become_namespace_root()
    syscall("mount", "/etc", world.project, None, MS_BIND, None)
    return "bound"


@attack("mount-remount", kind="mounts")
def mount_remount(world: World) -> str:
    """What is mounted read-only becomes writable."""
    become_namespace_root()
    syscall("mount", world.project, world.project, None, MS_BIND | MS_REC, None)
    syscall("mount", None, world.project, None, MS_BIND | MS_REMOUNT, None)
    return "remounted"


@attack("mount-move", kind="mounts")
def mount_move(world: World) -> str:
    become_namespace_root()
    target = Path(world.project, "moved-mount")
    target.mkdir()
    syscall("mount", "tmpfs", str(target), "tmpfs", 0, None)
    syscall("mount", str(target), world.project, None, 0x2000, None)
    return "moved"


@attack("umount", kind="mounts")
def umount(world: World) -> str:
    become_namespace_root()
    syscall("mount", "tmpfs", world.project, "tmpfs", 0, None)
    syscall("umount2", world.project, 2)
    return "unmounted"


@attack("umount-covers", kind="mounts")
def umount_covers(world: World) -> str:
    """Without a namespace of our own: what covers the secrets is simply taken away."""
    for mount in Path("/proc/self/mounts").read_text().split("\n"):
        if mount and mount.split()[1].startswith(world.home):
            syscall("umount2", mount.split()[1], 2)
            return f"unmounted {mount.split()[1]}"
    become_namespace_root()
    syscall("mount", "tmpfs", world.project, "tmpfs", 0, None)
    syscall("umount2", world.project, 0)
    return "unmounted"


@attack("pivot-root", kind="mounts")
def pivot_root(world: World) -> str:
    become_namespace_root()
    syscall("mount", "tmpfs", world.project, "tmpfs", 0, None)
    os.chdir(world.project)
    syscall("pivot_root", ".", ".")
    return "another root"


@attack("chroot", kind="mounts")
def chroot(world: World) -> str:
    """With capabilities a chroot is a way out of one, and a stage for setuid programs."""
    try:
        syscall("chroot", world.project)
    except PermissionError:
        syscall("unshare", NEWUSER)
        syscall("chroot", world.project)
    return "another root"


@attack("fsopen", kind="mounts")
def fsopen(_world: World) -> str:
    become_namespace_root()
    fd = syscall("fsopen", "tmpfs", 0)
    syscall("fsconfig", fd, 6, None, None, 0)
    syscall("fsmount", fd, 0, 0)
    return "a file system of our own"


@attack("fspick", kind="mounts")
def fspick(world: World) -> str:
    become_namespace_root()
    syscall("mount", "tmpfs", world.project, "tmpfs", 0, None)
    syscall("fspick", AT_FDCWD, world.project, 0)
    return "reconfigures"


@attack("open-tree", kind="mounts")
def open_tree(_world: World) -> str:
    become_namespace_root()
    syscall("open_tree", AT_FDCWD, "/", 0x8001)
    return "a copy of the mounts"


@attack("move-mount", kind="mounts")
def move_mount(world: World) -> str:
    become_namespace_root()
    fd = syscall("open_tree", AT_FDCWD, "/etc", 1)
    syscall("move_mount", fd, "", AT_FDCWD, world.project, 4)
    return "attached"


@attack("mount-setattr", kind="mounts")
def mount_setattr(_world: World) -> str:
    become_namespace_root()
    fd = syscall("open_tree", AT_FDCWD, "/tmp", 1)
    syscall("mount_setattr", fd, "", AT_EMPTY_PATH, struct.pack("QQQQ", 0, 1, 0, 0), 32)
    return "writable again"


@attack("overlay", kind="mounts")
def overlay(world: World) -> str:
    become_namespace_root()
    base = Path(world.project, "overlay")
    for name in ("upper", "work", "merged"):
        (base / name).mkdir(parents=True)
    options = f"lowerdir=/usr,upperdir={base}/upper,workdir={base}/work,userxattr"
    syscall("mount", "overlay", str(base / "merged"), "overlay", 0, options)
    return "overlaid"


@attack("mount-list", kind="mounts")
def mount_list(world: World) -> str:
    """The host's mount table, read through the victim."""
    return Path(f"/proc/{world.server_pid}/mountinfo").read_text()[:80]


@attack("hostname", kind="namespaces", needs=(root,))
def hostname(_world: World) -> str:
    import socket

    socket.sethostname(socket.gethostname())
    return "set"


@attack("capability-left", kind="namespaces", needs=(root,))
def capability_left(_world: World) -> str:
    """Not a single capability may be left, in no set from which it could come back."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")) and int(
            line.split()[1], 16
        ):
            return line
    raise Stopped("no capabilities")


@attack("new-privileges", kind="namespaces")
def new_privileges(_world: World) -> str:
    if "NoNewPrivs:\t0" not in Path("/proc/self/status").read_text():
        raise Stopped("no new privileges")
    return "a setuid program would give privileges"
