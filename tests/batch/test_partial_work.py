"""An agent that does not come to its end: its work, its words and its costs are kept."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.batch.batches import Batches, bash
from tests.conftest import prove_unless_quick, running, wait_until

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]
WORK = bash("echo new >> f; touch made; sleep 1000")
USAGE = {"usage": {"input_tokens": 20, "output_tokens": 5}}
PRICES = '[prices."*"]\ninput = 1000.0\noutput = 1000.0\ncache_read = 0.0\ncache_write = 0.0\n'
COST = 25 * 1_000 / 1_000_000


def write_work(home: Batches, **limits: Any) -> tuple[str, ...]:
    """Write a task whose agent works, and then waits in a command. Return the arguments of its run."""
    home.repository("p", f="old\n")
    task = {"id": "a", "project": "p", "prompt": "Do.", "check": "test -e made"}
    home.write_tasks(task | {"limits": limits})
    home.config.write_text(PRICES)
    script = {"version": 1, "reply": [{"step": [WORK]} | USAGE, {"step": DONE} | USAGE]}
    home.script.write_text(json.dumps(script))
    return ("batch", str(home.tasks), "-o", str(home.out), "--model", f"script:{home.script}")


def kept(home: Batches) -> dict[str, Any]:
    """Return what a trial has: its result, and the calls of tools in its trajectory. Its patch has what the agent had done."""
    trial = home.out / "a__1"
    assert "+new" in (trial / "changes.patch").read_text()
    assert (trial / "agent" / "session.jsonl").stat().st_size
    trajectory = json.loads((trial / "agent" / "trajectory.json").read_text())
    calls = [call for step in trajectory["steps"] for call in step.get("tool_calls") or ()]
    [result] = home.results()
    return result | {"tools": [call["function_name"] for call in calls]}


def agents(home: Batches) -> list[int]:
    """Return the processes of agents whose settings are below this home."""
    return running(f"--settings={home.folder}")


def started(home: Batches) -> list[Path]:
    return list((home.state / "batch").glob("*/*/a__1/project/made"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_what_an_agent_had_done_when_it_was_killed_is_kept(home: Batches, number: signal.Signals):
    with home.launch(*write_work(home)) as run:
        wait_until(lambda: started(home))
        [agent] = agents(home)
        os.kill(agent, number)
        run.communicate()
    result = kept(home)
    assert (result["state"], result["exit"], result["reward"]) == ("crashed", -number, None)
    assert (result["tools"], result["calls"], result["tokens"]) == (["bash"], 1, 25)
    assert result["cost"] == pytest.approx(COST)


def test_what_an_agent_had_done_when_its_time_was_over_is_kept_and_checked(home: Batches):
    done = home.run(*write_work(home, time_s=5))
    assert done.returncode == 3, done.stderr
    result = kept(home)
    assert (result["state"], result["reward"]) == ("timeout", 1)
    assert (result["tools"], result["calls"]) == (["bash"], 1)
    assert result["cost"] == pytest.approx(COST)


def test_what_an_agent_that_does_not_stop_in_time_had_done_is_kept_and_checked(home: Batches):
    with home.launch(*write_work(home, time_s=8)) as run:
        wait_until(lambda: started(home))
        [agent] = agents(home)
        os.kill(agent, signal.SIGSTOP)
        run.communicate()
    result = kept(home)
    assert (result["state"], result["reward"], result["calls"]) == ("timeout", 1, 1)
    assert "killed after 23 s" in result["reason"]


def test_what_a_worker_had_spent_when_it_was_killed_counts(home: Batches):
    with home.launch(*write_work(home)) as run:
        wait_until(lambda: started(home))
        [worker] = {int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in agents(home)}
        os.kill(worker, signal.SIGKILL)
        run.communicate()
    [result] = home.results()
    assert result["state"] == "crashed"
    assert result["cost"] == pytest.approx(COST)


def test_what_a_killed_run_had_spent_counts_for_the_limit_of_the_next(home: Batches):
    arguments = write_work(home)
    with home.launch(*arguments) as run:
        wait_until((home.out / "running.jsonl").exists)
        run.kill()
        run.communicate()
    assert home.results() == []
    done = home.run(*arguments, "--resume", "--max-cost", str(COST / 2))
    assert done.returncode == 4, done.stderr
    [line] = home.results()
    assert line["state"] == "stopped"
    assert line["cost"] == pytest.approx(COST)
    assert not (home.out / "running.jsonl").exists()


def test_resuming_runs_again_what_crashed_or_had_no_model(home: Batches):
    arguments = write_work(home)
    script = home.script.read_text()
    home.script.write_text(json.dumps({"version": 1, "reply": []}))
    assert home.run(*arguments).returncode == 3
    assert home.results()[-1]["state"] == "error"
    home.script.write_text(script.replace("sleep 1000", "true"))
    assert home.run(*arguments, "--resume").returncode == 0
    assert [result["state"] for result in home.results()] == ["error", "completed"]
    assert json.loads((home.out / "result.json").read_text())["n_total_trials"] == 1
    assert "100.0% of 1" in home.batch("report", str(home.out)).stdout
    home.run(*arguments, "--resume")
    assert len(home.results()) == 2


def test_a_report_counts_a_task_that_was_changed_once(home: Batches):
    home.directory("p", f="x")
    task = {"id": "a", "project": "p", "prompt": "Do."}
    home.write_tasks(task | {"check": "false"})
    home.play(DONE)
    home.write_tasks(task | {"check": "true"})
    home.play(DONE, args=("--resume",))
    assert len(home.results()) == 2
    assert "100.0% of 1" in home.batch("report", str(home.out)).stdout
    home.write_tasks(task | {"check": "false"})  # its directory has the files of the other one
    home.play(DONE, args=("--resume",))
    assert len(home.results()) == 3
