"""
What the sandbox costs, next to the same without it in the same run: start, command, change of the network, stop, output.

`python -m tests.bench.sandbox PROJECT STATE` is a host for the benchmark to kill: it starts a tree of processes and waits.
Without arguments it tells how many ms it took to probe the kernel, which a process does once.
"""

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import anyio

from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.guard.guard import Guard
from sanderling.sandbox.guard.protection import protection
from sanderling.sandbox.guard.repositories import survey
from sanderling.sandbox.manager import REST_AFTER_S
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.sandbox import Process, Sandbox
from tests.bench.shared import (
    Bench,
    Row,
    forget_peak_mb,
    median_row,
    ms_of,
    peak_mb,
    plain_ms,
    rss_mb,
    timed,
)
from tests.conftest import ROOT, processes_with

TRUE = ["/bin/true"]
BARE_PYTHON = [sys.executable, "-I", "-c", "pass"]
MAX_WAKING = 8  # times `BARE_PYTHON`: 100 ms on a machine where that takes 12.5
HOST_MB = (100, 300)
TREE = "for n in $(seq 25); do setsid sleep 600 & sleep 600 & done; echo started; wait"
FORK_BOMB = "bomb() { bomb | bomb & }; echo started; bomb; sleep 600"
RESTING_S, SETTLED_S = 1.0, 0.1
BOMB_S = 1.0  # until it has reached the limit of processes
OUTPUT_MB = 300
WORK = {
    "find": f"find {ROOT}/.venv -type f | wc -l",
    "grep": f"grep -r --include=*.py 'def main' {ROOT}/.venv | wc -l",
    "150 programs": "for n in $(seq 150); do /bin/true; done",
}


