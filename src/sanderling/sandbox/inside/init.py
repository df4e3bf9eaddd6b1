"""
The init of one command: it confines itself, waits for the command, starts it, and stays until all of its processes are gone.

It is forked before there is a command, so that no command waits for the confinement. In a pid namespace it is process 1: when it dies,
for any reason, the kernel kills all the others. Without namespaces it adopts orphans as a child subreaper, and kills them itself.
"""

import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from sanderling.errors import SandboxError
from sanderling.sandbox import wire
from sanderling.sandbox.inside import worker
from sanderling.sandbox.kernel import namespaces, seccomp
from sanderling.sandbox.kernel.syscalls import prctl, syscall
from sanderling.sandbox.policy import ResourceLimits
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND

if TYPE_CHECKING:
    from sanderling.sandbox.kernel.landlock import Ruleset

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES = 64
PARENT_DIED = (
    signal.SIGPWR if sys.platform == "linux" else signal.SIGTERM
)  # which no other program sends to it
KEPT_FD = STATUS_FD = 3
STREAMS = 4  # with the status pipe
WALL = 0x4000_0000  # for waitpid: include traced threads
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# The kernel counts these per user, across namespaces. A command that queues all allowed signals would leave none for the timers of the
# user's other programs. So a command gets half.
SHARED_LIMITS = (
    (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE) if sys.platform == "linux" else ()
)
# Python ignores or handles some of these.
RESET = (*FORWARDED, PARENT_DIED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


class Confinement(NamedTuple):
    """The confinement that a process applies to itself, irrevocably. Built once per zygote."""

    is_mounted: bool
    has_own_pids: bool
    limits: ResourceLimits
    landlock: "Ruleset | None"
    seccomp: bytes

    def take_on(self) -> None:
        """
        Confine this process.

        Raises:
            OSError: the kernel refuses a part. The caller must not start anything.
        """
        if self.has_own_pids:
            namespaces.unshare(namespaces.CLONE_NEWNS)
            namespaces.mount_own_proc()
            namespaces.mount_own_terminals()
        _set_limits(self.limits, counts_all=not self.is_mounted)
        if self.landlock:
            self.landlock.restrict_self()
        syscall("capset", struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0), bytes(24))
        seccomp.install(self.seccomp)


def run(channel: socket.socket, confinement: Confinement, parent: int) -> NoReturn:
    """
    Run as the init of the command that the zygote, process `parent`, sends over `channel`.

    The message has the descriptors of stdin, stdout, stderr and a status pipe; if the command has a terminal, also of the socket that gets
    its two ends. If the command cannot be started, the reason is written to the pipe, as a sentence. An empty command requests a file worker,
    with its socket as stdin.
    """
    problem = ""
    try:
        _enter(confinement, parent)
    except (OSError, SandboxError) as error:
        problem = f"Cannot enter the sandbox: {error}"
    keep_only(channel.fileno())
    if (received := wire.receive(socket.socket(fileno=KEPT_FD))) is None:
        os._exit(0)
    (argv, environment, cwd), descriptors = received
    terminals = descriptors[STREAMS:]
    _arrange_descriptors(descriptors[:STREAMS])
    if not problem:
        try:
            os.chdir(cwd)
        except OSError:
            problem = f"{cwd} is not a directory inside the sandbox."
    if problem:
        os.write(STATUS_FD, problem.encode())
        os._exit(0)
    for channel_number in terminals:
        _send_terminal(channel_number)
    if not argv:
        worker.serve(socket.socket(fileno=0))
    try:
        main = _spawn(argv, environment)
    except ValueError as error:  # a NUL byte in an argument
        os.write(STATUS_FD, f"Invalid command: {error}.".encode())
        os._exit(0)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: _kill_group(main, received))
    # The zygote has blocked them until here, so that a signal is not lost.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    os.closerange(0, STATUS_FD)
    status = _reap_until(main)
    is_alone = not _children()
    if not confinement.has_own_pids:
        kill_tree()
    _report(status, is_alone=is_alone)
    os._exit(0)


