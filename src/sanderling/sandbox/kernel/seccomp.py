"""
The system call filter: what a command may ask of the kernel at all.

A filter is a program in classic BPF that the kernel runs before each call. It sees the call's number and the words of its
arguments, never what a pointer points to. So it judges kinds of calls; files and addresses are for mounts and Landlock.

Whatever is not named here passes, up to the newest call this table was checked against. A newer one does not exist here, as on
the kernel of that time: no new way to mount, or to connect, enters with a kernel update. x32 calls fall under the same rule,
their numbers are higher still.

Every argument looked at is an int to the kernel, which drops the upper half of the register; so does the filter.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import struct
from collections.abc import Callable, Sequence

from sanderling.errors import SandboxError
from sanderling.sandbox.kernel.syscalls import MACHINE, number, prctl, syscall

NEWEST_KNOWN_CALL = 469  # file_setattr, Linux 6.17; the same number on every machine

DENIED = {
    "mounts and namespaces": "mount umount2 pivot_root chroot unshare setns move_mount open_tree"
    " open_tree_attr mount_setattr fsopen fsconfig fsmount fspick",
    "files by handle, past every path": "open_by_handle_at",
    "keys, which are the user's, whatever the namespaces": "keyctl add_key request_key",
    "other processes' descriptors and memory": "pidfd_getfd process_madvise move_pages migrate_pages",
    "code in the kernel, and views into it": "bpf perf_event_open userfaultfd fanotify_init"
    " lookup_dcookie init_module finit_module delete_module kexec_load kexec_file_load"
    " create_module get_kernel_syms query_module",
    "the machine: power, clock, swap, quotas, log, ports": "reboot swapon swapoff acct quotactl"
    " quotactl_fd syslog vhangup settimeofday clock_settime clock_adjtime iopl ioperm modify_ldt",
    "relics": "_sysctl nfsservctl sysfs uselib ustat vserver",
}

# These answer "no such call", for which programs have another way: a C library then uses clone, whose flags are a word and no
# pointer, and openat, likewise. For io_uring EPERM would be the plainer word, but older tokio, eio and libxev take it for fatal.
ABSENT = "clone3 openat2 io_uring_setup io_uring_enter io_uring_register"

# A set-user-ID file in the project makes every other user of the machine the user of this sandbox, and root in a container whose
# project is a bind mount makes them root outside. Mounts cannot help: inside they are nosuid, but the file is run elsewhere. So
# no call may carry these bits to a file, as with systemd's RestrictSUIDSGID= (systemd.exec(5)); O_TMPFILE, which that leaves out,
# makes files, too.
#
# S_ISGID on a directory is harmless, and git sets it in a repository with core.sharedRepository, but the filter does not know
# what a path or a descriptor is. Letting the bit pass where S_IXGRP is off, when it means nothing, does not help: directories
# have S_IXGRP, and an access list turns it on afterwards without chmod (posix_acl_update_mode keeps S_ISGID). Answering 0 and
# doing nothing would lie about the other bits. What remains works: a directory inherits the bit from the one above, for which
# no call is needed, so that git, tar and cp keep it; only to ask for it is refused. In mkdir the kernel ignores both bits (vfs_mkdir), so there S_ISGID passes.
S_ISUID, S_ISGID = 0o4000, 0o2000
MODE_COMES_FIRST, MODE_COMES_SECOND = "chmod fchmod mknod creat", "fchmodat fchmodat2 mknodat"
O_CREAT, O_TMPFILE_ALONE = 0o100, 0o20000000  # without its O_DIRECTORY, which others use

# Whoever opens a file that is leased waits until the lease is given back, 45 s if nobody does (lease-break-time): an editor that
# reloads a buffer, git, or the user's shell. F_SETDELEG (Linux 6.19) is the same for directories.
LEASES = (1024, 1040)  # F_SETLEASE F_SETDELEG

# Without namespaces of its own a command shares these with everything else of the user.
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
# Requests that type into a terminal, take over the console, or load a line discipline.
TERMINAL_IOCTLS = (0x5412, 0x541C, 0x541D, 0x5423)  # TIOCSTI TIOCLINUX TIOCCONS TIOCSETD

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET = 1, 2, 5
SOCK_TYPE_MASK = 0xF  # the rest are SOCK_CLOEXEC and SOCK_NONBLOCK
NETLINK_ROUTE = 0
# The default, ICMP, TCP, UDP, ICMPv6. Not MPTCP and SMC: TCP in all but name, which Landlock's TCP rules do not see.
INTERNET_PROTOCOLS = (0, 1, 6, 17, 58)
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1

AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

# BPF instructions: operation, jumps if true and if false, operand. Jumps are relative and fit in a byte.
Code = list[tuple[int, int, int, int]]
LOAD, AND, RETURN = 0x20, 0x54, 0x06
IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT = 0x15, 0x35, 0x45

NUMBER: Code = [(LOAD, 0, 0, 0)]
ARCHITECTURE: Code = [(LOAD, 0, 0, 4)]
ALLOW: Code = [(RETURN, 0, 0, 0x7FFF_0000)]


def program(*, has_namespaces: bool, has_host_network: bool, machine: str = MACHINE) -> bytes:
    """
    The filter for a command: inside namespaces of its own (or not), with the host's network (or none).

    Raises:
        SandboxError: the numbers of this machine's system calls are not known here.
    """
    if machine not in AUDIT_ARCH:
        raise SandboxError(
            f"There is no system call filter for {machine}, only for x86_64 and aarch64."
        )

    def calls(names: str) -> list[int]:
        return [nr for name in names.split() if (nr := number(name, machine)) is not None]

    rules = [
        *_mode_rules(calls),  # first, for nothing is called as often as openat
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
        (IF_EQUAL, 1, 0, AUDIT_ARCH[machine]),  # else 32-bit code, by int 0x80 for instance
        *_refuse(errno.ENOSYS),
        *NUMBER,
        (IF_AT_LEAST, 0, 1, NEWEST_KNOWN_CALL + 1),
        *_refuse(errno.ENOSYS),
        *_switch(NUMBER, rules, ALLOW),
    ]
    return _assemble(code)


def install(program: bytes) -> None:
    """
    Filter the calls of this thread and all its children, for good.

    Raises:
        OSError: the kernel has no seccomp filters, or does not take this one.
    """
    set_no_new_privs, set_mode_filter = 38, 1
    prctl(set_no_new_privs, 1)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(instructions))
    syscall("seccomp", set_mode_filter, 0, header)


def _mode_rules(calls: Callable[[str], list[int]]) -> list[tuple[list[int], Code]]:
    """The rules about whatever gives a file its mode."""
    return [
        (calls("openat"), _creation_rule(flags=2)),
        (calls("open"), _creation_rule(flags=1)),
        (calls(MODE_COMES_FIRST), _only_if_none(_argument(1), (S_ISUID, S_ISGID))),
        (calls(MODE_COMES_SECOND), _only_if_none(_argument(2), (S_ISUID, S_ISGID))),
        (calls("mkdir"), _only_if_none(_argument(1), (S_ISUID,))),
        (calls("mkdirat"), _only_if_none(_argument(2), (S_ISUID,))),
    ]


def _creation_rule(flags: int) -> Code:
    """The rule about opening, with `flags` in this argument and the mode, which counts only for a new file, in the next."""
    refusal = _only_if_none(_argument(flags + 1), (S_ISUID, S_ISGID))
    creates = O_CREAT | O_TMPFILE_ALONE
    return [*_argument(flags), (IF_ANY_BIT, 0, len(refusal), creates), *refusal, *ALLOW]


def _socket_rule(has_namespaces: bool, has_host_network: bool) -> Code:
    """
    The rule about sockets, which are what a command may talk through.

    Internet: streams and datagrams. Raw and packet sockets take a capability that nothing in here has. Netlink: the list of
    network interfaces.

    The filter cannot tell whom a unix socket is connected to. So where the host's are in sight, none can be connected: with
    the network off there is no connect, with it on there is no unix socket.
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
    # The types whose pairs stay pairs: connect says EISCONN. A datagram socket, of a pair or not, sends to any address that
    # sendmsg is given, and SOCK_RAW is another name for it.
    return _only(_argument(1, SOCK_TYPE_MASK), [SOCK_STREAM, SOCK_SEQPACKET], error=errno.EACCES)


