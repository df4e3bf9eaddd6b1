"""The jobs tool: manages background commands."""

from typing import Annotated, Literal

import msgspec

from sanderling.text import counted
from sanderling.tools.base import Context, tool
from sanderling.tools.commands.jobs import (
    Job,
    Jobs,
    facts,
    result_text,
    screen_of,
    status_line,
    took,
)
from sanderling.tools.commands.shell import first_line, in_one_line
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.workspace import Workspace


class JobsInput(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["list", "read", "stop", "screen", "send", "keys"]
    id: Annotated[str, msgspec.Meta(description="For all but list, e.g. j1")] = ""
    wait_s: Annotated[
        float, msgspec.Meta(ge=0, le=600, description="Wait for output or the end")
    ] = 0
    text: Annotated[str, msgspec.Meta(description="For send; a line end is Enter")] = ""
    keys: Annotated[str | list[str], msgspec.Meta(description="For keys, e.g. C-c or Up Enter")] = (
        ""
    )

    @property
    def is_input(self) -> bool:
        return self.action in ("send", "keys")

    @property
    def input(self) -> str:
        """The text, or the names of the keys."""
        if self.action == "send":
            return self.text
        return self.keys if isinstance(self.keys, str) else " ".join(self.keys)


def _title(args: JobsInput, _workspace: object) -> str:
    return first_line(f"{args.action} {args.id} {args.input if args.is_input else ''}".strip())


def _effect(args: JobsInput, workspace: Workspace) -> Effect:
    """Return the effect: input is a command, of which a shell's rules hold while it is known that a shell gets it."""
    if not args.is_input:
        return Effect("jobs", "none")
    terminal = workspace.jobs.find_terminal(args.id)
    started = workspace.jobs.find(args.id).started
    command = terminal.line_with(args.input, is_keys=args.action == "keys")
    is_line = terminal.is_shell and command.strip() != ""
    return Effect(
        tool="bash",
        kind="run",
        command=command,
        cwd=started.begun_with.cwd,
        # What the user allows for the session is this input in this terminal: elsewhere it has another meaning.
        server="" if is_line else f"{args.id} {in_one_line(args.input)} ({terminal.mark})",
        # The program keeps the access with which it was started, whatever the user has changed since then.
        leaves_sandbox=started.terms != workspace.sandbox.terms,
        terminal="shell" if is_line else "program",
    )


async def _look(args: JobsInput, context: Context) -> Preview:
    command = _effect(args, context.workspace).command
    return Preview(command or args.input, "sh" if command else "")


@tool(JobsInput, effect=_effect, title=_title, preview=_look)
async def jobs(args: JobsInput, context: Context) -> Outcome:
    """
    List, read or stop background commands, or use the terminal of one with pty.

    `list`: running jobs, and jobs that ended since you last looked. `read` returns output since the last read; with wait_s it waits for
    some. `stop` ends a job and all its processes. `screen` returns a terminal's screen, `send` types text, `keys` presses keys. For a
    password ask the user to take the terminal (:Agent terminal), then use screen with wait_s.
    """
    known = context.workspace.jobs
    if args.action == "list":
        return _list(known)
    job = known.find(args.id)
    if args.is_input:
        terminal = known.find_terminal(args.id)
        if args.action == "send":
            terminal.type_text(args.input)
        else:
            terminal.press(args.input)
        await terminal.wait_for_output(args.wait_s)
        return _screen(job)
    if args.action == "screen" and job.is_running:
        await known.find_terminal(args.id).wait_for_news(args.wait_s)
        return _screen(job)
    if args.action == "stop" and job.is_running:
        await job.stop()
    elif args.wait_s:
        await job.wait_for_news(args.wait_s)
    return _read(job)


def _screen(job: Job) -> Outcome:
    if not job.is_running:
        return _read(job)
    text, note = screen_of(job)
    return Outcome(content=result_text(text, facts(job, note, names_file=False)), summary="")


def _read(job: Job) -> Outcome:
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
