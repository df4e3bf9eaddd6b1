"""Runs one command of the model or the user to its end."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from sanderling.sandbox.execution_environment import RunningCommand
from sanderling.sandbox.sandbox import alone
from sanderling.tools.commands.output import ScreenText, follow


async def run_to_end(
    process: RunningCommand,
    screen: ScreenText,
    take: Callable[[bytes], None],
    draw: Callable[[str], None],
    *,
    linger_s: float,
) -> int:
    """Read the output until the process ends, as for `read_to_end`; `take` gets the bytes, `draw` the text for the screen."""
    assert process.stdout
    return await read_to_end(
        process, partial(follow, process.stdout, screen, take, draw), linger_s=linger_s
    )


async def read_to_end(
    process: RunningCommand,
    follow_output: Callable[[], Awaitable[None]],
    *,
    linger_s: float,
    on_end: Callable[[], None] = lambda: None,
) -> int:
    """
    Follow the output until the process ends; return its status. If cancelled, kill all its processes.

    `on_end` is called when it has ended. Processes left behind may write for `linger_s`.

    Raises:
        SandboxError: it did not run.
    """
    status = 0
    has_read = anyio.Event()

    async def read() -> None:
        await follow_output()
        has_read.set()

    try:
        with alone():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                status = await process.wait()
                on_end()
                with anyio.move_on_after(linger_s):
                    await has_read.wait()
                tasks.cancel_scope.cancel()
    finally:
        process.close()
    return status