# The assembler. A piece of code ends in a return on every path, so pieces follow each other without labels.


def _argument(index: int, mask: int | None = None) -> Code:
    """Load the lower half of an argument; both machines store it first."""
    load = (LOAD, 0, 0, 16 + 8 * index)
    return [load] if mask is None else [load, (AND, 0, 0, mask)]


def _refuse(error: int) -> Code:
    return [(RETURN, 0, 0, 0x0005_0000 | error)]


def _assemble(code: Code) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _switch(word: Code, cases: Sequence[tuple[Sequence[int], Code]], otherwise: Code) -> Code:
    """The code of the first case that lists the value of `word`."""
    code = list(word)
    for values, then in cases:
        if not values:
            continue  # this machine has no such call
        *others, last = values
        code += [(IF_EQUAL, len(others) - i, 0, value) for i, value in enumerate(others)]
        code += [(IF_EQUAL, 0, len(then), last), *then]
    return code + otherwise


def _only(word: Code, values: Sequence[int], then: Code = ALLOW, error: int = errno.EPERM) -> Code:
    return _switch(word, [(values, then)], _refuse(error))


def _only_if_none(word: Code, bits: Sequence[int]) -> Code:
    return [*word, (IF_ANY_BIT, 0, 1, sum(bits)), *_refuse(errno.EPERM), *ALLOW]
