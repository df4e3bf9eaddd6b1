"""Background tasks of a session."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

Task = Callable[..., Coroutine[Any, Any, Any]]


class BackgroundTasks:
    """Tasks that run while the session is served. Tasks started earlier wait for that."""

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self._early: list[tuple[Task, tuple[Any, ...]]] = []

    def start(self, task: Task, *arguments: Any) -> None:
        if self._group:
            self._group.start_soon(task, *arguments)
        else:
            self._early.append((task, arguments))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the tasks in this context, and cancel the remaining ones at its end."""
        async with anyio.create_task_group() as self._group:
            for task, arguments in self._early:
                self._group.start_soon(task, *arguments)
            yield
            self._group.cancel_scope.cancel()
        self._group = None  # tasks started from now on never run
