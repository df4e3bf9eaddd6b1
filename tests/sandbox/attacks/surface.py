"""Parts of the kernel that no developer's command needs, where its holes are found."""

import ctypes
import os
import struct

from .kernel import MACHINE, NEWUSER, run_machine_code, syscall
from .registry import Stopped, World, attack, fact, implemented, path, root


def _x86(_world: World) -> str:
    return "" if MACHINE == "x86_64" else "x86_64 only"


@attack("io-uring", kind="kernel")
def io_uring(_world: World) -> str:
    """A second way to make system calls, which no filter sees."""
    return f"ring {syscall('io_uring_setup', 4, ctypes.create_string_buffer(120))}"


@attack("bpf", kind="kernel", needs=(root,))
def bpf(_world: World) -> str:
    attributes = struct.pack("=IIII", 2, 4, 4, 1).ljust(128, b"\0")
    return f"map {syscall('bpf', 0, attributes, 128)}"


@attack("perf", kind="kernel", needs=(fact("has_perf"),))
def perf(_world: World) -> str:
    # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, of our own process and without the kernel
    attributes = struct.pack("=IIQQQQQ", 1, 112, 1, 0, 0, 0, 1 << 5 | 1 << 6).ljust(112, b"\0")
    return f"event {syscall('perf_event_open', attributes, 0, -1, -1, 0)}"


@attack("userfaultfd", kind="kernel")
def userfaultfd(_world: World) -> str:
    """Stops the kernel in the middle of a copy: what races are won with."""
    return f"descriptor {syscall('userfaultfd', 1)}"


@attack("userfaultfd-device", kind="kernel", needs=(root, path("/dev/userfaultfd")))
def userfaultfd_device(_world: World) -> str:
    os.open("/dev/userfaultfd", os.O_RDWR)
    return "opened"


@attack("fanotify", kind="kernel")
def fanotify(_world: World) -> str:
    # FAN_REPORT_FID needs no privilege.
    return f"group {syscall('fanotify_init', 0x200, os.O_RDONLY)}"


def _needs_ia32(world: World) -> str:
    return _x86(world) or ("" if world.has_ia32 else "a kernel without 32-bit calls")


@attack("int80", kind="kernel", needs=(_needs_ia32,))
def int80(_world: World) -> str:
    """unshare(CLONE_NEWUSER) by its 32-bit number, 310."""
    code = (
        b"\x53\xb8"
        + struct.pack("=I", 310)
        + b"\xbb"
        + struct.pack("=I", NEWUSER)
        + b"\xcd\x80\x5b\xc3"
    )
    if (result := run_machine_code(code)) < 0:
        raise OSError(-result, os.strerror(-result))
    return "a user namespace"


@attack("x32", kind="kernel", needs=(_x86, fact("has_x32")))
def x32(_world: World) -> str:
    syscall("unshare", NEWUSER, offset=0x40000000)
    return "a user namespace"


@attack("modify-ldt", kind="kernel", needs=(_x86,))
def modify_ldt(_world: World) -> str:
    # func 0 reads the (empty) table: 0 bytes is success
    return f"read {syscall('modify_ldt', 0, ctypes.create_string_buffer(16), 16)} bytes"


@attack(
    "kexec",
    kind="kernel",
    needs=(root, implemented(lambda: syscall("kexec_load", 0, 0, None, 1 << 40))),
)
def kexec(_world: World) -> str:
    """No segments: unloads what is loaded, nothing."""
    syscall("kexec_load", 0, 0, None, 0)
    return "could load another kernel"


@attack("module-unload", kind="kernel", needs=(root, fact("has_modules")))
def module_unload(_world: World) -> str:
    try:
        syscall("delete_module", "no-such-module", 0)
    except FileNotFoundError:
        return "may unload modules"
    raise Stopped("odd")


@attack("swapon", kind="kernel", needs=(root,))
def swapon(_world: World) -> str:
    try:
        syscall("swapon", "/no/such/file", 0)
    except FileNotFoundError:
        return "may swap"
    raise Stopped("odd")


@attack("acct", kind="kernel", needs=(root, fact("has_acct")))
def acct(_world: World) -> str:
    try:
        syscall("acct", "/no/such/file")
    except FileNotFoundError:
        return "may write the log of all processes anywhere"
    raise Stopped("odd")


@attack("reboot", kind="kernel", needs=(root,))
def reboot(_world: World) -> str:
    """LINUX_REBOOT_CMD_CAD_ON: what ctrl-alt-del does; needs the right to reboot."""
    syscall("reboot", 0xFEE1DEAD, 672274793, 0x89ABCDEF, None)
    return "may reboot"


@attack("clock", kind="kernel", needs=(root,))
def clock(_world: World) -> str:
    """The tick, set to what it is."""
    timex = ctypes.create_string_buffer(208)
    syscall("adjtimex", timex)
    struct.pack_into("=I", timex, 0, 0x4000)
    syscall("adjtimex", timex)
    return "may set the clock"


@attack("syslog", kind="kernel", needs=(root,))
def syslog(_world: World) -> str:
    return (
        f"{syscall('syslog', 3, ctypes.create_string_buffer(4096), 4096)} bytes of the kernel's log"
    )


@attack("iopl", kind="kernel", needs=(root, _x86, implemented(lambda: syscall("iopl", 0))))
def iopl(_world: World) -> str:
    syscall("iopl", 3)
    return "may talk to the hardware"


@attack("quota", kind="kernel", needs=(fact("has_quota"),))
def quota(world: World) -> str:
    fd = os.open(world.project, os.O_RDONLY)
    syscall("quotactl_fd", fd, 0x800001 << 8, 0, None)
    return "quota"
