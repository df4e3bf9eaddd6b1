"""
A session's sandbox from outside: commands, their ends, the network, grants, files, and that nothing is left.

What gets out of it is the escape suite's business (`test_escapes.py`), what works in it that of `test_must_work.py`.
"""

import asyncio
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox import wire
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.files import Files
from sanderling.sandbox.inside import bubblewrap
from sanderling.sandbox.inside.zygote import ZygoteView
from sanderling.sandbox.kernel.layout import Bind, LandlockAccess, Layout
from sanderling.sandbox.policy import ResourceLimits, SandboxPolicy
from sanderling.sandbox.processes import PIPE, STDOUT
from sanderling.sandbox.report import GuardEvent, LayerReport
from sanderling.sandbox.sandbox import Sandbox, SandboxEvent, check_level
from tests.conftest import (
    DEADLINE_S,
    happens,
    is_alive,
    processes_with,
    prove,
    prove_rest,
    running,
    small_disk,
    wait_until,
)
from tests.sandbox.child import in_child
from tests.sandboxes import policy_below

pytestmark = pytest.mark.guard

LEVELS = ("full", "full-bwrap", "namespaces", "landlock")
MOUNTED = LEVELS[:-1]
SHARED_NETWORK = ("full", "namespaces")  # bubblewrap makes each view a network of its own
PYTHON = os.path.realpath(sys.executable)
GITCONFIG = """
[user]
    name = A Person
    email = person@example.org
[credential]
    helper = !echo password=secret
[alias]
    evil = !touch /tmp/evil
    last = log -1 --format=%s
[core]
    sshCommand = ssh -i secret
"""

at_both_ends = pytest.mark.parametrize("level", prove_rest(LEVELS), indirect=True)


@pytest.fixture(params=prove_rest(LEVELS, keep=(0,)))
def level(request) -> str:
    return request.param


async def skip_without(level: str | None) -> None:
    if level and (reason := (await Sandbox.probe()).why_not(level)):
        pytest.skip(f"no level {level} here: {reason}")


class Place:
    """A person's home with secrets, and a project that is a repository with one commit."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home, self.project, self.secret = base / "home", base / "home/project", base / "secret"
        for directory in (self.project, self.secret, base / "granted"):
            directory.mkdir(parents=True)
        (self.home / ".gitconfig").write_text(GITCONFIG)
        (self.secret / "file").write_text("secret\n")
        (self.project / "file").write_text("public\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-qm", "first")
        self.events: list[SandboxEvent] = []

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=self.project,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def policy(self, **changes) -> SandboxPolicy:
        places = {"project": str(self.project), "home": str(self.home)}
        return policy_below(self.base, **places | changes)

    @asynccontextmanager
    async def open(self, level: str | None = None, **changes) -> AsyncIterator[Sandbox]:
        await skip_without(level)
        policy = self.policy(level=level, **changes)
        with anyio.fail_after(DEADLINE_S):
            async with Sandbox.open(policy, self.events.append) as sandbox:
                yield sandbox

    @asynccontextmanager
    async def open_files(self, level: str | None = None, **changes) -> AsyncIterator[Files]:
        async with self.open(level, **changes) as sandbox, files_of(sandbox) as files:
            yield files

    def sentinels(self) -> list[str]:
        return [name for name in names_in(self.project / ".git") if name == "commondir"]

    def temporary_directories(self) -> list[str]:
        return names_in(self.base / "state/tmp")


@asynccontextmanager
async def files_of(sandbox: Sandbox) -> AsyncIterator[Files]:
    with closing(await sandbox.open_files()) as files:
        yield files


@contextmanager
def fails_with(*codes: int) -> Iterator[pytest.ExceptionInfo[OSError]]:
    with pytest.raises(OSError, match="Errno") as caught:
        yield caught
    assert caught.value.errno in codes


async def refusal_of(policy: SandboxPolicy, report: LayerReport | None = None) -> str:
    with pytest.raises(SandboxError) as caught:
        async with Sandbox.open(policy, report=report):
            pytest.fail("it opened")
    return str(caught.value)


def names_in(directory: Path | str) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


async def all_of(stream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def run(sandbox: Sandbox, *argv: str, **options) -> tuple[int, str, str]:
    """Status, output and errors of a command; one word is a shell's script."""
    if len(argv) == 1:
        argv = ("sh", "-c", *argv)
    process = await sandbox.spawn(argv, **options)
    written: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    async def read(name: str) -> None:
        written[name] = await all_of(getattr(process, name))

    async with anyio.create_task_group() as tasks:
        for name in written:
            if getattr(process, name):
                tasks.start_soon(read, name)
    try:
        return await process.wait(), written["stdout"].decode(), written["stderr"].decode()
    finally:
        process.close()


def holds(path: Path, text: str) -> bool:
    """Say whether the file holds just that; the guard takes one away before it puts it back."""
    try:
        return path.read_text() == text
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


def supervisors(host: int) -> list[int]:
    return [
        pid for pid in children(host) if pid in running("sandbox.inside.supervisor import main")
    ]


def is_unstoppable(marker: str) -> bool:
    """Whether a process with `marker` in its command line waits in a system call that no signal ends."""
    waiting = processes_with("stat", lambda stat: stat.rpartition(b")")[2].split()[0] == b"D")
    return not set(waiting).isdisjoint(running(marker))


def daemons(marker: str) -> str:
    """A script with four processes that do not want to end."""
    return f"""
        trap '' TERM INT HUP
        (setsid sh -c '(setsid {marker} >/dev/null 2>&1 &); exec {marker}' >/dev/null 2>&1 &)
        nohup {marker} &
        echo started
        exec {marker}
    """


def zygote_of(supervisor: int) -> int:
    """The outermost process of the only zygote."""
    [zygote] = [pid for pid in children(supervisor) if is_alive(pid)]
    return zygote


async def start_daemons(sandbox: Sandbox, marker: str):
    process = await sandbox.spawn(["sh", "-c", daemons(marker)])
    assert (await process.stdout.receive()).startswith(b"started")
    await happens(lambda: len(running(marker)) >= 4)
    return process


# --- commands ----------------------------------------------------------------------------------------------------------


@at_both_ends
@pytest.mark.parametrize("status", prove_rest([255, 0, 1, 7, 127], keep=(0,), is_one=True))
async def test_exit_status_is_the_commands(place, level, status):
    async with place.open(level) as sandbox:
        assert await run(sandbox, f"exit {status}") == (status, "", "")


@prove
async def test_signal_that_ended_a_command_is_told_as_its_negative(place, level):
    async with place.open(level) as sandbox:
        assert (await run(sandbox, "kill -TERM $$"))[0] == -signal.SIGTERM
        assert (await run(sandbox, "kill -KILL $$"))[0] == -signal.SIGKILL
        assert (await run(sandbox, "kill -SEGV $$"))[0] == -signal.SIGSEGV


async def test_output_and_errors_come_apart_or_together(place, level):
    script = "echo out; echo err >&2"
    async with place.open(level) as sandbox:
        assert await run(sandbox, script) == (0, "out\n", "err\n")
        assert await run(sandbox, script, stderr=STDOUT) == (0, "out\nerr\n", "")


async def test_input_is_passed_and_ends(place, level):
    data = os.urandom(1 << 20)
    async with place.open(level) as sandbox:
        process = await sandbox.spawn(["cat"], stdin=PIPE)
        echoed = b""

        async def send() -> None:
            await process.stdin.send(data)
            await process.stdin.aclose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            echoed = await all_of(process.stdout)
        assert echoed == data
        assert await process.wait() == 0
        process.close()


@prove
async def test_writing_to_a_command_that_has_ended_is_an_error_of_the_stream(place):
    async with place.open() as sandbox:
        process = await sandbox.spawn(["true"], stdin=PIPE)
        await process.wait()
        with pytest.raises(anyio.BrokenResourceError):
            await process.stdin.send(b"x")
        process.close()


