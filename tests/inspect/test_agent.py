"""The agent `sanderling` of Inspect, with scripted models that Inspect answers for."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.inspect.conftest import Inspect

HARBOR_TASKS = ROOT / "tests/harbor/tasks"


def accuracy(log: dict) -> float:
    (score,) = log["results"]["scores"]
    return score["metrics"]["accuracy"]["value"]


def test_the_agent_solves_a_sample_and_inspect_counts_and_logs_its_model_calls(inspect: Inspect):
    log = inspect.eval("solved")
    assert (log["status"], accuracy(log)) == ("success", 1.0)
    (sample,) = log["samples"]
    assert sample["model_usage"]["mockllm/model"]["total_tokens"] == 220
    assert [event["event"] for event in sample["events"]].count("model") == 2
    system, user, call, result, done = sample["messages"]
    assert "You are Sanderling" in system["content"]
    assert user["content"][-1]["text"] == "Copy the file."
    assert call["tool_calls"][0]["function"] == "bash"
    assert (result["role"], "exit status 0" in result["content"]) == ("tool", True)
    assert "Done." in str(done["content"])
    assert inspect.left() == []


def test_a_sample_that_the_agent_does_not_solve_gets_no_score(inspect: Inspect):
    log = inspect.eval("missed")
    assert (log["status"], accuracy(log)) == ("success", 0.0)
    assert "No such file" in str(log["samples"][0]["messages"])


# --- tasks in Harbor's format, as inspect_harbor reads them -----------------------------------------------------------


@pytest.fixture
def tasks(inspect: Inspect) -> Path:
    if inspect.python("-c", "import inspect_harbor").returncode:
        pytest.skip("Inspect's Python has no inspect_harbor, which needs Python 3.12")
    return Path(shutil.copytree(HARBOR_TASKS, inspect.folder / "tasks"))


def test_tasks_of_harbor_are_solved_and_checked_without_docker(inspect: Inspect, tasks: Path):
    log = inspect.eval("harbors", "-T", f"path={tasks}")
    assert log["status"] == "success", log["error"]
    assert {
        sample["id"]: sample["scores"]["harbor_scorer"]["value"] for sample in log["samples"]
    } == {
        "sanderling/count": 1.0,
        "sanderling/greet": 1.0,
    }
    assert inspect.left() == []


def test_an_image_that_would_have_to_be_built_ends_its_sample_with_the_line(
    inspect: Inspect, tasks: Path
):
    with (tasks / "greet/environment/Dockerfile").open("a") as file:
        file.write("RUN apt-get update\n")
    log = inspect.eval("harbors", "-T", f"path={tasks / 'greet'}", "--no-fail-on-error")
    assert "RUN apt-get update" in str(log["samples"][0]["error"])
    assert inspect.left() == []
