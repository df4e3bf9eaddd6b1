"""The bash tool: runs commands."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import anyio
import msgspec

from sanderling.errors import ToolError
from sanderling.protocol.remedies import remedies
from sanderling.tools.base import Context, tool
from sanderling.tools.commands.jobs import (
    MAX_RUNNING,
    Job,
    facts,
    result_text,
    screen_of,
    status_line,
    took,
)
from sanderling.tools.commands.shell import ShellChange, first_line, in_one_line
from sanderling.tools.commands.variables import is_decisive
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.unsaved import unsaved_note
from sanderling.tools.workspace import Workspace

FIRST_LOOK_S = 1.0  # for a background command; servers often fail at once
HAS_TERMINAL = "It gets a terminal, in which the model can type."
MAX_PATH_CHARS = 200
MAX_NAMES = 8

_NO_NETWORK = (
    r"(?i:network is unreachable|could not resolve (?:host|proxy|hostname)|name resolution|name or service not known)"
    r"|\b(?:EAI_AGAIN|ENETUNREACH|ENOTFOUND)\b"
)


class BashInput(msgspec.Struct, forbid_unknown_fields=True):
    command: str
    timeout_s: Annotated[
        float, msgspec.Meta(gt=0, le=600, description="Then it continues as a job")
    ] = 120
    background: Annotated[
        bool, msgspec.Meta(description="Start as a job, e.g. a server; see the tool jobs")
    ] = False
    pty: Annotated[
        bool,
        msgspec.Meta(description="Start as a job that has a terminal: REPL, debugger, rebase -i"),
    ] = False


def _effect(args: BashInput, workspace: Workspace) -> Effect:
    return Effect(
        tool="bash",
        kind="run",
        command=args.command,
        cwd=workspace.shell.cwd,
        exported=_decisive(workspace.shell.now.variables),
    )


def _decisive(variables: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(
        f"{name} (unset)" if value is None else f"{name}={value!a}"
        for name, value in sorted(variables.items())
        if is_decisive(name, value)
    )


async def _look(args: BashInput, _context: Context) -> Preview:
    return Preview(args.command, "sh", HAS_TERMINAL if args.pty else "")


@tool(BashInput, effect=_effect, title=lambda args, _: first_line(args.command), preview=_look)
async def bash(args: BashInput, context: Context) -> Outcome:
    """
    Run a command line in bash, in the sandbox.

    The working directory and exported variables persist between commands; functions and processes do not. Start servers with
    background=true. There is no terminal and no stdin: pass answers as options (-y, git commit -m). stdout and stderr are
    combined. Long output is cut in the middle; the result names a file with all of it. Read, search and change files with the other tools.
    """
    jobs = context.workspace.jobs
    is_job = args.background or args.pty
    if is_job and jobs.is_full:
        raise ToolError(f"{MAX_RUNNING} jobs are running: stop one first.")
    unsaved = await unsaved_note(context.workspace)
    grant, use_id = context.workspace.grant, context.tool_use_id
    job = await jobs.launch(
        args.command, context.show, grant, context.shell, use_id, has_terminal=args.pty
    )
    if is_job:
        jobs.to_background(job)
    is_crowded = False
    try:
        if job.terminal:
            await job.terminal.wait_for_output(FIRST_LOOK_S)
        else:
            with anyio.move_on_after(FIRST_LOOK_S if is_job else args.timeout_s):
                await job.ended.wait()
        is_crowded = job.is_running and not is_job and jobs.is_full
        if is_crowded:
            await job.stop()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await job.stop()
        state = facts(job, status_line(job, "stopped by the user"))
        jobs.keep_interrupted(context.tool_use_id, result_text(job.log.text(), state))
        if not job.id:  # otherwise it was forgotten, and its descriptor may be reused
            context.workspace.shell.forget(job.started)
        raise
    if is_job:
        return _started(job, context, unsaved)
    if job.is_running:
        return _timed_out(job, args, context, unsaved)
    late = f"Stopped after {args.timeout_s:g} s, because {MAX_RUNNING} jobs are running already."
    return _ended(job, context, [unsaved, f"[{late}]" if is_crowded else ""])


def _started(job: Job, context: Context, unsaved: str) -> Outcome:
    if job.is_running and job.terminal:
        text, note = screen_of(job)
        return _outcome(text, _lines(note, unsaved), unsaved, summary=f"→ {job.id}", job=job.id)
    output, more = job.log.take(), facts(job, unsaved)
    context.show(output)
    if job.is_running:
        state = f"[{job.id} runs in the background. {_how_to_read(job)}]"
        told = _lines(state, more)
        outcome = _outcome(output, told, more, summary=f"→ {job.id}", job=job.id)
        return outcome if output else msgspec.structs.replace(outcome, content=told)
    job.is_told = True
    state = status_line(job, "started in the background")
    is_error = job.has_failed
    return _outcome(output, _lines(state, more), more, summary=_summary(job), is_error=is_error)


def _timed_out(job: Job, args: BashInput, context: Context, unsaved: str) -> Outcome:
    context.workspace.jobs.to_background(job)
    output = job.log.take()
    state = facts(
        job,
        f"[Still running after {args.timeout_s:g} s, now in the background as {job.id}. {_how_to_read(job)}"
        " It will not change the shell's directory or variables.]",
        unsaved,
    )
    return _outcome(output, state, state, summary=f"→ {job.id}", job=job.id)


def _how_to_read(job: Job) -> str:
    return f"Read more with jobs: read {job.id}."


def _ended(job: Job, context: Context, notes: list[str]) -> Outcome:
    workspace = context.workspace
    change = workspace.shell.finish(job.started)
    output = job.log.text()
    notes += _shell_notes(change, workspace)
    if job.has_left_processes:
        notes.append(
            "[Processes it started were stopped with it. Use background=true for servers.]"
        )
    if hint := _network_hint(job, output, workspace):
        notes.append(hint)
    denials = tuple(job.denials)
    parts = _shell_state(change, workspace)
    more = facts(job, *notes)
    return _outcome(
        output,
        _lines(status_line(job, *parts), more),
        _lines(f"[{' · '.join(parts)}]" if parts else "", more),
        summary=_summary(job),
        is_error=job.has_failed,
        denials=denials,
    )


def _outcome(output: str, facts: str, detail: str, **more: Any) -> Outcome:
    output = output.rstrip("\n")
    return Outcome(
        content=result_text(output, facts), detail=detail, output_chars=len(output), **more
    )


def _lines(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _shell_state(change: ShellChange, workspace: Workspace) -> list[str]:
    cwd = workspace.shell.cwd
    parts: list[str] = []
    if change.has_moved or cwd != workspace.project:
        name = "the project root" if cwd == workspace.project else workspace.shown(cwd)
        parts.append(f"cwd: {_short(name)}{' (changed)' if change.has_moved else ''}")
    for what, names in (("exported", change.exported), ("unset", change.unset)):
        if names:
            parts.append(f"{what}: {_listed(names)}")
    return parts


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}"


def _shell_notes(change: ShellChange, workspace: Workspace) -> list[str]:
    notes: list[str] = []
    if change.missing_cwd:
        gone = _short(workspace.shown(change.missing_cwd))
        notes.append(
            f"[Nothing was run: {gone} was deleted or is inaccessible. The shell is now in the project root.]"
        )
    if change.too_large:
        names = _listed(change.too_large)
        notes.append(f"[Too large to keep for the next command: {names}.]")
    if change.is_unknown:
        notes.append(
            "[The shell was replaced or killed: its directory and variables are unchanged.]"
        )
    return notes


def _network_hint(job: Job, output: str, workspace: Workspace) -> str:
    """Return a hint for network failures without a name lookup, which the sandbox does not report."""
    network = workspace.sandbox.environment.network
    is_told = any(
        denial.operation in ("connect", "resolve") for denial in (*job.denials, *job.unclear)
    )
    if not job.has_failed or network == "on" or is_told:
        return ""
    if not re.search(_NO_NETWORK, output):
        return ""
    state = "off" if network == "off" else "open to listed hosts only"
    return f"[The network is {state}: do without, or ask the user to change that with {remedies().network}.]"


def _summary(job: Job) -> str:
    return f"✓ {took(job)}" if not job.has_failed else f"{job.outcome} · {took(job)}"


def _short(path: str) -> str:
    shown = in_one_line(path)
    return shown if len(shown) <= MAX_PATH_CHARS else f"…{shown[-MAX_PATH_CHARS:]}"
