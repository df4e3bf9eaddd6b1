"""
The system call filter: which kernel calls a command may make.

The filter is a classic BPF program that the kernel runs before each call. It sees the call's number and its argument words, never what a
pointer points to. So it judges kinds of calls; files and addresses are left to mounts and Landlock. Handing calls to a user-space
supervisor (SECCOMP_RET_USER_NOTIF) could read the paths behind pointers, but the program may change them between check and use.

Calls not named here are allowed, up to the newest call that this table was checked against. Newer ones fail as they would on a kernel of
that time, so a kernel update adds no new way to mount or connect. The same rule catches x32 calls, whose numbers are higher still.

The kernel takes every argument checked here as an int, dropping the upper half of the register. So does the filter.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import struct
from collections.abc import Callable, Sequence

from sanderling.errors import SandboxError
from sanderling.sandbox.kernel.syscalls import MACHINE, number, prctl, syscall

NEWEST_KNOWN_CALL = 469  # file_setattr, Linux 6.17; same number on all architectures

# ptrace is not in this list: Landlock and the pid namespace confine it, and LeakSanitizer, gdb and strace need it.
DENIED = {
    "mounts and namespaces": "mount umount2 pivot_root chroot unshare setns move_mount open_tree"
    " open_tree_attr mount_setattr fsopen fsconfig fsmount fspick",
    "files opened by handle, bypassing paths": "open_by_handle_at",
    "keys, which the user's processes share across namespaces": "keyctl add_key request_key",
    "other processes' descriptors and memory": "pidfd_getfd process_madvise move_pages migrate_pages",
    "kernel code and introspection": "bpf perf_event_open userfaultfd fanotify_init"
    " lookup_dcookie init_module finit_module delete_module kexec_load kexec_file_load"
    " create_module get_kernel_syms query_module",
    "the machine: power, clock, swap, quotas, log, ports": "reboot swapon swapoff acct quotactl"
    " quotactl_fd syslog vhangup settimeofday clock_settime clock_adjtime iopl ioperm modify_ldt",
    "obsolete calls": "_sysctl nfsservctl sysfs uselib ustat vserver",
}

# These fail with ENOSYS, for which programs have a fallback: the C library uses clone, with its flags in a register instead of behind a
# pointer, and openat likewise. EPERM would be the natural error for io_uring, but older tokio, eio and libxev treat it as fatal.
ABSENT = "clone3 openat2 io_uring_setup io_uring_enter io_uring_register"

# A set-user-ID file in the project would let every other user of the machine act as this user. In a container that runs as root, with
# the project as a bind mount, it would make them root outside. Mounts do not help: they are nosuid inside, but the file is executed
# outside. So no call may set these bits, as with systemd's RestrictSUIDSGID= (systemd.exec(5)), which does not cover O_TMPFILE.
#
# S_ISGID on a directory is harmless, and git sets it in repositories with core.sharedRepository. But the filter cannot tell directories
# from files behind a path or descriptor. Allowing the bit while S_IXGRP is off, when it has no meaning, does not help: directories have
# S_IXGRP, and an ACL can turn it on later without chmod (posix_acl_update_mode keeps S_ISGID). Returning 0 without effect would be wrong
# about the other bits. What remains works: a new directory inherits the bit from its parent without a call, so git, tar and cp preserve
# it, and only setting it explicitly is refused. mkdir ignores both bits (vfs_mkdir), so S_ISGID may pass there.
S_ISUID, S_ISGID = 0o4000, 0o2000
MODE_COMES_FIRST, MODE_COMES_SECOND = "chmod fchmod mknod creat", "fchmodat fchmodat2 mknodat"
O_CREAT, O_TMPFILE_ALONE = 0o100, 0o20000000  # without its O_DIRECTORY bit, which other opens use

# Opening a leased file blocks until the lease is returned, or for 45 s (lease-break-time). That would block an editor that reloads a
# buffer, git, or the user's shell. F_SETDELEG (Linux 6.19) does the same for directories.
LEASES = (1024, 1040)  # F_SETLEASE F_SETDELEG

# Without its own namespaces, a command shares these with all processes of the user.
SHARED_IPC = "mq_open mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmget"
PID_COMES_FIRST = "prlimit64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler"

CLONE_NEW_NAMESPACES = (
    0x0002_0000,  # NEWNS
    0x0200_0000,  # NEWCGROUP
    0x0400_0000,  # NEWUTS
    0x0800_0000,  # NEWIPC
    0x1000_0000,  # NEWUSER
    0x2000_0000,  # NEWPID
    0x4000_0000,  # NEWNET
)
# Requests that inject terminal input, take over the console, or load a line discipline.
TERMINAL_IOCTLS = (0x5412, 0x541C, 0x541D, 0x5423)  # TIOCSTI TIOCLINUX TIOCCONS TIOCSETD

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET = 1, 2, 5
SOCK_TYPE_MASK = 0xF  # the rest are SOCK_CLOEXEC and SOCK_NONBLOCK
NETLINK_ROUTE = 0
# Default, ICMP, TCP, UDP, ICMPv6. Not MPTCP and SMC: they carry TCP connections that Landlock's TCP rules do not see.
INTERNET_PROTOCOLS = (0, 1, 6, 17, 58)
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1

AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

# BPF instructions: operation, jump offset if true, jump offset if false, operand. Jumps are relative and fit into a byte.
Code = list[tuple[int, int, int, int]]
LOAD, AND, RETURN = 0x20, 0x54, 0x06
IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT = 0x15, 0x35, 0x45

NUMBER: Code = [(LOAD, 0, 0, 0)]
ARCHITECTURE: Code = [(LOAD, 0, 0, 4)]
ALLOW: Code = [(RETURN, 0, 0, 0x7FFF_0000)]


def program(*, has_namespaces: bool, has_host_network: bool, machine: str = MACHINE) -> bytes:
    """
    Return the filter for a command.

    Raises:
        SandboxError: the system call numbers of this architecture are unknown.
    """
    if machine not in AUDIT_ARCH:
        raise SandboxError(f"No system call filter for {machine}, only for x86_64 and aarch64.")

    def calls(names: str) -> list[int]:
        return [nr for name in names.split() if (nr := number(name, machine)) is not None]

    rules = [
        *_mode_rules(calls),  # openat first, because it is called most often
        (calls("fcntl"), _switch(_argument(1), [(LEASES, _refuse(errno.EPERM))], ALLOW)),
        (calls(" ".join(DENIED.values())), _refuse(errno.EPERM)),
        (calls(ABSENT), _refuse(errno.ENOSYS)),
        (calls("clone"), _only_if_none(_argument(0), CLONE_NEW_NAMESPACES)),
        (calls("ioctl"), _switch(_argument(1), [(TERMINAL_IOCTLS, _refuse(errno.EPERM))], ALLOW)),
        (calls("socket"), _socket_rule(has_namespaces, has_host_network)),
        (calls("socketpair"), _socketpair_rule(has_namespaces)),
    ]
    if not has_namespaces:
        of_process = _only(_argument(1), [0])
        rules += [
            (calls(SHARED_IPC), _refuse(errno.EPERM)),
            (calls(PID_COMES_FIRST), _only(_argument(0), [0])),
            (calls("setpriority"), _only(_argument(0), [PRIO_PROCESS], of_process)),
            (calls("ioprio_set"), _only(_argument(0), [IOPRIO_WHO_PROCESS], of_process)),
        ]
        if not has_host_network:
            rules.append((calls("connect"), _refuse(errno.EACCES)))

    code = [
        *ARCHITECTURE,
        (IF_EQUAL, 1, 0, AUDIT_ARCH[machine]),  # otherwise 32-bit code, e.g. int 0x80
        *_refuse(errno.ENOSYS),
        *NUMBER,
        (IF_AT_LEAST, 0, 1, NEWEST_KNOWN_CALL + 1),
        *_refuse(errno.ENOSYS),
        *_switch(NUMBER, rules, ALLOW),
    ]
    return _assemble(code)


def install(program: bytes) -> None:
    """
    Install the filter for this thread and its future children, irrevocably.

    Raises:
        OSError: the kernel has no seccomp filters, or rejects this one.
    """
    set_no_new_privs, set_mode_filter = 38, 1
    prctl(set_no_new_privs, 1)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(instructions))
    syscall("seccomp", set_mode_filter, 0, header)


def _mode_rules(calls: Callable[[str], list[int]]) -> list[tuple[list[int], Code]]:
    """Return the rules for all calls that set a file's mode."""
    return [
        (calls("openat"), _creation_rule(flags=2)),
        (calls("open"), _creation_rule(flags=1)),
        (calls(MODE_COMES_FIRST), _only_if_none(_argument(1), (S_ISUID, S_ISGID))),
        (calls(MODE_COMES_SECOND), _only_if_none(_argument(2), (S_ISUID, S_ISGID))),
        (calls("mkdir"), _only_if_none(_argument(1), (S_ISUID,))),
        (calls("mkdirat"), _only_if_none(_argument(2), (S_ISUID,))),
    ]


