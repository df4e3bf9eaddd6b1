"""
Run a command as on an older or a more closed kernel: a seccomp filter answers some calls the way that kernel would.

    python3 older_kernel.py [--landlock-abi N] [--no-landlock] [--no-user-namespaces] -- COMMAND...

A filter alone can only give an error. The version of Landlock is a positive answer, which needs a second process: the filter
hands `landlock_create_ruleset` to it, and it answers in the kernel's place (seccomp's user notification). A ruleset with rights
newer than the version is refused, as an old kernel would refuse it.
"""

import argparse
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
LANDLOCK = (444, 445, 446)
CREATE_RULESET = 444
NUMBERS = {  # name: (x86_64, aarch64)
    "clone": (56, 220),
    "clone3": (435, 435),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "open_tree": (428, 428),
    "setns": (308, 268),
    "umount2": (166, 39),
    "unshare": (272, 97),
}
NEW_NAMESPACES = 0x7E020000
LOAD, IF_EQUAL, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
NEW_LISTENER = 8
NOTIF_RECV, NOTIF_SEND = 0xC0502100, 0xC0182101
CONTINUE = 1
# The rights on files, on the network, and the scopes that each version knows; 0 bits: not even the field.
KNOWN = {
    1: (13, 0, 0),
    2: (14, 0, 0),
    3: (15, 0, 0),
    4: (15, 2, 0),
    5: (16, 2, 0),
    6: (16, 2, 2),
    7: (16, 2, 2),
}

libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    split = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--landlock-abi", type=int, default=0)
    parser.add_argument("--no-landlock", action="store_true")
    parser.add_argument("--no-user-namespaces", action="store_true")
    parser.add_argument("--no-mount-setattr", action="store_true")
    options = parser.parse_args(sys.argv[1:split])
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        listener = install(filter_program(options))
        if listener >= 0:
            socket.send_fds(theirs, [b"x"], [listener])
            os.close(listener)
        theirs.close()
        os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])
    theirs.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    listener = next(iter(socket.recv_fds(ours, 1, 1)[1]), -1)
    return supervise(child, listener, options.landlock_abi)


def filter_program(options: argparse.Namespace) -> bytes:
    """Instructions for every call that is answered differently."""
    column = list(ARCHES).index(os.uname().machine)
    code = [(LOAD, 0, 0, 4), (IF_EQUAL, 1, 0, ARCHES[os.uname().machine]), (RETURN, 0, 0, ALLOW)]
    code.append((LOAD, 0, 0, 0))

    def answer(number: int, value: int) -> None:
        code.extend([(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, value)])

    if options.no_landlock:
        for number in LANDLOCK:
            answer(number, ERRNO | errno.ENOSYS)
    elif options.landlock_abi:
        answer(CREATE_RULESET, NOTIFY)
    if options.no_mount_setattr:
        answer(NUMBERS["mount_setattr"][column], ERRNO | errno.ENOSYS)
    if options.no_user_namespaces:
        # What Docker's default profile answers.
        for name in ("unshare", "mount", "umount2", "setns", "open_tree", "mount_setattr"):
            answer(NUMBERS[name][column], ERRNO | errno.EPERM)
        answer(NUMBERS["clone3"][column], ERRNO | errno.ENOSYS)
        code.extend(
            [
                (IF_EQUAL, 0, 3, NUMBERS["clone"][column]),
                (LOAD, 0, 0, 16),
                (IF_ANY_BIT, 0, 1, NEW_NAMESPACES),
                (RETURN, 0, 0, ERRNO | errno.EPERM),
            ]
        )
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def install(program: bytes) -> int:
    """The listener's descriptor, where the filter asks someone; -1 where it does not."""
    libc.prctl(38, 1, 0, 0, 0)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(instructions))
    has_listener = struct.pack("=I", NOTIFY) in program
    number = 317 if os.uname().machine == "x86_64" else 277
    result = libc.syscall(number, 1, NEW_LISTENER if has_listener else 0, header)
    if result < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return result if has_listener else -1


def supervise(child: int, listener: int, abi: int) -> int:
    """Answer until the command has ended; its status is ours."""
    pidfd = os.pidfd_open(child)
    sources = [pidfd] if listener < 0 else [pidfd, listener]
    while True:
        ready = select.select(sources, [], [])[0]
        if listener in ready:
            answer_one(listener, abi)
        if pidfd in ready:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return status if status >= 0 else 128 - status


def answer_one(listener: int, abi: int) -> None:
    request = bytearray(80)
    try:
        fcntl.ioctl(listener, NOTIF_RECV, request)
    except OSError:
        return  # the caller is gone
    identity, pid, _flags = struct.unpack_from("=QII", request)
    attributes, size, flags = struct.unpack_from("=QQQ", request, 32)
    value, error, answer_flags = 0, 0, CONTINUE
    if flags == 1:
        value, answer_flags = abi, 0
    elif flags or not is_known(pid, attributes, size, abi):
        error, answer_flags = -errno.EINVAL, 0
    try:
        fcntl.ioctl(
            listener, NOTIF_SEND, struct.pack("=QqiI", identity, value, error, answer_flags)
        )
    except OSError:
        return


def is_known(pid: int, address: int, size: int, abi: int) -> bool:
    """Whether a kernel of that version takes the ruleset that lies at `address` in `pid`."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        words = struct.unpack("=QQQ", os.pread(memory, min(size, 24), address).ljust(24, b"\0"))
    finally:
        os.close(memory)
    return all(word >> bits == 0 for word, bits in zip(words, KNOWN[abi], strict=True))


if __name__ == "__main__":
    sys.exit(main())
