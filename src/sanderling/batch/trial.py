"""
The directory of a trial, in the form of Harbor 0.26: `config.json`, `lock.json`, `result.json`, `agent/`, `verifier/` and `artifacts/`.

Harbor's documentation calls the file `results.json`, and its code reads `result.json`; the first is a link to the second.
"""

import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

import sanderling
from sanderling.batch.agent import AgentEnd
from sanderling.batch.checks import main_reward
from sanderling.batch.jobs import Job
from sanderling.batch.patches import Baseline
from sanderling.batch.results import Result, State
from sanderling.errors import SanderlingError
from sanderling.json_lines import encoded
from sanderling.text import printable

PATCH = "changes.patch"
GRADED: tuple[State, ...] = ("completed", "timeout", "limit")
"""The states of an agent whose work is checked. What an agent leaves that could not work says nothing about it."""
Phase = Literal["environment_setup", "agent_execution", "verifier"]

EXCEPTIONS: dict[State, str] = {
    "timeout": "AgentTimeoutError",
    "limit": "BudgetExceededError",
    "error": "ApiError",
    "crashed": "NonZeroAgentExitCodeError",
    "setup_error": "EnvironmentStartError",
    "check_error": "RewardFileNotFoundError",
    "check_timeout": "VerifierTimeoutError",
    "unsupported": "UnsupportedTaskError",
}
"""The names that Harbor has for these ends, or that would mean the same to a reader."""