def _creation_rule(flags: int) -> Code:
    """Return the rule for an open call: argument `flags` has the flags, the next one the mode, which matters only if a file is created."""
    refusal = _only_if_none(_argument(flags + 1), (S_ISUID, S_ISGID))
    creates = O_CREAT | O_TMPFILE_ALONE
    return [*_argument(flags), (IF_ANY_BIT, 0, len(refusal), creates), *refusal, *ALLOW]


def _socket_rule(has_namespaces: bool, has_host_network: bool) -> Code:
    """
    Return the rule for sockets.

    Internet sockets: streams and datagrams. Raw and packet sockets need a capability that commands do not have. Netlink: only the list of
    network interfaces.

    The filter cannot see which unix socket a program connects to. So where the host's sockets are reachable, no connection is allowed:
    with the network off, connect is refused; with it on, unix sockets are. An earlier version allowed unix sockets with the network on,
    and a command could drive the user's Neovim through its RPC socket.
    """
    internet = _only(
        _argument(1, SOCK_TYPE_MASK),
        [SOCK_STREAM, SOCK_DGRAM],
        _only(_argument(2), INTERNET_PROTOCOLS, error=errno.EPROTONOSUPPORT),
        error=errno.EACCES,
    )
    families: list[tuple[list[int], Code]] = []
    if has_namespaces or has_host_network:
        netlink = _only(_argument(2), [NETLINK_ROUTE], error=errno.EACCES)
        families += [([AF_INET, AF_INET6], internet), ([AF_NETLINK], netlink)]
    if has_namespaces:
        families.append(([AF_UNIX], ALLOW))
    elif not has_host_network:
        families.append(([AF_UNIX], _unix_stream()))
    return _switch(_argument(0), families, _refuse(errno.EACCES))