def keep_only(descriptor: int) -> None:
    """Close all descriptors except the standard streams and this one, which becomes `KEPT_FD`."""
    if descriptor != KEPT_FD:
        os.dup2(descriptor, KEPT_FD, inheritable=False)
    syscall("close_range", KEPT_FD + 1, 0xFFFFFFFF, 0)


def _enter(confinement: Confinement, parent: int) -> None:
    if confinement.has_own_pids:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        adopt_and_die_together(parent)
    confinement.take_on()
    prctl(PR_SET_DUMPABLE, 0)  # the command runs as the same user and must not trace this process


def _arrange_descriptors(descriptors: list[int]) -> None:
    """Move the streams to 0, 1 and 2, and the status pipe to `STATUS_FD`. They arrived with higher numbers."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target, inheritable=target != STATUS_FD)
        os.close(descriptor)


def _send_terminal(channel: int) -> None:
    """Open the first terminal in the command's own /dev/pts, and send both of its ends to the host."""
    ends = os.openpty()
    wire.send(socket.socket(fileno=channel), ("terminal", os.ttyname(ends[1])), ends)
    for end in ends:
        os.close(end)


def _spawn(argv: list[str], environment: dict[str, str]) -> int:
    """Start the command. Failures are reported as a shell does."""
    os.environ["PATH"] = environment.get("PATH", os.defpath)  # posix_spawnp searches this PATH
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
    """Report how the command ended, and whether it left no processes. If it did, the kernel kills them along with this process."""
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
    """Drop the bounding set, so that no program started from here can gain capabilities. This process keeps its own."""
    with suppress(OSError):  # EINVAL: no more capabilities exist; EPERM: this process has none
        for capability in range(CAPABILITIES):
            prctl(PR_CAPBSET_DROP, capability)


def _set_limits(limits: ResourceLimits, *, counts_all: bool) -> None:
    # Without its own user namespace, the kernel counts all processes of the user.
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
    """Replace a pid namespace: adopt all orphans below, and kill them and this process when `parent` dies."""

    def end(_number: int, _frame: object) -> NoReturn:
        kill_tree()
        os._exit(0)

    signal.signal(PARENT_DIED, end)
    prctl(PR_SET_PDEATHSIG, PARENT_DIED)
    if os.getppid() != parent:  # it died before the signal was requested
        os._exit(0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_tree(spare: frozenset[int] = frozenset()) -> None:
    """
    Kill and reap all descendants except `spare` and theirs. This process must be a subreaper, so that orphans become its children.

    Children are killed as soon as they are found, because a process that keeps forking and exiting outruns a scan of /proc. Other
    descendants are stopped first: stopped processes still count against the process limit, so a fork bomb cannot grow.
    """
    while children := _children() - spare:
        for pid in children:
            _kill(pid, signal.SIGKILL)
        for pid in _stop_descendants(spare):
            _kill(pid, signal.SIGKILL)
        _wait_for(children, is_all=not spare)


def _wait_for(children: frozenset[int], *, is_all: bool) -> None:
    """
    Reap the killed `children`, and if these are all, anything else that ends meanwhile.

    Processes traced by the supervisor (`stillness`) are dead only when it has reaped them, and until then keep their pid namespace alive.
    """
    left = set(children)
    with suppress(ChildProcessError):
        while left:
            left.discard(os.waitpid(-1 if is_all else left.pop(), WALL)[0])


def _children() -> frozenset[int]:
    """Return the children of this process, including zombies."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return frozenset(map(int, file.read().split()))
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return frozenset(_parents_to_children().get(os.getpid(), ()))


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def descendants(spare: frozenset[int] = frozenset()) -> set[int]:
    """Return all living descendants except `spare` and theirs. Zombies can neither be stopped nor fork."""
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
    """Return the process tree, without processes in the state `but`."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state != but:
                children.setdefault(int(parent), []).append(pid)
    return children


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
