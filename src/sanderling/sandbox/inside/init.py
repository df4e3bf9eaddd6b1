"""
The init of one command: it confines itself for good, waits for the command, starts it, and stays until all of it is gone.

It is forked before there is a command, so that nobody waits for the confinement. In a pid namespace it is process 1: when it
dies, for whatever reason, the kernel kills all the others. Where there are no namespaces it adopts what the command leaves
behind (a "child subreaper") and does the killing itself.
"""

import os
import resource
import signal
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from sanderling.errors import SandboxError
from sanderling.sandbox import wire
from sanderling.sandbox.inside import worker
from sanderling.sandbox.kernel import namespaces, seccomp
from sanderling.sandbox.kernel.syscalls import prctl, syscall
from sanderling.sandbox.policy import Limits
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND

if TYPE_CHECKING:
    from sanderling.sandbox.kernel.landlock import Ruleset

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES = 64
PARENT_DIED = signal.SIGPWR  # which nobody sends to us
KEPT_FD = STATUS_FD = 3
WALL = 0x4000_0000  # of waitpid: threads that we trace, too
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# The kernel counts these for each user, across namespaces: who takes all signals that may wait leaves none for the timers of the
# user's other programs. A command gets half.
SHARED_LIMITS = (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE)
# Python ignores or handles some.
RESET = (*FORWARDED, PARENT_DIED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


class Confinement(NamedTuple):
    """The confinement that a process takes on, never to lose it again. Built once per zygote."""

    is_mounted: bool
    has_own_pids: bool
    limits: Limits
    landlock: "Ruleset | None"
    seccomp: bytes

    def take_on(self) -> None:
        """
        Confine this process.

        Raises:
            OSError: the kernel refuses a part of it. The caller must start nothing.
        """
        if self.has_own_pids:
            namespaces.unshare(namespaces.CLONE_NEWNS)
            namespaces.mount_own_proc()
        _set_limits(self.limits, counts_all=not self.is_mounted)
        if self.landlock:
            self.landlock.restrict_self()
        syscall("capset", struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0), bytes(24))
        seccomp.install(self.seccomp)


def run(channel: socket.socket, confinement: Confinement, parent: int) -> NoReturn:
    """
    Be the init of the command that comes over `channel` from the zygote, whose pid is `parent`.

    With the command come its stdin, stdout, stderr, and a pipe for its status; what keeps it from being started is written there,
    as a sentence. No command at all asks for a file worker, on a socket in the place of stdin.
    """
    problem = ""
    try:
        _enter(confinement, parent)
    except (OSError, SandboxError) as error:
        problem = f"The sandbox cannot be entered: {error}"
    keep_only(channel.fileno())
    if (received := wire.receive(socket.socket(fileno=KEPT_FD))) is None:
        os._exit(0)
    (argv, environment, cwd), descriptors = received
    _arrange_descriptors(descriptors)
    if not problem and not _change_directory(cwd):
        problem = f"{cwd} is not a directory inside the sandbox."
    if problem:
        os.write(STATUS_FD, problem.encode())
        os._exit(0)
    if not argv:
        worker.serve(socket.socket(fileno=0))
    try:
        main = _spawn(argv, environment)
    except ValueError as error:  # a NUL in it
        os.write(STATUS_FD, f"The command cannot be passed on: {error}.".encode())
        os._exit(0)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: _kill_group(main, received))
    # The zygote has blocked them, so that none is lost.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    os.closerange(0, STATUS_FD)
    status = _reap_until(main)
    is_alone = not _children()
    if not confinement.has_own_pids:
        kill_tree()
    _report(status, is_alone=is_alone)
    os._exit(0)


def keep_only(descriptor: int) -> None:
    """Close every descriptor but the standard streams and this one, which becomes `KEPT_FD`."""
    if descriptor != KEPT_FD:
        os.dup2(descriptor, KEPT_FD, inheritable=False)
    syscall("close_range", KEPT_FD + 1, 0xFFFFFFFF, 0)


def _enter(confinement: Confinement, parent: int) -> None:
    if confinement.has_own_pids:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        adopt_and_die_together(parent)
    confinement.take_on()
    prctl(PR_SET_DUMPABLE, 0)  # the command runs as the same user, and must not trace us


def _change_directory(path: str) -> bool:
    try:
        os.chdir(path)
    except OSError:
        return False
    return True


