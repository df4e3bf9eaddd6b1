"""Background tasks of sessions."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from anyio.abc import TaskGroup

log = logging.getLogger(__name__)


class TaskStarter(Protocol):
    def start_soon(self, func: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> object: ...


class GuardedTasks:
    """Tasks of many sessions. An exception ends its own task, is logged, and does not affect the others."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    def start_soon(self, func: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        self._tasks.start_soon(_guarded, func, args)


async def _guarded(func: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...]) -> None:
    try:
        await func(*args)
    except Exception as defect:  # a session must not end the others
        log.critical("a session task crashed", exc_info=defect)
