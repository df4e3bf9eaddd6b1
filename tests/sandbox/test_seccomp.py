import ctypes
import errno
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox.kernel import seccomp
from sanderling.sandbox.kernel.syscalls import MACHINE, MACHINES, NUMBERS, number, syscall
from tests.conftest import prove_rest
from tests.sandbox.child import USERS, errno_of, in_child, open_directory

pytestmark = pytest.mark.guard

MODES = {
    "own namespaces": {"has_namespaces": True, "has_host_network": False},
    "own namespaces, network on": {"has_namespaces": True, "has_host_network": True},
    "no namespaces": {"has_namespaces": False, "has_host_network": False},
    "no namespaces, network on": {"has_namespaces": False, "has_host_network": True},
}
SHARED = ["no namespaces", "no namespaces, network on"]
# The upper half of a register, which the kernel drops where it takes an int.
IGNORED = 0xDEAD_BEEF << 32

EPERM, EACCES, ENOSYS = errno.EPERM, errno.EACCES, errno.ENOSYS
NEWUSER, NEWNS, NEWTIME, CLONE_VM, CLONE_THREAD = 0x1000_0000, 0x20000, 0x80, 0x100, 0x10000
TIOCSTI, TCGETS = 0x5412, 0x5401
TCP, UDP, MPTCP, SMC = 6, 17, 262, 256
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK, TIPC = 1, 2, 10, 16, 17, 38, 40, 30
STREAM, DGRAM, RAW, SEQPACKET, SOCK_PACKET = 1, 2, 3, 5, 10
CLOEXEC = 0x80000
CREATE, UNNAMED, CWD = os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_WRONLY, (1 << 64) - 100
SETUID, SETGID, FILE = 0o4755, 0o2755, 0o100000
GETFL, SETLEASE, GETLEASE, SETDELEG, NOTIFY = 3, 1024, 1025, 1040, 1026


# --- the numbers

HEADERS = {
    "x86_64": "#include <asm/unistd_64.h>\n",
    "aarch64": """
        #define __ARCH_WANT_RENAMEAT
        #define __ARCH_WANT_NEW_STAT
        #define __ARCH_WANT_SET_GET_RLIMIT
        #define __ARCH_WANT_TIME32_SYSCALLS
        #define __ARCH_WANT_SYS_CLONE3
        #define __ARCH_WANT_MEMFD_SECRET
        #include <asm-generic/unistd.h>
    """,
}


def numbers_in_headers(machine: str) -> dict[str, int]:
    cpp = shutil.which("cpp") or pytest.skip("no C preprocessor")
    macros = subprocess.run(
        [cpp, "-dM"], input=HEADERS[machine], capture_output=True, text=True, check=False
    )
    if macros.returncode:
        pytest.skip(f"no kernel headers for {machine}: {macros.stderr}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)$", macros.stdout, re.MULTILINE)
    return {name: int(value) for name, value in found if name != "syscalls"}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel_headers(machine, record_property):
    headers = numbers_in_headers(machine)
    ours = {name: number(name, machine) for name in NUMBERS}
    unknown = {name: nr for name, nr in ours.items() if nr and name not in headers}
    print("newer or older than the headers:", unknown)
    record_property("unknown_to_the_headers", unknown)
    assert {n: nr for n, nr in ours.items() if n in headers} == {
        n: nr for n, nr in headers.items() if n in ours
    }
    assert all(nr > max(headers.values()) for nr in unknown.values())


def test_every_call_of_the_headers_is_below_the_newest_that_the_filter_knows():
    assert max(numbers_in_headers("aarch64").values()) <= seccomp.NEWEST_KNOWN_CALL


# --- the filter, interpreted: any machine's, here


def interpret(program: bytes, data: bytes) -> int:
    """Run classic BPF as the kernel does; the instructions that a filter of ours may hold."""
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator = position = 0
    while True:
        operation, if_true, if_false, k = code[position]
        position += 1
        match operation:
            case 0x20:  # ld [k]
                (accumulator,) = struct.unpack_from("=I", data, k)
            case 0x54:  # and #k
                accumulator &= k
            case 0x15:  # jeq
                position += if_true if accumulator == k else if_false
            case 0x35:  # jge
                position += if_true if accumulator >= k else if_false
            case 0x45:  # jset
                position += if_true if accumulator & k else if_false
            case 0x06:  # ret #k
                return k
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