@prove
async def test_input_is_empty_unless_it_is_asked_for(place, level):
    async with place.open(level) as sandbox:
        assert await run(sandbox, "cat") == (0, "", "")


@prove
async def test_descriptor_can_be_given_for_a_stream(place, level, tmp_path):
    with open(tmp_path / "out", "w+b") as file:  # noqa: ASYNC230, PTH123
        async with place.open(level) as sandbox:
            assert (await run(sandbox, "echo text", stdout=file.fileno()))[0] == 0
        file.seek(0)
        assert file.read() == b"text\n"


@prove
async def test_missing_program_is_status_127_and_one_that_is_none_126(place, level):
    (place.project / "text").write_text("text")
    async with place.open(level) as sandbox:
        status, _, errors = await run(sandbox, "./missing", "argument")
        assert (status, errors) == (127, "./missing: No such file or directory\n")
        status, _, errors = await run(sandbox, "./text", "argument")
        assert (status, errors) == (126, "./text: Permission denied\n")
        assert (await run(sandbox, "no-such-program", "argument"))[0] == 127


@prove
async def test_directory_that_is_not_there_inside_is_told_in_a_sentence(place, level):
    async with place.open(level) as sandbox:
        for directory in (place.base / "none", place.project / "none", place.project / "file"):
            sentence = f"^{directory} is not a directory inside the sandbox.$"
            with pytest.raises(SandboxError, match=sentence):
                await run(sandbox, "pwd", cwd=str(directory))


@prove
async def test_every_wait_for_a_command_that_did_not_start_says_so(place):
    async with place.open() as sandbox:
        process = await sandbox.spawn(["true"], cwd=str(place.secret))
        for _ in range(2):
            with pytest.raises(SandboxError, match="is not a directory"):
                await process.wait()
        process.close()


async def test_command_starts_in_the_project_or_where_it_is_told_to(place, level):
    (place.project / "sub").mkdir()
    async with place.open(level) as sandbox:
        assert (await run(sandbox, "pwd"))[1] == f"{place.project}\n"
        assert (await run(sandbox, "pwd", cwd=f"{place.project}/sub"))[
            1
        ] == f"{place.project}/sub\n"


@prove
async def test_a_mebibyte_of_arguments_and_variables_passes(place, level):
    words = ["x" * 100_000] * 6
    variables = {f"V{number}": "y" * 100_000 for number in range(5)}
    script = "import os, sys; print(sum(map(len, sys.argv[1:])), sum(len(os.environ[n]) for n in ('V0', 'V4')))"
    async with place.open(level) as sandbox:
        done = await run(sandbox, PYTHON, "-c", script, *words, env=variables)
        assert done == (0, "600000 200000\n", "")


@prove
async def test_arguments_that_the_kernel_refuses_are_told(place):
    async with place.open() as sandbox:
        status, _, errors = await run(sandbox, "echo", "x" * (200 << 10))
        assert (status, errors) == (126, "echo: Argument list too long\n")


@prove
@pytest.mark.parametrize("argv", [["echo", "a\0b"], ["\0", "x"], ["echo", "\ud800"]])
async def test_argument_that_no_program_can_be_given_is_an_error(place, argv):
    async with place.open() as sandbox:
        with pytest.raises((SandboxError, ValueError)):
            await run(sandbox, *argv)
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")


@prove
async def test_argument_of_any_other_bytes_passes(place):
    async with place.open() as sandbox:
        process = await sandbox.spawn(["printf", "%s", os.fsdecode(b"\xff\n\x01")])
        assert await all_of(process.stdout) == b"\xff\n\x01"
        process.close()


@prove
async def test_twenty_commands_run_at_once(place, level):
    numbers = range(20)
    found = []
    async with place.open(level) as sandbox:
        barrier = "touch running.$0; while [ $(ls running.* | wc -l) -lt 20 ]; do sleep 0.01; done"

        async def check(number: int) -> None:
            done = await run(sandbox, "sh", "-c", f"{barrier}; echo $0", str(number))
            found.append(done)

        async with anyio.create_task_group() as tasks:
            for number in numbers:
                tasks.start_soon(check, number)
    assert sorted(found) == sorted((0, f"{number}\n", "") for number in numbers)


@prove
async def test_300_mb_of_output_do_not_stay_in_the_host(place):
    async with place.open() as sandbox:
        process = await sandbox.spawn(["head", "-c", "300000000", "/dev/zero"])
        total = len(await process.stdout.receive())
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew  # noqa: ASYNC240
        before = memory("VmRSS")
        async for chunk in process.stdout:
            total += len(chunk)
        assert await process.wait() == 0
        process.close()
    assert total == 300_000_000
    assert memory("VmHWM") - before < 10 << 20


def memory(name: str) -> int:
    """Bytes, as /proc/self/status tells them."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024


@prove
async def test_descriptors_of_commands_do_not_stay_open(place, level):
    async with place.open(level) as sandbox:
        await run(sandbox, "true")
        before = names_in("/proc/self/fd")
        for _ in range(5):
            await run(sandbox, "true")
        with pytest.raises(SandboxError):
            await run(sandbox, "true", cwd="/missing")
        assert len(names_in("/proc/self/fd")) == len(before)


# --- the end of commands -----------------------------------------------------------------------------------------------


@at_both_ends
async def test_kill_takes_the_whole_tree_at_once(place, level, marker):
    async with place.open(level) as sandbox:
        process = await start_daemons(sandbox, marker)
        process.kill()
        await happens(lambda: not running(marker))
        assert await process.wait() == -signal.SIGKILL
        process.close()
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")


@at_both_ends
async def test_what_a_command_leaves_behind_ends_with_it(place, level, marker):
    async with place.open(level) as sandbox:
        script = daemons(marker).replace(f"exec {marker}\n", "exit 3\n")
        process = await sandbox.spawn(["sh", "-c", script])
        assert await process.wait() == 3
        assert not running(marker)
        process.close()


@prove
async def test_commands_beside_a_killed_one_live_on(place, level, marker):
    async with place.open(level) as sandbox:
        survivor = await sandbox.spawn(["cat"], stdin=PIPE)
        victim = await start_daemons(sandbox, marker)
        victim.kill()
        await victim.wait()
        await survivor.stdin.send(b"alive")
        assert await survivor.stdout.receive() == b"alive"
        survivor.close()
        victim.close()


@pytest.mark.parametrize(
    "number", prove_rest([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], keep=(0,))
)
async def test_signal_reaches_the_command(place, level, number):
    async with place.open(level) as sandbox:
        process = await sandbox.spawn(["sh", "-c", "echo started; exec sleep 1000"])
        await process.stdout.receive()
        process.send_signal(number)
        assert await process.wait() == -number
        process.close()


@prove
async def test_signal_can_be_sent_as_soon_as_the_command_is_started(place, level):
    async with place.open(level) as sandbox:
        for _ in range(5):
            process = await sandbox.spawn(["sleep", "1000"])
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM
            process.close()


@prove
async def test_letting_go_of_a_command_kills_it(place, level, marker):
    async with place.open(level) as sandbox:
        process = await start_daemons(sandbox, marker)
        process.close()
        await happens(lambda: not running(marker))


@at_both_ends
async def test_nothing_outlives_the_session(place, level, marker):
    async with place.open(level) as sandbox:
        process = await start_daemons(sandbox, marker)
    await happens(lambda: not running(marker))
    await happens(lambda: not supervisors(os.getpid()))
    process.close()


IN_A_SYSTEM_CALL = """
import os
os.mkfifo("nobody-writes")
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "nobody-writes", os.O_RDONLY, 0)])
"""
"""While its child waits for the file, a program that starts one so can neither be stopped nor traced, only be killed."""


@prove
@at_both_ends
async def test_what_would_not_stand_still_for_another_view_ends_with_the_session(
    place, level, marker
):
    async with place.open(level) as sandbox:
        process = await sandbox.spawn([PYTHON, "-c", IN_A_SYSTEM_CALL, marker])
        await happens(lambda: is_unstoppable(marker))
        granted = sandbox.policy._replace(read_paths=(str(place.base / "granted"),))
        assert await run(sandbox, "echo fine", policy=granted) == (0, "fine\n", "")
    # It has looked once more and is gone; the host waited for it.
    assert not supervisors(os.getpid())
    assert place.temporary_directories() == []
    process.close()


async def test_a_view_in_which_something_is_about_to_start_is_not_retired(place):
    async with place.open("full") as sandbox, anyio.create_task_group() as tasks:

        async def retire() -> None:
            while True:
                sandbox.retire_views()
                await anyio.lowlevel.checkpoint()

        tasks.start_soon(retire)
        granted = sandbox.policy._replace(read_paths=(str(place.base / "granted"),))
        assert await run(sandbox, "echo fine", policy=granted) == (0, "fine\n", "")
        tasks.cancel_scope.cancel()


@prove
async def test_nothing_outlives_a_session_that_is_cancelled(place, marker):
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            async with place.open() as sandbox:
                await start_daemons(sandbox, marker)
                await anyio.sleep_forever()

        tasks.start_soon(serve)
        await happens(lambda: len(running(marker)) >= 4)
        tasks.cancel_scope.cancel()
    await happens(lambda: not running(marker))


HOST = """
import sys, anyio
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.sandbox import Sandbox
project, home, state, level, script = sys.argv[1:]
async def main():
    policy = SandboxPolicy(project=project, home=home, state_dir=state, level=level)
    async with Sandbox.open(policy) as sandbox:
        process = await sandbox.spawn(["sh", "-c", script], stdout=1)
        await process.wait()