def _socketpair_rule(has_namespaces: bool) -> Code:
    return _only(
        _argument(0), [AF_UNIX], ALLOW if has_namespaces else _unix_stream(), error=errno.EACCES
    )


def _unix_stream() -> Code:
    # Pairs of these types stay pairs: connect fails with EISCONN. A datagram socket, paired or not, sends to any address that is passed
    # to sendmsg, and SOCK_RAW is an alias for it.
    return _only(_argument(1, SOCK_TYPE_MASK), [SOCK_STREAM, SOCK_SEQPACKET], error=errno.EACCES)


# The assembler. Each piece of code returns on every path, so pieces can be concatenated without labels. libseccomp would add a shared
# library and nothing that these few functions lack.


def _argument(index: int, mask: int | None = None) -> Code:
    """Load the lower half of an argument, which both architectures store first."""
    load = (LOAD, 0, 0, 16 + 8 * index)
    return [load] if mask is None else [load, (AND, 0, 0, mask)]


def _refuse(error: int) -> Code:
    return [(RETURN, 0, 0, 0x0005_0000 | error)]


def _assemble(code: Code) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _switch(word: Code, cases: Sequence[tuple[Sequence[int], Code]], otherwise: Code) -> Code:
    """Return code that runs the first case listing the value of `word`."""
    code = list(word)
    for values, then in cases:
        if not values:
            continue  # this architecture lacks the call
        *others, last = values
        code += [(IF_EQUAL, len(others) - i, 0, value) for i, value in enumerate(others)]
        code += [(IF_EQUAL, 0, len(then), last), *then]
    return code + otherwise


def _only(word: Code, values: Sequence[int], then: Code = ALLOW, error: int = errno.EPERM) -> Code:
    return _switch(word, [(values, then)], _refuse(error))


def _only_if_none(word: Code, bits: Sequence[int]) -> Code:
    return [*word, (IF_ANY_BIT, 0, 1, sum(bits)), *_refuse(errno.EPERM), *ALLOW]
