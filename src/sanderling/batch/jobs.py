"""The messages between an engine and a worker."""

from pathlib import Path
from typing import Any

import msgspec

from sanderling.batch.results import Result, RunSettings
from sanderling.batch.tasks import Task, directory_name


class Origin(msgspec.Struct, frozen=True):
    """A job as the user knows it: the path of its task's files, the directory of results, and the model."""

    source: str
    out: Path
    model: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """
    One repetition of a task.

    Attributes:
        trial: the directory for what stays; `out` contains it and is not copied with a project.
        work: the directory for everything else, removed afterwards.
        cache: the directory of fetched repositories, for all jobs of the run.
        cost_usd: the most that the agent may spend; 0: no limit.
        readable, hosts: paths that commands can read, and hosts that they reach while the network is "proxy", of the user's settings.
        variables: names of variables of this machine that tasks can read, though they may be secrets.
        options: settings of the agent that override those of the machine.
        is_on_cluster: whether other machines run jobs, too, and can be reached.
        origin: what the trial's files say of it. It stays the same on another machine, which replaces the paths of the job.
    """

    task: Task
    attempt: int
    settings: RunSettings
    out: Path
    trial: Path
    work: Path
    cache: Path
    origin: Origin
    cost_usd: float = 0.0
    readable: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    is_on_cluster: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task.id, self.task.digest, self.attempt


def encode_job(job: Job) -> bytes:
    """Encode a job as one line of JSON."""
    return msgspec.json.encode(job, enc_hook=str) + b"\n"


def decode_job(line: bytes) -> Job:
    return msgspec.json.decode(line, type=Job, dec_hook=lambda kind, value: kind(value))


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """The dollars that the agent has spent so far."""

    cost_usd: float


class Done(msgspec.Struct, tag="done", frozen=True):
    result: Result


def trial_name(task: Task, attempt: int) -> str:
    """Return the name of a trial's directory, in Harbor's form."""
    return f"{directory_name(task.id)}__{attempt}"