def _arrange_descriptors(descriptors: list[int]) -> None:
    """Streams to 0, 1 and 2, the status pipe to `STATUS_FD`; they came with higher numbers."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target, inheritable=target != STATUS_FD)
        os.close(descriptor)


def _spawn(argv: list[str], environment: dict[str, str]) -> int:
    """Start the command; one that cannot be started is reported as a shell does."""
    os.environ["PATH"] = environment.get("PATH", os.defpath)  # where it is looked for
    try:
        return os.posix_spawnp(
            argv[0], argv, environment, setsid=True, setsigmask=[], setsigdef=RESET
        )
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
        is_missing = isinstance(error, FileNotFoundError)
        code = EXIT_NOT_FOUND if is_missing else EXIT_NOT_EXECUTABLE
        _report(code << 8)
        os._exit(0)


def _report(status: int, *, is_alone: bool = True) -> None:
    """Tell how the command ended, and whether it has left nothing: else the kernel ends the rest with us."""
    os.write(STATUS_FD, wire.STATUS.pack(status, is_alone))


def _kill_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def _reap_until(main: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == main:
            return status


def bar_capabilities() -> None:
    """Nothing that this process starts can have capabilities again, whatever it executes; this one keeps its own."""
    with suppress(OSError):  # EINVAL: the kernel has no more of them; EPERM: nor had we any
        for capability in range(CAPABILITIES):
            prctl(PR_CAPBSET_DROP, capability)


def _set_limits(limits: Limits, *, counts_all: bool) -> None:
    # Without a user namespace of our own the kernel counts all that this user runs.
    processes = limits.processes + (_count_processes(os.getuid()) if counts_all else 0)
    for kind in SHARED_LIMITS:
        hard = resource.getrlimit(kind)[1]
        limit = hard if hard == resource.RLIM_INFINITY else hard // 2
        resource.setrlimit(kind, (limit, limit))
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, processes),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


def _count_processes(uid: int) -> int:
    count = 0
    for pid in _pids():
        with suppress(OSError):
            count += os.stat(f"/proc/{pid}").st_uid == uid
    return count


def _stop_descendants(spare: frozenset[int]) -> set[int]:
    stopped: set[int] = set()
    while found := descendants(spare) - stopped:
        for pid in found:
            _kill(pid, signal.SIGSTOP)
        stopped |= found
    return stopped


def adopt_and_die_together(parent: int) -> None:
    """Do without a pid namespace: adopt every orphan below, and when `parent` dies, end them and ourselves."""

    def end(_number: int, _frame: object) -> NoReturn:
        kill_tree()
        os._exit(0)

    signal.signal(PARENT_DIED, end)
    prctl(PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:  # it has died before we asked to be told
        os._exit(0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_tree(spare: frozenset[int] = frozenset()) -> None:
    """
    Kill and reap every descendant of ours but `spare` and theirs. We must be a subreaper: orphans become our children.

    Children are killed the moment they are found: a process that forks and ends, again and again, outruns a look at all of /proc.
    The others are stopped first: a fork bomb whose members stand still, and still count against the limit, cannot grow.
    """
    while children := _children() - spare:
        for pid in children:
            _kill(pid, signal.SIGKILL)
        for pid in _stop_descendants(spare):
            _kill(pid, signal.SIGKILL)
        _wait_for(children, is_all=not spare)


def _wait_for(children: frozenset[int], *, is_all: bool) -> None:
    """
    Reap `children`, which have been killed, and if they are all that we have whatever else ends meanwhile.

    What the supervisor traces (`stillness`) is dead only when it has been reaped by it, and holds up the end of its pid namespace.
    """
    left = set(children)
    with suppress(ChildProcessError):
        while left:
            left.discard(os.waitpid(-1 if is_all else left.pop(), WALL)[0])


def _children() -> frozenset[int]:
    """Our children, the dead ones that wait to be reaped included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return frozenset(map(int, file.read().split()))
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return frozenset(_parents_to_children().get(os.getpid(), ()))


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def descendants(spare: frozenset[int] = frozenset()) -> set[int]:
    """Our own that live, but `spare` and theirs: a dead one can neither be stopped nor fork."""
    if not _children():
        return set()
    children = _parents_to_children(but=b"Z")
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in spare]
        found.update(new)
        waiting += new
    return found


def _parents_to_children(but: bytes = b"") -> dict[int, list[int]]:
    """The process tree, without those in the state `but`."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state != but:
                children.setdefault(int(parent), []).append(pid)
    return children


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
