"""Tests with Harbor, of which `HARBOR` names the Python: `pip install harbor agent-client-protocol` in an environment of its own."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.acp.conftest import home, start

__all__ = ["home", "start"]  # fixtures

HARBOR = os.environ.get("HARBOR", "")
_VALIDATE = """
import json, sys
from harbor.models.trajectories import Trajectory
for line in sys.stdin:
    trajectory = Trajectory.model_validate(json.loads(line))
    assert trajectory.to_json_dict() == json.loads(line), "something was read as something else"
    print(len(trajectory.steps))
"""


def run_harbor(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Harbor's Python."""
    return subprocess.run(
        [HARBOR, *arguments], capture_output=True, text=True, check=False, **options
    )


@pytest.fixture
def validate() -> Callable[[Iterable[Any]], list[int]]:
    """Have Harbor's models read trajectories; returns the number of steps of each."""

    def run(trajectories: Iterable[Any]) -> list[int]:
        lines = "".join(f"{json.dumps(each)}\n" for each in trajectories)
        done = run_harbor("-c", _VALIDATE, input=lines)
        assert done.returncode == 0, done.stderr[-2_000:]
        return list(map(int, done.stdout.split()))

    return run
