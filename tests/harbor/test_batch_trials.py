"""What `sanderling batch` leaves, read by Harbor's own models and by its viewer."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.batch.batches import Batches, bash
from tests.batch.test_harbor_tasks import DONE, harbor_task
from tests.conftest import running, wait_until
from tests.harbor.conftest import run_harbor

READ = """
import json, sys
from pathlib import Path
from harbor.models.job.lock import TrialLock
from harbor.models.task.config import TaskConfig
from harbor.models.trajectories import Trajectory
from harbor.models.trial.artifact_manifest import ArtifactManifestEntry
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.viewer.scanner import JobScanner

out = Path(sys.argv[1])
trials = {}
for path in sorted(out.glob("*__*")):
    config = TrialConfig.model_validate_json((path / "config.json").read_text())
    lock = TrialLock.model_validate_json((path / "lock.json").read_text())
    assert lock.agent == config.agent and lock.schema_version == 2
    result = TrialResult.model_validate_json((path / "result.json").read_text())
    assert (path / "results.json").read_text() == (path / "result.json").read_text()
    manifests = [json.loads(each.read_text()) for each in sorted(path.rglob("artifacts/manifest.json"))]
    artifacts = [ArtifactManifestEntry.model_validate(entry) for manifest in manifests for entry in manifest]
    trajectory = path / "agent" / "trajectory.json"
    trials[result.trial_name] = {
        "rewards": result.verifier_result and result.verifier_result.rewards,
        "valid": result.reward_valid,
        "tokens": result.compute_token_cost_totals()[:3],
        "exception": result.exception_info and result.exception_info.exception_type,
        "artifacts": [[entry.destination, entry.status] for entry in artifacts],
        "is_timed": result.agent_execution and result.agent_execution.finished_at >= result.agent_execution.started_at,
        "steps": trajectory.exists() and len(Trajectory.model_validate_json(trajectory.read_text()).steps),
    }
scanner = JobScanner(out.parent)
assert sorted(scanner.list_trials(out.name)) == sorted(trials), scanner.list_trials(out.name)
job = scanner.get_job_result(out.name)
assert job is not None and job.stats.n_completed_trials == len(trials) == job.n_total_trials
assert job.stats.n_errored_trials == sum(trial["exception"] is not None for trial in trials.values())
for name in trials:
    assert scanner.get_trial_result(out.name, name) is not None
print(json.dumps(trials))
"""


@pytest.fixture
def home(tmp_path: Path) -> Batches:
    return Batches(tmp_path)


def read(out: Path) -> dict[str, Any]:
    done = run_harbor("-c", READ, str(out))
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


def test_harbor_reads_the_trials_of_its_own_tasks(home: Batches):
    harbor_task(home, "good")
    harbor_task(home, "none", **{"tests/test.sh": "#!/bin/sh\n"})
    harbor_task(home, "needs", **{"environment/Dockerfile": "FROM some/image\n"})
    steps = {
        "task.toml": '[environment]\nnetwork_mode = "no-network"\n[[steps]]\nname = "one"\n',
        "steps/one/instruction.md": "One.\n",
    }
    harbor_task(home, "steps", **steps)
    model = home.write_script([bash("cp data.txt answer")], DONE)
    home.batch(str(home.project / "tasks"), "-o", str(home.out), "--model", model)
    trials = read(home.out)
    assert trials["good__1"]["rewards"] == {"reward": 1.0}
    assert trials["good__1"]["valid"]
    assert trials["good__1"]["tokens"][0] > 0
    assert trials["good__1"]["steps"] > 1
    assert trials["good__1"]["is_timed"]
    assert trials["good__1"]["artifacts"] == [["artifacts/logs/artifacts", "empty"]]
    assert trials["steps__1"]["rewards"] == {"reward": 1.0}
    assert trials["none__1"]["exception"] == "RewardFileNotFoundError"
    assert trials["needs__1"] == {
        "rewards": None,
        "valid": False,
        "tokens": [None, None, None],
        "exception": "UnsupportedTaskError",
        "artifacts": [],
        "is_timed": None,
        "steps": False,
    }


def test_harbor_reads_the_trials_of_other_tasks(home: Batches):
    home.directory("p", f="x")
    home.write_tasks(
        {"id": "a b", "project": "p", "prompt": "Do.", "check": "true"},
        {
            "id": "late",
            "project": "p",
            "prompt": "Do.",
            "check": "sleep 60",
            "limits": {"check_time_s": 0.5},
        },
    )
    home.play(DONE, args=("-k", "2"))
    trials = read(home.out)
    assert len(trials) == 4
    assert trials["late__2"]["exception"] == "VerifierTimeoutError"
    assert sorted(trial["valid"] for trial in trials.values()) == [False, False, True, True]


def test_harbor_reads_the_trials_of_agents_that_did_not_end_their_work(home: Batches):
    harbor_task(home, "late", **{"task.toml": "[agent]\ntimeout_sec = 4\n"})
    harbor_task(home, "killed")
    slow = bash("cp data.txt answer; cp data.txt /logs/artifacts; sleep 1000")
    tasks = (str(home.project / "tasks"), "-o", str(home.out), "-j", "2")
    with home.launch("batch", *tasks, "--model", home.write_script([slow], DONE)) as run:
        places = home.state / "batch"
        wait_until(lambda: list(places.glob("*/*/killed__1/places/logs/artifacts/data.txt")))
        [agent] = [
            pid for pid in running(f"--settings={home.folder}") if b"killed__1" in command(pid)
        ]
        os.kill(agent, signal.SIGKILL)
        run.communicate()
    trials = read(home.out)
    assert trials["late__1"]["rewards"] == {"reward": 1.0}
    assert trials["late__1"]["exception"] == "AgentTimeoutError"
    assert trials["killed__1"]["exception"] == "NonZeroAgentExitCodeError"
    for name, trial in trials.items():
        assert trial["steps"] > 1
        assert trial["is_timed"]
        assert trial["tokens"][0] > 0
        assert trial["artifacts"] == [["artifacts/logs/artifacts", "ok"]]
        assert "answer" in (home.out / name / "changes.patch").read_text()


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
