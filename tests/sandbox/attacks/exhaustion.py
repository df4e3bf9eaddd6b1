"""Taking everything there is: processes, disk, memory, watches."""

import itertools
import os
import resource
import signal
import time
from pathlib import Path

from .kernel import libc, syscall
from .registry import Stopped, World, attack, root

PROCESSES = 1300
GIB = 1 << 30


@attack("fork-bomb", kind="exhaustion", scene="alone", timeout_s=20)
def fork_bomb(_world: World) -> str:
    """As many children at a time as a bomb needs to hurt."""
    children: list[int] = []
    try:
        while len(children) < PROCESSES:
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except OSError as error:
        raise Stopped(f"{len(children)} processes, then {error.strerror}") from error
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    return f"{len(children)} processes"


@attack("huge-file", kind="exhaustion")
def huge_file(world: World) -> str:
    """Beyond the size limit of a file; sparse, so that the control hurts no one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = Path(world.project, "huge")
    with path.open("wb") as file:
        try:
            os.pwrite(file.fileno(), b"x", 9 * GIB)
        finally:
            path.unlink()
    return "9 GiB"


@attack("raise-limits", kind="exhaustion")
def raise_limits(_world: World) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "no limit of a file's size"


@attack(
    "core-dump",
    kind="exhaustion",
    needs=(
        lambda _world: (
            "" if resource.getrlimit(resource.RLIMIT_CORE)[1] else "core dumps are off here"
        ),
    ),
)
def core_dump(_world: World) -> str:
    """A core of a program that read secrets is a copy of them."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    if not hard:
        raise Stopped("no cores")
    return f"a core of {hard} bytes"


@attack("fill-shm", kind="exhaustion", scene="alone", timeout_s=15)
def fill_shm(world: World) -> str:
    """Memory, taken as files."""
    path = Path("/dev/shm", f"fill-{world.name}")
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 640 << 20)
    finally:
        path.unlink(missing_ok=True)
    return "640 MiB"


@attack("fill-dev", kind="exhaustion", needs=(root,))
def fill_dev(world: World) -> str:
    path = Path("/dev", f"fill-{world.name}")
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 8 << 20)
    finally:
        path.unlink(missing_ok=True)
    return "8 MiB"


@attack("realtime", kind="exhaustion", needs=(root,))
def realtime(_world: World) -> str:
    """A process that nothing else gets past."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return "realtime"


@attack("higher-priority", kind="exhaustion", needs=(root,))
def higher_priority(_world: World) -> str:
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return "before everyone else"


@attack("lock-memory", kind="exhaustion", needs=(root,))
def lock_memory(_world: World) -> str:
    """More than RLIMIT_MEMLOCK: memory that is never swapped out."""
    import ctypes
    import mmap

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    size = (32 << 20) if limit == resource.RLIM_INFINITY else limit + (1 << 20)
    resource.setrlimit(
        resource.RLIMIT_MEMLOCK, (4096, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1])
    )
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None, use_errno=True).mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise OSError(ctypes.get_errno(), "mlock")
    time.sleep(0)
    return f"{size} bytes"


def _inotify_limit(name: str) -> int:
    return int(Path(f"/proc/sys/fs/inotify/max_user_{name}").read_text())


@attack("inotify-instances", kind="exhaustion", scene="alone")
def inotify_instances(_world: World) -> str:
    """More than a quarter of those that the user has: a few commands like this, and no editor or file manager gets one."""
    wanted = _inotify_limit("instances") // 4 + 1
    instances = [syscall("inotify_init1", os.O_CLOEXEC) for _ in range(wanted)]
    return f"{len(instances)} instances"


@attack("inotify-watches", kind="exhaustion", scene="alone", timeout_s=60)
def inotify_watches(_world: World) -> str:
    """More than half of the watches. An instance watches a file once, so some files serve several instances."""
    wanted = _inotify_limit("watches") // 2 + 1
    files = (Path(place, name) for place, _, names in os.walk("/usr") for name in names)
    plain = [str(path) for path in itertools.islice(files, 20_000) if not path.is_symlink()]
    taken = 0
    while taken < wanted:
        instance = syscall("inotify_init1", os.O_CLOEXEC)
        numbers = {
            syscall("inotify_add_watch", instance, path, 2) for path in plain[: wanted - taken]
        }
        taken += len(numbers)
    return f"{taken} watches"


@attack("signal-queue", kind="exhaustion", scene="alone", timeout_s=20)
def signal_queue(world: World) -> str:
    """More than half of the signals that may wait for the user's processes: without room no timer can be made."""
    wanted = world.signal_limit // 2 + 1
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    for sent in range(wanted):
        if libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None):
            raise Stopped(f"{sent} signals, then none")
    return f"{wanted} signals"