def verdict(mode: str, machine: str, nr: int, *args: int, arch: int | None = None) -> int:
    """0 when the call passes, else the errno that it is answered with."""
    program = seccomp.program(**MODES[mode], machine=machine)
    arguments = [*args, *[0] * (6 - len(args))]
    data = struct.pack("=IIQ6Q", nr, arch or seccomp.AUDIT_ARCH[machine], 0, *arguments)
    answer = interpret(program, data)
    assert answer == 0x7FFF0000 or answer >> 16 == 0x0005
    return 0 if answer == 0x7FFF0000 else answer & 0xFFFF


EVERYWHERE = [
    ("read", (), 0),
    ("ptrace", (), 0),
    ("clone", (signal.SIGCHLD,), 0),
    ("clone", (CLONE_VM | CLONE_THREAD,), 0),
    ("clone", (NEWUSER | signal.SIGCHLD,), EPERM),
    ("clone", (NEWNS | IGNORED,), EPERM),
    ("clone", (signal.SIGCHLD | NEWUSER << 32,), 0),
    ("clone3", (), ENOSYS),
    ("unshare", (NEWUSER,), EPERM),
    ("setns", (), EPERM),
    ("mount", (), EPERM),
    ("open_tree_attr", (), EPERM),
    ("keyctl", (), EPERM),
    ("bpf", (), EPERM),
    ("io_uring_setup", (), ENOSYS),
    ("io_uring_enter", (), ENOSYS),
    ("openat2", (), ENOSYS),
    *(
        (name, (*before, mode), EPERM if mode & 0o6000 else 0)
        for name, before in (
            ("chmod", (0,)),
            ("fchmod", (0,)),
            ("fchmodat", (CWD, 0)),
            ("fchmodat2", (CWD, 0)),
            ("mknod", (0,)),
            ("mknodat", (CWD, 0)),
            ("creat", (0,)),
            ("open", (0, CREATE)),
            ("open", (0, UNNAMED)),
            ("openat", (CWD, 0, CREATE)),
            ("openat", (CWD, 0, UNNAMED)),
        )
        for mode in (0o1777, SETUID, SETGID, FILE | SETUID, FILE | 0o2644, SETUID | IGNORED)
    ),
    # Nothing is made, so the mode is whatever was there.
    ("openat", (CWD, 0, os.O_RDWR, SETUID), 0),
    ("openat", (CWD, 0, os.O_DIRECTORY, SETUID), 0),
    ("openat", (CWD, 0, CREATE | IGNORED, SETUID), EPERM),
    ("mkdir", (0, SETGID), 0),
    ("mkdirat", (CWD, 0, SETGID), 0),
    ("mkdirat", (CWD, 0, SETUID), EPERM),
    *(("fcntl", (0, command), 0) for command in (0, GETFL, GETLEASE, NOTIFY)),
    ("fcntl", (0, SETLEASE), EPERM),
    ("fcntl", (0, SETLEASE | IGNORED), EPERM),
    ("fcntl", (0, SETDELEG), EPERM),
    ("ioctl", (0, TCGETS), 0),
    ("ioctl", (0, TIOCSTI), EPERM),
    ("ioctl", (0, TIOCSTI | IGNORED), EPERM),
    ("ioctl", (0, 0x541C), EPERM),
    ("ioctl", (0, 0x541D), EPERM),
    ("ioctl", (0, 0x5423), EPERM),
    ("socket", (PACKET, RAW), EACCES),
    ("socket", (ALG, SEQPACKET), EACCES),
    ("socket", (VSOCK, STREAM), EACCES),
    ("socket", (VSOCK | IGNORED, STREAM), EACCES),
    ("socket", (INET, RAW, 1), EACCES),
    ("socket", (INET6, RAW | CLOEXEC, 58), EACCES),
    ("socket", (INET, RAW | IGNORED, 1), EACCES),
    ("socket", (INET, SOCK_PACKET), EACCES),
    ("socket", (NETLINK, RAW, 9), EACCES),  # NETLINK_AUDIT
    ("socketpair", (UNIX, STREAM), 0),
    ("socketpair", (UNIX, STREAM | CLOEXEC), 0),
    ("socketpair", (UNIX, SEQPACKET), 0),
    ("socketpair", (TIPC, SEQPACKET), EACCES),
]
WITH_INTERNET = [
    ("socket", (INET, STREAM, 0), 0),
    ("socket", (INET | IGNORED, STREAM | CLOEXEC, TCP), 0),
    ("socket", (INET6, DGRAM, UDP), 0),
    ("socket", (INET, DGRAM, 1), 0),  # ping
    ("socket", (INET, STREAM, MPTCP), errno.EPROTONOSUPPORT),
    ("socket", (INET6, STREAM, MPTCP | IGNORED), errno.EPROTONOSUPPORT),
    ("socket", (INET, STREAM, SMC), errno.EPROTONOSUPPORT),
    ("socket", (NETLINK, RAW | CLOEXEC, 0), 0),
    ("connect", (), 0),
]
WITH_NAMESPACES = [
    ("socket", (UNIX, STREAM), 0),
    ("socket", (UNIX, DGRAM), 0),
    ("socketpair", (UNIX, DGRAM), 0),
    ("connect", (), 0),
    ("shmget", (), 0),
    ("mq_open", (), 0),
    ("prlimit64", (1,), 0),
    ("setpriority", (2, 0), 0),
]
WITHOUT_NAMESPACES = [
    ("socketpair", (UNIX, DGRAM), EACCES),
    ("socketpair", (UNIX, RAW), EACCES),
    ("socketpair", (UNIX, DGRAM | CLOEXEC | IGNORED), EACCES),
    ("shmget", (), EPERM),
    ("shmctl", (), EPERM),
    ("semop", (), EPERM),
    ("mq_open", (), EPERM),
    ("mq_unlink", (), EPERM),
    ("prlimit64", (0,), 0),
    ("prlimit64", (1 << 32,), 0),
    ("prlimit64", (1,), EPERM),
    ("prlimit64", (1 | IGNORED,), EPERM),
    ("sched_setaffinity", (0,), 0),
    ("sched_setaffinity", (1,), EPERM),
    ("setpriority", (0, 0), 0),
    ("setpriority", (0, 1), EPERM),
    ("setpriority", (2, 0), EPERM),  # PRIO_USER, 0: every process of the user
    ("ioprio_set", (1, 0), 0),
    ("ioprio_set", (1, 1), EPERM),
    ("ioprio_set", (3, 0), EPERM),  # IOPRIO_WHO_USER, 0
]
WITHOUT_ANYTHING = [
    ("socket", (UNIX, STREAM), 0),
    ("socket", (UNIX, SEQPACKET | CLOEXEC), 0),
    ("socket", (UNIX, DGRAM), EACCES),
    ("socket", (UNIX, RAW), EACCES),
    ("socket", (INET, STREAM), EACCES),
    ("socket", (INET6, DGRAM), EACCES),
    ("socket", (NETLINK, RAW, 0), EACCES),
    ("connect", (), EACCES),
]
EXPECTED = {
    "own namespaces": EVERYWHERE + WITH_INTERNET + WITH_NAMESPACES,
    "own namespaces, network on": EVERYWHERE + WITH_INTERNET + WITH_NAMESPACES,
    "no namespaces": EVERYWHERE + WITHOUT_NAMESPACES + WITHOUT_ANYTHING,
    "no namespaces, network on": [
        *EVERYWHERE,
        *WITH_INTERNET,
        *WITHOUT_NAMESPACES,
        ("socket", (UNIX, STREAM), EACCES),  # Neovim's own socket is one connect away
    ],
}
HARMLESS = {"read": (0, 63)}  # calls that the table need not know


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("mode", MODES)
def test_each_call_gets_the_verdict_of_its_mode(mode, machine):
    column = MACHINES.index(machine)
    wrong = []
    for name, args, expected in EXPECTED[mode]:
        nr = (NUMBERS | HARMLESS)[name][column]
        if nr is None:
            continue  # of another machine
        if (got := verdict(mode, machine, nr, *args)) != expected:
            wrong.append((name, args, errno.errorcode.get(got, "allowed")))
    assert not wrong


