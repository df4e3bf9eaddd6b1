"""The user's other processes: signals, memory, descriptors, limits, and merely looking at them."""

# Attacks are system calls.
# ruff: noqa: PTH115, PTH208

import array
import contextlib
import ctypes
import fcntl
import os
import re
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from .kernel import libc, syscall
from .registry import World, attack, path, root

F_SETSIG, F_SETOWN_EX, O_ASYNC = 10, 15, 0o20000


_ACTS: dict[str, Callable[[int], object]] = {
    "kill": lambda pid: os.kill(pid, signal.SIGTERM),
    # each of the victim's processes leads its own group
    "kill-group": lambda pid: os.kill(-pid, signal.SIGTERM),
    # to everyone at once; this signal is ignored where no one waits for it
    "kill-all": lambda _pid: os.kill(-1, signal.SIGURG),
    "pidfd-kill": lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGTERM),
    "tgkill": lambda pid: syscall("tgkill", pid, pid, signal.SIGTERM),
    "prlimit": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, 16)),
    "renice": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "renice-group": lambda pid: os.setpriority(os.PRIO_PGRP, pid, 19),
    "ionice": lambda pid: syscall("ioprio_set", 1, pid, 3 << 13),
    "affinity": lambda pid: os.sched_setaffinity(pid, {0}),
    "scheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
}

for _name, _act in _ACTS.items():

    @attack(_name, kind="processes", evidence="process")
    def act_on_victim(world: World, act: Callable[[int], object] = _act) -> None:
        act(world.victim_pid)


@attack("sigqueue", kind="processes", evidence="process")
def sigqueue(world: World) -> None:
    info = struct.pack("=iiiiIi", signal.SIGTERM, 0, -1, 0, os.getpid(), os.getuid()).ljust(
        128, b"\0"
    )
    syscall(
        "rt_sigqueueinfo", world.victim_pid, signal.SIGTERM, ctypes.create_string_buffer(info, 128)
    )


