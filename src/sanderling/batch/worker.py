"""
The process of one job: it makes a copy, runs the agent, makes the patch, and checks the result.

`python -m sanderling.batch.worker` reads one `Job` from standard input and writes `Progress`, then `Done`, to standard output, as lines of
JSON. It ends with everything that it has started when its parent ends, or at SIGTERM.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

import anyio

from sanderling.batch.agent import AgentRun, run_agent
from sanderling.batch.checks import (
    CheckError,
    CheckTimeoutError,
    Command,
    reward_of_status,
    run_command,
)
from sanderling.batch.copies import Copy, CopyError, make_copy
from sanderling.batch.git import GitError
from sanderling.batch.jobs import Done, Job, Progress, decode_job
from sanderling.batch.parent import end_with_parent
from sanderling.batch.patches import Baseline
from sanderling.batch.results import Result, State
from sanderling.batch.trial import Trial
from sanderling.errors import SandboxError
from sanderling.json_lines import encoded

PATCH = "changes.patch"
GRADED: tuple[State, ...] = ("completed", "timeout", "limit")
"""The states of an agent whose work is checked. What an agent leaves that could not work says nothing about it."""


def main() -> NoReturn:
    signal.signal(signal.SIGTERM, _end_all)
    end_with_parent(signal.SIGTERM)
    job = decode_job(sys.stdin.buffer.readline())
    _say(Done(anyio.run(_run, job, report_cost)))
    os._exit(0)


def _end_all(*_: object) -> None:
    """End this process and all that it has started. A worker leads a process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def report_cost(cost_usd: float) -> None:
    _say(Progress(cost_usd))


def _say(message: Progress | Done) -> None:
    sys.stdout.buffer.write(encoded(message) + b"\n")
    sys.stdout.buffer.flush()


async def _run(job: Job, on_cost: Callable[[float], None]) -> Result:
    trial = Trial(job)
    try:
        with trial.timed("environment_setup"):
            copy = make_copy(job.task, job.work / "project", job.cache, without=job.out)
            baseline = Baseline(copy, job.work / "base.git")
    except (CopyError, GitError) as error:
        return trial.end("setup_error", str(error))
    with trial.timed("agent_execution"):
        trial.agent = await run_agent(_agent_run(job, copy), on_cost)
    keep_session(job)
    try:
        write_patch(job, baseline, trial)
    except GitError as error:
        return trial.end("setup_error", str(error))
    if not job.task.check or trial.agent.state not in GRADED:
        return trial.end(trial.agent.state, trial.agent.reason)
    return await _checked(job, copy, trial)


def _agent_run(job: Job, copy: Copy) -> AgentRun:
    task, limits = job.task, job.task.limits
    # Paths that the user lets commands write are shared by all tasks, so none of them applies. The rest of the repository can be read.
    readable = [str(copy.root)] if copy.root != copy.project else []
    return AgentRun(
        project=copy.project,
        prompt=task.prompt,
        settings=job.settings,
        role=task.role,
        options={"sandbox": {"write": [], "read": [*job.readable, *readable]}},
        log=job.trial / "agent",
        state=job.work,
        time_s=limits.time_s,
        cost_usd=job.cost_usd,
        calls=limits.calls,
    )


async def _checked(job: Job, copy: Copy, trial: Trial) -> Result:
    command = Command(
        argv=("/bin/sh", "-c", job.task.check),
        cwd=copy.project,
        project=copy.root,
        state=job.work / "check",
        output=job.trial / "verifier" / "test-stdout.txt",
    )
    try:
        with trial.timed("verifier"):
            status = await run_command(command, job.task.limits.check_time_s)
    except CheckTimeoutError as error:
        return trial.end("check_timeout", str(error))
    except (CheckError, SandboxError) as error:
        return trial.end("check_error", str(error))
    trial.rewards = reward_of_status(status)
    return trial.end(trial.agent.state, trial.agent.reason)


def write_patch(job: Job, baseline: Baseline, trial: Trial) -> None:
    """
    Write the patch of what has changed, if anything has.

    Raises:
        GitError: it cannot be made.
    """
    first_line = job.task.prompt.strip().split("\n")[0]
    if patch := baseline.patch(f"{job.task.id}: {first_line}"):
        (job.trial / PATCH).write_bytes(patch)
        trial.has_patch = True
    if left_out := baseline.left_out():
        trial.note(f"not in the patch, because they are repositories: {', '.join(left_out)}")


def keep_session(job: Job) -> None:
    """Keep the session's log in the trial's directory."""
    for path in job.work.glob("state/*/sanderling/sessions/*.jsonl"):
        shutil.copyfile(path, job.trial / "agent" / "session.jsonl")


if __name__ == "__main__":
    main()
