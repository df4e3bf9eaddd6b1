"""A session's sandbox, for tests that have no conversation."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.policy import SandboxPolicy
from tests.conftest import DEADLINE_S


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
