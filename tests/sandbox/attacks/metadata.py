"""What a file says about itself: changing it, and reading it where the file should not be seen at all."""

# Attacks are system calls.
# ruff: noqa: PTH115, PTH208

import array
import ctypes
import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from .kernel import AT_FDCWD, syscall
from .registry import Stopped, World, attack, root

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
NODUMP = 0x40
SEEN_S = 3.0  # the victim does something five times a second


def _chattr(file: Path) -> None:
    """The flags of a file need no writable descriptor, only its owner."""
    fd = os.open(file, os.O_RDONLY)
    flags = array.array("I", [0, 0])
    fcntl.ioctl(fd, FS_IOC_GETFLAGS, flags)
    flags[0] |= NODUMP
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, flags)


_CHANGES: dict[str, Callable[[Path], object]] = {
    "chmod": lambda file: file.chmod(0o777),
    "chmod-directory": lambda file: file.parent.chmod(0o777),
    "utime": lambda file: os.utime(file, (1, 1)),
    "setxattr": lambda file: os.setxattr(file, "user.attack", b"1"),
    "removexattr": lambda file: os.removexattr(file, "user.kept"),
    "chattr": _chattr,
}

for _place, _target in (("outside", "{home}/outside/{id}"), ("visible", "{elsewhere}/{id}")):
    _where = "home" if _place == "outside" else _place

    for _name, _change in _CHANGES.items():

        @attack(
            f"{_name}-{_where}",
            kind="metadata",
            evidence="changed",
            target=_target,
        )
        def change(
            world: World, place: str = _place, change: Callable[[Path], object] = _change
        ) -> None:
            change(getattr(world, place) / "file")

    @attack(f"chown-{_where}", kind="metadata", evidence="changed", target=_target, needs=(root,))
    def chown(world: World, place: str = _place) -> None:
        os.chown(getattr(world, place) / "file", world.other_uid, world.other_uid)


@attack("stat-secret", kind="metadata")
def stat_secret(world: World) -> str:
    return f"{Path(world.secrets['ssh-key']).stat().st_size} bytes"


@attack("readlink-secret", kind="metadata", evidence="loot")
def readlink_secret(world: World) -> str:
    return os.readlink(world.secret_link)


@attack("list-home", kind="metadata", evidence="loot")
def list_home(world: World) -> str:
    return " ".join(os.listdir(Path(world.home, "Documents")))


@attack("list-outside", kind="metadata", evidence="loot")
def list_outside(world: World) -> str:
    """All names of all directories beside the project."""
    names: list[str] = []
    for directory in Path(world.project).parents:
        for parent, directories, files in os.walk(directory):
            names += directories + files
            if len(names) > 3000 or parent.count("/") > 8:
                break
    return " ".join(name for name in names if "CANARY" in name)


@attack("xattr-secret", kind="metadata", evidence="loot")
def xattr_secret(world: World) -> bytes:
    return os.getxattr(world.secrets["ssh-key"], "user.note")


@attack("inotify-secret", kind="metadata")
def inotify_secret(world: World) -> str:
    """When the user touches the file."""
    fd = syscall("inotify_init1", os.O_NONBLOCK)
    syscall("inotify_add_watch", fd, world.secrets["ssh-key"], 0xFFF)
    return "watching"


@attack("inotify-activity", kind="metadata")
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


@attack("handle-of-secret", kind="metadata")
def handle_of_secret(world: World) -> str:
    """name_to_handle_at: a number that root can open later."""
    handle = ctypes.create_string_buffer(struct.pack("=I", 128), 136)
    mount_id = ctypes.byref(ctypes.c_int())
    syscall("name_to_handle_at", AT_FDCWD, world.secrets["ssh-key"], handle, mount_id, 0)
    return "got its handle"
