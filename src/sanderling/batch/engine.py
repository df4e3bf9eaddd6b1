"""Engines, which turn jobs into results. The local one starts a process for each."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import Process

from sanderling.batch.jobs import Done, Job, Progress, encode_job
from sanderling.batch.results import Result
from sanderling.batch.trial import Trial
from sanderling.json_lines import LineSplitter, LineTooLongError
from sanderling.sandbox.kernel.layout import remove_tree

MAX_LINE_BYTES = 16 << 20
SAID_BYTES = 2_000


class Engine(Protocol):
    """Where jobs run, while its context is open. The caller runs at most `slots` at a time."""

    slots: int

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None: ...

    async def run(self, job: Job, on_cost: Callable[[float], None]) -> Result:
        """
        Run a job to its end. A worker that dies is a result, `crashed`. Cancellation ends the job with all of its processes.

        `on_cost` is called with the dollars that the job has spent so far.
        """
        ...


class LocalEngine:
    """Runs each job in a process of this machine, with an environment that is not its own if it is given."""

    def __init__(self, slots: int, environment: Mapping[str, str] | None = None) -> None:
        self.slots = slots
        self._environment = environment

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run(self, job: Job, on_cost: Callable[[float], None]) -> Result:
        for directory in (job.trial, job.work):
            await to_thread.run_sync(remove_tree, str(directory))
            directory.mkdir(parents=True)
        try:
            return await _run_worker(job, on_cost, self._environment)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(remove_tree, str(job.work))


async def _run_worker(
    job: Job, on_cost: Callable[[float], None], environment: Mapping[str, str] | None
) -> Result:
    result: Result | None = None
    status, spent_usd = 0, 0.0
    log = job.trial / "trial.log"
    with log.open("wb") as stderr:
        async with await anyio.open_process(
            [sys.executable, "-m", "sanderling.batch.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=job.work,
            env=environment,
            start_new_session=True,  # it ends its whole group; the terminal's signals are for us
        ) as process:
            assert process.stdin
            try:
                with suppress(anyio.BrokenResourceError):
                    await process.stdin.send(encode_job(job))
                async for message in _messages_of(process):
                    if isinstance(message, Done):
                        result = message.result
                    else:
                        spent_usd = message.cost_usd
                        on_cost(spent_usd)
            finally:
                if result is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                with anyio.CancelScope(shield=True):
                    status = await process.wait()
    if result:
        return result
    said = log.read_bytes()[-SAID_BYTES:].decode(errors="replace").strip().split("\n")[-1]
    reason = f"the worker ended with status {status}{': ' if said else ''}{said}"
    trial = Trial(job)
    trial.agent.cost = spent_usd
    return trial.end("crashed", reason)


async def _messages_of(worker: Process) -> AsyncGenerator[Progress | Done]:
    assert worker.stdout
    decoder: msgspec.json.Decoder[Progress | Done] = msgspec.json.Decoder(Progress | Done)
    lines = LineSplitter(MAX_LINE_BYTES)
    async for chunk in worker.stdout:
        for line in lines.feed(chunk):
            if isinstance(line, LineTooLongError):
                continue
            with suppress(msgspec.DecodeError):  # a library's own words
                yield decoder.decode(line)