@pytest.mark.parametrize("machine", prove_rest(MACHINES, is_one=True))
@pytest.mark.parametrize("mode", MODES)
def test_every_denied_call_is_denied_and_no_other_plain_call(mode, machine):
    denied = {number(name, machine) for group in seccomp.DENIED.values() for name in group.split()}
    absent = {number(name, machine) for name in seccomp.ABSENT.split()}
    by_argument = "clone ioctl fcntl socket socketpair connect open openat mkdir mkdirat"
    by_argument += f" {seccomp.MODE_COMES_FIRST} {seccomp.MODE_COMES_SECOND}"
    judged = {number(name, machine) for name in by_argument.split()}
    shared = f"{seccomp.SHARED_IPC} {seccomp.PID_COMES_FIRST} setpriority ioprio_set".split()
    for nr in (
        set(range(seccomp.NEWEST_KNOWN_CALL + 1)) - judged - {number(n, machine) for n in shared}
    ):
        expected = EPERM if nr in denied else ENOSYS if nr in absent else 0
        assert verdict(mode, machine, nr) == expected, nr


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("mode", MODES)
def test_newer_calls_x32_calls_and_foreign_machines_do_not_exist(mode, machine):
    newest = seccomp.NEWEST_KNOWN_CALL
    assert verdict(mode, machine, newest) == 0
    for nr in (newest + 1, 0x4000_0000 | 41, 0x4000_0000 | 520, 0xFFFF_FFFF):
        assert verdict(mode, machine, nr) == ENOSYS
    i386, arm = 0x4000_0003, 0x4000_0028
    other = next(arch for name, arch in seccomp.AUDIT_ARCH.items() if name != machine)
    for arch in (i386, arm, other):
        assert verdict(mode, machine, HARMLESS["read"][0], arch=arch) == ENOSYS


