"""The files of jobs on their way to the object store. Here it is a list."""

from pathlib import Path

import anyio
import pytest

from sanderling.batch.copies import CopyError
from sanderling.batch.jobs import Job, Origin
from sanderling.batch.ray.archives import unpack
from sanderling.batch.ray.inputs import Input, Inputs, with_inputs
from sanderling.batch.results import RunSettings
from sanderling.batch.tasks import Task
from tests.batch.batches import Batches, git


def job(home: Batches, number: int, model: str = "", **fields: str) -> Job:
    task = Task(id=f"t{number}", prompt="Do.", **fields)
    work = home.folder / "work" / task.id
    return Job(
        task=task,
        attempt=1,
        settings=RunSettings(model=model),
        out=home.out,
        trial=home.out / task.id,
        work=work,
        cache=home.folder / "cache",
        origin=Origin(task.project, home.out, model),
    )


async def inputs_of(inputs: Inputs, jobs: list[Job]) -> list[list[Input]]:
    """The inputs of the jobs, which all ask at the same time."""
    found: dict[int, list[Input]] = {}

    async def ask(number: int) -> None:
        found[number] = [each for each, _ in await inputs.of(jobs[number])]

    async with anyio.create_task_group() as tasks:
        for number in range(len(jobs)):
            tasks.start_soon(ask, number)
    return [found[number] for number in range(len(jobs))]


async def test_an_archive_is_put_once_however_many_jobs_need_it(home: Batches):
    mono = home.repository("mono", __gitignore="ignored\n")
    for name in ("one", "two"):
        (mono / name).mkdir()
        (mono / name / "f").write_text(name)
    git(mono, "add", "--all")
    git(mono, "commit", "--quiet", "--message=Packages")
    plain = home.directory("plain", f="x\n")
    model = home.write_script([{"text": "Done."}])
    projects = (mono, mono / "one", mono / "two", plain)
    jobs = [job(home, number, model, project=str(projects[number % 4])) for number in range(40)]
    stored: list[bytes] = []
    found = await inputs_of(Inputs(stored.append, home.folder / "staging"), jobs)
    assert len(stored) == 3  # the repository, the plain directory, and the script
    assert [each.inner for each, _ in found[:4]] == ["", "one", "two", ""]
    assert len({each.digest for each, _ in found[:3]}) == 1
    assert len({script.digest for _, script in found}) == 1


async def test_a_node_unpacks_an_archive_for_the_first_job_that_needs_it(home: Batches):
    project = home.repository("project", f="x\n")
    jobs = [job(home, number, project=str(project)) for number in range(3)]
    stored: list[bytes] = []
    found = await inputs_of(Inputs(stored.append, home.folder / "staging"), jobs)
    fetched: list[str] = []

    def fetch() -> bytes:
        fetched.append("archive")
        return stored[0]

    there = [
        with_inputs(each, inputs, home.folder / "node", {inputs[0].digest: fetch})
        for each, inputs in zip(jobs, found, strict=True)
    ]
    assert fetched == ["archive"]
    assert {each.task.project for each in there} == {str(home.folder / "node" / found[0][0].digest)}
    assert (Path(there[0].task.project) / "f").read_text() == "x\n"


async def test_a_project_that_is_missing_fails_each_of_its_jobs_and_no_other(home: Batches):
    project = home.repository("project", f="x\n")
    stored: list[bytes] = []
    inputs = Inputs(stored.append, home.folder / "staging")
    for number in range(2):
        with pytest.raises(CopyError, match="there is no directory"):
            await inputs.of(job(home, number, project=str(home.folder / "nowhere")))
    await inputs.of(job(home, 2, project=str(project)))
    unpack(stored[0], home.folder / "target")
    assert (home.folder / "target" / "f").read_text() == "x\n"