@attack("sigio-owner", kind="processes", evidence="process")
def sigio_owner(world: World) -> None:
    """The kernel sends the signal on our behalf, when our socket has something to say."""
    ours, other = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, world.victim_pid)
    fcntl.fcntl(ours, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(ours, fcntl.F_SETFL, O_ASYNC | os.O_NONBLOCK)
    other.send(b"x")


@attack("dnotify-owner", kind="processes", evidence="process")
def dnotify_owner(world: World) -> None:
    """The same for a directory in which something changes."""
    fd = os.open(world.project, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.fcntl(fd, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_CREATE)
    fcntl.fcntl(fd, fcntl.F_SETOWN, world.victim_pid)
    Path(world.project, f"attack-{world.id}").touch()


@attack("ptrace-seize", kind="processes")
def ptrace_seize(world: World) -> str:
    syscall("ptrace", 0x4206, world.victim_pid, 0, 0)
    return "attached"


@attack("proc-mem", kind="processes", evidence="loot")
def proc_mem(world: World) -> bytes:
    with Path(f"/proc/{world.server_pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(world.secret_address)
        return memory.read(64)


@attack("proc-mem-write", kind="processes")
def proc_mem_write(world: World) -> str:
    with Path(f"/proc/{world.victim_pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(world.secret_address)
        return f"wrote {memory.write(b'!')} byte"


def _vectors(address: int, size: int) -> tuple[ctypes.Array[ctypes.c_char], bytes, bytes]:
    buffer = ctypes.create_string_buffer(size)
    return (
        buffer,
        struct.pack("QQ", ctypes.addressof(buffer), size),
        struct.pack("QQ", address, size),
    )


@attack("process-vm-readv", kind="processes", evidence="loot")
def process_vm_readv(world: World) -> bytes:
    buffer, local, remote = _vectors(world.secret_address, 64)
    syscall("process_vm_readv", world.server_pid, local, 1, remote, 1, 0)
    return buffer.raw


@attack("process-vm-writev", kind="processes")
def process_vm_writev(world: World) -> str:
    _buffer, local, remote = _vectors(world.secret_address, 1)
    return f"wrote {syscall('process_vm_writev', world.victim_pid, local, 1, remote, 1, 0)} byte"


@attack("pidfd-getfd", kind="processes", evidence="loot")
def pidfd_getfd(world: World) -> str:
    fd = syscall("pidfd_getfd", os.pidfd_open(world.server_pid), world.secret_fd, 0)
    return os.pread(fd, 4096, 0).decode()


@attack("proc-environ", kind="processes", evidence="loot")
def proc_environ(world: World) -> bytes:
    return Path(f"/proc/{world.server_pid}/environ").read_bytes()


@attack("any-environ", kind="processes", evidence="loot")
def any_environ(_world: World) -> bytes:
    """Also of the processes that started us: they got the whole environment."""
    found = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) != os.getpid():
                text = Path(f"/proc/{pid}/environ").read_bytes()
                found += b" ".join(part for part in text.split(b"\0") if b"CANARY" in part)[:300]
        except OSError:
            continue
    return found


@attack("ancestors-memory", kind="processes", evidence="loot")
def ancestors_memory(_world: World) -> bytes:
    """Whatever process we may look into: its stack holds the environment it was started with."""
    found: list[bytes] = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid in (os.getpid(), os.getppid()):
            continue
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            (stack,) = (line for line in lines if line.endswith("[stack]"))
            start, end = (int(part, 16) for part in stack.split()[0].split("-"))
            start = max(start, end - 20000)
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                memory.seek(start)
                found += re.findall(rb"CANARY-\w+", memory.read(end - start))
    return b" ".join(set(found))


@attack("proc-cmdline", kind="processes", evidence="loot")
def proc_cmdline(world: World) -> bytes:
    """Passwords are given on command lines, too."""
    return Path(f"/proc/{world.server_pid}/cmdline").read_bytes()


@attack("proc-list", kind="processes", evidence="loot")
def proc_list(_world: World) -> bytes:
    found: list[bytes] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found += re.findall(rb"CANARY-\w+", Path(f"/proc/{pid}/cmdline").read_bytes())
    return b" ".join(found)


@attack("proc-maps", kind="processes")
def proc_maps(world: World) -> str:
    return "python" in Path(f"/proc/{world.server_pid}/maps").read_text() and "where its code lies"


@attack("proc-fd-list", kind="processes")
def proc_fd_list(world: World) -> str:
    return os.readlink(f"/proc/{world.server_pid}/fd/{world.secret_fd}")


@attack("proc-stat", kind="processes")
def proc_stat(world: World) -> str:
    return Path(f"/proc/{world.server_pid}/stat").read_text()[:60]


@attack("kill-0", kind="processes")
def kill_0(world: World) -> str:
    os.kill(world.server_pid, 0)
    return "it lives"


for _name, _value in (
    ("oom_score_adj", "1000"),
    ("coredump_filter", "0"),
    ("timerslack_ns", "1000000"),
    ("autogroup", "5"),
):

    @attack(
        f"proc-{_name.replace('_', '-')}",
        kind="processes",
        evidence="process",
        needs=(path(f"/proc/self/{_name}"), *((root,) if _name == "timerslack_ns" else ())),
    )
    def proc_write(world: World, name: str = _name, value: str = _value) -> str:
        for _ in range(50):  # the kernel takes one change of any autogroup in a tenth of a second
            with contextlib.suppress(BlockingIOError):
                Path(f"/proc/{world.victim_pid}/{name}").write_text(value)
                return "written"
            time.sleep(0.05)
        raise TimeoutError


@attack("kcmp", kind="processes")
def kcmp(world: World) -> str:
    return f"compared: {syscall('kcmp', world.victim_pid, world.server_pid, 1, 0, 0)}"


@attack("process-madvise", kind="processes", needs=(root,))
def process_madvise(world: World) -> str:
    """Its pages go to the disk."""
    page = world.secret_address & ~4095
    syscall(
        "process_madvise", os.pidfd_open(world.victim_pid), struct.pack("QQ", page, 4096), 1, 21, 0
    )
    return "advised"


@attack("migrate-pages", kind="processes")
def migrate_pages(world: World) -> str:
    nodes = struct.pack("Q", 1)
    syscall("migrate_pages", world.victim_pid, 64, nodes, nodes)
    return "migrated"


@attack("move-pages", kind="processes")
def move_pages(world: World) -> str:
    status = array.array("i", [0])
    page = struct.pack("Q", world.secret_address & ~4095)
    syscall(
        "move_pages", world.victim_pid, 1, page, None, ctypes.c_void_p(status.buffer_info()[0]), 0
    )
    return f"status {status[0]}"


@attack("robust-list", kind="processes")
def robust_list(world: World) -> str:
    """Where another process keeps its locks."""
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    number = 274 if os.uname().machine == "x86_64" else 100
    if libc.syscall(
        ctypes.c_long(number), world.victim_pid, ctypes.byref(head), ctypes.byref(size)
    ):
        raise OSError(ctypes.get_errno(), "get_robust_list")
    return f"{head.value}"


# --------------------------------------------------------------- the kernel's own files

for _name, _path in (
    ("proc-sys", "/proc/sys/vm/swappiness"),
    ("core-pattern", "/proc/sys/kernel/core_pattern"),
    ("sysrq", "/proc/sysrq-trigger"),
    ("sysfs", "/sys/kernel/profiling"),
    ("sysfs-block", "/sys/block/vda/queue/read_ahead_kb"),
    ("net-sysctl", "/proc/sys/net/ipv4/ip_forward"),
):

    @attack(
        f"write-{_name}",
        kind="processes",
        needs=(
            root,
            lambda _world, path=_path: (
                "" if os.access(path, os.W_OK) else f"{path} cannot be written"
            ),
        ),
    )
    def kernel_write(_world: World, path: str = _path) -> str:
        os.close(os.open(path, os.O_WRONLY))
        return f"could write {path}"


@attack(
    "cgroup",
    kind="processes",
    needs=(
        root,
        lambda _world: (
            "" if os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK) else "no cgroup of ours"
        ),
    ),
)
def cgroup(world: World) -> str:
    """Into a group of its own, where no one limits it."""
    group = Path("/sys/fs/cgroup", f"attack-{world.name}")
    group.mkdir()
    group.rmdir()
    return "made a control group"


@attack("wait-for-victim", kind="processes")
def wait_for_victim(world: World) -> str:
    """A pidfd tells when a process ends."""
    fd = os.pidfd_open(world.victim_pid)
    time.sleep(0)
    os.close(fd)
    return "would know"
