"""The results of a run: one line of JSON for each job, and the settings that they were made with."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from sanderling.errors import UsageError
from sanderling.json_lines import encoded
from sanderling.paths import replacing, write_all
from sanderling.protocol.modes import NetworkMode

RUN_FILE = "batch.json"
VERSION = 1

State = Literal[
    "completed",  # the agent has ended its work
    "timeout",  # the agent took longer than it may
    "limit",  # it reached the limit of dollars or model calls
    "error",  # the model or the settings failed
    "crashed",  # its process or its worker died
    "setup_error",  # there is no copy of the project
    "check_error",  # the check left no reward
    "check_timeout",  # the check took longer than it may
    "unsupported",  # the task needs what is not here
    "stopped",  # the run was stopped; not a result, but it has cost something
]
_RUN_AGAIN: tuple[State, ...] = ("crashed", "error")
_NOT_BEGUN: tuple[State, ...] = ("setup_error", "unsupported")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """
    A line of `results.jsonl`.

    Attributes:
        id, attempt, hash: the task, the number of the repetition, from 1, and the digest of the task's definition.
        state, reason: how it ended, and why if that is not plain.
        reward: of the check; None without one. `rewards` has all of them, if a Harbor task has several.
        tokens: all of input and output, with what the API read from its cache.
        cost: in dollars; None if a price is not known.
        wall, setup, checking: seconds of the agent, before it and after it.
        calls, questions, denials: how often the model was called, and what was asked and denied.
        exit: the exit status of the agent; None if it has not run, negative for a signal.
        patch: whether the task changed something.
        trial: the trial's directory, relative to that of the results.
    """

    id: str
    attempt: int = 1
    hash: str
    state: State
    reason: str = ""
    reward: float | None = None
    rewards: dict[str, float] = {}
    tokens: int = 0
    usage: dict[str, int] = {}
    cost: float | None = 0.0
    wall: float = 0.0
    setup: float = 0.0
    checking: float = 0.0
    calls: int = 0
    questions: int = 0
    denials: int = 0
    exit: int | None = None
    patch: bool = False
    trial: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.id, self.hash, self.attempt

    @property
    def is_final(self) -> bool:
        """
        Whether a resumed run leaves it as it is.

        Others say nothing about the agent, and the next time the machine or the API may be well: a host is reachable, a program
        is installed, a node has a sandbox. A later step's set-up is another matter, because the agent may have broken it.
        """
        return self.state not in _RUN_AGAIN and not (self.state in _NOT_BEGUN and not self.calls)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the agent works in a run, in `batch.json`. All results of a directory are made with the same."""

    version: int = VERSION
    model: str = ""
    effort: str = ""
    role: str = ""
    mode: str = "auto"
    net: NetworkMode | Literal[""] = ""
    allow: tuple[str, ...] = ()


class ResultsFile:
    """An open `results.jsonl`, which no other process writes."""

    def __init__(self, path: Path) -> None:
        """
        Open or create the file, and remove a line that was cut off.

        Raises:
            UsageError: another run writes it, or it cannot be opened.
        """
        self.path = path
        try:
            # Sessions and patches are in it, which can have secrets.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise UsageError(f"another run writes to {path}") from error
        data = path.read_bytes()
        os.ftruncate(self._fd, data.rfind(b"\n") + 1)

    @property
    def _running(self) -> Path:
        """The file with the costs of running jobs, which a run that is killed leaves."""
        return self.path.with_name(self.path.name.replace("results", "running", 1))

    def note_running(self, costs: Iterable[Result]) -> None:
        """Replace the costs of running jobs by `costs`, in lines as of stopped jobs."""
        with replacing(self._running, is_durable=False) as file:
            file.writelines(encoded(cost) + b"\n" for cost in costs)

    def recover(self) -> None:
        """Add the costs of jobs that ran when an earlier run was killed: they count for the limit of the run."""
        try:
            lines = self._running.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(msgspec.DecodeError):
                self.append(msgspec.json.decode(line, type=Result))
        self.forget_running()

    def forget_running(self) -> None:
        self._running.unlink(missing_ok=True)

    def append(self, result: Result) -> None:
        """Add a line. It is on the disk when this returns."""
        write_all(self._fd, encoded(result) + b"\n")
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def results_name(shard: tuple[int, int]) -> str:
    index, count = shard
    return "results.jsonl" if count == 1 else f"results.{index}-of-{count}.jsonl"


def read_results(directory: Path) -> list[Result]:
    """
    Return the results in all `results*.jsonl` of the directory. A line that is cut off does not count.

    Raises:
        UsageError: no such file is there, or a line is not a result.
    """
    found = newest(read_all_lines(directory))
    if not found:
        raise UsageError(f"{directory} has no results")
    return found


def newest(lines: Iterable[Result]) -> list[Result]:
    """Return the last result of each trial: its directory has the files of that one."""
    found = {(line.id, line.attempt): line for line in lines if line.state != "stopped"}
    return list(found.values())


def read_all_lines(directory: Path) -> Iterator[Result]:
    """
    Yield each line of the results, also the lines with only the cost of a stopped job.

    Raises:
        UsageError: a line is not a result.
    """
    for path in sorted(directory.glob("results*.jsonl")):
        *lines, _ = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                yield msgspec.json.decode(line, type=Result)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(f"{path}:{number}: {error}") from error


def check_settings(results: Path, settings: RunSettings) -> None:
    """
    Write the settings of a new run next to its results, or compare them with the settings of earlier results there.

    Results that a resumed run makes again do not count: the settings may have been what was wrong. A shard that has none yet counts.

    Raises:
        UsageError: the directory has results of another run, or cannot be written.
    """
    path = results.parent / RUN_FILE
    before: RunSettings | None = None
    try:
        before = msgspec.json.decode(path.read_bytes(), type=RunSettings)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if before == settings:
        return
    is_shared = any(each != results for each in path.parent.glob("results*.jsonl"))
    if before and (is_shared or any(line.is_final for line in read_all_lines(path.parent))):
        changed = "; ".join(_differences(before, settings))
        raise UsageError(
            f"{path.parent} was made with other settings ({changed}): use the same, or another directory"
        )
    try:
        with replacing(path) as file:
            file.write(msgspec.json.format(encoded(settings)) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _differences(before: RunSettings, now: RunSettings) -> Iterable[str]:
    for name in RunSettings.__struct_fields__:
        old, new = getattr(before, name), getattr(now, name)
        if old != new:
            yield f"{name}: {_shown(old)}, now {_shown(new)}"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value) or "default"
