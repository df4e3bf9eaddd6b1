"""What `sanderling batch` leaves, read by Harbor's own models and by its viewer."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.batch.batches import Batches, bash
from tests.batch.test_harbor_tasks import DONE, harbor_task
from tests.harbor.conftest import run_harbor

READ = """
import json, sys
from pathlib import Path
from harbor.models.task.config import TaskConfig
from harbor.models.trajectories import Trajectory
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.viewer.scanner import JobScanner

out = Path(sys.argv[1])
trials = {}
for path in sorted(out.glob("*__*")):
    TrialConfig.model_validate_json((path / "config.json").read_text())
    result = TrialResult.model_validate_json((path / "result.json").read_text())
    assert (path / "results.json").read_text() == (path / "result.json").read_text()
    trajectory = path / "agent" / "trajectory.json"
    trials[result.trial_name] = {
        "rewards": result.verifier_result and result.verifier_result.rewards,
        "valid": result.reward_valid,
        "tokens": result.compute_token_cost_totals()[:3],
        "exception": result.exception_info and result.exception_info.exception_type,
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
    assert trials["steps__1"]["rewards"] == {"reward": 1.0}
    assert trials["none__1"]["exception"] == "RewardFileNotFoundError"
    assert trials["needs__1"] == {
        "rewards": None,
        "valid": False,
        "tokens": [None, None, None],
        "exception": "UnsupportedTaskError",
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
