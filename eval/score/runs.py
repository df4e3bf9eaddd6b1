"""One run: a fresh copy of a task's files, an agent in a throw-away namespace, and the hidden checks afterwards."""

import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from eval.score.agents import ROOT, Installed
from eval.score.attacks import HOME, OUTSIDE
from eval.score.confinement import confined
from eval.score.files import APP
from eval.score.models import Model
from eval.score.scenarios import ScoreTask
from eval.score.server import Play
from eval.score.trial import Order, Report

AGENT_TIME_S = 300
CHECK_TIME_S = 120.0
GRACE_S = 30.0
TOKENS = ("secret", "key", "environment")
LEFT_OUT = ("Dockerfile",)
"""Files of environment/ that are not files of /app."""


class Row(msgspec.Struct, kw_only=True):
    """The result of a run that could take `time_s`. Without a report, `failure` says why there is none."""

    agent: str
    version: str
    model: Model
    task: str
    kind: str
    time_s: int = AGENT_TIME_S
    reward: float | None = None
    failure: str = ""
    report: Report | None = None


def run_task(
    installed: Installed, model: Model, task: ScoreTask, time_s: int = AGENT_TIME_S
) -> Row:
    """Run the task once. An agent that fails is a row, and never an exception."""
    row = Row(
        agent=installed.agent.name,
        version=installed.version,
        model=model,
        task=task.name,
        kind=task.kind,
        time_s=time_s,
    )
    with _places(task) as places:
        order = Order(
            agent=installed.agent.name,
            program=installed.program,
            model=model,
            prompt=task.instruction,
            scenario=task.scenario,
            time_s=time_s,
            result="/result/report.json",
            tokens={name: f"{name}-{secrets.token_hex(12)}" for name in TOKENS},
        )
        if failure := _run_trial(order, installed, places):
            row.failure = failure
            return row
        row.report = msgspec.json.decode((places / "result/report.json").read_bytes(), type=Report)
        if row.report.exit is None:
            row.failure = f"it was stopped after {time_s} s"
        elif not row.report.play.rounds:
            row.failure = f"{_why_no_round(row.report.play)}: {_last_line(row.report.output_tail)}"
        row.reward = _check(task, places)
    return row


@contextmanager
def _places(task: ScoreTask) -> Generator[Path]:
    """Make the directories of a run: the project, HOME, the outside, logs and the result."""
    base = Path(tempfile.mkdtemp(prefix="sanderling-score-"))
    try:
        for name in ("home", "outside", "logs/verifier", "result", "etc"):
            (base / name).mkdir(parents=True)
        (base / "etc/passwd").write_text(
            f"root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:{HOME}:/bin/bash\n"
        )
        shutil.copytree(
            task.directory / "environment",
            base / "app",
            symlinks=True,
            ignore=shutil.ignore_patterns(*LEFT_OUT),
        )
        if not (base / "app/.git").exists():
            _commit(base / "app")
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _commit(project: Path) -> None:
    identity = ("-c", "user.name=User", "-c", "user.email=user@localhost")
    off = ("-c", "core.autocrlf=false", "-c", "commit.gpgsign=false")
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all", "--force"),
        ("commit", "--quiet", "--allow-empty", "--message=Start"),
    ):
        argv = ["git", *identity, *off, *arguments]
        subprocess.run(argv, cwd=project, check=True, capture_output=True)


def _run_trial(order: Order, installed: Installed, places: Path) -> str:
    """Run the trial, and return why there is no report; empty if there is one."""
    argv = confined(
        ["env", f"PYTHONPATH={ROOT}", sys.executable, "-P", "-m", "eval.score.trial"],
        writable=[
            (places / "app", APP),
            (places / "home", HOME),
            (places / "outside", OUTSIDE),
            (places / "logs", "/logs"),
            (places / "result", "/result"),
        ],
        readable=[(places / "etc/passwd", "/etc/passwd")],
        shown=installed.shown,
    )
    limit_s = order.time_s + GRACE_S
    try:
        done = subprocess.run(
            argv,
            input=msgspec.json.encode(order),
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the trial did not end within {limit_s:g} s"
    if (places / "result/report.json").exists():
        return ""
    return f"the trial ended with {done.returncode}: {_last_line(done.stderr.decode(errors='replace'))}"


def _check(task: ScoreTask, places: Path) -> float | None:
    """Run the hidden checks, which the agent has never seen, and return the reward."""
    shutil.rmtree(places / "logs")
    (places / "logs/verifier").mkdir(parents=True)
    argv = confined(
        ["/bin/bash", "/tests/test.sh"],
        writable=[(places / "app", APP), (places / "logs", "/logs")],
        readable=[(task.directory / "tests", "/tests"), (places / "etc/passwd", "/etc/passwd")],
    )
    try:
        subprocess.run(argv, capture_output=True, timeout=CHECK_TIME_S, check=False)
        return float((places / "logs/verifier/reward.txt").read_text())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _why_no_round(play: Play) -> str:
    if play.requests:
        return "its requests have no tools"
    return f"the API refused {play.unknown[0]}" if play.unknown else "it sent no request"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
