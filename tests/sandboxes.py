"""A session's sandbox, for tests that have no conversation."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.policy import SandboxPolicy
from tests.conftest import DEADLINE_S

T = TypeVar("T")


def policy_below(base: Path, project: str = "home/project", **changes: Any) -> SandboxPolicy:
    """Return the policy of a project below `base`, with the user's home there, too."""
    places = {"project": base / project, "home": base / "home", "state_dir": base / "state"}
    return SandboxPolicy(**{name: str(path) for name, path in places.items()} | changes)


def sandbox_of(
    policy: SandboxPolicy, on_event: Callable[[Any], object] = lambda _: None, *, is_on: bool = True
) -> SessionSandbox:
    sandbox = SessionSandbox(policy, on_event, lambda: None)
    if not is_on:
        sandbox.switch(is_on=False)
    return sandbox


@asynccontextmanager
async def kept(
    sandbox: SessionSandbox, deadline_s: float | None = None
) -> AsyncIterator[TaskGroup]:
    """While `sandbox` can be opened; the tasks are over at the end."""
    with anyio.fail_after(DEADLINE_S if deadline_s is None else deadline_s):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.manager.serve)
            yield tasks
            tasks.cancel_scope.cancel()


async def in_own_task(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Yield what `context` yields, for a fixture: pytest-asyncio ends a fixture in another task than it has begun in."""
    entered, is_over = asyncio.get_running_loop().create_future(), anyio.Event()

    async def serve() -> None:
        async with context as value:
            entered.set_result(value)
            await is_over.wait()

    serving = asyncio.create_task(serve())
    await asyncio.wait((entered, serving), return_when=asyncio.FIRST_COMPLETED)
    if entered.done():
        yield entered.result()
    is_over.set()
    await serving
