"""
What the engine `ray` costs, and the memory of its driver. Needs the extra `ray`.

A slot is busy with a job from the job's start on the node to its end, as the job itself writes down. What is left of the slots' time is the
engine's: submitting, archives, the way of the results, and the start and the end of the cluster. Tasks sleep for `TASK_S` in the scripted model.
There are too few processors here for 1,000 such tasks, so fewer run, and the figure is extrapolated: the start and the end count once, the time
between two jobs of a slot for each job.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.batch.batches import Batches
from tests.bench.shared import Bench, Row, rss_mb

TASK_S = 10.0
SLOTS = 4
TASKS = 1_000
MEASURED = 24
MAX_COST_PERCENT = 5.0
EARLY, LATE = 200, 1_000  # results
MAX_GROWTH_MB = 20.0
POLL_S = 0.2


def ray_engine(bench: Bench) -> Iterator[Row]:
    if find_spec("ray") is None:
        return
    yield _cost(8 if bench.is_quick else MEASURED)
    yield _memory(*((20, 60) if bench.is_quick else (EARLY, LATE)))


def _home(folder: str, count: int, **fields: Any) -> Batches:
    home = Batches(Path(folder))
    home.repository("project", f="x\n")
    home.write_tasks(
        *({"id": f"t{number}", "prompt": "Wait.", **fields} for number in range(count))
    )
    return home


def _driver(home: Batches) -> subprocess.Popen[str]:
    model = home.write_script([{"delay_ms": 1000 * TASK_S}, {"text": "Done."}])
    arguments = (str(home.tasks), "-o", str(home.out), "--model", model)
    home.environment["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": SLOTS})
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return home.launch("batch", *arguments, "--engine", "ray", **quiet)


def _cost(count: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        home = _home(folder, count, project="project")
        begin = time.time()
        with _driver(home) as driver:
            driver.wait()
        end = time.time()
        spans = [_span(home.out / result["trial"]) for result in home.results()]
    assert len(spans) == count
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    job_s = sum(span[1] - span[0] for span in spans) / count
    # The last round is not full: slots wait for the others, which is no cost of the engine.
    gaps = list(_gaps(sorted(spans)))
    gap_s = sum(gaps) / len(gaps)
    once_s = (first - begin) + (end - last)
    wall_s = once_s + TASKS / SLOTS * (job_s + gap_s)
    percent = 100 * (1 - TASKS / SLOTS * job_s / wall_s)
    note = f"of {count} tasks: {gap_s:.2f} s between two jobs of {job_s:.1f} s, and {once_s:.1f} s once"
    what = f"engine ray: its part of {TASKS:,} tasks of {TASK_S:g} s"
    return Row(what, percent, "%", MAX_COST_PERCENT, note)


def _span(trial: Path) -> tuple[float, float]:
    """Return when the trial began and ended."""
    result = json.loads((trial / "result.json").read_text())
    began, ended = (
        datetime.fromisoformat(result[f"{each}_at"]) for each in ("started", "finished")
    )
    return began.timestamp(), ended.timestamp()


def _gaps(spans: list[tuple[float, float]]) -> Iterator[float]:
    """Yield the time between the end of a job and the beginning of the one that took its slot."""
    ends: list[float] = []
    for began, ended in spans:
        free = [end for end in ends if end <= began]
        if free:
            ends.remove(max(free))
            yield began - max(free)
        ends.append(ended)


def _memory(early: int, late: int) -> Row:
    """The driver's resident memory. The tasks end at once on their nodes, because their revision is missing."""
    with tempfile.TemporaryDirectory() as folder:
        home = _home(folder, late + 10, repository="project", revision="missing")
        found: dict[int, float] = {}
        with _driver(home) as driver:
            while driver.poll() is None and len(found) < 2:
                time.sleep(POLL_S)
                path = home.out / "results.jsonl"
                lines = path.read_bytes().count(b"\n") if path.exists() else 0
                for count in (early, late):
                    if lines >= count and count not in found:
                        found[count] = rss_mb(driver.pid)
            driver.wait()
    what = f"engine ray: the driver's memory from {early} to {late} results"
    note = f"{found[early]:.0f} MB, then {found[late]:.0f} MB"
    return Row(what, found[late] - found[early], "MB", MAX_GROWTH_MB, note)
