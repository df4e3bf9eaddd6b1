"""What a hostile node can report, and what a task on a node may not have. Without Ray."""

import json
from pathlib import Path

import msgspec
import pytest

from sanderling.batch.harbor.worker import run_harbor_task
from sanderling.batch.jobs import Job, Origin
from sanderling.batch.ray.archives import pack
from sanderling.batch.ray.engine import own_result, receive
from sanderling.batch.results import Result, RunSettings
from sanderling.batch.tasks import Task
from tests.batch.batches import Batches
from tests.batch.test_harbor_tasks import harbor_task


def job_in(place: Path, task: Task, **settings: str) -> Job:
    return Job(
        task=task,
        attempt=1,
        settings=RunSettings(**settings),
        out=place / "out",
        trial=place / "out" / "a__1",
        work=place / "work",
        cache=place / "cache",
        origin=Origin(task.harbor or task.project, place / "out", ""),
    )


def test_a_node_reports_neither_the_result_of_another_task_nor_a_negative_cost(tmp_path: Path):
    job = job_in(tmp_path, Task(id="a", project="/p", digest="d"))
    lie = Result(
        id="b", attempt=7, hash="x", state="completed", reward=1, cost=-5.0, trial="../../elsewhere"
    )
    result = own_result(lie, job)
    assert (result.id, result.attempt, result.hash, result.trial) == ("a", 1, "d", "a__1")
    assert (result.reward, result.cost) == (1, 0.0)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_node_does_not_choose_the_project_that_its_patch_changes(tmp_path: Path, is_link: bool):
    job = job_in(tmp_path, Task(id="a", project="/the/project", digest="d"))
    job.out.mkdir()
    sent, other = tmp_path / "sent", tmp_path / "other"
    sent.mkdir()
    other.write_text("mine")
    if is_link:
        (sent / "config.json").symlink_to(other)
    else:
        (sent / "config.json").write_text(json.dumps({"task": {"path": str(Path.home())}}))
    receive(pack(sent), job)
    assert json.loads((job.trial / "config.json").read_text())["task"]["path"] == "/the/project"
    assert other.read_text() == "mine"


@pytest.mark.parametrize("toml", ["", '[verifier]\nnetwork_mode = "public"\n'])
def test_a_task_with_an_open_network_does_not_run_on_a_node(tmp_path: Path, toml: str):
    home = Batches(tmp_path)
    closed = '[environment]\nnetwork_mode = "no-network"\n' if toml else ""
    task = harbor_task(home, **{"task.toml": f'version = "1.0"\n{toml}{closed}'})
    job = job_in(tmp_path, Task(id="a", harbor=str(task), digest="d"))
    result = run_harbor_task(msgspec.structs.replace(job, is_on_cluster=True), lambda _: None)
    assert result.state == "unsupported"
    assert "--net proxy" in result.reason


def test_the_setting_of_an_open_network_is_refused_like_the_option(tmp_path: Path):
    home = Batches(tmp_path)
    (home.folder / "ray.py").write_text("")
    home.environment["PYTHONPATH"] = str(home.folder)
    home.config.write_text('network = "on"\n')
    home.directory("p")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    model = home.write_script([{"text": "Done."}])
    done = home.batch(str(home.tasks), "-o", str(home.out), "--model", model, "--engine", "ray")
    assert done.returncode == 2
    assert 'network = "on"' in done.stderr
    assert "--net proxy" in done.stderr
