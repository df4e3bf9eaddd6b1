"""
Landlock: access rules for a process, enforced on the files themselves, so neither a mount nor a link gets around them.

Two rulesets are stacked, and a call must pass both. The first comes from the `landlock` package and has the rules for files. The second
is Sanderling's own, for the network and the scopes, which the package does not support. Other packages were measured in its place:
py-landlock 0.1.1 rejected rules for files, and lacked REFER, so that renames between directories failed; landlockpy 0.2.0 took 41 ms to
import and apply, instead of 23.

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
from sanderling.platforms.files import ONLY_PATH
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
# The kernel rejects rules that grant more than these on a file.
FILE = FSAccess.EXECUTE | FSAccess.READ_FILE | CHANGE_FILE | FSAccess.IOCTL_DEV | RESOLVE_UNIX

TCP, UDP = 0b0011, 0b1100  # bind | connect
SCOPES = 0b11  # abstract unix sockets | signals

PATH_BENEATH = 1  # the kind of rule

NEW_RIGHTS = {  # by version: files, network, scopes
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
    Return the newest Landlock version whose rights this kernel all enforces, or 0 if Landlock is missing or disabled.

    Some kernels report a version but reject one of its rights, so each version is tried.
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
    Rules for a process, built once and applied by each child.

    They allow reading and executing beneath `read`, everything except making device nodes beneath `write`, and reading, writing and
    ioctls beneath `devices`. From version 6, signals and abstract sockets reach only the restricting process and its children. From
    version 9, other unix sockets can be connected to only beneath `sockets`. `deny_tcp` needs version 4, and from version 10 it also
    denies UDP.

    Paths that do not exist, or contain a symlink, grant nothing. The caller has resolved all links, so a link there was planted since.

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
            raise SandboxError("This kernel has no Landlock, or it is disabled.")
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
        Apply the rules to this thread and its future children, irrevocably. Sets `no_new_privs`.

        Raises:
            SandboxError: the kernel refuses. The caller must not run the command.
        """
        _call(self._files.apply)
        for fd in self._fds[1:]:
            _call(syscall, "landlock_restrict_self", fd, 0)

    def close(self) -> None:
        # the package never closes its descriptor
        for fd in self._fds:
            os.close(fd)


def _rights(version: int) -> tuple[int, int, int]:
    """Return all rights that `version` can restrict: files, network, scopes."""
    known = [rights for since, rights in NEW_RIGHTS.items() if since <= version]
    files, network, scopes = map(sum, zip(*known, strict=True))
    return files, network, scopes


def _create_ruleset(files: int, network: int, scopes: int) -> int:
    attributes = struct.pack("=QQQ", files, network, scopes)
    return syscall("landlock_create_ruleset", attributes, len(attributes), 0)


def _without_files(network: int, scopes: int) -> int:
    """
    Return a ruleset for network and scopes that does not affect files.

    It must allow REFER explicitly. Older kernels (Linux 6.7 to about 6.14, `landlock_get_fs_access_mask`) forbid moving files between
    directories unless every ruleset of the stack allows it, even one without file rules.
    """
    ruleset = _create_ruleset(FSAccess.REFER, network, scopes)
    root = os.open("/", ONLY_PATH | os.O_CLOEXEC)
    syscall("landlock_add_rule", ruleset, PATH_BENEATH, struct.pack("=Qi", FSAccess.REFER, root), 0)
    os.close(root)
    return ruleset


def _open_literally(path: str) -> int | None:
    at_cwd, resolve_no_symlinks = -100, 0x04
    how = struct.pack("=QQQ", ONLY_PATH | os.O_CLOEXEC, 0, resolve_no_symlinks)
    try:
        return syscall("openat2", at_cwd, os.fsencode(path), how, len(how))
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP}:
            return None
        raise


def _call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """
    Call `function`, working around two bugs of the package.

    It takes an errno left by an earlier call for a failure. And when it explains an error, it raises ValueError on kernels with a release
    like "6.6.0+".
    """
    ctypes.set_errno(0)
    try:
        return function(*args, **kwargs)
    except (OSError, ValueError) as error:
        reason = os.strerror(getattr(error, "errno", ctypes.get_errno()))
        raise SandboxError(f"Landlock rejected the rules: {reason}.") from error