anyio.run(main)
"""


@pytest.fixture
def start_host(place, level):
    """Start a process that runs a script in a sandbox, and wait until the script has said something."""
    hosts: list[subprocess.Popen[bytes]] = []

    def start(script: str) -> subprocess.Popen[bytes]:
        reason = anyio.run(Sandbox.probe).why_not(level)
        if reason:
            pytest.skip(f"no level {level} here: {reason}")
        words = (place.project, place.home, place.base / "state", level, script)
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        hosts.append(host)
        assert host.stdout.readline()
        return host

    yield start
    for host in hosts:
        host.kill()
        host.wait()
        host.stdout.close()


@pytest.mark.parametrize(
    "number", prove_rest([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT], keep=(0,))
)
def test_nothing_outlives_a_host_that_is_killed(start_host, place, marker, number):
    host = start_host(daemons(marker))
    wait_until(lambda: len(running(marker)) >= 4)
    supervisor = supervisors(host.pid)
    assert len(supervisor) == 1
    host.send_signal(number)
    host.wait()
    wait_until(lambda: not running(marker))
    wait_until(lambda: not any(map(is_alive, supervisor)))
    assert not place.sentinels()
    assert not place.temporary_directories()


async def test_death_of_the_supervisor_takes_everything_and_is_told(place, level, marker):
    async with place.open(level) as sandbox:
        process = await start_daemons(sandbox, marker)
        os.kill(supervisors(os.getpid())[0], signal.SIGKILL)
        await happens(lambda: not running(marker))
        await happens(sandbox.has_ended.is_set)
        assert await process.wait() == -signal.SIGKILL
        process.close()
        with pytest.raises(SandboxError, match="has ended"):
            await run(sandbox, "true")


@prove
async def test_death_of_a_zygote_takes_its_commands_and_the_next_command_starts(
    place, level, marker
):
    async with place.open(level) as sandbox:
        process = await start_daemons(sandbox, marker)
        zygote = zygote_of(supervisors(os.getpid())[0])
        os.kill(zygote, signal.SIGKILL)
        await happens(lambda: not running(marker))
        assert await process.wait() == -signal.SIGKILL
        process.close()
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")
        assert not sandbox.has_ended.is_set()


def leaves(pid: int) -> list[int]:
    """Its descendants that have no child."""
    below = [child for child in children(pid) if is_alive(child)]
    return [leaf for child in below for leaf in leaves(child)] or [pid]


async def spare_of(zygote: int, marker: str) -> int:
    """The init without a command. One whose command has just ended is there for a moment, too."""

    def found() -> set[int]:
        return set(leaves(zygote)) - set(running(marker))

    seen = set[int]()
    with anyio.fail_after(DEADLINE_S):
        while len(seen) != 1 or seen != found():
            seen = found()
            await anyio.sleep(0.05)
    return seen.pop()


@prove
async def test_command_runs_though_the_init_that_waited_for_it_was_killed(place, level, marker):
    """Once, with what runs already left in peace; and so does the next one."""
    async with place.open(level) as sandbox:
        process = await start_daemons(sandbox, marker)
        zygote = zygote_of(supervisors(os.getpid())[0])
        for number in range(2):
            spare = await spare_of(zygote, marker)
            os.kill(spare, signal.SIGKILL)
            await happens(lambda pid=spare: not is_alive(pid))
            assert await run(sandbox, "echo ran >>times; wc -l <times") == (
                0,
                f"{number + 1}\n",
                "",
            )
        assert process.is_running
        process.close()


@prove
async def test_command_for_which_there_is_no_room_is_told_and_what_runs_goes_on(place, marker):
    if os.geteuid() or not shutil.which("nsenter"):
        pytest.skip("takes root, to take a namespace's room away")

    def allow(count: int) -> None:
        limit = f"echo {count} >/proc/sys/user/max_pid_namespaces"
        argv = ["nsenter", "--user", "--target", str(zygote), "sh", "-c", limit]
        subprocess.run(argv, check=True)

    async with place.open("full") as sandbox:
        process = await start_daemons(sandbox, marker)
        zygote = zygote_of(supervisors(os.getpid())[0])
        await spare_of(zygote, marker)
        allow(0)
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")
        for _ in range(3):
            with pytest.raises(SandboxError, match="Cannot start another process: No space"):
                await run(sandbox, "echo fine")
        os.kill(zygote, signal.SIGSTOP)
        (await sandbox.spawn(["true"])).close()  # before it is told
        os.kill(zygote, signal.SIGCONT)
        with pytest.raises(SandboxError, match="Cannot start another process: No space"):
            await run(sandbox, "echo fine")
        assert process.is_running
        allow(100)
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")
        await spare_of(zygote, marker)
        assert process.is_running
        process.close()


@prove
async def test_launch_for_which_there_is_no_room_on_the_wire_ends_nothing_that_runs(
    place, marker, monkeypatch
):
    """The kernel counts descriptors on their way by user, and a command of an ordinary user's can take all that there may be."""

    def full(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    async with place.open("full") as sandbox:
        process = await start_daemons(sandbox, marker)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(wire, "send", full)
            with pytest.raises(SandboxError, match="Cannot start another process: Too many"):
                await run(sandbox, "echo fine")
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")
        assert process.is_running
        process.close()


@prove
async def test_commands_that_wait_for_a_zygote_that_dies_start_in_the_next(place):
    async with place.open("full") as sandbox:
        await run(sandbox, "true")
        zygote = zygote_of(supervisors(os.getpid())[0])
        [inner] = children(zygote)
        os.kill(inner, signal.SIGSTOP)
        done = []

        async def check() -> None:
            done.append(await run(sandbox, "echo", "fine", env={"LONG": "x" * 60_000}))

        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(check)
            await anyio.sleep(0.05)  # the host still runs: nothing blocks it
            os.kill(zygote, signal.SIGKILL)
    assert {status for status, _, _ in done} <= {0, -signal.SIGKILL}
    assert (0, "fine\n", "") in done


# --- the network -------------------------------------------------------------------------------------------------------


PROBER = """
import socket, sys
for line in sys.stdin:
    try:
        socket.create_connection(("127.0.0.1", int(line)), 5).close()
    except OSError:
        print("closed", flush=True)
    else:
        print("open", flush=True)
"""
SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    client.sendall(b"hello")
    client.close()
"""
CLIENT = """
import socket, sys
print(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).recv(5).decode())
"""
THROUGH_PROXY = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", 3128, timeout=5)
try:
    connection.request("GET", "http://" + sys.argv[1] + "/")
    response = connection.getresponse()
    print(response.status, response.read().decode().strip().split(":")[0])
except OSError as error:
    print(type(error).__name__)
"""


