"""`sanderling batch TASKS -o OUT`: runs tasks and shows how far it is."""

import argparse
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio

from sanderling.batch.engine import Engine, LocalEngine
from sanderling.batch.harbor.tasks import read_directory
from sanderling.batch.job_result import write_job_result
from sanderling.batch.results import (
    ResultsFile,
    RunSettings,
    check_settings,
    newest,
    read_all_lines,
    results_name,
)
from sanderling.batch.run import Budget, Places, Plan, Run
from sanderling.batch.tasks import Limits, Task, for_each, read_lines, shard_of, unique, with_limits
from sanderling.cli.batch.checking import check_agent
from sanderling.cli.batch.progress import BatchProgress
from sanderling.cli.streams import say, stopping_signals
from sanderling.config import state_dir
from sanderling.config.layers import own_settings
from sanderling.errors import SanderlingError, UsageError
from sanderling.paths import state_directory
from sanderling.providers.choice import SCRIPT_PREFIX
from sanderling.sandbox.kernel.layout import remove_tree
from sanderling.text import did_you_mean

EXIT_DONE, EXIT_OTHERWISE, EXIT_LIMIT, EXIT_SIGNAL = 0, 3, 4, 128
OTHER_COMMANDS = ("apply", "compare", "report")


def run_batch(arguments: argparse.Namespace) -> int:
    """
    Run the tasks, and return the exit status.

    Raises:
        UsageError, ConfigError: the arguments, the tasks or the settings are wrong. Nothing has run.
        SanderlingError: the run cannot continue.
    """
    tasks = read_tasks(arguments)
    if arguments.out is None:
        raise UsageError("batch needs -o OUT, the directory for results")
    settings = _settings(arguments)
    check_agent(settings)
    if arguments.engine != "local":
        _check_cluster(settings)
    own = own_settings()
    out: Path = arguments.out.absolute().resolve()
    began = datetime.now(UTC)
    file = ResultsFile(out / results_name(arguments.shard))
    root = Path(state_directory(str(state_dir() / "batch"), str(file.path)))
    try:
        check_settings(file.path, settings)
        file.recover()
        work = _new_work_in(root)
        plan = Plan(
            list(shard_of(tasks, *arguments.shard)),
            arguments.repeats,
            settings,
            Places(out, work, root / "repositories"),
            readable=own.sandbox_read,
            hosts=own.sandbox_hosts,
            variables=tuple(arguments.env),
        )
        if not arguments.resume and (plan.results or file.path.stat().st_size):
            raise UsageError(f"{out} has results: add --resume, or name another directory")
        with _engine(arguments, settings, work) as engine:
            try:
                status = anyio.run(_serve, plan, engine, file, arguments)
            except* (OSError, SanderlingError) as group:
                cause = _first_in(group)
                words = cause.strerror if isinstance(cause, OSError) else None
                raise SanderlingError(
                    f"the run cannot continue, but --resume can: {words or cause}"
                ) from group
        if results := newest(read_all_lines(out)):
            try:
                write_job_result(out, results, len(plan), settings, began)
            except OSError as error:
                raise SanderlingError(
                    f"cannot write the sums in {out}: {error.strerror}"
                ) from error
    finally:
        remove_tree(str(root))
        file.close()
    if arguments.report:
        from sanderling.cli.batch.report import report

        report(out, arguments.report)
    return status


def _new_work_in(root: Path) -> Path:
    """Remove what a killed run has left, and return a directory for copies. Its name is new: processes of that run may still be ending in the old one."""
    work = root / secrets.token_hex(4)
    try:
        remove_tree(str(root))
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        work.mkdir()
    except OSError as error:
        raise SanderlingError(f"cannot make {work}, where tasks run: {error.strerror}") from error
    return work


