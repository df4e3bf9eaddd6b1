"""Files that lend their owner's rights to whoever runs them, and locks that make others wait."""

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from .kernel import AT_FDCWD, syscall
from .registry import Stopped, World, attack, implemented

SETUID, SETGID = 0o4755, 0o2755


def _program(world: World) -> Path:
    """A file of the project for this attack alone; it counts on another user to run it."""
    path = Path(world.project, f"program-{world.id}")
    path.write_bytes(Path("/bin/true").read_bytes())
    return path


def _set_id(path: Path) -> str:
    """Whether the bits are there: a kernel may accept a mode and leave them out."""
    mode = path.stat().st_mode
    path.unlink()
    if not mode & (stat.S_ISUID | stat.S_ISGID):
        raise Stopped(f"mode {mode:o}")
    return f"mode {mode:o}"


@attack("setuid-chmod", kind="set-id")
def setuid_chmod(world: World) -> str:
    path = _program(world)
    path.chmod(SETUID)
    return _set_id(path)


@attack("setgid-chmod", kind="set-id")
def setgid_chmod(world: World) -> str:
    path = _program(world)
    path.chmod(SETGID)
    return _set_id(path)


@attack("setuid-fchmod", kind="set-id")
def setuid_fchmod(world: World) -> str:
    path = _program(world)
    with path.open("rb") as file:
        os.fchmod(file.fileno(), SETUID)
    return _set_id(path)


@attack("setuid-proc", kind="set-id")
def setuid_proc(world: World) -> str:
    """By the descriptor's name in /proc."""
    path = _program(world)
    with path.open("rb") as file:
        Path(f"/proc/self/fd/{file.fileno()}").chmod(SETUID)
    return _set_id(path)


@attack(
    "setuid-fchmodat2",
    kind="set-id",
    needs=(implemented(lambda: syscall("fchmodat2", -1, "", 0, 0)),),
)
def setuid_fchmodat2(world: World) -> str:
    path = _program(world)
    syscall("fchmodat2", AT_FDCWD, str(path), SETUID, 0)
    return _set_id(path)


@attack("setuid-create", kind="set-id")
def setuid_create(world: World) -> str:
    """Never changed: made so, and then filled, by whoever opened it."""
    path = Path(world.project, f"program-{world.id}")
    os.umask(0)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, SETUID))
    return _set_id(path)


@attack("setuid-openat2", kind="set-id")
def setuid_openat2(world: World) -> str:
    """Its mode lies behind a pointer, where a filter sees nothing."""
    path = Path(world.project, f"program-{world.id}")
    os.umask(0)
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, SETUID, 0)
    syscall("openat2", AT_FDCWD, str(path), how, len(how))
    return _set_id(path)


@attack("setuid-unnamed", kind="set-id")
def setuid_unnamed(world: World) -> str:
    """A file without a name, which gets one afterwards."""
    path = Path(world.project, f"program-{world.id}")
    os.umask(0)
    try:
        fd = os.open(world.project, os.O_TMPFILE | os.O_WRONLY, SETUID)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise Stopped("no such files here") from error
        raise
    # Only with a descriptor does Python follow the link.
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    return _set_id(path)


@attack("setuid-mknod", kind="set-id")
def setuid_mknod(world: World) -> str:
    path = Path(world.project, f"program-{world.id}")
    os.umask(0)
    os.mknod(path, stat.S_IFREG | SETUID)
    return _set_id(path)


@attack("setgid-by-access-list", kind="set-id")
def setgid_by_access_list(world: World) -> str:
    """Without S_IXGRP the bit means nothing; an access list adds that, and the mode is not spoken of."""
    path = _program(world)
    path.chmod(0o2644)
    entries = ((0x01, 7), (0x04, 5), (0x20, 5))  # user, group, others
    rule = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e, 0xFFFFFFFF) for e in entries)
    os.setxattr(path, "system.posix_acl_access", rule)
    return _set_id(path)


@attack("lease", kind="leases")
def lease(world: World) -> str:
    """Whoever opens the file, the editor for instance, waits for 45 s."""
    path = _program(world)
    with path.open("rb+") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    path.unlink()
    return "leased"
