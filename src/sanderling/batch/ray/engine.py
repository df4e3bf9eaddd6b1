"""The engine of a Ray cluster: jobs are remote tasks, and their directories come back as bytes."""

import math
import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex, token_urlsafe
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import msgspec
from anyio import to_thread

import sanderling
from sanderling.batch.copies import CopyError
from sanderling.batch.jobs import Job
from sanderling.batch.ray.archives import ArchiveError, unpack
from sanderling.batch.ray.gateway import Gateway
from sanderling.batch.ray.inputs import Inputs
from sanderling.batch.ray.library import load_ray
from sanderling.batch.ray.node import (
    Answer,
    Finished,
    Request,
    Unfit,
    encode_request,
    remove_ended,
    run_on_node,
)
from sanderling.batch.ray.settings import (
    key_variables,
    offered,
    opening_of,
    options_for,
    placeholders,
)
from sanderling.batch.results import Result
from sanderling.batch.trial import Trial, config_of
from sanderling.config.layers import own_layers
from sanderling.errors import SanderlingError, UsageError
from sanderling.json_lines import encoded
from sanderling.sandbox.kernel.layout import remove_tree

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

MAX_RETRIES = 5  # of a job whose node or process dies
POLL_S = 1.0
CANCEL_S = 10.0  # for a node to end a job's processes
SWEEP_S = 10.0
CONNECT_S = 10.0
AHEAD = 0.25
"""The part of tasks that wait on the cluster, so that a processor does not idle while a result arrives and the next task leaves."""
TOKEN_PREFIX = "sanderling-run-"  # noqa: S105 - what it is, for a reader of a log


