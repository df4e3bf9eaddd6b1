"""Nothing is lost, done twice or left over when a run is killed: with 24 trials, and with 1,000 in `make fuzz`."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.batch.batches import Batches, comparable, write_many_tasks
from tests.conftest import prove_unless_quick, wait_until
from tests.fuzz import IS_FULL

pytestmark = prove_unless_quick
TASKS, REPEATS = (1_000, 1) if IS_FULL else (12, 2)
TRIALS = TASKS * REPEATS
KILLS = 10
ROUND_S, RUN_S = 600.0, 7_200.0  # deadlines


def workers_of(run: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    return [
        int(pid) for pid in children if b"batch.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def kill_a_worker(home: Batches, run: subprocess.Popen[str], out: Path) -> None:
    """Kill a worker, and wait until its end is a result."""
    before = sum(result["state"] == "crashed" for result in home.results(out))
    os.kill(wait_until(lambda: workers_of(run))[0], signal.SIGKILL)
    wait_until(
        lambda: sum(result["state"] == "crashed" for result in home.results(out)) > before,
        "the end of the worker is a result",
    )


@pytest.mark.guard
@pytest.mark.timeout(2 * RUN_S)
def test_a_run_killed_ten_times_and_resumed_equals_an_uninterrupted_one(home: Batches):
    model = write_many_tasks(home, TASKS)
    state = set(home.state.rglob("*"))
    whole, killed = home.project / "whole", home.out
    arguments = (str(home.tasks), "--model", model, "-j", "3", "-k", str(REPEATS))
    with home.launch("batch", *arguments, "--quiet", "-o", str(whole)) as run:
        assert run.wait(RUN_S) == 0
    resumed = ()
    for number in range(KILLS):
        goal = (number + 1) * TRIALS // (KILLS + 4)
        with home.launch("batch", *arguments, "-o", str(killed), "--quiet", *resumed) as run:
            wait_until(lambda n=goal: len(home.results(killed)) > n, "", ROUND_S)
            if number % 4 == 1:
                kill_a_worker(home, run, killed)
            run.send_signal(signal.SIGKILL)
            run.communicate()
        resumed = ("--resume",)
    assert KILLS <= len(home.results(killed)) < TRIALS
    with home.launch("batch", *arguments, "-o", str(killed), "--quiet", *resumed) as run:
        _, errors = run.communicate(timeout=RUN_S)
        assert run.returncode == 0, errors
    found = comparable(home, killed)
    assert len(found) == TRIALS
    assert found == comparable(home, whole)
    lines = len(home.results(killed))
    done = home.batch(*arguments, "-o", str(killed), "--resume")
    assert (done.returncode, len(home.results(killed))) == (0, lines), "something ran twice"
    assert set(home.state.rglob("*")) - state == {home.state / "batch"}, "something is left"
