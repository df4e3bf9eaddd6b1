"""The check of a task: a command in a sandbox of its own, after the agent has ended, and the reward that follows from it."""

import json
import math
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import anyio

from sanderling.errors import SanderlingError
from sanderling.paths import open_plain, state_directory
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.processes import STDOUT, PipeReader
from sanderling.sandbox.sandbox import Sandbox

MAX_REWARD_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 16 << 20
"""Of the output of a command, half from its beginning and half from its end."""
DRAIN_S = 5.0


class CheckError(SanderlingError):
    """The check left no reward: `str(error)` says why."""


class CheckTimeoutError(CheckError):
    """The check took longer than it may."""


class Command(NamedTuple):
    """
    A command in the sandbox of a project.

    Attributes:
        argv, cwd, env: the command, where it runs, and variables in addition to the sandbox's.
        project, write_paths, read_paths, network, hosts: its access.
        state: the directory for its HOME and /tmp.
        output: the file that gets its standard output and standard error.
        shows_env_files: whether `.env` files have their content, because the project is not the user's.
    """

    argv: tuple[str, ...]
    cwd: Path
    project: Path
    state: Path
    output: Path
    env: Mapping[str, str] = {}
    write_paths: tuple[str, ...] = ()
    read_paths: tuple[str, ...] = ()
    network: NetworkMode = "off"
    hosts: tuple[str, ...] = ()
    shows_env_files: bool = False


async def run_command(command: Command, limit_s: float) -> int:
    """
    Run a command, and return its exit status.

    Raises:
        CheckTimeoutError: it took longer than `limit_s`, and was killed.
        SandboxError: it cannot be started.
    """
    policy = SandboxPolicy(
        project=str(command.project),
        home=str(Path.home()),
        state_dir=state_directory(str(command.state), str(command.project)),
        network=command.network,
        read_paths=command.read_paths,
        write_paths=command.write_paths,
        hosts=command.hosts,
        shows_env_files=command.shows_env_files,
    )
    command.output.parent.mkdir(parents=True, exist_ok=True)
    with command.output.open("ab") as output:
        async with _writer_to(output) as writer, Sandbox.open(policy) as sandbox:
            process = await sandbox.spawn(
                command.argv,
                cwd=str(command.cwd),
                env=dict(command.env),
                stdout=writer,
                stderr=STDOUT,
            )
            with anyio.move_on_after(limit_s):
                return await process.wait()
            process.kill()
    raise CheckTimeoutError(f"the check took longer than {limit_s:g} s")


@asynccontextmanager
async def _writer_to(output: BinaryIO) -> AsyncGenerator[int]:
    """
    Yield a descriptor that a command writes to. Its output is copied to the file, without the middle if it is long.

    A descriptor of the file itself would let `yes` fill the disk.
    """
    reading, writing = os.pipe()
    kept = _Kept(output)
    failed: Exception | None = None
    try:
        async with PipeReader(reading) as reader, anyio.create_task_group() as tasks:
            tasks.start_soon(kept.take_all, reader)
            try:
                yield writing
            except Exception as error:  # noqa: BLE001 - raised below, because the task group would wrap it
                failed = error
            finally:
                os.close(writing)
                # By now the sandbox has ended what had the other end. Without namespaces, something may be left.
                tasks.cancel_scope.deadline = anyio.current_time() + DRAIN_S
    finally:
        kept.end()
    if failed:
        raise failed


class _Kept:
    """The beginning and the end of an output, for a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._room = MAX_OUTPUT_BYTES // 2
        self._end = bytearray()
        self._left_out = 0

    async def take_all(self, reader: PipeReader) -> None:
        async for chunk in reader:
            self._file.write(chunk[: self._room])
            self._end += chunk[self._room :]
            self._room -= min(self._room, len(chunk))
            if len(self._end) > MAX_OUTPUT_BYTES:  # seldom, because it moves the rest
                self._cut()
            elif not self._end:
                self._file.flush()

    def _cut(self) -> None:
        if (excess := len(self._end) - MAX_OUTPUT_BYTES // 2) > 0:
            self._left_out += excess
            del self._end[:excess]

    def end(self) -> None:
        self._cut()
        if self._left_out:
            self._file.write(f"\n[{self._left_out:,} bytes left out]\n".encode())
        self._file.write(self._end)


def reward_of_status(status: int) -> dict[str, float]:
    return {"reward": float(status == 0)}


def read_rewards(directory: Path) -> dict[str, float]:
    """
    Return the rewards in `reward.json` or else `reward.txt`, as Harbor's verifier reads them.

    Raises:
        CheckError: both files are missing, or they are not finite numbers.
    """
    if (data := _content(directory / "reward.json")) is not None:
        return _rewards_in_json(data)
    if (data := _content(directory / "reward.txt")) is None:
        raise CheckError("the tests wrote neither reward.json nor reward.txt")
    try:
        reward = float(data)
    except ValueError as error:
        raise CheckError("reward.txt does not contain a number") from error
    return {"reward": _finite(reward, "reward.txt")}


def _content(path: Path) -> bytes | None:
    """Return what the tests wrote; None if there is no such file."""
    try:
        with open_plain(path) as file:
            data = file.read(MAX_REWARD_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckError(f"{path.name} cannot be read: {error.strerror}") from error
    if not data.strip():
        raise CheckError(f"{path.name} is empty")
    if len(data) > MAX_REWARD_BYTES:
        raise CheckError(f"{path.name} is longer than {MAX_REWARD_BYTES:,} bytes")
    return data


def _rewards_in_json(data: bytes) -> dict[str, float]:
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckError("reward.json is not JSON") from error
    if not isinstance(value, dict) or not value:
        raise CheckError("reward.json is not an object with numbers")
    return {
        name: _finite(reward, "reward.json")
        for name, reward in cast("dict[str, Any]", value).items()
    }


def _finite(reward: Any, where: str) -> float:
    if not isinstance(reward, int | float):
        raise CheckError(f"{where} has a value that is not a number")
    try:
        number = float(reward)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CheckError(f"{where} has a number that is not finite")
    return number


def main_reward(rewards: Mapping[str, float]) -> float | None:
    """Return the reward called so, or else the only one, or else the mean."""
    if "reward" in rewards or not rewards:
        return rewards.get("reward")
    return sum(rewards.values()) / len(rewards)