@contextmanager
def ray_cluster(address: str, keys: frozenset[str]) -> Generator[Any]:
    """
    Connect to a cluster, and yield Ray. Without an address it is the one in RAY_ADDRESS, or else a new one for this run.

    The processes of a new cluster inherit this one's environment, but not the variables `keys`.

    Raises:
        UsageError: Ray is missing, or the cluster cannot be reached.
    """
    ray = load_ray()
    # Without this, Ray would look for the latest cluster that was started here. If that was killed, it searches for two minutes.
    address = address or os.environ.get("RAY_ADDRESS", "local")
    _check_reachable(address)
    hidden = {name: os.environ.pop(name) for name in keys if name in os.environ}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:  # Ray raises plain `Exception`, too
        raise UsageError(f"the Ray cluster {address} cannot be used: {error}") from error
    finally:
        os.environ.update(hidden)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """
    Check that something listens at HOST:PORT, because Ray tries for minutes.

    Raises:
        UsageError: it does not.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # "local" or "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"there is no Ray cluster at {address}: {error}") from error


class RayEngine:
    """Runs jobs on the nodes of a cluster, while its context is open."""

    def __init__(self, ray: Any, slots: int, model: str, staging: Path) -> None:
        """
        Prepare the engine. `staging` is a directory for copies while they are archived. 0 slots: the cluster's processors, and `AHEAD`.

        Raises:
            UsageError, ConfigError: the settings cannot be used on other machines.
        """
        layers = own_layers()
        own = layers.settings()
        processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.slots = slots or processors + math.ceil(AHEAD * processors)
        self._ray = ray
        self._own = own
        self._options = layers.file.options
        self._names = offered(own, model)
        self._token = TOKEN_PREFIX + token_urlsafe(32)
        self._opening = opening_of(own, self._names, self._token, os.environ)
        self._staging = staging
        self._inputs = Inputs(ray.put, staging)
        self._function = ray.remote(max_retries=MAX_RETRIES, scheduling_strategy="SPREAD")(
            run_on_node
        )
        self._address = ""
        self._gateway: Any = None
        self._tasks: TaskGroup | None = None
        self._unfit: dict[str, str] = {}
        self._running: dict[str, _Costs] = {}

    async def __aenter__(self) -> Self:
        ray = self._ray
        here = ray.get_runtime_context().get_node_id()
        strategies = ray.util.scheduling_strategies
        near = strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        actor = ray.remote(num_cpus=0, max_concurrency=10_000)(Gateway)
        self._gateway = actor.options(scheduling_strategy=near).remote()
        self._address = await self._gateway.open.remote(self._opening)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._poll_costs)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._tasks
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, error, trace)
        finally:
            with anyio.move_on_after(SWEEP_S, shield=True), suppress(Exception):
                self._ray.kill(self._gateway)
                await self._sweep()

    async def run(self, job: Job, on_cost: Callable[[float], None]) -> Result:
        await to_thread.run_sync(remove_tree, str(job.trial))
        try:
            inputs = await self._inputs.of(job)
        except CopyError as error:
            return Trial(job).end("setup_error", str(error))
        name = token_hex(8)
        request = self._request_for(job, name, [each for each, _ in inputs])
        self._running[name] = _Costs(on_cost)
        try:
            return await self._run_somewhere(job, request, [ref for _, ref in inputs])
        finally:
            del self._running[name]

    def _request_for(self, job: Job, name: str, inputs: list[Any]) -> Request:
        # The node fills in its own paths.
        elsewhere = msgspec.structs.replace(job.task, project="", repository="", harbor="")
        options = options_for(self._own, self._options, self._names, self._address)
        return Request(
            version=sanderling.__version__,
            execution=name,
            job=msgspec.structs.replace(job, task=elsewhere, options=options, is_on_cluster=True),
            inputs=inputs,
            environment=placeholders(self._own, self._names, self._token),
            removed=key_variables(self._own),
            min_level=self._own.sandbox_min_level,
        )

    async def _run_somewhere(self, job: Job, request: Request, refs: list[Any]) -> Result:
        """Run the job on a node that can run jobs."""
        line = encode_request(request)
        while not (nowhere := self._why_nowhere()):
            function = self._function
            if self._unfit:
                others = f"!in({','.join(self._unfit)})"
                function = function.options(label_selector={"ray.io/node-id": others})
            answer, archive = await self._result_of(function.remote(line, refs, self._gateway))
            match answer:
                case None:
                    reason = "its node or process died, again and again: see the logs of Ray"
                    return Trial(job).end("crashed", reason)
                case Finished(execution, sent):
                    result = own_result(sent, job)
                    self._note_cost(execution, result.cost or 0.0)
                    await to_thread.run_sync(receive, archive, job)
                    return result
                case Unfit(node, reason):
                    self._unfit[node] = reason
        return Trial(job).end("unsupported", f"no node can run it: {nowhere}")

    def _why_nowhere(self) -> str:
        """Return why none of the nodes can run jobs, or "". Without a node with processors, one may still join."""
        nodes = self._with_processors() if self._unfit else set[str]()
        return self._unfit[min(nodes)] if nodes and nodes <= self._unfit.keys() else ""

    def _with_processors(self) -> set[str]:
        """Return the nodes that can be given jobs. A head often has no processors."""
        nodes = (each for each in self._ray.nodes() if each["Alive"])
        return {each["NodeID"] for each in nodes if each["Resources"].get("CPU", 0) >= 1}

    async def _result_of(self, ref: Any) -> tuple[Answer | None, bytes]:
        """
        Wait for a remote task. A cancellation ends it, with its processes. None: it died with its node or its process.

        Raises:
            SanderlingError: the cluster does not work.
        """
        errors = self._ray.exceptions
        lost = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        )
        try:
            line, archive = await ref
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CANCEL_S, shield=True), suppress(errors.RayError):
                self._ray.cancel(ref)
                await ref
            raise
        except lost:
            return None, b""
        except errors.RayError as error:
            said = str(error).strip().split("\n")[-1]
            raise SanderlingError(f"the Ray cluster failed: {said}") from error
        return msgspec.json.decode(line, type=Answer), archive

    async def _poll_costs(self) -> None:
        while True:
            await anyio.sleep(POLL_S)
            try:
                costs: dict[str, float] = await self._gateway.costs.remote()
            except self._ray.exceptions.RayError as error:
                raise SanderlingError(
                    "the gateway, which calls models, has ended: see the logs of Ray"
                ) from error
            for execution, cost_usd in costs.items():
                self._note_cost(execution, cost_usd)

    def _note_cost(self, execution: str, cost_usd: float) -> None:
        if running := self._running.get(execution.partition("/")[0]):
            running.note(execution, cost_usd)

    async def _sweep(self) -> None:
        """Remove what the run leaves on the nodes."""
        strategies = self._ray.util.scheduling_strategies
        function = self._ray.remote(num_cpus=0, max_retries=0)(remove_ended)
        for node in self._ray.nodes():
            if node["Alive"]:
                there = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                with suppress(self._ray.exceptions.RayError):
                    await function.options(scheduling_strategy=there).remote()


class _Costs:
    """The cost of a job: the sum over its executions, because one on a node that died has cost something, too."""

    def __init__(self, on_cost: Callable[[float], None]) -> None:
        self._on_cost = on_cost
        self._costs: dict[str, float] = {}

    def note(self, execution: str, cost_usd: float) -> None:
        # Reports may arrive in another order than they were sent, and after the result.
        self._costs[execution] = max(cost_usd, self._costs.get(execution, 0.0))
        self._on_cost(sum(self._costs.values()))


def own_result(result: Result, job: Job) -> Result:
    """Return the result that a node reports as one of the job: it cannot be that of another, or lower what the run has spent."""
    return msgspec.structs.replace(
        result,
        id=job.task.id,
        attempt=job.attempt,
        hash=job.task.digest,
        trial=job.trial.name,
        cost=None if result.cost is None else max(result.cost, 0.0),
    )


def receive(archive: bytes, job: Job) -> None:
    """
    Unpack the directory of a trial. It has its name when it is complete.

    The node does not say what the trial was of: `batch apply` would change the files of the project that it names.

    Raises:
        SanderlingError: it is damaged, or cannot be written.
    """
    arriving = job.work / "arriving"
    remove_tree(str(job.work))
    try:
        unpack(archive, arriving)
        config = arriving / "config.json"
        remove_tree(str(config))
        config.write_bytes(encoded(config_of(job)) + b"\n")
        arriving.rename(job.trial)
    except ArchiveError as error:
        raise SanderlingError(f"{job.trial.name} did not arrive: {error}") from error
    finally:
        remove_tree(str(job.work))