class Trial:
    """The trial of a job while it runs. `end` writes its files and returns its result."""

    def __init__(self, job: Job) -> None:
        self.agent = AgentEnd()
        self.rewards: dict[str, float] = {}
        self.has_patch = False
        self.step_results: list[dict[str, Any]] = []
        self._job = job
        self._began = datetime.now(UTC)
        self._times: dict[Phase, dict[str, str]] = {}
        self._took: dict[Phase, float] = {}
        self._notes: list[str] = []
        for name in ("agent", "verifier", "artifacts"):
            (job.trial / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def timed(self, phase: Phase) -> Generator[None]:
        """Measure a phase. The times of steps add up."""
        began, begin_s = datetime.now(UTC), time.monotonic()
        try:
            yield
        finally:
            started_at = self._times.get(phase, {}).get("started_at", began.isoformat())
            ended_at = datetime.now(UTC).isoformat()
            self._times[phase] = {"started_at": started_at, "finished_at": ended_at}
            self._took[phase] = self._took.get(phase, 0.0) + time.monotonic() - begin_s

    def note(self, text: str) -> None:
        self._notes.append(printable(text))

    def write_patch(self, baseline: Baseline, prompt: str) -> None:
        """
        Write the patch of what has changed, if anything has. Its subject is the first line of the prompt.

        Raises:
            GitError: it cannot be made.
        """
        first_line = prompt.strip().split("\n")[0]
        if patch := baseline.patch(f"{self._job.task.id}: {first_line}"):
            (self._job.trial / PATCH).write_bytes(patch)
            self.has_patch = True
        if left_out := baseline.left_out():
            self.note(f"not in the patch, because they are repositories: {', '.join(left_out)}")

    def keep_session(self, agent: AgentEnd, to: Path) -> None:
        """Keep the log of the agent's session in the directory `to`, and its trajectory, which an agent that was killed did not write."""
        found = self._job.work.glob(f"state/*/sanderling/sessions/{agent.session_id}.jsonl")
        log = next(found, None) if agent.session_id else None
        if log is None:
            return
        shutil.copyfile(log, to / "session.jsonl")
        if not (to / "trajectory.json").exists():
            with suppress(SanderlingError):  # nothing was said yet
                _write_trajectory(log, to / "trajectory.json")

    def end(self, state: State, reason: str = "") -> Result:
        job, agent = self._job, self.agent
        result = Result(
            id=job.task.id,
            attempt=job.attempt,
            hash=job.task.digest,
            state=state,
            reason=printable("; ".join(filter(None, (reason, *self._notes)))),
            reward=main_reward(self.rewards),
            rewards=self.rewards if self.rewards.keys() - {"reward"} else {},
            tokens=agent.tokens,
            usage=agent.usage,
            cost=agent.cost,
            wall=self._seconds("agent_execution"),
            setup=self._seconds("environment_setup"),
            checking=self._seconds("verifier"),
            calls=agent.calls,
            questions=agent.questions,
            denials=agent.denials,
            exit=agent.exit,
            patch=self.has_patch,
            trial=job.trial.name,
        )
        self._write(result)
        return result

    def _seconds(self, phase: Phase) -> float:
        return round(self._took.get(phase, 0.0), 3)

    def _write(self, result: Result) -> None:
        directory = self._job.trial
        config = config_of(self._job)
        (directory / "config.json").write_bytes(encoded(config) + b"\n")
        (directory / "lock.json").write_bytes(encoded(self._lock(config)) + b"\n")
        (directory / "result.json").write_bytes(encoded(self._trial_result(result, config)) + b"\n")
        if not os.path.lexists(directory / "results.json"):
            (directory / "results.json").symlink_to("result.json")

    def _lock(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the trial's inputs, as Harbor's `TrialLock`."""
        task = self._job.task
        return {
            "schema_version": 2,
            "task": {
                "name": self._task_name,
                "type": "local",
                "digest": f"sha256:{task.digest}",
                "path": config["task"]["path"],
            },
            "agent": config["agent"],
            "environment": {},
            "verifier": {"environment_mode": "shared"},
        }

    @property
    def _task_name(self) -> str:
        job = self._job
        return Path(job.origin.source).name if job.task.harbor else job.task.id

    def _trial_result(self, result: Result, config: dict[str, Any]) -> dict[str, Any]:
        job = self._job
        out = job.origin.out
        provider, _, model = self.agent.model.rpartition(":")
        info = {"name": model, "provider": provider or None} if model else None
        return {
            "id": str(uuid5(NAMESPACE_URL, f"{result.hash}/{result.attempt}/{out}")),
            "task_name": self._task_name,
            "trial_name": job.trial.name,
            "trial_uri": (out / job.trial.name).as_uri(),
            "task_id": {"path": config["task"]["path"]},
            "task_checksum": job.task.digest,
            "config": config,
            "agent_info": {
                "name": "sanderling",
                "version": sanderling.__version__,
                "model_info": info,
            },
            "agent_result": agent_result(self.agent) if result.exit is not None else None,
            "verifier_result": {"rewards": self.rewards} if self.rewards else None,
            "exception_info": exception_info(result.state, result.reason),
            "started_at": self._began.isoformat(),
            "finished_at": datetime.now(UTC).isoformat(),
            **self._times,
            "step_results": self.step_results or None,
        }


def config_of(job: Job) -> dict[str, Any]:
    """Return the job as Harbor's `TrialConfig`. `batch apply` finds the project in it."""
    origin = job.origin
    return {
        "task": {"path": origin.source},
        "trial_name": job.trial.name,
        "trials_dir": str(origin.out),
        "agent": {"name": "sanderling", "model_name": origin.model or None},
    }


def _write_trajectory(log: Path, to: Path) -> None:
    from sanderling.config.layers import own_settings
    from sanderling.providers.models.known import load_models
    from sanderling.session.ledger import Prices
    from sanderling.session.store.atif import export_trajectory

    prices = Prices(load_models(own_settings()))
    to.write_bytes(encoded(export_trajectory(log.parent, log.stem, prices)) + b"\n")


def agent_result(agent: AgentEnd) -> dict[str, Any]:
    """Return what an agent used, as Harbor's `AgentContext`. Its input tokens include those from the cache."""
    usage = agent.usage
    cached = usage.get("cache_read_input_tokens", 0)
    written = usage.get("cache_creation_input_tokens", 0)
    return {
        "n_input_tokens": usage.get("input_tokens", 0) + cached + written,
        "n_cache_tokens": cached,
        "n_output_tokens": usage.get("output_tokens", 0),
        "cost_usd": agent.cost,
        "metadata": {
            "calls": agent.calls,
            "questions": agent.questions,
            "denials": agent.denials,
            "exit": agent.exit,
        },
    }


def exception_info(state: State, reason: str) -> dict[str, Any] | None:
    if state not in EXCEPTIONS:
        return None
    return {
        "exception_type": EXCEPTIONS[state],
        "exception_message": reason or state,
        "exception_traceback": "",
        "occurred_at": datetime.now(UTC).isoformat(),
    }
