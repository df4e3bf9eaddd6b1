"""
The process of one job: it makes a copy, runs the agent, makes the patch, and checks the result.

`python -m sanderling.batch.worker` reads one `Job` from standard input and writes `Progress`, then `Done`, to standard output, as lines of
JSON. It ends with everything that it has started when its parent ends, or at SIGTERM.
"""

import os
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
from sanderling.batch.results import Result
from sanderling.batch.trial import GRADED, Trial
from sanderling.config.layers import upon
from sanderling.errors import SandboxError
from sanderling.json_lines import encoded


def main() -> NoReturn:
    signal.signal(signal.SIGTERM, _end_all)
    end_with_parent(signal.SIGTERM)
    job = decode_job(sys.stdin.buffer.readline())
    if job.task.harbor:
        from sanderling.batch.harbor.worker import run_harbor_task

        result = run_harbor_task(job, report_cost)
    else:
        result = anyio.run(_run, job, report_cost)
    _say(Done(result))
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
    trial.keep_session(trial.agent, job.trial / "agent")
    try:
        trial.write_patch(baseline, job.task.prompt)
    except GitError as error:
        return trial.end("setup_error", str(error))
    if not job.task.check or trial.agent.state not in GRADED:
        return trial.end(trial.agent.state, trial.agent.reason)
    return await _checked(job, copy, trial)


def _agent_run(job: Job, copy: Copy) -> AgentRun:
    task, limits = job.task, job.task.limits
    # Paths that the user lets commands write are shared by all tasks, so they do not apply. The rest of the repository can be read.
    readable = [str(copy.root)] if copy.root != copy.project else []
    return AgentRun(
        project=copy.project,
        prompt=task.prompt,
        settings=job.settings,
        role=task.role,
        options=upon(job.options, {"sandbox": {"write": [], "read": [*job.readable, *readable]}}),
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
        read_paths=job.readable,
        network=job.settings.net or "off",
        hosts=job.hosts,
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


if __name__ == "__main__":
    main()