class Prober:
    """A command that runs on, and says whether it can reach a port of loopback."""

    def __init__(self, process) -> None:
        self.process = process

    async def reaches(self, port: int) -> bool:
        await self.process.stdin.send(b"%d\n" % port)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += await self.process.stdout.receive()
        return {b"open\n": True, b"closed\n": False}[answer]


async def start_prober(sandbox: Sandbox) -> Prober:
    return Prober(await sandbox.spawn([PYTHON, "-c", PROBER], stdin=PIPE))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A port of the host's loopback that speaks a little HTTP."""

    async def answer(reader, writer) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


@prove
async def test_network_is_what_it_was_when_a_command_started(place, level, port):
    async with place.open(level) as sandbox:
        off = await start_prober(sandbox)
        assert not await off.reaches(port)
        await sandbox.set_network("on")
        assert sandbox.policy.network == "on"
        on = await start_prober(sandbox)
        assert await on.reaches(port)
        assert not await off.reaches(port)
        await sandbox.set_network("off")
        off_again = await start_prober(sandbox)
        assert not await off_again.reaches(port)
        for prober in (off, on, off_again):
            prober.process.close()


@prove
@pytest.mark.parametrize("level", SHARED_NETWORK, indirect=True)
async def test_server_of_one_view_answers_in_the_others(place, level):
    async with place.open(level) as sandbox:
        server = await sandbox.spawn([PYTHON, "-u", "-c", SERVER])
        port = (await server.stdout.receive()).decode().strip()
        plain = sandbox.policy
        views = (
            plain,
            plain._replace(mode="ro"),
            plain._replace(write_paths=(f"{place.base}/granted",)),
        )
        for policy in views:
            done = await run(sandbox, PYTHON, "-c", CLIENT, port, policy=policy)
            assert done == (0, "hello\n", "")
        server.close()


@pytest.mark.parametrize("level", prove_rest(SHARED_NETWORK, keep=(0,)), indirect=True)
async def test_proxy_lets_through_to_listed_hosts_only_and_while_it_is_on(place, level, port):
    listed, other = f"127.0.0.1:{port}", "127.0.0.1:1"
    client = (PYTHON, "-c", THROUGH_PROXY)
    async with place.open(level, hosts=(listed,)) as sandbox:
        assert (await run(sandbox, *client, listed))[1] == "ConnectionRefusedError\n"
        await sandbox.set_network("proxy")
        assert (await run(sandbox, *client, listed))[1] == "200 hello\n"
        assert (await run(sandbox, *client, other))[1].startswith("403 ")
        assert place.events == [Denial("connect", other, "not_listed")]
        prober = await start_prober(sandbox)
        assert await prober.reaches(port)  # a listed loopback port is forwarded
        with socket.create_server(("127.0.0.1", 0)) as unlisted:
            assert not await prober.reaches(unlisted.getsockname()[1])
        prober.process.close()
        await sandbox.set_network("off")
        assert (await run(sandbox, *client, listed))[1] == "ConnectionRefusedError\n"
        await sandbox.set_network("proxy")
        assert (await run(sandbox, *client, listed))[1] == "200 hello\n"


@prove
async def test_hosts_of_the_proxy_can_be_replaced_while_somebody_uses_it(place, port):
    listed = f"127.0.0.1:{port}"
    client = (PYTHON, "-c", THROUGH_PROXY, listed)
    async with place.open("full") as sandbox:
        await sandbox.set_network("proxy", ("example.org",))
        idle = await sandbox.spawn(
            [
                "sh",
                "-c",
                f"{PYTHON} -uc \"import socket; s = socket.create_connection(('127.0.0.1', 3128)); print('x'); s.recv(1)\"",
            ]
        )
        await idle.stdout.receive()
        assert (await run(sandbox, *client))[1].startswith("403 ")
        for _ in range(3):
            await sandbox.set_network("proxy", (listed,))
            assert (await run(sandbox, *client))[1] == "200 hello\n"
        idle.close()


@prove
async def test_commands_are_told_of_the_proxy(place):
    async with place.open("full", network="proxy") as sandbox:
        process = await sandbox.spawn(["printenv", "https_proxy"])
        assert process.stdout
        assert (
            await all_of(process.stdout)
        ) == f"http://{process.mark}:x@127.0.0.1:3128\n".encode()
        await process.wait()
        process.close()
        await sandbox.set_network("off")
        assert (await run(sandbox, "echo $https_proxy"))[1] == "\n"


@prove
async def test_malformed_host_is_refused_and_changes_nothing(place):
    async with place.open("full") as sandbox:
        with pytest.raises(SandboxError, match="is not a host"):
            await sandbox.set_network("proxy", ("exa mple",))
        assert sandbox.policy.network == "off"
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")


async def test_proxy_needs_namespaces(place):
    async with place.open("landlock") as sandbox:
        with pytest.raises(SandboxError, match="proxy needs namespaces"):
            await sandbox.set_network("proxy")
        assert sandbox.policy.network == "off"


SQUATTER = """
import socket, sys
squatter = socket.socket()
squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
squatter.bind(("127.0.0.1", 3128))
squatter.listen()
print("there", flush=True)
sys.stdin.read()
"""


async def start_squatter(sandbox: Sandbox, **options):
    process = await sandbox.spawn([PYTHON, "-c", SQUATTER], stdin=PIPE, **options)
    assert (await process.stdout.receive()).startswith(b"there")
    return process


@prove
@pytest.mark.parametrize("level", MOUNTED, indirect=True)
async def test_proxy_whose_port_a_command_has_taken_is_refused_until_it_is_free(place, level, port):
    """The host's socket holds the port, but does not listen while the network is off: who also allows reuse gets it."""
    listed = f"127.0.0.1:{port}"
    client = (PYTHON, "-c", THROUGH_PROXY, listed)
    async with place.open(level, hosts=(listed,)) as sandbox:
        before = sandbox.policy
        squatter = await start_squatter(sandbox)
        for _ in range(2):
            with pytest.raises(SandboxError, match="cannot listen on port 3128"):
                await sandbox.set_network("proxy", ("example.org",))
            assert sandbox.policy == before
            assert await run(sandbox, "echo fine $https_proxy") == (0, "fine\n", "")
        await squatter.stdin.aclose()
        assert await squatter.wait() == 0
        squatter.close()
        await sandbox.set_network("proxy")
        assert (await run(sandbox, *client))[1] == "200 hello\n"


@prove
async def test_proxy_that_is_refused_for_one_view_serves_none(place, port):
    """At this level each view has a loopback of its own, and the port on it."""
    listed = f"127.0.0.1:{port}"
    async with place.open("full-bwrap", hosts=(listed,)) as sandbox:
        squatter = await start_squatter(sandbox, policy=sandbox.policy._replace(mode="ro"))
        with pytest.raises(SandboxError, match="cannot listen on port 3128"):
            await sandbox.set_network("proxy")
        assert sandbox.policy.network == "off"
        done = await run(sandbox, PYTHON, "-c", THROUGH_PROXY, listed)
        squatter.close()
        assert done[1] == "ConnectionRefusedError\n"


