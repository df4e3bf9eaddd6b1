"""The run of a batch: the jobs that are left, their budget, and a line of results for each."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import anyio
import msgspec

from sanderling.batch.engine import Engine
from sanderling.batch.jobs import Job, Origin, trial_name
from sanderling.batch.results import (
    Result,
    ResultsFile,
    RunSettings,
    newest,
    read_all_lines,
)
from sanderling.batch.tasks import Task

Key = tuple[str, str, int]
ROUNDING_USD = 1e-6
NOTE_S = 1.0
"""Between two notes of what running jobs have cost. With many jobs, answers come faster than the file should be written."""


class Places(msgspec.Struct, frozen=True):
    """The directories of a run: for what stays, for what does not, and of fetched repositories."""

    out: Path
    work: Path
    cache: Path


class Plan:
    """The jobs of a run, in their order: all tasks once, then all of them again."""

    def __init__(
        self,
        tasks: Sequence[Task],
        repeats: int,
        settings: RunSettings,
        places: Places,
        *,
        readable: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        variables: tuple[str, ...] = (),
    ) -> None:
        self._tasks = tasks
        self._repeats = repeats
        self._settings = settings
        self._places = places
        self._readable = readable
        self._hosts = hosts
        self._variables = variables
        lines = list(read_all_lines(places.out))
        self.finished = {line.key: line for line in newest(lines) if line.is_final}
        self.spent_usd = sum(line.cost or 0.0 for line in lines)

    def __len__(self) -> int:
        return len(self._tasks) * self._repeats

    @property
    def results(self) -> list[Result]:
        """The results of this plan's jobs so far. A line of a task that has changed since does not count."""
        return [self.finished[job.key] for job in self._all() if job.key in self.finished]

    def left(self) -> Iterator[Job]:
        """Yield the jobs without a result."""
        return (job for job in self._all() if job.key not in self.finished)

    def _all(self) -> Iterator[Job]:
        for attempt in range(1, self._repeats + 1):
            for task in self._tasks:
                name = trial_name(task, attempt)
                yield Job(
                    task=task,
                    attempt=attempt,
                    settings=self._settings,
                    out=self._places.out,
                    trial=self._places.out / name,
                    work=self._places.work / name,
                    cache=self._places.cache,
                    origin=Origin(
                        task.harbor or task.project or task.repository,
                        self._places.out,
                        self._settings.model,
                    ),
                    readable=self._readable,
                    hosts=self._hosts,
                    variables=self._variables,
                )


class Budget:
    """The dollars of a run: the cost of finished jobs, and of running ones so far."""

    def __init__(self, max_usd: float, spent_usd: float) -> None:
        self._max_usd = max_usd or math.inf
        self._spent_usd = spent_usd
        self._running: dict[Key, float] = {}
        self.is_over = anyio.Event()
        self._look()

    @property
    def total_usd(self) -> float:
        return self._spent_usd + sum(self._running.values())

    def limit_of(self, job: Job) -> float:
        """Return the most that the job may spend; 0: no limit."""
        own = job.task.limits.cost_usd or math.inf
        limit = min(own, self._max_usd - self.total_usd)
        return limit if limit < math.inf else 0.0

    def note(self, job: Job, cost_usd: float) -> None:
        self._running[job.key] = cost_usd
        self._look()

    @property
    def running(self) -> dict[Key, float]:
        """The dollars of running jobs that have cost something."""
        return {key: cost for key, cost in self._running.items() if cost > ROUNDING_USD}

    def spent_by(self, job: Job) -> float:
        return self._running.get(job.key, 0.0)

    def end(self, job: Job, cost_usd: float) -> None:
        self._running.pop(job.key, None)
        self._spent_usd += cost_usd
        self._look()

    def _look(self) -> None:
        if self.total_usd >= self._max_usd:
            self.is_over.set()


class Run:
    """
    Runs the jobs that are left, and writes their results.

    `running` are the trials that run, with the times of the monotonic clock when they began.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        file: ResultsFile,
        budget: Budget,
    ) -> None:
        self.plan = plan
        self.budget = budget
        self.running: dict[str, float] = {}
        self._engine = engine
        self._file = file
        self._noted: dict[Key, float] = {}

    async def serve(self, on_result: Callable[[Result], None]) -> None:
        """
        Run until no job is left, or the budget is spent, and call `on_result` with each result.

        Jobs that a cancellation stops have no result, but what they cost is noted.
        """
        jobs = iter(self.plan.left())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_spent, tasks.cancel_scope)
            tasks.start_soon(self._note_costs)
            async with anyio.create_task_group() as slots:
                for _ in range(self._engine.slots):
                    slots.start_soon(self._fill_slot, jobs, on_result)
            tasks.cancel_scope.cancel()
        self._file.forget_running()

    async def _note_costs(self) -> None:
        """Note what running jobs have cost, for a run that continues this one after it was killed."""
        while True:
            await anyio.sleep(NOTE_S)
            self._note(self.budget.running)

    def _note(self, costs: dict[Key, float]) -> None:
        if costs != self._noted:
            self._noted = costs
            self._file.note_running(_stopped_with(key, cost) for key, cost in costs.items())

    async def _stop_when_spent(self, scope: anyio.CancelScope) -> None:
        await self.budget.is_over.wait()
        scope.cancel()

    async def _fill_slot(self, jobs: Iterable[Job], on_result: Callable[[Result], None]) -> None:
        for job in jobs:
            if self.budget.is_over.is_set():
                return
            if result := await self._run_one(job):
                on_result(result)

    async def _run_one(self, job: Job) -> Result | None:
        def note_cost(cost_usd: float) -> None:
            self.budget.note(job, cost_usd)

        name = f"{job.task.id} #{job.attempt}"
        self.running[name] = time.monotonic()
        result: Result | None = None
        try:
            limited = msgspec.structs.replace(job, cost_usd=self.budget.limit_of(job))
            result = await self._engine.run(limited, note_cost)
            if _is_stopped_by_run(limited, result):
                result = None
        finally:
            del self.running[name]
            spent_usd = self.budget.spent_by(job)
            # First, because otherwise a run that is killed in between would count this job twice.
            self._note({key: cost for key, cost in self._noted.items() if key != job.key})
            lost_usd = spent_usd - (result.cost or 0.0 if result else 0.0)
            if lost_usd > ROUNDING_USD:
                self._file.append(_stopped_with(job.key, lost_usd, job.trial.name))
            if result:
                self._file.append(result)
                self.plan.finished[job.key] = result
            self.budget.end(job, max(spent_usd, result.cost or 0.0 if result else 0.0))
        return result


def _is_stopped_by_run(job: Job, result: Result) -> bool:
    """Return whether the agent ended at the limit of the run, and not at one of the task: with more money it may do better."""
    is_own = job.cost_usd == job.task.limits.cost_usd
    spent_usd = result.cost or 0.0
    return result.state == "limit" and not is_own and spent_usd >= job.cost_usd


def _stopped_with(key: Key, cost_usd: float, trial: str = "") -> Result:
    task_id, digest, attempt = key
    return Result(
        id=task_id, attempt=attempt, hash=digest, state="stopped", cost=cost_usd, trial=trial
    )
