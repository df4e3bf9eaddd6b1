"""
What the engine `ray` costs, and the memory of its driver. Needs the extra `ray`.

The engine's cost is measured in two ways:

* **Processor time**, which depends little on what else the machine does: what the driver and Ray's processes use between two results,
  without their children, which are the jobs themselves; and the start of a job's process, which the local engine needs as well.
* **Wall time**. A slot is busy with a job from the job's start on the node to its end, as the job itself writes down. What is left of the
  slots' time is the engine's: submitting, archives, the way of the results, the start of processes. Tasks sleep for `TASK_S` in the
  scripted model. There are too few processors here for 1,000 such tasks, so fewer run, and the figure is extrapolated: the start and the
  end of the cluster count once, the time between two jobs of a slot for each job. On a busy machine it says little.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.batch.batches import Batches
from tests.bench.shared import Bench, Row, anonymous_mb

TASK_S = 10.0
SLOTS = 4
TASKS = 1_000
MEASURED = 24
MAX_COST_PERCENT = 5.0
WARM = 10  # results, after which Ray's processes run
MARGIN = 20  # jobs that are left when the last figure is read
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STARTS = 5
EARLY, LATE = 200, 1_000  # results
MAX_GROWTH_MB = 20.0
POLL_S = 0.2


def ray_engine(bench: Bench) -> Iterator[Row]:
    if find_spec("ray") is None:
        return
    yield _processor_time(20 if bench.is_quick else 60)
    yield _wall_time(8 if bench.is_quick else MEASURED)
    yield _memory(*((20, 60) if bench.is_quick else (EARLY, LATE)))


def _home(folder: str, count: int, **fields: Any) -> Batches:
    home = Batches(Path(folder))
    home.repository("project", f="x\n")
    home.write_tasks(
        *({"id": f"t{number}", "prompt": "Wait.", **fields} for number in range(count))
    )
    return home


def _driver(home: Batches, task_s: float) -> subprocess.Popen[str]:
    model = home.write_script([{"delay_ms": 1000 * task_s}, {"text": "Done."}])
    arguments = (str(home.tasks), "-o", str(home.out), "--model", model)
    home.environment["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": SLOTS})
    with (home.folder / "said").open("w") as said:
        return home.launch("batch", *arguments, "--engine", "ray", stdout=said, stderr=said)


def _wait_for(home: Batches, driver: subprocess.Popen[str], count: int) -> None:
    """Wait until there are so many results."""
    path = home.out / "results.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert driver.poll() is None, (home.folder / "said").read_text()
        time.sleep(POLL_S)


# processor time --------------------------------------------------------------------------------------------------------


def _processor_time(count: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        home = _home(folder, WARM + count + MARGIN, project="project")
        with _driver(home, 0.0) as driver:
            _wait_for(home, driver, WARM)
            before, first = _seconds_of(home), len(home.results())
            _wait_for(home, driver, WARM + count)
            after, last = _seconds_of(home), len(home.results())
            driver.wait()
    own_s = sum(after[pid] - before.get(pid, 0.0) for pid in after) / (last - first)
    start_s = _start_s()
    percent = 100 * (own_s + start_s) / TASK_S
    note = f"{1000 * own_s:.0f} ms, and {1000 * start_s:.0f} ms for the start of its process"
    what = f"engine ray: its processor time for a task of {TASK_S:g} s"
    return Row(what, percent, "%", MAX_COST_PERCENT, note)


def _seconds_of(home: Batches) -> dict[int, float]:
    """Return the processor time of the driver and of Ray's processes so far, without their children."""
    found: dict[int, float] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_here = f"HOME={home.folder}\0".encode() in (process / "environ").read_bytes()
            words = (process / "cmdline").read_bytes()
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if is_here and (
            b"ray" in words.split(b"\0")[0] or b"/ray/" in words or b"batch\0" in words
        ):
            user, system = map(int, fields[11:13])
            found[int(process.name)] = (user + system) / TICKS_PER_S
    return found


def _start_s() -> float:
    """Return the processor time that the start of a job's process takes, the least of some."""
    return min(_used_by("import sanderling.batch.worker") for _ in range(STARTS))


def _used_by(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# wall time -------------------------------------------------------------------------------------------------------------


def _wall_time(count: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        home = _home(folder, count, project="project")
        begin = time.time()
        with _driver(home, TASK_S) as driver:
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


# memory ----------------------------------------------------------------------------------------------------------------


def _memory(early: int, late: int) -> Row:
    """The driver's memory, without what it maps of files. The tasks end at once on their nodes, because their revision is missing."""
    with tempfile.TemporaryDirectory() as folder:
        home = _home(folder, late + MARGIN, repository="project", revision="missing")
        with _driver(home, 0.0) as driver:
            _wait_for(home, driver, early)
            early_mb = anonymous_mb(driver.pid)
            _wait_for(home, driver, late)
            late_mb = anonymous_mb(driver.pid)
            driver.wait()
    what = f"engine ray: the driver's memory from {early} to {late} results"
    note = f"{early_mb:.0f} MB, then {late_mb:.0f} MB"
    return Row(what, late_mb - early_mb, "MB", MAX_GROWTH_MB, note)
