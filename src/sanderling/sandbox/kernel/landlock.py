"""
Landlock: what a process may touch, by the files themselves and not by their names, so that no mount and no link gets round it.

Two rulesets are stacked; a call must pass both. The first is the `landlock` package's and holds the rules for files. The second
is ours: the network and the scopes, which the package does not know.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar, cast

import landlock
from landlock import FSAccess

from sanderling.errors import SandboxError
from sanderling.sandbox.kernel.syscalls import syscall

P = ParamSpec("P")
T = TypeVar("T")

RESOLVE_UNIX = FSAccess(1 << 16)  # the package's names end at bit 15

READ = FSAccess.EXECUTE | FSAccess.READ_FILE | FSAccess.READ_DIR
CHANGE_FILE = FSAccess.WRITE_FILE | FSAccess.TRUNCATE
REMOVE = FSAccess.REMOVE_FILE | FSAccess.REMOVE_DIR
MAKE = (
    FSAccess.MAKE_REG
    | FSAccess.MAKE_DIR
    | FSAccess.MAKE_SYM
    | FSAccess.MAKE_SOCK
    | FSAccess.MAKE_FIFO
)
MAKE_DEVICE = FSAccess.MAKE_CHAR | FSAccess.MAKE_BLOCK
WRITE = READ | CHANGE_FILE | REMOVE | MAKE | FSAccess.REFER
DEVICE = FSAccess.READ_FILE | FSAccess.READ_DIR | CHANGE_FILE | FSAccess.IOCTL_DEV
# The kernel rejects a rule that grants a file more than these.
FILE = FSAccess.EXECUTE | FSAccess.READ_FILE | CHANGE_FILE | FSAccess.IOCTL_DEV | RESOLVE_UNIX

TCP, UDP = 0b0011, 0b1100  # bind | connect
SCOPES = 0b11  # abstract unix sockets | signals

PATH_BENEATH = 1  # the kind of rule

NEW_RIGHTS = {  # by version: on files, on the network, scopes
    1: (READ | FSAccess.WRITE_FILE | REMOVE | MAKE | MAKE_DEVICE, 0, 0),
    2: (FSAccess.REFER, 0, 0),
    3: (FSAccess.TRUNCATE, 0, 0),
    4: (0, TCP, 0),
    5: (FSAccess.IOCTL_DEV, 0, 0),
    6: (0, 0, SCOPES),
    9: (RESOLVE_UNIX, 0, 0),
    10: (0, UDP, 0),
}


def abi() -> int:
    """
    The newest version of Landlock whose every right this kernel enforces; 0 where there is none, or it is off.

    Some kernels report a version and then reject one of its rights: each is tried.
    """
    report_version = 1
    try:
        reported = syscall("landlock_create_ruleset", None, 0, report_version)
    except OSError:
        return 0
    for version in range(reported, 0, -1):
        try:
            os.close(_create_ruleset(*_rights(version)))
        except OSError:
            continue
        return version
    return 0


class Ruleset:
    """
    Rules for a process: built once, taken on by each child.

    Allowed is to read and run beneath `read`; all but making device nodes beneath `write`; to read, write and control
    beneath `devices`. From version 6 on, signals and abstract sockets end at the process that restricts itself and its
    children; from 9 on, so do other unix sockets, except beneath `sockets`. `deny_tcp` needs version 4; from 10 on it
    denies UDP too.

    A path grants nothing when it does not exist, or when there is a symlink in it: whoever made the list resolved it, so such
    a link was planted since.

    Raises:
        SandboxError: the kernel has no Landlock, or rejects a rule.
    """

    def __init__(
        self,
        *,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
        devices: Iterable[str] = (),
        sockets: Iterable[str] = (),
        deny_tcp: bool,
    ) -> None:
        self.abi = abi()
        if not self.abi:
            raise SandboxError("This kernel has no Landlock, or it is switched off.")
        self._file_rights, network, scopes = _rights(self.abi)
        self._files = _call(landlock.Ruleset, FSAccess(self._file_rights))
        self._fds = [self._files._fd]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for paths, rights in (
            (read, READ),
            (write, WRITE),
            (devices, DEVICE),
            (sockets, RESOLVE_UNIX),
        ):
            for path in paths:
                self._allow(path, rights)
        network = network if deny_tcp else 0
        if network or scopes:
            self._fds.append(_call(_without_files, network, scopes))

    def _allow(self, path: str, rights: FSAccess) -> None:
        path_fd = _open_literally(path)
        if path_fd is None:
            return
        allowed = rights & self._file_rights
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            allowed &= FILE
        if allowed:
            allow = cast("Callable[..., None]", self._files.allow)  # pyright: ignore[reportUnknownMemberType]
            _call(allow, f"/proc/self/fd/{path_fd}", rules=FSAccess(allowed))
        os.close(path_fd)

    def restrict_self(self) -> None:
        """
        Hold this thread and all its children to the rules, for good. Sets `no_new_privs`.

        Raises:
            SandboxError: the kernel refuses. The caller must not run the command.
        """
        _call(self._files.apply)
        for fd in self._fds[1:]:
            _call(syscall, "landlock_restrict_self", fd, 0)

    def close(self) -> None:
        # The package itself never does.
        for fd in self._fds:
            os.close(fd)


def _rights(version: int) -> tuple[int, int, int]:
    """Return all that `version` can deny: on files, on the network, and the scopes."""
    known = [rights for since, rights in NEW_RIGHTS.items() if since <= version]
    files, network, scopes = map(sum, zip(*known, strict=True))
    return files, network, scopes


def _create_ruleset(files: int, network: int, scopes: int) -> int:
    attributes = struct.pack("=QQQ", files, network, scopes)
    return syscall("landlock_create_ruleset", attributes, len(attributes), 0)


def _without_files(network: int, scopes: int) -> int:
    """
    A ruleset for other things than files.

    It must say so: in older kernels (Linux 6.7 to some 6.14, `landlock_get_fs_access_mask`) every ruleset on the stack, even
    one without a rule for files, keeps files from moving to another directory unless it allows that itself.
    """
    ruleset = _create_ruleset(FSAccess.REFER, network, scopes)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    syscall("landlock_add_rule", ruleset, PATH_BENEATH, struct.pack("=Qi", FSAccess.REFER, root), 0)
    os.close(root)
    return ruleset


def _open_literally(path: str) -> int | None:
    at_cwd, resolve_no_symlinks = -100, 0x04
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, resolve_no_symlinks)
    try:
        return syscall("openat2", at_cwd, os.fsencode(path), how, len(how))
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP}:
            return None
        raise


def _call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """
    `function`, around two defects of the package.

    An errno that some earlier call left is an error to it; and while it explains an error it dies of a ValueError on a kernel
    with a name like "6.6.0+".
    """
    ctypes.set_errno(0)
    try:
        return function(*args, **kwargs)
    except (OSError, ValueError) as error:
        reason = os.strerror(getattr(error, "errno", ctypes.get_errno()))
        raise SandboxError(f"Landlock does not take the rules: {reason}.") from error
