"""What a file says about itself: changing it, and reading it where the file should not be seen at all."""

# Attacks are system calls.
# ruff: noqa: PTH115, PTH208

import array
import ctypes
import fcntl
import os
import struct
import time
from pathlib import Path

from .kernel import AT_FDCWD, syscall
from .registry import Stopped, World, attack, root

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
NODUMP = 0x40
SEEN_S = 3.0  # the victim does something five times a second

for _place, _target in (("home", "{home}/outside/{id}"), ("visible", "{elsewhere}/{id}")):

    def _file(world: World, place: str = _place) -> Path:
        return (world.outside if place == "home" else world.visible) / "file"

    @attack(f"chmod-{_place}", kind="metadata", severity="med", evidence="changed", target=_target)
    def chmod(world: World, file=_file) -> str:
        file(world).chmod(0o777)
        return "changed"

    @attack(
        f"chmod-directory-{_place}",
        kind="metadata",
        severity="med",
        evidence="changed",
        target=_target,
    )
    def chmod_directory(world: World, file=_file) -> None:
        file(world).parent.chmod(0o777)

    @attack(f"utime-{_place}", kind="metadata", severity="low", evidence="changed", target=_target)
    def utime(world: World, file=_file) -> str:
        os.utime(file(world), (1, 1))
        return "changed"

    @attack(
        f"setxattr-{_place}", kind="metadata", severity="med", evidence="changed", target=_target
    )
    def setxattr(world: World, file=_file) -> str:
        os.setxattr(file(world), "user.attack", b"1")
        return "changed"

    @attack(
        f"removexattr-{_place}", kind="metadata", severity="low", evidence="changed", target=_target
    )
    def removexattr(world: World, file=_file) -> str:
        os.removexattr(file(world), "user.kept")
        return "changed"

    @attack(f"chattr-{_place}", kind="metadata", severity="low", evidence="changed", target=_target)
    def chattr(world: World, file=_file) -> None:
        """The flags of a file need no writable descriptor, only its owner."""
        fd = os.open(file(world), os.O_RDONLY)
        flags = array.array("I", [0, 0])
        fcntl.ioctl(fd, FS_IOC_GETFLAGS, flags)
        flags[0] |= NODUMP
        fcntl.ioctl(fd, FS_IOC_SETFLAGS, flags)

    @attack(
        f"chown-{_place}",
        kind="metadata",
        severity="high",
        evidence="changed",
        target=_target,
        needs=(root,),
    )
    def chown(world: World, file=_file) -> str:
        os.chown(file(world), world.other_uid, world.other_uid)
        return "changed"


@attack("stat-secret", kind="metadata", severity="low")
def stat_secret(world: World) -> str:
    return f"{Path(world.secrets['ssh-key']).stat().st_size} bytes"


@attack("readlink-secret", kind="metadata", severity="low", evidence="loot")
def readlink_secret(world: World) -> str:
    return os.readlink(world.secret_link)


@attack("list-home", kind="metadata", severity="low", evidence="loot")
def list_home(world: World) -> str:
    return " ".join(os.listdir(Path(world.home, "Documents")))


@attack("list-outside", kind="metadata", severity="low", evidence="loot")
def list_outside(world: World) -> str:
    """All names of all directories beside the project."""
    names: list[str] = []
    for directory in Path(world.project).parents:
        for parent, directories, files in os.walk(directory):
            names += directories + files
            if len(names) > 3000 or parent.count("/") > 8:
                break
    return " ".join(name for name in names if "CANARY" in name)


@attack("xattr-secret", kind="metadata", severity="low", evidence="loot")
def xattr_secret(world: World) -> bytes:
    return os.getxattr(world.secrets["ssh-key"], "user.note")


@attack("inotify-secret", kind="metadata", severity="low")
def inotify_secret(world: World) -> str:
    """When the user touches the file."""
    fd = syscall("inotify_init1", os.O_NONBLOCK)
    syscall("inotify_add_watch", fd, world.secrets["ssh-key"], 0xFFF)
    return "watching"


@attack("inotify-activity", kind="metadata", severity="low")
def inotify_activity(world: World) -> str:
    """The victim's server writes its log into this directory all the time."""
    fd = syscall("inotify_init1", os.O_NONBLOCK)
    syscall("inotify_add_watch", fd, world.busy_directory, 0xFFF)
    deadline = time.monotonic() + SEEN_S
    while time.monotonic() < deadline:
        try:
            if os.read(fd, 4096):
                return "saw the user work"
        except BlockingIOError:
            time.sleep(0.02)
    raise Stopped("nothing seen")


@attack("handle-of-secret", kind="metadata", severity="low")
def handle_of_secret(world: World) -> str:
    """name_to_handle_at: a number that root can open later."""
    handle = ctypes.create_string_buffer(struct.pack("=I", 128), 136)
    mount_id = ctypes.byref(ctypes.c_int())
    syscall("name_to_handle_at", AT_FDCWD, world.secrets["ssh-key"], handle, mount_id, 0)
    return "got its handle"
