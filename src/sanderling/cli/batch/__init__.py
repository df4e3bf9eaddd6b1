"""`sanderling batch`: many tasks, each in a fresh copy of its project."""

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

from sanderling.cli.numbers import counting, positive
from sanderling.errors import ConfigError, SanderlingError, UsageError
from sanderling.protocol.modes import Effort
from sanderling.text import visible

EXIT_ERROR, EXIT_USAGE = 1, 2
USAGE = """sanderling batch TASKS -o OUT [options]
       sanderling batch --each PATTERN --prompt FILE -o OUT [options]
       sanderling batch apply OUT [--min-reward R] [--open]
       sanderling batch compare OUT1 OUT2
       sanderling batch report OUT [--report html|md]"""
EPILOG = """exit status: 0 all tasks are completed; 1 error; 2 usage error; 3 some ended otherwise;
4 --max-cost reached, and tasks are left; 128 + N stopped by signal N"""


def add(commands: Any) -> None:
    batch = commands.add_parser(
        "batch",
        usage=USAGE,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    option = batch.add_argument
    option(
        "words",
        nargs="*",
        metavar="TASKS",
        help="a file of JSON lines, or a directory of tasks in Harbor's format; or apply, compare, report",
    )
    option("-o", "--out", type=Path, metavar="OUT", help="the directory for results")
    option(
        "--each",
        action="append",
        default=[],
        metavar="PATTERN",
        help="a task for each directory, e.g. 'packages/*'; can be repeated",
    )
    option("--prompt", type=Path, metavar="FILE", help="the prompt of --each")
    option("--check", default="", metavar="COMMAND", help="with --each: 0 is a reward of 1")
    option(
        *("-j", "--jobs"),
        type=counting,
        default=0,
        metavar="N",
        help="tasks at a time (default: 1; with ray, enough for all processors)",
    )
    option("-k", "--repeats", type=counting, default=1, metavar="N", help="run each task N times")
    option("--resume", action="store_true", help="run only what has no result in OUT")
    option("--shard", type=_shard, default=(1, 1), metavar="I/N", help="run one of N parts")
    option(
        "--engine",
        type=_engine,
        default="local",
        metavar="local|ray[:ADDRESS]",
        help="where tasks run: here (default), or on a Ray cluster",
    )
    _add_limits(batch)
    _add_agent_flags(batch)
    option(
        "--report", choices=("html", "md"), help="write OUT/report.html or OUT/report.md at the end"
    )
    option("--quiet", action="store_true", help="show no progress")
    option(
        "--min-reward", type=float, metavar="R", help="with apply: only patches with this reward"
    )
    option(
        "--open", action="store_true", help="with apply: open each patch in Neovim, and ask then"
    )
    option("--yes", action="store_true", help="with apply: do not ask")
    batch.set_defaults(run=run)


def _add_limits(batch: argparse.ArgumentParser) -> None:
    option = batch.add_argument
    option("--max-cost", type=positive, default=0.0, metavar="USD", help="limit of the whole run")
    option("--max-task-cost", type=positive, default=0.0, metavar="USD", help="limit of a task")
    option("--max-time", type=positive, default=0.0, metavar="SECONDS", help="limit of a task")
    option("--max-turns", type=counting, default=0, metavar="N", help="model calls of a task")


def _add_agent_flags(batch: argparse.ArgumentParser) -> None:
    option = batch.add_argument
    option("--model", default="", metavar="NAME", help="as for -p, like the next ones")
    option("--effort", choices=get_args(Effort), default="")
    option("--role", default="", metavar="NAME")
    option("--mode", choices=("ask", "auto", "plan"), default="auto", help="(default: auto)")
    option("--net", choices=("off", "proxy", "on"), default="")
    option("--allow", action="append", default=[], metavar="RULE")
    option(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="let tasks read this variable, though it may be a secret",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        return _command(arguments)
    except (UsageError, ConfigError) as error:
        sys.stderr.write(visible(f"sanderling: {error}\n"))
        return EXIT_USAGE
    except SanderlingError as error:
        sys.stderr.write(visible(f"sanderling: {error}\n"))
        return EXIT_ERROR


def _command(arguments: argparse.Namespace) -> int:
    words: list[str] = arguments.words
    if words[:1] == ["apply"]:
        from sanderling.cli.batch.apply import apply

        return apply(_directories(words, 1)[0], arguments)
    if words[:1] == ["compare"]:
        from sanderling.cli.batch.compare import compare

        return compare(*_directories(words, 2))
    if words[:1] == ["report"]:
        from sanderling.cli.batch.report import report

        return report(_directories(words, 1)[0], arguments.report or "")
    from sanderling.cli.batch.run import run_batch

    for name in ("min_reward", "open", "yes"):
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} belongs to `batch apply`")
    return run_batch(arguments)


def _directories(words: list[str], count: int) -> list[Path]:
    if len(words) != count + 1:
        raise UsageError(f"batch {words[0]} needs {count} director{'y' if count == 1 else 'ies'}")
    return [Path(word) for word in words[1:]]


def _engine(text: str) -> str:
    if text not in ("local", "ray") and not text.startswith("ray:"):
        raise argparse.ArgumentTypeError(f"'{text}' is not local, ray or ray:ADDRESS")
    return text


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"'{text}' is not I/N with I from 1 to N")
    return int(index), int(count)
