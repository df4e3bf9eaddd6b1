"""Device nodes: those that are there, and those that are made."""

# Attacks are system calls.
# ruff: noqa: PTH116

import errno
import os
import stat
import time
from pathlib import Path

from .registry import Stopped, World, attack, fact, root

_DEVICES = {  # a name below /dev: why not
    "mem": "the machine's memory",
    "port": "its hardware",
    "kmsg": "the kernel's log",
    "kvm": "a hypervisor",
    "vsock": "the host machine",
    "fuse": "file systems of our own",
    "net/tun": "a network of our own",
    "loop-control": "images as disks",
    "btrfs-control": "file systems",
    "uinput": "a keyboard of our own",
    "input/event0": "the keyboard",
    "snd/controlC0": "the microphone",
    "video0": "the camera",
    "dri/card0": "the screen",
    "hwrng": "hardware",
    "vcs": "the console's screen",
    "zram0": "memory that was swapped out",
    "autofs": "mounts",
}

for _name in _DEVICES:

    def _can_open(_world: World, path: str = f"/dev/{_name}") -> str:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.EBUSY:
                return f"{path}: {error.strerror}"
        return ""

    @attack(f"device-{_name.replace('/', '-')}", kind="devices", needs=(_can_open,))
    def device(_world: World, path: str = f"/dev/{_name}") -> str:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        return f"opened {path}"


@attack("block-device", kind="devices", needs=(root, fact("block_device")))
def block_device(world: World) -> str:
    """The disk below every permission."""
    fd = os.open(world.block_device, os.O_RDONLY)
    return os.read(fd, 512) and "read the disk"


@attack("mknod-block", kind="devices", needs=(root, fact("block_device")))
def mknod_block(world: World) -> str:
    node = Path(world.project, "disk")
    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(*world.block_numbers))
    fd = os.open(node, os.O_RDONLY)
    return os.read(fd, 512) and "read the disk"


@attack("mknod-memory", kind="devices", needs=(root,))
def mknod_memory(world: World) -> str:
    node = Path(world.project, "kmsg")
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, 11))
    os.close(os.open(node, os.O_RDONLY | os.O_NONBLOCK))
    return "opened a device of our own making"


@attack("device-in-project", kind="devices", needs=(fact("project_device"),))
def device_in_project(world: World) -> str:
    """A node that lies in the project already, as in an unpacked image."""
    os.close(os.open(world.project_device, os.O_RDONLY | os.O_NONBLOCK))
    return "opened"


@attack(
    "device-null-is-shared", kind="devices", needs=(root,), evidence="changed", target="/dev/null"
)
def device_null(_world: World) -> None:
    """The node is the machine's own: who owns it may close it to everyone. Here only its times change."""
    now = time.time_ns()
    os.utime("/dev/null", ns=(now, now))
    if os.stat("/dev/null").st_mtime_ns != now:
        raise Stopped("not the same")
