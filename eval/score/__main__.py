"""Measure: `python -m eval.score --help`."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from eval.score.agents import AGENTS, BY_NAME, ROOT, Installed, find_installed
from eval.score.choice import PER_KIND, chosen, kinds_in
from eval.score.confinement import find_bubblewrap
from eval.score.models import MODELS, Model
from eval.score.runs import AGENT_TIME_S, Row, run_task
from eval.score.scenarios import ScoreError, ScoreTask, read_task
from eval.score.table import tables

OUT = ROOT / "eval/out"
TASKS = ROOT / "eval/tasks"
FETCH = ROOT / "eval/fetch.py"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        find_bubblewrap()
        kinds = kinds_in(options.built or TASKS)
        names, rule = _names(options.tasks, kinds, options.per_kind)
        tasks = read_tasks(options.built or build_tasks(names, options.out), names)
        load = os.getloadavg()[0]
        rows = measure(
            *(options.agents, options.models, tasks, options.jobs, options.out),
            time_s=options.seconds,
        )
    except ScoreError as error:
        sys.stderr.write(f"score: {error}\n")
        return 1
    conditions = (
        f"{datetime.now(UTC).date()}, {len(tasks)} of {len(kinds)} tasks ({rule}), {len(options.models)} of {len(MODELS)} models."
        f" {os.cpu_count()} CPUs, {options.jobs} at a time; load {load:.0f} at the start, {os.getloadavg()[0]:.0f} at the end."
        f" The limit for each run of each agent was {options.seconds:g} s."
    )
    text = tables(rows, conditions)
    (options.out / "score.md").write_text(text)
    sys.stdout.write(text)
    return 0


def _names(asked: list[str], kinds: Mapping[str, str], per_kind: int) -> tuple[list[str], str]:
    """Return the names of the tasks, and by which rule they are chosen."""
    if asked == ["all"]:
        return chosen(kinds, len(kinds)), "all"
    if asked:
        return asked, "by hand"
    return chosen(kinds, per_kind), f"by rule, {per_kind} of each kind"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make score",
        description="Let agents do the tasks in eval/tasks with scripted models, and print a table.",
    )

    names = [agent.name for agent in AGENTS]
    parser.add_argument("--agents", type=_agents, default=names, help=f"default: {' '.join(names)}")
    parser.add_argument(
        "--models", type=_models, default=[*MODELS], help=f"default: {' '.join(MODELS)}"
    )
    parser.add_argument(
        "--tasks", type=_words, default=[], help="names, or `all`; default: those of the rule"
    )
    parser.add_argument(
        "--per-kind",
        type=_positive,
        default=PER_KIND,
        help=f"how many tasks of each kind the rule chooses; default: {PER_KIND}",
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=AGENT_TIME_S,
        help=f"the limit for a run, the same for all agents; default: {AGENT_TIME_S}",
    )
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--out", type=Path, default=OUT, help="directory for rows and tables")
    parser.add_argument("--built", type=Path, help="directory of tasks that are built already")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
    return int(text)


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _agents(text: str) -> list[str]:
    words = _words(text)
    if unknown := [word for word in words if word not in BY_NAME]:
        raise argparse.ArgumentTypeError(
            f"there is no agent '{unknown[0]}'; there are {', '.join(BY_NAME)}"
        )
    return words


def _models(text: str) -> list[Model]:
    words = _words(text)
    if unknown := [word for word in words if word not in MODELS]:
        raise argparse.ArgumentTypeError(
            f"there is no model '{unknown[0]}'; there are {', '.join(MODELS)}"
        )
    return [model for model in MODELS if model in words]


def build_tasks(names: Iterable[str], out: Path) -> Path:
    """
    Build the tasks, and return the directory with them.

    Raises:
        ScoreError: one cannot be built.
    """
    directory = out / "tasks"
    only = [argument for name in names for argument in ("--only", name)]
    argv = [sys.executable, str(FETCH), *only, "--cache", str(out / "sources"), str(directory)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ScoreError(f"the tasks cannot be built: {done.stderr.strip() or done.stdout.strip()}")
    return directory


def read_tasks(directory: Path, names: Sequence[str]) -> list[ScoreTask]:
    """
    Read the built tasks.

    Raises:
        ScoreError: there are none, or one of `names` is missing.
    """
    found = {path.parent.name: path.parent for path in sorted(directory.glob("*/task.toml"))}
    if missing := [name for name in names if name not in found]:
        raise ScoreError(f"there is no task '{missing[0]}' in {directory}")
    if not found:
        raise ScoreError(f"there are no tasks in {directory}")
    return [read_task(found[name]) for name in names or found]


def measure(
    agents: Sequence[str],
    models: Sequence[Model],
    tasks: Sequence[ScoreTask],
    jobs: int,
    out: Path,
    *,
    time_s: int = AGENT_TIME_S,
) -> list[Row]:
    """
    Run each agent with each model on each task, all with the same limit. Rows are written as soon as there are any.

    Raises:
        ScoreError: there is no such agent.
    """
    if unknown := [name for name in agents if name not in BY_NAME]:
        raise ScoreError(f"there is no agent '{unknown[0]}'; there are {', '.join(BY_NAME)}")
    out.mkdir(parents=True, exist_ok=True)
    rows, installed = list[Row](), list[Installed]()
    for name in agents:
        try:
            installed.append(find_installed(name))
        except ScoreError as error:
            rows.append(
                Row(agent=name, version="", model="competent", task="", kind="", failure=str(error))
            )
    runs: list[tuple[Installed, Model, ScoreTask]] = [
        (a, m, t) for t in tasks for m in models for a in installed
    ]
    with (
        (out / "score.jsonl").open("wb") as file,
        ThreadPoolExecutor(max(1, jobs)) as pool,
    ):
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
        futures = [pool.submit(run_task, *run, time_s) for run in runs]
        for number, future in enumerate(as_completed(futures), 1):
            row = future.result()
            rows.append(row)
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            sys.stderr.write(
                f"{number}/{len(runs)} {row.agent} {row.model} {row.task}: {_said(row)}\n"
            )
    return rows


def _said(row: Row) -> str:
    return row.failure or ("no reward" if row.reward is None else f"{row.reward:g}")


if __name__ == "__main__":
    sys.exit(main())