@prove
@pytest.mark.parametrize("level", SHARED_NETWORK, indirect=True)
@pytest.mark.parametrize("mode, rule", [("off", "network_off"), ("proxy", "not_listed")])
async def test_name_that_is_looked_up_is_a_denial(place, level, mode, rule):
    async with place.open(level, network=mode) as sandbox:
        process = await sandbox.spawn(["getent", "hosts", "sanderling.example"])
        assert await process.wait() == 2
        process.close()
        await happens(lambda: place.events)
        assert place.events == [Denial("resolve", "sanderling.example", rule, by=process.mark)]


# --- what may be written, and read -------------------------------------------------------------------------------------


@at_both_ends
async def test_project_and_tmp_are_writable_and_nothing_else_is(place, level):
    script = """
        for directory in . "$TMPDIR" ~ /usr /etc /var .git {base}/secret; do
            touch "$directory/new" 2>/dev/null && echo "$directory"
        done
    """
    async with place.open(level) as sandbox:
        _, output, _ = await run(sandbox, script.format(base=place.base))
        tmp, home = (await run(sandbox, "echo $TMPDIR; echo ~"))[1].split()
    assert output.split() == [".", tmp, home, ".git"]
    assert (place.project / "new").exists()
    assert not (place.home / "new").exists()


async def test_in_plan_mode_project_and_repository_are_read_only_and_tmp_is_not(place, level):
    script = """
        for path in new .git/new .git/HEAD .git/refs/heads/new file; do
            (echo x >> $path) 2>/dev/null && echo "$path"
        done
        cat file && git log -1 --format=%s && touch "$TMPDIR/new" && echo tmp
        rm file 2>/dev/null || echo kept
    """
    async with place.open(level, mode="ro") as sandbox:
        assert (await run(sandbox, script))[1] == "public\nfirst\ntmp\nkept\n"
    assert place.git("status", "--porcelain") == ""


@prove
@at_both_ends
async def test_grant_of_one_launch_is_none_of_the_next(place, level):
    granted = place.base / "granted"
    (granted / "file").write_text("granted\n")
    script = f"cat {granted}/file; echo x > {granted}/new"  # below /tmp, which is private: it may succeed
    async with place.open(level) as sandbox:
        with_write = sandbox.policy._replace(write_paths=(str(granted),))
        with_read = sandbox.policy._replace(read_paths=(str(granted),))
        for policy, can_read, can_write in (
            (None, False, False),
            (with_write, True, True),
            (None, False, False),
            (with_read, True, False),
            (None, False, False),
        ):
            output = (await run(sandbox, script, policy=policy))[1]
            assert output == ("granted\n" if can_read else "")
            assert (granted / "new").exists() is can_write
            (granted / "new").unlink(missing_ok=True)


async def test_one_file_can_be_granted(place, level):
    (place.base / "granted/file").write_text("granted\n")
    (place.base / "granted/other").write_text("other\n")
    grant = f"{place.base}/granted/file"
    async with place.open(level) as sandbox:
        policy = sandbox.policy._replace(write_paths=(grant,))
        script = f"cat {grant}; echo more >> {grant}; cat {place.base}/granted/other"
        assert (await run(sandbox, script, policy=policy))[1] == "granted\n"
    assert (place.base / "granted/file").read_text() == "granted\nmore\n"


@prove
async def test_grant_in_plan_mode_leaves_the_rest_read_only(place, level):
    (place.project / "docs").mkdir()
    async with place.open(level, mode="ro") as sandbox:
        policy = sandbox.policy._replace(write_paths=(f"{place.project}/docs",))
        script = "touch docs/new && echo docs; touch new 2>/dev/null || echo kept"
        assert (await run(sandbox, script, policy=policy))[1] == "docs\nkept\n"


@prove
async def test_grant_that_cannot_be_given_is_refused_and_the_session_lives(place):
    async with place.open() as sandbox:
        for path in (f"{place.base}/missing", str(place.home), "/"):
            with pytest.raises(SandboxError):
                await run(sandbox, "true", policy=sandbox.policy._replace(write_paths=(path,)))
        assert await run(sandbox, "echo fine") == (0, "fine\n", "")


@at_both_ends
async def test_complaint_of_a_refused_command_is_a_denial_that_can_be_granted(place, level):
    secret = f"{place.secret}/file"
    async with place.open(level) as sandbox:
        status, _, errors = await run(sandbox, "cat", secret)
        assert status == 1
        [denial] = sandbox.denials_in(errors)
        assert denial.target == secret
        assert denial.rule in ("hidden", "read_only")
        policy = sandbox.policy._replace(read_paths=(denial.target,))
        assert (await run(sandbox, "cat", secret, policy=policy))[1] == "secret\n"


@prove
async def test_home_lasts_from_session_to_session_and_tmp_does_not(place, level):
    async with place.open(level) as sandbox:
        await run(sandbox, 'mkdir -p ~/.cache; echo kept > ~/.cache/file; echo x > "$TMPDIR/file"')
        assert (await run(sandbox, 'cat ~/.cache/file "$TMPDIR/file"'))[1] == "kept\nx\n"
    async with place.open(level) as sandbox:
        assert (await run(sandbox, 'cat ~/.cache/file "$TMPDIR/file"'))[1] == "kept\n"
    assert not (place.home / ".cache").exists()
    assert not place.temporary_directories()


PLANTED_FOR_IGNORE_FILE = {
    "link": "ln -s {project}/file ~/.config/git/ignore",
    "dangling link": "ln -s {project}/missing ~/.config/git/ignore",
    "directory": "mkdir -p ~/.config/git/ignore/below",
    "directory, and another under its next name": "mkdir -p ~/.config/git/ignore/below ~/.config/git/ignore.1/below",
}


@prove
@pytest.mark.parametrize("plant", PLANTED_FOR_IGNORE_FILE)
async def test_what_a_command_puts_in_the_place_of_the_ignore_file_changes_nothing(
    place, level, plant
):
    """The private HOME lasts, so that the next session finds it where its own file belongs, as an older version let it be put."""
    (place.home / ".config/git").mkdir(parents=True)
    (place.home / ".config/git/ignore").write_text("*.junk\n")
    (place.project / "new.junk").touch()
    script = "rm -rf ~/.away; mv ~/.config ~/.away; mkdir -p ~/.config/git && "
    script += PLANTED_FOR_IGNORE_FILE[plant].format(project=place.project)
    for _ in range(3):
        async with place.open(level) as sandbox:
            assert (await run(sandbox, "git status --short"))[1] == ""
            assert (await run(sandbox, "cat file; ls missing"))[1] == "public\n"
        environment = {"HOME": str(place.base / "state/home"), "PATH": os.environ["PATH"]}
        await anyio.run_process(["sh", "-c", script], env=environment)
        assert (place.project / "file").read_text() == "public\n"
        assert not (place.project / "missing").exists()


async def test_persons_home_is_not_there(place, level):
    (place.home / ".netrc").write_text("secret")
    async with place.open(level) as sandbox:
        assert (await run(sandbox, f"cat {place.home}/.netrc ~/.netrc"))[1] == ""


@at_both_ends
async def test_environment_holds_what_is_allowed_and_what_is_named(place, level, monkeypatch):
    secrets = {
        "NVIM": "/run/nvim",
        "SSH_AUTH_SOCK": "/run/agent",
        "GITHUB_TOKEN": "token",
        "SOME_API_KEY": "key",
        "DBUS_SESSION_BUS_ADDRESS": "unix:",
        "DISPLAY": ":0",
        "GOPROXY": "https://me:word@proxy.example",
    }
    for name, value in (secrets | {"LC_ALL": "C.UTF-8", "MY_SETTING": "1"}).items():
        monkeypatch.setenv(name, value)
    async with place.open(level, env_pass=("MY_SETTING",)) as sandbox:
        output = (await run(sandbox, "env", env={"GIVEN": "2"}))[1]
    found = dict(line.split("=", 1) for line in output.splitlines())
    assert not found.keys() & secrets.keys()
    assert (found["LC_ALL"], found["MY_SETTING"], found["GIVEN"]) == ("C.UTF-8", "1", "2")
    assert found["SANDERLING_SANDBOX"] == level