def test_a_machine_without_a_table_has_no_filter():
    with pytest.raises(SandboxError, match="riscv64"):
        seccomp.program(has_namespaces=True, has_host_network=False, machine="riscv64")


# --- the filter, installed

needs_filter = pytest.mark.skipif(MACHINE not in MACHINES, reason="no filter for this machine")
users = pytest.mark.parametrize("uid", prove_rest(USERS, keep=(-1,)))


def under(mode: str | None, function, uid):
    """What `function` returns under the filter; without one for None."""

    def filtered():
        if mode:
            seccomp.install(seccomp.program(**MODES[mode]))
        return function()

    return in_child(filtered, uid)


def clone_user_namespace() -> None:
    if syscall("clone", NEWUSER | signal.SIGCHLD, None, None, None, None) == 0:
        os._exit(0)
    os.wait()


ATTEMPTS = {  # what anybody may do outside
    "user namespace": lambda: syscall("unshare", NEWUSER),
    "user namespace by clone": clone_user_namespace,
    "io_uring": lambda: syscall("io_uring_setup", 1, bytes(120)),
    "session keyring": lambda: syscall("keyctl", 0, -3, 1),
    "userfaultfd": lambda: syscall("userfaultfd", 1),
    "vsock": lambda: socket.socket(VSOCK, STREAM),
    "alg": lambda: socket.socket(ALG, SEQPACKET),
    "uevents": lambda: socket.socket(NETLINK, RAW, 15),
}
ON_THE_SHARED_HOST = {
    "shared memory": lambda: syscall("shmget", 0, 4096, 0o1600),
    "message queue": lambda: syscall("msgget", 0, 0o1600),
    "limits of the parent": lambda: syscall("prlimit64", os.getppid(), 7, None, bytes(16)),
    "datagram pair": lambda: socket.socketpair(UNIX, DGRAM),
    "datagram pair by its other name": lambda: socket.socketpair(UNIX, RAW),
}


