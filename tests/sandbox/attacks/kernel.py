"""System calls that Python does not wrap, for attacks: numbers, constants, and one function that raises OSError."""

import ctypes
import os
import signal

MACHINE = os.uname().machine
NUMBERS = {  # name: (x86_64, aarch64)
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmodat2": (452, 452),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "mq_timedreceive": (243, 183),
    "mq_timedsend": (242, 182),
    "msgctl": (71, 187),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "openat2": (437, 437),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "semctl": (66, 191),
    "setns": (308, 268),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "move_pages": (279, 239),
}

NEWNS, NEWUTS, NEWIPC, NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
NEWPID, NEWNET, NEWTIME = 0x20000000, 0x40000000, 0x80
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 0x1000, 0x4000, 1 << 18

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def syscall(name: str, *arguments: object, offset: int = 0) -> int:
    """Make the call; `offset` is added to its number (0x40000000 asks for x32)."""
    number = NUMBERS[name][("x86_64", "aarch64").index(MACHINE)]
    if number is None:
        raise OSError(38, "no such call here")
    c_arguments = [_as_c(argument) for argument in arguments]
    result: int = libc.syscall(ctypes.c_long(number + offset), *c_arguments)
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
    return result


def _as_c(value: object) -> object:
    if isinstance(value, int):
        return ctypes.c_long(value)
    if isinstance(value, str):
        value = value.encode()
    return ctypes.c_char_p(value) if isinstance(value, bytes | None) else value


def become_namespace_root() -> None:
    """All capabilities over a mount namespace of our own: by being root, else in a user namespace."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        syscall("unshare", NEWNS)
    except PermissionError:
        syscall("unshare", NEWUSER | NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(text)
    syscall("mount", None, "/", None, MS_REC | MS_PRIVATE, None)


def reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_machine_code(code: bytes) -> int:
    """Run x86 instructions in this process; the value in eax, as a signed number."""
    import mmap

    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()
