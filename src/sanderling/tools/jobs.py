"""The jobs tool: manages background commands."""

from typing import Annotated, Literal

import msgspec

from sanderling.text import counted
from sanderling.tools.base import Context, tool
from sanderling.tools.commands.jobs import Jobs, facts, result_text, status_line, took
from sanderling.tools.commands.shell import first_line
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome


class JobsInput(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["list", "read", "stop"]
    id: Annotated[str, msgspec.Meta(description="For read and stop, e.g. j1")] = ""
    wait_s: Annotated[
        float, msgspec.Meta(ge=0, le=600, description="For read: wait for output or the end")
    ] = 0


def _title(args: JobsInput, _workspace: object) -> str:
    return first_line(f"{args.action} {args.id}".strip())


@tool(JobsInput, effect=lambda _args, _workspace: Effect("jobs", "none"), title=_title)
async def jobs(args: JobsInput, context: Context) -> Outcome:
    """
    List, read or stop background commands.

    `list`: running jobs, and jobs that ended since you last looked. `read` returns output since the last read; with wait_s it waits for
    some. `stop` ends a job and all its processes.
    """
    known = context.workspace.jobs
    if args.action == "list":
        return _list(known)
    job = known.find(args.id)
    if args.action == "stop" and job.is_running:
        await job.stop()
    elif args.wait_s:
        await job.wait_for_news(args.wait_s)
    job.is_told = not job.is_running
    output = job.log.take()
    state = f"[still running · {took(job)}]" if job.is_running else status_line(job)
    return Outcome(content=result_text(output, facts(job, state)), summary=state.strip("[]"))


def _list(known: Jobs) -> Outcome:
    lines: list[str] = []
    for job in known.all():
        if not job.is_told:
            news = " · new output" if job.log.has_news else ""
            state = "running" if job.is_running else job.outcome
            lines.append(f"{job.id}  {state} · {took(job)}{news}  {first_line(job.command)}")
            job.is_told = not job.is_running
    return Outcome(
        content="\n".join(lines) or "There are no jobs.",
        summary=counted(len(lines), "job"),
    )
