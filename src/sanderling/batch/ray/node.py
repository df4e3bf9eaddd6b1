"""
The part of the engine that runs on a node: a remote function, in a process that Ray started.

What a node keeps is in one directory, which only its user can read. Each process holds a lock on it while a job runs. Directories without a lock
belong to runs that have ended, and are removed.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any

import anyio
import msgspec

import sanderling
from sanderling.batch.engine import LocalEngine
from sanderling.batch.jobs import Job
from sanderling.batch.ray.archives import ArchiveError, pack
from sanderling.batch.ray.inputs import Input, with_inputs
from sanderling.batch.ray.library import load_ray
from sanderling.batch.results import Result
from sanderling.protocol.modes import ConfiningLevel
from sanderling.sandbox.kernel.layout import remove_tree
from sanderling.sandbox.policy import LEVELS
from sanderling.sandbox.sandbox import Sandbox

NAME = "sanderling-ray"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """
    A job for a node.

    Attributes:
        version: of the driver's Sanderling.
        execution: the beginning of the name under which an execution reports its cost.
        environment: variables of the agent. Those in `removed` are hidden from it.
        min_level: the level of the sandbox below which a node is not used.
    """

    version: str
    execution: str
    job: Job
    inputs: list[Input]
    environment: dict[str, str]
    removed: frozenset[str]
    min_level: ConfiningLevel


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The result of a job, and the execution that it is of. Its directory is in an archive."""

    execution: str
    result: Result


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """The node cannot run jobs, and why."""

    node: str
    reason: str


Answer = Finished | Unfit


def encode_request(request: Request) -> bytes:
    return msgspec.json.encode(request, enc_hook=str)


def run_on_node(line: bytes, refs: list[Any], gateway: Any) -> tuple[bytes, bytes]:
    """Run a job, and return an encoded `Answer` and the archive of its directory. `refs` are the archives of its inputs."""
    ray = load_ray()
    request = msgspec.json.decode(line, type=Request, dec_hook=lambda kind, value: kind(value))
    node: str = ray.get_runtime_context().get_node_id()
    execution = f"{request.execution}/{token_hex(8)}"
    try:
        if reason := _why_unfit(request):
            return _encoded(Unfit(node, f"{socket.gethostname()}: {reason}")), b""
        with _directory_of(node) as directory:

            def report(cost_usd: float) -> None:
                gateway.report.remote(execution, cost_usd)

            fetch = {
                each.digest: lambda ref=ref: bytes(ray.get(ref))
                for each, ref in zip(request.inputs, refs, strict=True)
            }
            result, archive = _run(request, directory, execution, fetch, report)
            return _encoded(Finished(execution, result)), archive
    except (OSError, ArchiveError) as error:  # a disk that is full, for example
        return _encoded(Unfit(node, f"{socket.gethostname()}: {error}")), b""


def _encoded(answer: Answer) -> bytes:
    return msgspec.json.encode(answer)


def _why_unfit(request: Request) -> str:
    if request.version != sanderling.__version__:
        return f"it has Sanderling {sanderling.__version__}, and the driver {request.version}"
    report = _sandbox_report()
    if LEVELS.index(report.level) > LEVELS.index(request.min_level):
        return f"it has no sandbox of the level {request.min_level}: {report.why_not(request.min_level)}"
    return ""


@cache
def _sandbox_report() -> Any:
    return anyio.run(Sandbox.probe)


def _run(
    request: Request,
    directory: Path,
    execution: str,
    fetch: dict[str, Callable[[], bytes]],
    report: Callable[[float], None],
) -> tuple[Result, bytes]:
    job, place = request.job, directory / execution.rpartition("/")[2]
    inputs = directory / "inputs"
    inputs.mkdir(exist_ok=True)
    with (inputs / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = with_inputs(job, request.inputs, inputs, fetch)
    job = msgspec.structs.replace(
        job,
        out=place / "out",
        trial=place / "out" / job.trial.name,
        work=place / "work",
        cache=directory / "cache",
    )
    config = place / "config"
    config.mkdir(parents=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in request.removed and not name.startswith("RAY_")
    }
    environment |= request.environment | {"XDG_CONFIG_HOME": str(config)}
    try:
        result = anyio.run(LocalEngine(1, environment).run, job, report)
        return result, pack(job.trial)
    finally:
        remove_tree(str(place))


@contextmanager
def _directory_of(node: str) -> Generator[Path]:
    """Hold this node's directory, which is made if it is missing, and remove the directories of ended runs."""
    path = Path(tempfile.gettempdir(), f"{NAME}-{os.getuid()}-{node[:16]}")
    held = _held(path)
    try:
        remove_ended()
        yield path
    finally:
        os.close(held)


def _held(path: Path) -> int:
    """
    Return a descriptor that locks the directory.

    Raises:
        PermissionError: the directory belongs to another user.
    """
    while True:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another process has removed it
            held = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(held, fcntl.LOCK_SH)
            found = os.fstat(held)
            if found.st_uid != os.getuid():
                os.close(held)
                raise PermissionError(f"{path} belongs to another user")
            with suppress(FileNotFoundError):
                if os.path.samestat(found, path.lstat()):
                    return held
            os.close(held)


def remove_ended() -> None:
    """Remove the directories that no process of this machine holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{NAME}-{os.getuid()}-*"):
        with suppress(OSError):
            found = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(str(path))
            finally:
                os.close(found)