# --- git ---------------------------------------------------------------------------------------------------------------


async def test_commits_are_the_persons_and_nothing_of_theirs_is_run(place, level):
    script = """
        echo more >> file && git commit -qam second && git last
        git config --get-all credential.helper; git config core.sshCommand; git evil
    """
    async with place.open(level) as sandbox:
        _, output, errors = await run(sandbox, script)
    assert output == "second\n"
    assert "'evil' is not a git command" in errors
    assert place.git("log", "-1", "--format=%an <%ae>") == "A Person <person@example.org>\n"
    assert place.git("status", "--porcelain") == ""


@prove
@pytest.mark.parametrize("level", MOUNTED, indirect=True)
async def test_config_that_the_host_replaces_is_protected_again_for_the_next_command(place, level):
    async with place.open(level) as sandbox:
        running_on = await sandbox.spawn(["sh"], stdin=PIPE)
        for number in range(3):
            place.events.clear()
            place.git("config", "some.key", str(number))
            await happens(lambda: place.events)
            assert [(event.kind, event.path) for event in place.events] == [
                ("replaced", ".git/config")
            ]
            status, _, errors = await run(sandbox, "echo '[core] fsmonitor = evil' >> .git/config")
            assert status != 0
            assert "Read-only" in errors
            assert "evil" not in (place.project / ".git/config").read_text()
        if level == "full-bwrap":  # which cannot mount it again for what runs
            assert await running_on.wait() == -signal.SIGKILL
        else:
            await running_on.stdin.send(b"echo evil >> .git/config; echo tried\n")
            assert await running_on.stdout.receive() == b"tried\n"
        running_on.close()
        assert "evil" not in (place.project / ".git/config").read_text()
        assert await run(sandbox, "git commit -q --allow-empty -m fine") == (0, "", "")
    assert place.git("config", "some.key") == "2\n"


@prove
@at_both_ends
async def test_config_cannot_be_changed_by_a_command(place, level):
    before = (place.project / ".git/config").read_text()
    async with place.open(level) as sandbox:
        await run(sandbox, "echo '[core] fsmonitor = evil' >> .git/config")
        sandbox.audit()
        config = place.project / ".git/config"
        await happens(lambda: holds(config, before))


async def test_planted_file_is_told_and_kept_elsewhere(place, level):
    async with place.open(level) as sandbox:
        await run(sandbox, "echo evil > .envrc")
        await happens(lambda: place.events)
    [event] = place.events
    assert isinstance(event, GuardEvent)
    assert (event.kind, event.path) == ("quarantined", ".envrc")
    assert not (place.project / ".envrc").exists()
    assert Path(event.kept_at).read_text() == "evil\n"  # noqa: ASYNC240


async def test_hooks_and_editors_files_are_held_wherever_they_stand(place, level):
    held = (".husky/pre-commit", ".pre-commit-config.yaml", "pkg/.vscode/tasks.json", "pkg/.envrc")
    for name in (*held, ".husky/_/pre-commit"):
        (place.project / name).parent.mkdir(parents=True, exist_ok=True)
        (place.project / name).write_text("mine\n")
    place.git("config", "core.hooksPath", ".husky/_")
    async with place.open(level) as sandbox:
        await run(sandbox, "; ".join(f"echo evil >> {name}" for name in held))
        sandbox.audit()
        paths = [place.project / name for name in held]
        await happens(lambda: all(holds(path, "mine\n") for path in paths))


async def test_name_that_nothing_can_hold_is_told_at_the_end_of_the_command(place, level):
    async with place.open(level) as sandbox:
        await run(sandbox, "mkdir pkg; echo evil > pkg/.envrc")
        sandbox.audit()
        await happens(lambda: place.events)
    [event] = place.events
    assert (event.kind, event.path) == ("noticed", "pkg/.envrc")
    assert event.reason.startswith("is new, and may run code")


@prove
async def test_git_file_that_leads_nowhere_hides_nothing_but_itself(place, level):
    """A worktree of a bare repository that was moved, or whose entry was pruned."""
    bare, tree = place.home / "repo.git", place.home / "tree"
    place.git("clone", "-q", "--bare", ".", str(bare))
    place.git("-C", str(bare), "worktree", "add", "-q", str(tree), "main")
    shutil.move(bare, place.home / "moved.git")
    place.project = tree
    async with place.open(level) as sandbox:
        assert (await run(sandbox, "cat file; echo x > new; cat new"))[1] == "public\nx\n"
        [event] = place.events
        assert (event.kind, event.path) == ("warned", ".git")
        assert f"leads to {bare}/worktrees/tree" in event.reason
        shutil.move(place.home / "moved.git", bare)
        sandbox.audit()
        assert (await run(sandbox, "cat file"))[1] == "public\n"
    assert len(place.events) == 1
    assert place.git("status", "--short") == "?? new\n"


@prove
async def test_nothing_is_left_of_a_session_whose_state_was_deleted(place, level):
    sentinel = place.project / ".git/commondir"
    async with place.open(level) as sandbox:
        assert sentinel.exists()
        tmp = Path(sandbox.policy.tmp_dir)
        shutil.rmtree(place.base / "state")
    await happens(lambda: not sentinel.exists())
    assert not tmp.exists()  # noqa: ASYNC240


async def test_evil_repository_is_quarantined_while_the_command_that_made_it_runs(place, level):
    ran = place.base / "ran"
    script = (
        f"git init -q sub; git -C sub config core.fsmonitor 'touch {ran}; false'; echo made; cat"
    )
    async with place.open(level) as sandbox:
        process = await sandbox.spawn(["sh", "-c", script], stdin=PIPE)
        assert await process.stdout.receive() == b"made\n"
        await happens(lambda: place.events)
        await process.stdin.send(b"alive")
        assert await process.stdout.receive() == b"alive"
        place.git("-C", "sub", "status")
        assert not ran.exists()
        [event] = place.events
        assert event.kind == "quarantined"
        # The whole, or its config alone if the guard has seen it in the moment between the two commands.
        assert event.path in ("sub/.git", "sub/.git/config")
        process.close()


def complaint_about_a_missing_source() -> str:
    access = LandlockAccess(readable=["/"], writable=[], devices=[], private=[])
    layout = Layout(access, shm_bytes=1 << 20, binds=[Bind("/nowhere", "/nowhere")])
    view = ZygoteView(
        "full-bwrap", layout, ResourceLimits(), has_own_network=True, can_use_network=False
    )
    here, there = wire.socket_pair()
    ours, channel = wire.socket_pair()
    with here, there, ours, channel, bubblewrap.start_zygote(view, channel, there) as stderr:
        there.close()
        assert wire.receive(here) is None
        return str(bubblewrap.complaint_in(stderr))


def test_bubblewrap_that_cannot_build_the_root_says_why():
    try:
        bubblewrap.find()
    except SandboxError as error:
        pytest.skip(str(error))
    assert "/nowhere: No such file" in in_child(complaint_about_a_missing_source)


COME_AND_GO = """
    umask 077
    mount --bind "$1" /etc
    while mkdir "/etc/$((n += 1))"; do sleep "$5"; rmdir "/etc/$n"; done &
    for _ in 1 2 3 4 5 6; do
        "$2" -m sanderling sandbox exec --level "$4" --project "$3" -- true || status=1
    done
    kill $!
    exit $status
"""


