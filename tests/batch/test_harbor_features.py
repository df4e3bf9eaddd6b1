"""The parts of Harbor's format, each in a task that uses it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.batch.batches import Batches, bash
from tests.batch.test_harbor_tasks import DONE, harbor_task, play
from tests.conftest import prove_unless_quick

pytestmark = prove_unless_quick
FEATURES = """
version = "1.0"
artifacts = [
  "results",
  { source = "/app/log.txt", destination = "kept/../log.txt" },
  { source = "/app/tree", exclude = ["*.pyc", "cache"] },
  { source = "link", destination = "stolen" },
  { source = "missing" },
  { source = "results", destination = "kept" },
  { source = "results", destination = "manifest.json" },
]
[environment]
network_mode = "no-network"
cpus = 1
memory_mb = 512
[environment.env]
GREETING = "${NOT_SET_ANYWHERE:-hello there}"
[environment.healthcheck]
command = "test -e /app/data.txt && echo checked >> /app/health && test $(wc -l < /app/health) -ge 2"
interval_sec = 0.1
retries = 3
[[verifier.collect]]
command = "echo collected $GREETING > /app/collected; rm -f /app/trap"
[verifier.env]
EXPECTED = "${NOT_SET_ANYWHERE:-collected hello there}"
[solution.env]
UNUSED = "1"
"""
TEST = """#!/bin/bash
(while sleep 0.2; do echo 0 > /logs/verifier/reward.txt; done) &
test "$(cat /app/collected)" = "$EXPECTED" && echo 1 > /logs/verifier/reward.txt
yes | head -c 3000000 > /logs/verifier/large
"""
WORK = """
mkdir -p results tree/cache tree/sub kept; echo a > results/a; echo "$GREETING" > log.txt
touch tree/x.pyc tree/sub/y.pyc tree/sub/keep tree/cache/z; ln -s /etc link; echo p > /logs/artifacts/published
"""


def test_a_task_uses_health_checks_collectors_variables_and_artifacts(home: Batches):
    harbor_task(home, **{"task.toml": FEATURES, "tests/test.sh": TEST})
    results = play(home, [bash(WORK)], DONE)
    assert (results["task"]["state"], results["task"]["reward"]) == ("completed", 1), results
    artifacts = home.out / "task__1" / "artifacts"
    manifest: list[dict[str, Any]] = json.loads((artifacts / "manifest.json").read_text())
    assert [(each["source"], each["destination"], each["status"]) for each in manifest] == [
        ("/logs/artifacts", "artifacts/logs/artifacts", "ok"),
        ("results", "artifacts/app/results", "ok"),
        ("/app/log.txt", "artifacts/kept/log.txt", "ok"),
        ("/app/tree", "artifacts/app/tree", "ok"),
        ("link", "artifacts/stolen", "failed"),
        ("missing", "artifacts/app/missing", "failed"),
        ("results", "artifacts/kept", "skipped"),
        ("results", "artifacts/manifest.json", "skipped"),
    ]
    kept = sorted(
        str(path.relative_to(artifacts)) for path in artifacts.rglob("*") if path.is_file()
    )
    assert kept == [
        "app/results/a",
        "app/tree/sub/keep",
        "kept/log.txt",
        "logs/artifacts/published",
        "manifest.json",
    ]
    assert (artifacts / "kept" / "log.txt").read_text() == "hello there\n"


def test_an_environment_that_is_not_healthy_is_an_error_of_the_set_up(home: Batches):
    toml = '[environment.healthcheck]\ncommand = "false"\ninterval_sec = 0.1\nretries = 2\n'
    harbor_task(home, **{"task.toml": toml})
    results = play(home, DONE)
    assert results["task"]["state"] == "setup_error"
    assert "not healthy: false" in results["task"]["reason"]
    assert results["task"]["calls"] == 0


STEPS = """
multi_step_reward_strategy = "{}"
[environment]
network_mode = "no-network"
[[steps]]
name = "one"
[[steps]]
name = "two"
min_reward = {{ speed = 0.5 }}
[[steps]]
name = "three"
"""


@pytest.mark.parametrize(
    "strategy, rewards",
    [("mean", {"reward": 0.5, "speed": 0.2}), ("final", {"reward": 0, "speed": 0.4})],
)
def test_steps_stop_at_their_least_reward_and_count_as_their_strategy_says(
    home: Batches, strategy: str, rewards: dict[str, float]
):
    files = {"task.toml": STEPS.format(strategy), "instruction.md": ""}
    tests = {"one": '{"reward": 1}', "two": '{"reward": 0, "speed": 0.4}', "three": '{"reward": 1}'}
    for name, text in tests.items():
        files[f"steps/{name}/instruction.md"] = f"{name}.\n"
        files[f"steps/{name}/tests/test.sh"] = (
            f"#!/bin/sh\necho '{text}' > /logs/verifier/reward.json\n"
        )
    harbor_task(home, **files)
    results = play(home, DONE)
    assert results["task"]["rewards"] == rewards
    steps = Path(home.out / "task__1" / "steps")
    assert sorted(path.name for path in steps.iterdir()) == ["one", "two"]


def test_the_tests_read_the_env_file_of_the_task(home: Batches):
    test = "#!/bin/sh\ngrep -q new /app/.env && echo 1 > /logs/verifier/reward.txt\ntrue\n"
    toml = '[environment]\nnetwork_mode = "no-network"\n'
    task = harbor_task(home, **{"task.toml": toml, "tests/test.sh": test})
    (task / "environment" / ".env").write_text("KEY=new\n")
    results = play(home, DONE)
    assert results["task"]["reward"] == 1, results
