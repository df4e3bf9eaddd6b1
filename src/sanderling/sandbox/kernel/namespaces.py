"""
Namespaces and mounts: builds a root directory that contains what a layout names, and nothing else.

Each bind mount is one `open_tree`, `mount_setattr` and `move_mount` (Linux 5.12, older than Landlock), so its flags are set before it
becomes visible; `mount` with a later remount would leave a gap. Both ends are opened without following symbolic links, because commands
of the same session may rename things in the project and the private HOME while a root is built. Mount points are created the same way.
"""

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sanderling.errors import SandboxError
from sanderling.platforms.files import ONLY_PATH
from sanderling.sandbox.kernel import inotify
from sanderling.sandbox.kernel.syscalls import syscall

if TYPE_CHECKING:  # the probe needs no layout and should start fast
    from sanderling.sandbox.kernel.layout import Bind, Layout

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SESSION_NAMESPACES = {
    "user": CLONE_NEWUSER,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "net": CLONE_NEWNET,
}
"""The namespaces that all views of a session share, in the order in which they must be entered."""

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 0x1000, 0x4000, 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
PRIVATE_TERMINALS = "newinstance,ptmxmode=0666,mode=620"
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x4, 0x40
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 0x2, 0x4
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)
OWN_DIRECTORIES = ("/dev", "/proc", "/run", "/var")
# The kernel counts inotify instances and watches per user. If a command took all of them (128 instances, for instance), the user's editor
# and file manager would see no changes, and the next sandbox could not start its guard. So the namespace gets a share: a build tool needs
# few instances, but one watch per directory.
INOTIFY_SHARES = {"instances": 4, "watches": 2}
HIDDEN_IN_PROC = ("keys", "key-users")  # keyrings do not belong to a namespace that we create


def unshare(flags: int) -> None:
    syscall("unshare", flags)