@prove
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's own files are hidden in /etc")
@pytest.mark.parametrize("level, pause_s", [("full", "0"), ("full-bwrap", "0.3")])
def test_private_files_of_the_system_that_come_and_go_are_no_obstacle(place, level, pause_s):
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace here")
    etc = place.base / "etc"  # for this test alone: the sandboxes of others look there, too
    shutil.copytree("/etc", etc, symlinks=True)
    script = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        COME_AND_GO,
        "sh",
        etc,
        sys.executable,
        place.project,
        level,
        pause_s,
    ]
    done = subprocess.run(script, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@prove
async def test_without_a_guard_nothing_is_taken_away(place, level):
    async with place.open(level, has_guard=False) as sandbox:
        await run(sandbox, "echo kept > .envrc")
        sandbox.audit()
    assert place.events == []
    assert (place.project / ".envrc").read_text() == "kept\n"


# --- what is left ------------------------------------------------------------------------------------------------------


@prove
async def test_git_sees_nothing_of_a_session_and_nothing_is_left_of_it(place, level):
    before = names_in(place.project / ".git")
    async with place.open(level) as sandbox:
        await run(sandbox, "true")
        assert place.git("status", "--porcelain") == ""
        assert place.temporary_directories()
    assert names_in(place.project / ".git") == before
    assert not place.temporary_directories()


DEEP = """
import os
os.chdir(os.environ["TMPDIR"])
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""


@prove
async def test_what_may_not_be_removed_is_gone_with_its_session(place, level):
    """As in Go's module cache, whose directories cannot be written."""
    async with place.open(level) as sandbox:
        script = "mkdir -p $TMPDIR/a/b && touch $TMPDIR/a/b/c && chmod -R 500 $TMPDIR/a"
        assert await run(sandbox, script) == (0, "", "")
    assert not place.temporary_directories()


@prove
async def test_tree_too_deep_for_any_path_is_gone_with_its_session(place, level):
    """3000 levels are more than Python can recurse, and than a path may be long."""
    async with place.open(level) as sandbox:
        assert await run(sandbox, PYTHON, "-c", DEEP) == (0, "", "")
        [own] = (place.base / "state/tmp").iterdir()
        assert (own / "d/d/d").is_dir()
    # On a busy machine `rm` takes longer than the session's end is waited for.
    await happens(lambda: not place.temporary_directories())


@prove
async def test_last_of_two_sessions_cleans_up(place):
    async with place.open("full") as first:
        async with place.open("full") as second:
            await run(first, "true")
            await run(second, "true")
            assert len(place.temporary_directories()) == 2
        assert place.sentinels()
        assert len(place.temporary_directories()) == 1
        status, _, _ = await run(first, "echo /elsewhere > .git/commondir")
        assert status != 0
    assert not place.sentinels()
    assert not place.temporary_directories()


@prove
def test_next_start_cleans_up_after_everything_was_killed(start_host, place, level, marker):
    host = start_host(daemons(marker))
    wait_until(lambda: len(running(marker)) >= 4)
    [supervisor] = supervisors(host.pid)
    for pid in (supervisor, host.pid):
        os.kill(pid, signal.SIGKILL)
    host.wait()
    wait_until(lambda: not running(marker))
    assert place.temporary_directories()
    assert place.git("status", "--porcelain") == ""

    async def start_again() -> None:
        async with place.open(level) as sandbox:
            await run(sandbox, "true")
            assert len(place.temporary_directories()) == 1

    anyio.run(start_again)
    assert not place.sentinels()
    assert not place.temporary_directories()


# --- levels and refusals -----------------------------------------------------------------------------------------------


async def test_level_can_be_asked_for(place, level):
    async with place.open(level) as sandbox:
        assert sandbox.level == level
        assert (await run(sandbox, "echo $SANDERLING_SANDBOX"))[1] == f"{level}\n"


async def test_best_level_is_chosen(place):
    async with place.open() as sandbox:
        assert sandbox.level == (await Sandbox.probe()).level


WEAK = LayerReport(
    reasons={
        "namespaces": "user namespaces are forbidden",
        "landlock": "",
        "seccomp": "",
        "bubblewrap": "it is not installed",
    },
    landlock_abi=5,
)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (
            {"min_level": "full"},
            "The sandbox only reaches level 'landlock' here, but at least 'full' is required"  # noqa: ISC004
            " (namespaces: user namespaces are forbidden).",
        ),
        (
            {"level": "full-bwrap"},
            "The sandbox level 'full-bwrap' does not work here: bubblewrap: it is not installed.",
        ),
        (
            {"level": "landlock", "min_level": "namespaces"},
            "The sandbox only reaches level 'landlock' here, but at least 'namespaces' is required"  # noqa: ISC004
            " (namespaces: user namespaces are forbidden).",
        ),
    ],
)
async def test_what_cannot_be_enforced_is_refused_in_one_sentence(place, changes, sentence):
    policy = place.policy(**changes)
    with pytest.raises(SandboxError) as caught:
        check_level(policy, WEAK)
    assert str(caught.value) == sentence
    assert await refusal_of(policy, WEAK) == sentence


async def test_weaker_level_than_the_best_is_refused_when_more_is_wanted(place):
    with pytest.raises(SandboxError) as caught:
        async with place.open("landlock", min_level="full"):
            pytest.fail("it opened")
    assert "only reaches" not in str(caught.value), "it could reach more: it was told not to"


async def test_nothing_runs_where_the_kernel_enforces_nothing(place):
    nothing = LayerReport(reasons=dict.fromkeys(WEAK.reasons, "missing"), landlock_abi=0)
    assert "level 'none'" in await refusal_of(place.policy(), nothing)


async def test_project_that_holds_too_much_is_refused(place):
    for project in (place.home, Path("/"), place.base, place.base / "state"):
        (place.base / "state").mkdir(exist_ok=True)
        assert await refusal_of(place.policy(project=str(project)))


async def test_state_that_cannot_be_written_is_refused_in_one_sentence(place):
    (place.base / "file").touch()
    policy = place.policy(state_dir=f"{place.base}/file/state")
    assert "Not a directory" in await refusal_of(policy)


async def test_refused_session_leaves_no_process_and_no_descriptor(place):
    await Sandbox.probe()
    before = names_in("/proc/self/fd")
    for changes in ({"min_level": "full", "level": "landlock"}, {"project": "/"}):
        assert await refusal_of(place.policy(**changes))
    await happens(lambda: not supervisors(os.getpid()))  # one may still be on its way out
    assert len(names_in("/proc/self/fd")) == len(before)


@prove
async def test_session_leaves_no_descriptor(place, level):
    async with place.open(level) as sandbox:
        await run(sandbox, "true")
    before = names_in("/proc/self/fd")
    async with place.open(level) as sandbox:
        await run(sandbox, "true")
        (await sandbox.open_files()).close()
        await run(sandbox, "true", policy=sandbox.policy._replace(mode="ro"))
    assert len(names_in("/proc/self/fd")) == len(before)


@prove
async def test_error_in_the_body_comes_out_as_what_it_is(place):
    with pytest.raises(LookupError):
        async with place.open():
            raise LookupError


# --- the disk ----------------------------------------------------------------------------------------------------------


@pytest.fixture(name="small_disk")
def _small_disk(place) -> Iterator[Path]:
    """A project of 64 MB, or 2,000 files."""
    with small_disk(place.project, "64m,nr_inodes=2000") as project:
        yield project