def sandbox(bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        policy = _policy(Path(folder, "project"), Path(folder, "state"))
        for measure in (_opening, _resting, _commands, _network, _stopping, _output, _work):
            yield from asyncio.run(measure(bench, policy))
        yield _tripwire(bench, policy)
        yield _killed_host(bench, policy)


def _policy(project: Path, state: Path) -> SandboxPolicy:
    project.mkdir(exist_ok=True)
    state.mkdir(exist_ok=True)
    if not (project / ".git").exists():
        subprocess.run(["git", "init", "-q", project], check=True)
    return SandboxPolicy(project=str(project), home=str(Path.home()), state_dir=str(state))


def _probe_ms() -> float:
    argv = [sys.executable, "-m", "tests.bench.sandbox"]
    return float(subprocess.check_output(argv, cwd=ROOT))


async def _run(session: Sandbox, *argv: str) -> bytes:
    process = await session.spawn(argv)
    output = b"".join([chunk async for chunk in process.stdout])
    assert await process.wait() == 0, argv
    process.close()
    return output


@asynccontextmanager
async def _started(session: Sandbox, script: str) -> AsyncIterator[Process]:
    """A shell script that runs, and has said so."""
    process = await session.spawn(["/bin/bash", "-c", script])
    assert await process.stdout.receive() == b"started\n"
    yield process
    process.close()


# what is measured ----------------------------------------------------------------------------------------------------


async def _opening(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    probes, first, known = [], [], []
    report = await Sandbox.probe()
    for _ in bench.times(10):
        probes.append(_probe_ms())
        for values, what_is_known in ((first, None), (known, report)):
            begin = time.perf_counter()
            async with Sandbox.open(policy, report=what_is_known) as session:
                values.append(1000 * (time.perf_counter() - begin))
                await _run(session, *TRUE)
    return [
        median_row("sandbox: find out what the kernel can do", probes, "ms", 50),
        median_row("sandbox: open a session", first, "ms", 80),
        median_row("sandbox: open a session, the kernel known", known, "ms"),
    ]


async def _resting(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    """A session after `REST_AFTER_S` without a command. The time is shortened here."""
    awake, memory, first, later, plain, left = [], [], [], [], [], 0
    others = set(_descendants(os.getpid()))
    for _ in bench.times(5):
        session = SessionSandbox(policy, lambda _: None, lambda: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.manager.serve)
            await (await session.environment.files()).list(policy.project)
            later.append(await ms_of(lambda session=session: _true_in(session)))
            await anyio.sleep(SETTLED_S)  # the init of the next command is there
            running = set(_descendants(os.getpid())) - others
            awake.append(len(running))
            memory.append(sum(map(pss_mb, running)))
            session.manager.rest_after_s = 0
            with session.manager.kept_open():
                pass
            await anyio.sleep(RESTING_S)
            left = max(left, len(set(_descendants(os.getpid())) - others))
            session.manager.rest_after_s = REST_AFTER_S
            first.append(await ms_of(lambda session=session: _true_in(session)))
            plain.append(plain_ms(BARE_PYTHON))
            tasks.cancel_scope.cancel()
    return [
        median_row("a session that has used a tool: processes", awake, ""),
        median_row("a session that has used a tool: their memory (PSS)", memory, "MB"),
        Row("a session at rest: processes", left, "", 0),
        median_row("a session at rest: first command", first, "ms"),
        median_row("a plain subprocess of Python, which opening starts with", plain, "ms"),
        Row(
            "a session at rest: first command / plain Python",
            median(first) / median(plain),
            "times",
            MAX_WAKING,
        ),
        median_row("a session that is not: command", later, "ms"),
    ]


async def _true_in(session: SessionSandbox) -> None:
    process = await session.environment.spawn(TRUE)
    assert await process.wait() == 0
    process.close()


def pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"\nPss:\s+(\d+)", text)[1]) / 1024


async def _commands(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    rows, inside_at = [], {}
    async with Sandbox.open(policy) as session:
        for size in HOST_MB:
            ballast = b"x" * ((size - int(rss_mb(os.getpid()))) << 20)
            plain, inside = [], []
            for _ in bench.times(100):
                inside.append(await ms_of(lambda: _true(session)))
                plain.append(plain_ms(TRUE))
            rows += [
                median_row(f"/bin/true, host at {size} MB: plain subprocess.run", plain, "ms"),
                median_row(f"/bin/true, host at {size} MB: in the sandbox", inside, "ms"),
                Row(
                    f"/bin/true, host at {size} MB: sandbox / plain",
                    median(inside) / median(plain),
                    "times",
                    5,
                ),
            ]
            inside_at[size] = median(inside)
            del ballast
    small, large = HOST_MB
    ratio = inside_at[large] / inside_at[small]
    return [*rows, Row(f"/bin/true: host at {large} MB / at {small} MB", ratio, "times", 1.2)]


async def _true(session: Sandbox) -> None:
    process = await session.spawn(TRUE, stderr=subprocess.DEVNULL)
    assert await process.wait() == 0
    process.close()


async def _network(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    """From the call until the next command has told which network it is in."""
    opened, again, closed = [], [], []
    ours = _own_network()

    async def switch(session: Sandbox, mode: str) -> float:
        begin = time.perf_counter()
        await session.set_network(mode)
        network = int(await _run(session, "stat", "-Lc", "%i", "/proc/self/ns/net"))
        assert (network == ours) is (mode == "on"), mode
        return 1000 * (time.perf_counter() - begin)

    for _ in bench.times(10):
        async with Sandbox.open(policy) as session:
            opened.append(await switch(session, "on"))
            closed.append(await switch(session, "off"))
            again.append(await switch(session, "on"))
    return [
        median_row("network on, first time → a command has it", opened, "ms", 60),
        median_row("network on, again → a command has it", again, "ms", 60),
        median_row("network off → a command has none", closed, "ms", 60),
    ]


def _own_network() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


async def _stopping(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    trees, bombs, closed = [], [], []
    for _ in bench.times(10):
        async with Sandbox.open(policy) as session, _started(session, TREE) as process:
            trees.append(await _kill(process))
    for _ in bench.times(3):
        async with Sandbox.open(policy) as session, _started(session, FORK_BOMB) as process:
            await anyio.sleep(BOMB_S)
            bombs.append(await _kill(process))
    others = set(_descendants(os.getpid()))
    for _ in bench.times(5):
        async with Sandbox.open(policy) as session:
            await session.spawn(["/bin/bash", "-c", TREE], stdout=subprocess.DEVNULL)
            await _started_tree()
            left = set(_descendants(os.getpid())) - others
            begin = time.perf_counter()
        closed.append(1000 * (_until_gone(left) - begin))
    return [
        median_row("kill → a tree of 50 processes is gone", trees, "ms", 50),
        median_row("kill → a fork bomb at its limit is gone", bombs, "ms", 300),
        median_row("end of the session → nothing of it is alive", closed, "ms", 300),
    ]


async def _started_tree() -> None:
    while len(_named("sleep", _descendants(os.getpid()))) < 50:
        await anyio.sleep(0.01)


async def _kill(process: Process) -> float:
    left = _descendants(os.getpid())
    begin = time.perf_counter()
    process.kill()
    await process.wait()
    told = 1000 * (time.perf_counter() - begin)
    assert not _named("sleep", left), "the host is told when the last process is gone"
    return told


def _tripwire(bench: Bench, policy: SandboxPolicy) -> Row:
    found = survey(policy.project, TrustedGit())
    guard = Guard(found, protection(found), f"{policy.state_dir}/quarantine", restores=False)
    planted, values = Path(policy.project, ".envrc"), []
    for _ in bench.times(300):
        with timed(values):
            planted.write_text("evil")
            while planted.exists():
                guard.handle_events()
    guard.close()
    return median_row("a name that must not appear is written → is gone", values, "ms", 1)


def _killed_host(bench: Bench, policy: SandboxPolicy) -> Row:
    values = []
    argv = [sys.executable, "-m", "tests.bench.sandbox", policy.project, policy.state_dir]
    for _ in bench.times(5):
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as host:
            assert host.stdout.readline() == b"started\n"
            left = _descendants(host.pid)
            assert len(_named("sleep", left)) == 50
            begin = time.perf_counter()
            host.send_signal(signal.SIGKILL)
            values.append(1000 * (_until_gone(left) - begin))
    return median_row("kill -9 of the host → nothing of the session is alive", values, "ms", 300)


async def _output(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    """One line of 300 MB."""
    argv = ["head", "-c", str(OUTPUT_MB << 20), "/dev/zero"]
    inside, plain, growths = [], [], []
    async with Sandbox.open(policy) as session:
        for _ in bench.times(3):
            before = forget_peak_mb(os.getpid())
            begin = time.perf_counter()
            process = await session.spawn(argv)
            size = 0
            async for chunk in process.stdout:
                size += len(chunk)
            assert (await process.wait(), size) == (0, OUTPUT_MB << 20)
            inside.append(time.perf_counter() - begin)
            process.close()
            growths.append(peak_mb(os.getpid()) - before)
            begin = time.perf_counter()
            async with await anyio.open_process(argv, stderr=None) as process:
                async for _ in process.stdout:
                    pass
            plain.append(time.perf_counter() - begin)
    ratio = median(inside) / median(plain)
    return [
        Row(f"{OUTPUT_MB} MB of output: host's growth, at most", max(growths), "MB", 10),
        Row(f"{OUTPUT_MB} MB of output: time, sandbox / anyio's process", ratio, "times"),
    ]


async def _work(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    rows = []
    async with Sandbox.open(policy) as session:
        for what, script in WORK.items():
            argv = ["/bin/bash", "-c", script]
            plain_ms(argv)  # fills the page cache
            inside, plain = [], []
            for _ in bench.times(5):
                inside.append(await ms_of(lambda argv=argv: _run(session, *argv)))
                plain.append(plain_ms(argv))
            note = f"{median(inside):.0f} ms / {median(plain):.0f} ms"
            ratio = median(inside) / median(plain)
            rows.append(Row(f"{what}: sandbox / plain", ratio, "times", note=note))
    return rows


# processes -----------------------------------------------------------------------------------------------------------


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in (each / "stat" for each in Path("/proc").glob("[0-9]*")):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def _named(name: str, pids: list[int]) -> list[int]:
    return sorted({*pids} & {*processes_with("comm", lambda comm: comm.decode().strip() == name)})


def _until_gone(pids: Iterable[int]) -> float:
    """When the last of these processes has ended, which some have already."""
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([pidfd], [], [], 10)
        os.close(pidfd)
        assert ended, f"process {pid} outlives its session"
    return time.perf_counter()


async def _be_killed(project: str, state: str) -> None:
    async with Sandbox.open(_policy(Path(project), Path(state))) as session:
        await session.spawn(["/bin/bash", "-c", TREE], stdout=subprocess.DEVNULL)
        await _started_tree()
        print("started", flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_be_killed(*sys.argv[1:]))
    else:
        print(asyncio.run(ms_of(Sandbox.probe)))