def enter_new_user_namespace(others: int) -> None:
    """Enter a new user namespace, with this user mapped to itself, and the namespaces in `others`, with all capabilities in them."""
    uid, gid = os.geteuid(), os.getegid()
    limits = {name: inotify.limit(name) // share for name, share in INOTIFY_SHARES.items()}
    unshare(CLONE_NEWUSER | others)
    # Before PR_SET_DUMPABLE is cleared: the maps of a process that is not dumpable belong to root.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    for name, limit in limits.items():
        _write(f"/proc/sys/user/max_inotify_{name}", str(limit))


def open_session_namespaces(*, has_own_network: bool) -> list[int]:
    """Open this process's session namespaces, for `join_session_namespaces`."""
    names = [name for name in SESSION_NAMESPACES if name != "net" or has_own_network]
    return [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]


def join_session_namespaces(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        syscall("setns", descriptor, 0)


def bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(control, SIOCSIFFLAGS, request)


def enter_root(layout: "Layout") -> None:
    """
    Make the layout this process's root.

    Must be called in fresh mount and pid namespaces, with every module imported: the interpreter itself may be in a HOME that is hidden
    afterwards.

    Raises:
        SandboxError: a required mount failed.
    """
    new = layout.staging
    mount("", "/", "", MS_REC | MS_SLAVE)
    mount("tmpfs", new, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
    for directory in OWN_DIRECTORIES:
        os.mkdir(new + directory)
    os.symlink("/run", f"{new}/var/run")
    for link, target in layout.links:
        os.symlink(target, new + link)
    _make_devices(new, layout.shm_bytes)
    for bind in layout.binds:
        try:
            _bind(bind, new)
        except OSError as error:
            if bind.may_vanish and not os.path.lexists(bind.target):
                continue  # removed since it was found, so nothing is left to hide
            raise SandboxError(
                f"Cannot mount {bind.source} at {bind.target}: {error.strerror}"
            ) from error
    mount("", new, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount("", f"{new}/dev", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC)
    # A user namespace may mount /proc only while an uncovered /proc is visible, that is, before the old root is detached.
    mount("proc", f"{new}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.chdir(new)
    syscall("pivot_root", b".", b".")
    syscall("umount2", b".", MNT_DETACH)
    os.chdir("/")
    # Later mounts here propagate to running commands. /proc is excluded, because each command has its own.
    mount("", "/", "", MS_REC | MS_SHARED)
    mount("", "/proc", "", MS_PRIVATE)


def hold(path: str) -> None:
    """
    Make a file of the view read-only again for all its commands. Replacing a file removes its mount.

    Raises:
        OSError: the mount failed, or the file does not exist.
    """
    _attach(path, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)


def try_mounts() -> None:
    """
    Try the kinds of mounts that a root directory needs, in a new mount namespace.

    Raises:
        OSError: one of them is refused.
    """
    mount("", "/", "", MS_REC | MS_SLAVE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    os.mkdir("/tmp/usr")
    _attach("/usr", "/tmp/usr", MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY)


def mount_own_terminals() -> None:
    """Replace /dev/pts, so that no other command can open the terminals of this one and read what the user types there."""
    mount(
        "", "/dev/pts", "", MS_PRIVATE
    )  # the view's mounts are shared: the next command's terminals would cover these
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, PRIVATE_TERMINALS)


def mount_own_proc() -> None:
    """Mount a /proc for this process's pid namespace. It is read-only because root's sysctls check the uid, not a capability."""
    mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in HIDDEN_IN_PROC:
        with suppress(FileNotFoundError):  # this kernel lacks it
            mount("/dev/null", f"/proc/{name}", "", MS_BIND)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    encoded = [os.fsencode(text) if text else None for text in (source, target, kind, options)]
    syscall("mount", *encoded[:3], flags, encoded[3])


def _make_devices(new: str, shm_bytes: int) -> None:
    mount("tmpfs", f"{new}/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=1m")
    for name in DEVICES:
        _write(f"{new}/dev/{name}", "", os.O_CREAT)
        # The node is read-only, because root could change the host's. Writes to the device itself still work.
        _attach(f"/dev/{name}", f"{new}/dev/{name}", MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY)
    for name, target in DEVICE_LINKS:
        os.symlink(target, f"{new}/dev/{name}")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"{new}/dev/{name}")
    mount("devpts", f"{new}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, PRIVATE_TERMINALS)
    mount("tmpfs", f"{new}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={shm_bytes}")
    with suppress(OSError):  # a kernel without POSIX message queues
        mount("mqueue", f"{new}/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _bind(bind: "Bind", new: str) -> None:
    make_mount_point(new, bind)
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    attributes |= 0 if bind.is_writable else MOUNT_ATTR_RDONLY
    _attach(bind.source, new + bind.target, attributes)


def _attach(source: str, target: str, attributes: int) -> None:
    with opened(source) as from_fd, opened(target) as to_fd:
        clone = AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC
        tree = syscall("open_tree", from_fd, b"", clone)
        try:
            settings = struct.pack("QQQQ", attributes, 0, 0, 0)
            whole = AT_EMPTY_PATH | AT_RECURSIVE
            syscall("mount_setattr", tree, b"", whole, settings, len(settings))
            both = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
            syscall("move_mount", tree, b"", to_fd, b"", both)
        finally:
            os.close(tree)


@contextmanager
def opened(path: str) -> Generator[int]:
    """Open `path` with O_PATH, without following any link."""
    how = struct.pack(
        "QQQ", ONLY_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
    )
    descriptor = syscall("openat2", AT_FDCWD, os.fsencode(path), how, len(how))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_mount_point(new: str, bind: "Bind") -> None:
    """Create the mount point below `new`, step by step. In private directories it replaces what an earlier command left there."""
    *parents, name = bind.target.strip("/").split("/")
    here = os.open(new, ONLY_PATH | os.O_DIRECTORY)
    try:
        for step in parents:
            here, above = _directory_at(here, step, may_replace=bind.is_private), here
            os.close(above)
        if bind.is_step or os.path.isdir(bind.source):
            os.close(_directory_at(here, name, may_replace=bind.is_private))
        else:
            _file_at(here, name, may_replace=bind.is_private)
    finally:
        os.close(here)


def _directory_at(parent: int, name: str, *, may_replace: bool) -> int:
    flags = ONLY_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:  # a file, or a symbolic link
        if not may_replace:
            raise
        os.unlink(name, dir_fd=parent)
    os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, flags, dir_fd=parent)


def _file_at(parent: int, name: str, *, may_replace: bool) -> None:
    with suppress(FileNotFoundError):
        is_file = stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        if may_replace and not is_file:
            aside = f"{name}.{os.urandom(4).hex()}"
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
    with suppress(FileExistsError):
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=parent))


def _write(path: str, text: str, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