@prove
@pytest.mark.parametrize(
    "unit, least, script",
    [
        ("bytes", 10 << 20, "while head -c 1000000 /dev/zero >> fill-1; do sleep 0.01; done"),
        ("files", 100, "while n=$((n + 1)); do : > fill-$n || break; sleep 0.001; done"),
    ],
)
async def test_commands_that_fill_the_disk_are_stopped_in_time(
    place, small_disk, unit, least, script
):
    async with place.open() as sandbox:
        status, _, _ = await run(sandbox, f"n=0; {script}; sleep 1000")
        assert status == -signal.SIGKILL
        [event] = place.events
        assert isinstance(event, DiskFull)
        assert (event.path, event.unit, event.free > least) == (str(small_disk), unit, True)
        script = "rm fill-*; echo fine > small; cat small"
        assert await run(sandbox, script) == (0, "fine\n", "")


# --- the file worker ---------------------------------------------------------------------------------------------------


async def test_files_are_read_whole_or_in_part(place, level):
    async with place.open_files(level) as files:
        data = os.urandom(3 << 20)
        (place.project / "data").write_bytes(data)
        path = f"{place.project}/data"
        assert await files.read(path, limit=len(data)) == (data, len(data))
        assert await files.read(path) == (data[: 1 << 20], len(data))
        assert await files.read(path, offset=100, limit=10) == (data[100:110], len(data))
        assert await files.read(path, offset=len(data)) == (b"", len(data))


@at_both_ends
async def test_files_are_written_whole_and_keep_their_mode(place, level):
    async with place.open_files(level) as files:
        data = os.urandom(3 << 20)
        (place.project / "file").chmod(0o750)
        for name in ("file", "new"):
            await files.write(f"{place.project}/{name}", data)
            assert (place.project / name).read_bytes() == data
        assert (place.project / "file").stat().st_mode & 0o777 == 0o750
        assert names_in(place.project) == [".git", "file", "new"]


@prove
async def test_write_through_a_link_leaves_the_link(place, level):
    async with place.open_files(level) as files:
        (place.project / "link").symlink_to("file")
        await files.write(f"{place.project}/link", b"new")
        assert (place.project / "link").is_symlink()
        assert (place.project / "file").read_bytes() == b"new"


@prove
async def test_directory_is_listed_with_kinds(place, level):
    async with place.open_files(level) as files:
        (place.project / "sub").mkdir()
        (place.project / "link").symlink_to(place.secret)
        os.mkfifo(place.project / "fifo")
        assert await files.list(str(place.project)) == [
            (".git", "directory"),
            ("fifo", "other"),
            ("file", "file"),
            ("link", "link"),
            ("sub", "directory"),
        ]


async def test_hidden_path_is_not_there_or_not_to_be_read(place, level):
    async with place.open_files(level) as files:
        (place.project / "link").symlink_to(place.secret / "file")
        refused = (errno.ENOENT, errno.EACCES)
        for path in (f"{place.secret}/file", f"{place.project}/link", "/root/.bashrc"):
            with fails_with(*refused) as caught:
                await files.read(path)
            assert caught.value.filename == path
        for call in (files.list(str(place.secret)), files.write(f"{place.secret}/file", b"x")):
            with fails_with(*refused):
                await call
        assert (place.secret / "file").read_text() == "secret\n"


@pytest.mark.parametrize("level", prove_rest(MOUNTED, is_one=True), indirect=True)
async def test_protected_file_cannot_be_written(place, level):
    async with place.open_files(level) as files:
        before = (place.project / ".git/config").read_text()
        with pytest.raises(OSError, match="Errno"):
            await files.write(f"{place.project}/.git/config", b"[core]\n\tfsmonitor = evil\n")
        assert (place.project / ".git/config").read_text() == before
        assert not [name for name in names_in(place.project / ".git") if "config." in name]


@prove
async def test_what_is_no_file_is_an_error_and_nothing_is_waited_for(place, level):
    async with place.open_files(level) as files:
        os.mkfifo(place.project / "fifo")
        for name, code in (("fifo", errno.EINVAL), (".git", errno.EISDIR), ("no", errno.ENOENT)):
            with fails_with(code):
                await files.read(f"{place.project}/{name}")
        with pytest.raises(OSError, match="Errno"):
            await files.write(f"{place.project}/.git", b"x")
        with pytest.raises(OSError, match="Errno"):
            await files.write(f"{place.project}/missing/file", b"x")
        assert names_in(place.project) == [".git", "fifo", "file"]


@prove
@pytest.mark.parametrize("path", ["a\0b", "/\ud800", "/" + "x" * 5000, "", "/x" * 5000])
async def test_path_that_cannot_be_is_an_error_and_the_worker_lives(place, level, path):
    async with place.open_files(level) as files:
        for call in (files.read(path), files.write(path, b"x"), files.list(path)):
            with pytest.raises((OSError, ValueError)):
                await call
        assert await files.read(f"{place.project}/file") == (b"public\n", 7)


@prove
async def test_in_plan_mode_files_are_read_only(place, level):
    async with place.open_files(level, mode="ro") as files:
        assert await files.read(f"{place.project}/file") == (b"public\n", 7)
        for name in ("file", "new"):
            with pytest.raises(OSError, match="Errno"):
                await files.write(f"{place.project}/{name}", b"x")
    assert (place.project / "file").read_text() == "public\n"


@prove
async def test_operations_at_the_same_time_get_their_own_answers(place, level):
    async with place.open_files(level) as files:
        for number in range(20):
            (place.project / f"f{number}").write_text(str(number))

        async def check(number: int) -> None:
            data, _ = await files.read(f"{place.project}/f{number}")
            assert data == str(number).encode()

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(check, number)


@prove
async def test_cancelled_operation_does_not_leave_its_answer_to_the_next(place, level):
    async with place.open_files(level) as files:
        (place.project / "other").write_text("other")
        for _ in range(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(files.read, f"{place.project}/file")
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert await files.read(f"{place.project}/other") == (b"other", 5)


@prove
async def test_worker_that_has_ended_is_told(place, level):
    async with place.open(level) as sandbox, files_of(sandbox) as files:
        os.kill(zygote_of(supervisors(os.getpid())[0]), signal.SIGKILL)
        with pytest.raises(SandboxError, match="has ended"):  # noqa: PT012
            while True:
                await files.read(f"{place.project}/file")
        with anyio.fail_after(DEADLINE_S):
            while True:  # bubblewrap's own processes hold the old zygote's end for a moment
                with suppress(SandboxError):
                    async with files_of(sandbox) as again:
                        assert await again.read(f"{place.project}/file") == (b"public\n", 7)
                        break


SWAPPER = """
import os, shutil, sys
print("started", flush=True)
while True:
    try:
        os.rename("d", "d.real")
        os.symlink(sys.argv[1], "d")
        os.unlink("d")
        os.rename("d.real", "d")
    except OSError:  # a write that makes parents has made one while there was none
        shutil.rmtree("d")
        os.rename("d.real", "d")
"""


@prove
@pytest.mark.parametrize("level", ["full", "landlock"], indirect=True)
async def test_link_that_is_swapped_in_never_leads_to_the_secret(place, level):
    (place.project / "d").mkdir()
    (place.project / "d/file").write_text("public\n")
    path = f"{place.project}/d/file"
    seen: set[bytes] = set()
    failed = 0
    async with place.open(level) as sandbox, files_of(sandbox) as files:
        swapper = await sandbox.spawn([PYTHON, "-u", "-c", SWAPPER, str(place.secret)])
        await swapper.stdout.receive()
        for turn in range(2000):
            try:
                seen.add((await files.read(path))[0])
                if turn % 10 == 0:
                    await files.write(path, b"public\n")
            except OSError:
                failed += 1
        swapper.close()
    assert seen == {b"public\n"}
    assert failed, "the link was never hit: this proves nothing"
    assert (place.secret / "file").read_text() == "secret\n"
    assert names_in(place.secret) == ["file"]


async def test_kernel_is_asked_once():
    assert await Sandbox.probe() is await Sandbox.probe()
