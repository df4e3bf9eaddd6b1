"""The agent of a task: `sanderling -p` as a process, and what its events say about it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec

from sanderling.batch.results import RunSettings, State
from sanderling.json_lines import LineSplitter, LineTooLongError, encoded

MAX_LINE_BYTES = 64 << 20
GRACE_S = 15.0
"""For the agent to end after its time is over, before it is killed."""
EXIT_LIMIT = 4  # of `sanderling -p`
SAID_BYTES = 2_000  # of standard error, in a reason
OUR_ERROR = "sanderling: "


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """
    How an agent is started.

    Attributes:
        options: settings that override the user's.
        log: the directory for what it writes.
        state: the directory for its sessions, sandbox and caches.
        variables: for its commands. A task may name any, so its own process does not get them.
        config: the directory of the user's settings, if it is a copy.
        servers: tool servers in addition to the user's, as tables of the settings.
        allow: rules in addition to the run's.
        time_s, cost_usd, calls: limits; 0: none.
    """

    project: Path
    prompt: str
    settings: RunSettings
    role: str
    options: dict[str, Any]
    log: Path
    state: Path
    net: str = ""
    time_s: float = 0.0
    cost_usd: float = 0.0
    calls: int = 0
    variables: dict[str, str] = {}
    config: Path | None = None
    servers: dict[str, dict[str, Any]] = {}
    allow: tuple[str, ...] = ()


class _Failure(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""


class _Line(msgspec.Struct, frozen=True):
    """The part of a line of `stream-json` that counts here. The last line is the result."""

    type: str
    session_id: str = ""
    turn: Any = None
    turn_cost_usd: float = 0.0
    is_priced: bool = False
    model: str = ""
    stop_reason: str = ""
    error: _Failure | None = None
    model_calls: int = 0
    usage: Any = None
    cost_usd: float | None = None
    denials: tuple[dict[str, Any], ...] = ()


class AgentEnd(msgspec.Struct, kw_only=True):
    """How an agent ended, and what it used."""

    state: State = "crashed"
    reason: str = ""
    session_id: str = ""
    model: str = ""
    usage: dict[str, int] = {}
    cost: float | None = 0.0
    calls: int = 0
    questions: int = 0
    denials: int = 0
    exit: int | None = None

    @property
    def tokens(self) -> int:
        return sum(count for name, count in self.usage.items() if name.endswith("_tokens"))


async def run_agent(run: AgentRun, on_cost: Callable[[float], None]) -> AgentEnd:
    """Run the agent to its end. `on_cost` is called with the dollars spent so far."""
    run.log.mkdir(parents=True, exist_ok=True)
    settings = run.state / "settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    given = {"settings": run.options, "servers": run.servers, "variables": run.variables}
    settings.write_bytes(encoded(given | {"has_credentials": False}))  # no user watches
    end = AgentEnd()
    with (
        (run.log / "stderr.txt").open("wb") as stderr,
        (run.log / "events.jsonl").open("wb") as log,
    ):
        async with await anyio.open_process(
            list(_command_line(run, settings)),
            cwd=run.project,
            env=own_environment(run),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as process:
            assert process.stdin
            assert process.stdout
            with anyio.move_on_after(run.time_s + GRACE_S if run.time_s else None) as patience:
                try:
                    with suppress(anyio.BrokenResourceError):
                        await process.stdin.send(run.prompt.encode())
                    await process.stdin.aclose()
                    lines = LineSplitter(MAX_LINE_BYTES)
                    async for chunk in process.stdout:
                        log.write(chunk)
                        for line in lines.feed(chunk):
                            if not isinstance(line, LineTooLongError):
                                take_event(line, end, on_cost)
                    await process.wait()
                finally:
                    if process.returncode is None:
                        process.kill()
            with anyio.CancelScope(shield=True):
                end.exit = await process.wait()
    if patience.cancelled_caught:
        end.state, end.reason = "timeout", f"killed after {run.time_s + GRACE_S:g} s"
    elif end.state == "crashed":
        _explain(end, run.log / "stderr.txt")
    return end


def _command_line(run: AgentRun, settings: Path) -> Sequence[str]:
    limits = {"--max-time": run.time_s, "--max-cost": run.cost_usd, "--max-turns": run.calls}
    named = {
        "--model": run.settings.model,
        "--effort": run.settings.effort,
        "--role": run.role or run.settings.role,
        "--mode": run.settings.mode,
        "--net": run.net or run.settings.net,
    }
    values = named | {name: str(value) for name, value in limits.items() if value}
    return (
        *(sys.executable, "-m", "sanderling", "-p", "--die-with-parent", "--quiet"),
        *("--output-format", "stream-json", f"--project={run.project}", f"--settings={settings}"),
        f"--trajectory={run.log / 'trajectory.json'}",
        *(f"{name}={value}" for name, value in values.items() if value),
        *(f"--allow={rule}" for rule in (*run.settings.allow, *run.allow)),
    )


def own_environment(run: AgentRun, host: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the agent's process: the host's, with directories of its own for what it keeps."""
    own = {"XDG_STATE_HOME": run.state / "state", "XDG_CACHE_HOME": run.state / "cache"}
    own |= {"XDG_CONFIG_HOME": run.config} if run.config else {}
    kept = {name: value for name, value in host.items() if name not in ("NVIM", "OLDPWD", "PWD")}
    return kept | {name: str(path) for name, path in own.items()}


def take_event(line: bytes, end: AgentEnd, on_cost: Callable[[float], None]) -> None:
    try:
        event = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError:
        return
    match event.type:
        case "stream":
            end.session_id, end.model = event.session_id, event.model
        case "approval_requested":
            end.questions += 1
        case "usage_updated":  # several for each answer; an agent that is killed has no result
            on_cost(event.turn_cost_usd)
            end.calls += _input_tokens(event.turn) > _input_tokens(end.usage)
            end.usage = event.turn
            end.cost = event.turn_cost_usd if event.is_priced else None
        case "result":
            end.usage = event.usage
            end.cost = event.cost_usd
            end.calls = event.model_calls
            end.denials = len(event.denials)
            end.state, end.reason = _state_of(event)
        case _:
            pass


def _input_tokens(usage: dict[str, int]) -> int:
    return sum(count for name, count in usage.items() if name.endswith("input_tokens"))


def _state_of(result: _Line) -> tuple[State, str]:
    reached = {denied.get("tool") for denied in result.denials} & {"calls", "budget"}
    state: State = "error"
    reason = ""
    if result.stop_reason == "max_time":
        state = "timeout"
    elif result.stop_reason == "budget" or reached:
        state, reason = "limit", "the limit of model calls or dollars was reached"
    elif result.error:
        reason = result.error.message
    elif result.stop_reason in ("end_turn", "stop_sequence"):
        state = "completed"
    else:
        reason = f"the turn ended with {result.stop_reason}"
    return state, reason


def _explain(end: AgentEnd, stderr: Path) -> None:
    """Say why there is no result. Arguments or settings that are wrong are an error, and not a crash."""
    said = stderr.read_bytes()[-SAID_BYTES:].decode(errors="replace").strip()
    if end.exit is not None and end.exit < 0:
        end.reason = f"the agent was ended by signal {-end.exit} ({signal.strsignal(-end.exit)})"
    elif end.exit in (1, 2) and said.startswith(OUR_ERROR):
        end.state, end.reason = "error", said.removeprefix(OUR_ERROR)
    else:
        end.reason = said.split("\n")[-1] or f"exit status {end.exit}"
