"""The host's descriptors, which tasks of the event loop read and write."""

import os
from asyncio import get_running_loop

import anyio

CHUNK_BYTES = 64 * 1024


def close(descriptor: int) -> int:
    """
    Close a descriptor for which a task may wait, after waking that task. Return -1, to mark it as closed.

    When anyio's waiter wakes up, it removes whatever waits for its descriptor number. If a new descriptor had that number by then, the
    task that waits for the new one would never wake up. So the close happens after that.
    """
    if descriptor >= 0:
        anyio.notify_closing(descriptor)
        get_running_loop().call_soon(os.close, descriptor)  # after the waking task
    return -1