def _first_in(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _check_cluster(settings: RunSettings) -> None:
    """
    Check that the tasks may run on a cluster, before anything is written.

    Raises:
        UsageError: they may not, or Ray is missing.
    """
    from sanderling.batch.ray.library import load_ray

    if (settings.net or own_settings().network) == "on":
        named = "--net on" if settings.net else 'the setting network = "on"'
        raise UsageError(
            f"{named} does not go with --engine ray: commands could reach Ray, which runs code for everybody on its network. Use --net proxy"
        )
    load_ray()


@contextmanager
def _engine(arguments: argparse.Namespace, settings: RunSettings, work: Path) -> Generator[Engine]:
    """Yield the engine that `--engine` names."""
    if arguments.engine == "local":
        yield LocalEngine(arguments.jobs or 1)
        return
    from sanderling.batch.ray.engine import RayEngine, ray_cluster
    from sanderling.batch.ray.settings import key_variables

    address = arguments.engine.partition(":")[2]
    with ray_cluster(address, key_variables(own_settings())) as ray:
        yield RayEngine(ray, arguments.jobs, settings.model, work / "staging")


async def _serve(
    plan: Plan, engine: Engine, file: ResultsFile, arguments: argparse.Namespace
) -> int:
    budget = Budget(arguments.max_cost, plan.spent_usd)
    run = Run(plan, engine, file, budget)
    progress = BatchProgress(plan, budget, run.running, is_quiet=arguments.quiet)
    received: list[signal.Signals] = []
    with progress, anyio.open_signal_receiver(*stopping_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(_stop_at_signal, signals, scope, received, progress)
                async with engine:
                    await run.serve(progress.note)
            tasks.cancel_scope.cancel()
    progress.end()
    left = len(plan) - len(plan.results)
    if received:
        say(f"stopped, with {left} left: --resume continues")
        return EXIT_SIGNAL + received[0]
    if left:
        say(f"--max-cost is reached, with {left} left: --resume continues with a higher one")
        return EXIT_LIMIT
    is_completed = all(result.state == "completed" for result in plan.results)
    return EXIT_DONE if is_completed else EXIT_OTHERWISE


async def _stop_at_signal(
    signals: AsyncIterator[signal.Signals],
    scope: anyio.CancelScope,
    received: list[signal.Signals],
    progress: BatchProgress,
) -> None:
    async for number in signals:
        if received:  # do not wait; workers end with this process
            progress.close()  # the cursor is hidden
            os._exit(EXIT_SIGNAL + number)
        received.append(number)
        scope.cancel()


def read_tasks(arguments: argparse.Namespace) -> list[Task]:
    """
    Return the tasks that the arguments name, with the limits of the command line where they have none. These do not change a digest.

    Raises:
        UsageError: they name no task, or something is wrong in them.
    """
    limits = Limits(
        time_s=arguments.max_time, cost_usd=arguments.max_task_cost, calls=arguments.max_turns
    )
    return [with_limits(task, limits) for task in _named_tasks(arguments)]


def _named_tasks(arguments: argparse.Namespace) -> list[Task]:
    words: list[str] = arguments.words
    if arguments.each:
        if words:
            raise UsageError(_about_words(words))
        if arguments.prompt is None:
            raise UsageError("--each needs --prompt FILE")
        prompt = _prompt_in(arguments.prompt)
        return unique(for_each(arguments.each, prompt, arguments.check, Path.cwd()), "--each")
    if arguments.prompt or arguments.check:
        raise UsageError("--prompt and --check belong to --each: tasks have their own")
    if len(words) != 1:
        hint = did_you_mean(words[0], OTHER_COMMANDS) if words else ""
        hint = hint or ": sanderling batch TASKS -o OUT"
        raise UsageError(f"name one file or directory of tasks, or use --each{hint}")
    path = Path(words[0]).absolute()
    if not path.exists():
        hint = did_you_mean(words[0], OTHER_COMMANDS)
        raise UsageError(f"cannot read {path}: No such file or directory{hint}")
    return read_directory(path) if path.is_dir() else read_lines(path)


def _about_words(words: list[str]) -> str:
    """Explain words next to --each: mostly, the shell has replaced a pattern without quotes."""
    if all(Path(word).exists() for word in words):
        return f"--each takes one pattern, but '{words[0]}' follows it: quote the pattern, as in --each 'packages/*'"
    return f"either TASKS ({words[0]}) or --each, not both"


def _prompt_in(path: Path) -> str:
    try:
        prompt = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: it is not UTF-8") from error
    if not prompt.strip():
        raise UsageError(f"{path} is empty")
    return prompt


def _settings(arguments: argparse.Namespace) -> RunSettings:
    if shutil.which("git") is None:
        raise UsageError("batch needs git: install it")
    model = arguments.model
    if model.startswith(SCRIPT_PREFIX):  # the agent runs in another directory
        model = SCRIPT_PREFIX + str(Path(model.removeprefix(SCRIPT_PREFIX)).absolute())
    return RunSettings(
        model=model,
        effort=arguments.effort,
        role=arguments.role,
        mode=arguments.mode,
        net=arguments.net,
        allow=tuple(arguments.allow),
    )
