"""What print mode costs over a bare client: a process that imports the SDK, asks, reads the answer and ends."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.shared import Bench, Row, short
from tests.conftest import ROOT

DELTAS = 20
MAX_RATIO = 1.5


def print_mode(bench: Bench) -> Iterator[Row]:
    ours: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".git").mkdir()
        environment = os.environ | {
            "HOME": folder,
            "XDG_STATE_HOME": f"{folder}/state",
            "XDG_CONFIG_HOME": f"{folder}/config",
            "PYTHONPATH": str(ROOT),
            "ANTHROPIC_API_KEY": "bench",
            "ANTHROPIC_BASE_URL": bench.server.url,
            "NO_PROXY": "*",
        }
        for _ in bench.times(8):  # in turns, so that what else the machine does meets both
            ours.append(_run(bench, ["-m", "sanderling", "-p"], folder, environment))
            client = ["-m", "tests.bench.bare_client", bench.server.url]
            bare.append(_run(bench, client, folder, environment))
    for number, what in enumerate(("first request", "done")):
        yield _row(what, [times[number] for times in ours], [times[number] for times in bare])


def _run(
    bench: Bench, arguments: list[str], folder: str, environment: dict[str, str]
) -> tuple[float, float]:
    """Seconds from the start of a process to the arrival of its request, and to its end."""
    answer_id, words = bench.server.words("stream", DELTAS, 0)
    start = time.monotonic()
    subprocess.run(
        [sys.executable, *arguments, words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    end = time.monotonic()
    return bench.server.report(answer_id)["at"] - start, end - start


def _row(what: str, ours: Sequence[float], bare: Sequence[float]) -> Row:
    ms, bare_ms = (1000 * statistics.median(seconds) for seconds in (ours, bare))
    note = f"{short(ms)} against {short(bare_ms)} ms, medians of {len(ours)}"
    return Row(f"print mode: start → {what}, of a bare client's", ms / bare_ms, "", MAX_RATIO, note)
