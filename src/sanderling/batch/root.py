"""
A root directory with the absolute paths that a task expects: that of this machine, with more directories in it.

It is for a process that has just started, before its first thread. It confines nothing: the sandbox of the session nests in it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from sanderling.sandbox.kernel import namespaces
from sanderling.sandbox.kernel.namespaces import MS_BIND, MS_NODEV, MS_NOSUID, MS_REC, MS_SLAVE
from sanderling.sandbox.kernel.syscalls import syscall

SYSTEM = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "media",
        "mnt",
        "nix",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "snap",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
    ]
)


def can_be_placed(name: str) -> bool:
    """Return whether /NAME can be a directory of the task's own."""
    return name not in SYSTEM and name not in ("", ".", "..") and "/" not in name


def enter_root_with(places: Mapping[str, Path], staging: Path) -> None:
    """
    Make `places`, directories of this machine by the names that they get in /, visible to this process and its children.

    Raises:
        OSError: this machine allows no namespaces, or one of the mounts failed.
    """
    staging.mkdir(parents=True, exist_ok=True)
    namespaces.enter_new_user_namespace(namespaces.CLONE_NEWNS)
    namespaces.mount("", "/", "", MS_REC | MS_SLAVE)
    namespaces.mount("tmpfs", str(staging), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    for path in Path("/").iterdir():
        if path.name in places:
            continue
        if path.is_symlink():
            (staging / path.name).symlink_to(path.readlink())
        elif path.is_dir():
            (staging / path.name).mkdir()
            namespaces.mount(str(path), f"{staging}/{path.name}", "", MS_BIND | MS_REC)
    for name, source in places.items():
        (staging / name).mkdir()
        namespaces.mount(str(source), f"{staging}/{name}", "", MS_BIND | MS_REC)
    os.chdir(staging)
    syscall("pivot_root", b".", b".")
    syscall("umount2", b".", namespaces.MNT_DETACH)
    os.chdir("/")