@needs_filter
@users
@pytest.mark.parametrize("mode", prove_rest(MODES, keep=(-1,)))
def test_what_anybody_may_do_outside_is_refused_inside(mode, uid):
    attempts = ATTEMPTS | (ON_THE_SHARED_HOST if mode in SHARED else {})

    def outcomes():
        return {name: errno_of(attempt) for name, attempt in attempts.items()}

    # Some of it this kernel or this user may lack; that is no proof, and no failure.
    outside = {name: in_child(lambda a=a: errno_of(a), uid) for name, a in attempts.items()}
    possible = {name for name, error in outside.items() if error == 0}
    print("not possible outside either:", set(attempts) - possible)
    assert possible
    inside = under(mode, outcomes, uid)
    assert all(inside[name] in {EPERM, EACCES, ENOSYS} for name in attempts), inside


@needs_filter
@users
def test_the_upper_half_of_a_register_hides_no_ioctl(uid):
    def ioctl():
        with Path("/dev/null").open("rb") as null:
            return [
                errno_of(syscall, "ioctl", null.fileno(), request, 0)
                for request in (TIOCSTI, TIOCSTI | 1 << 40, TCGETS)
            ]

    assert under(None, ioctl, uid) == [errno.ENOTTY] * 3
    assert under("own namespaces", ioctl, uid) == [EPERM, EPERM, errno.ENOTTY]


@pytest.mark.skipif(MACHINE != "x86_64", reason="int 0x80 is of x86")
@users
def test_32_bit_calls_do_not_exist(uid):
    def getpid_by_int_0x80():
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(code))
        return ctypes.CFUNCTYPE(ctypes.c_int)(address)() + ENOSYS

    assert under("own namespaces", getpid_by_int_0x80, uid) == 0


@needs_filter
@users
@pytest.mark.parametrize("mode", SHARED)
def test_no_unix_socket_reaches_one_of_the_host(mode, uid):
    """Every type, alone and paired, by connect and by an address given to sendmsg."""
    with open_directory() as directory, ExitStack() as listeners:
        host = []
        for kind in (STREAM, SEQPACKET, DGRAM):
            listener = listeners.enter_context(socket.socket(UNIX, kind))
            listener.bind(str(directory / str(kind)))
            (directory / str(kind)).chmod(0o777)
            listener.setblocking(False)
            if kind != DGRAM:
                listener.listen()
            host.append(listener)

        def try_all():
            made = []
            for kind in (STREAM, SEQPACKET, DGRAM, RAW):
                errno_of(lambda kind=kind: made.append(socket.socket(UNIX, kind)))
                errno_of(lambda kind=kind: made.extend(socket.socketpair(UNIX, kind)))
            for sock in made:
                for name in directory.iterdir():
                    errno_of(sock.sendmsg, [b"out"], [], socket.MSG_DONTWAIT, str(name))
                    errno_of(sock.connect, str(name))
            return len(made)

        def accept(listener):
            listener.accept()[0].close()

        def reached():
            stream, packets, datagrams = host
            return [
                errno_of(accept, stream),
                errno_of(accept, packets),
                errno_of(datagrams.recv, 1),
            ]

        assert under(mode, try_all, uid) >= 4  # the stream and packet pairs
        assert reached() == [errno.EAGAIN] * 3
        under(None, try_all, uid)
        assert reached() == [0] * 3


@needs_filter
@users
@pytest.mark.parametrize("mode", MODES)
def test_threads_processes_and_stream_pairs_work(mode, uid):
    def develop():
        thread = threading.Thread(target=print)
        thread.start()
        thread.join()
        ours, theirs = socket.socketpair()
        ours.sendall(b"hello")
        pid = os.posix_spawn(
            "/bin/sh", ["sh", "-c", "exit $(echo 7 | cat)"], {"PATH": "/usr/bin:/bin"}
        )
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)
        return theirs.recv(5), status

    assert under(mode, develop, uid) == (b"hello", 7)


@needs_filter
@users
def test_a_unix_socket_can_be_listened_on_where_none_can_be_connected(uid):
    def listen():
        listener = socket.socket(UNIX, STREAM)
        listener.bind(f"\0sanderling-test-{os.getpid()}")
        listener.listen()
        client = socket.socket(UNIX, STREAM)
        return errno_of(client.connect, listener.getsockname())

    assert under("no namespaces", listen, uid) == EACCES
    assert under("own namespaces", listen, uid) == 0
