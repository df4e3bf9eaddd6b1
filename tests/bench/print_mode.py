"""What print mode costs over a bare client: a process that imports the SDK, asks, reads the answer and ends."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.bench.shared import Bench, Row, environment_in, peak_mb, short
from tests.conftest import ROOT

DELTAS = 20
LOOK_EVERY_S = 0.005
# What the run costs: unit, and how much of what the bare client's does it may be. That takes 0.9 s, 1.1 s and 80 MB.
COSTS = {
    "start → first request": ("ms", 0.27),
    "start → done": ("ms", 0.22),
    "CPU": ("ms", 0.24),
    "memory": ("MB", 0.52),
}


@contextmanager
def project(bench: Bench) -> Generator[tuple[Path, dict[str, str]]]:
    """A project, and the environment of who asks the bench's model in it."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "project")
        (there / ".git").mkdir(parents=True)
        environment = environment_in(
            folder,
            PYTHONPATH=str(ROOT),
            ANTHROPIC_API_KEY="bench",
            ANTHROPIC_BASE_URL=bench.server.url,
            NO_PROXY="*",
        )
        yield there, environment


def print_mode(bench: Bench) -> Iterator[Row]:
    ours: list[tuple[float, ...]] = []
    bare: list[tuple[float, ...]] = []
    with project(bench) as (folder, environment):
        for _ in bench.times(8):  # in turns, so that what else the machine does meets both
            ours.append(_run(bench, ["-m", "sanderling", "-p"], folder, environment))
            client = ["-m", "tests.bench.bare_client", bench.server.url]
            bare.append(_run(bench, client, folder, environment))
    pairs = zip(zip(*ours, strict=True), zip(*bare, strict=True), strict=True)
    for (what, (unit, target)), costs in zip(COSTS.items(), pairs, strict=True):
        cost, cost_of_bare = map(statistics.median, costs)
        note = f"{short(cost)} against {short(cost_of_bare)} {unit}, medians of {len(ours)}"
        yield Row(f"print mode: {what}, of a bare client's", cost / cost_of_bare, "", target, note)


def _run(
    bench: Bench, arguments: list[str], folder: Path, environment: dict[str, str]
) -> tuple[float, ...]:
    """What `COSTS` names, of one process."""
    answer_id, words = bench.server.words("stream", DELTAS, 0)
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *arguments, words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    largest_mb, ended = (
        0.0,
        0,
    )  # what the kernel tells afterwards is the bench's own size, from before the exec
    while not ended:
        with suppress(OSError, TypeError):  # it has ended just now
            largest_mb = max(largest_mb, peak_mb(process.pid))
        time.sleep(LOOK_EVERY_S)
        ended, process.returncode, usage = os.wait4(process.pid, os.WNOHANG)
    end = time.monotonic()
    assert process.returncode == 0
    asked = bench.server.report(answer_id)["at"]
    cpu_s = usage.ru_utime + usage.ru_stime
    return 1000 * (asked - start), 1000 * (end - start), 1000 * cpu_s, largest_mb
