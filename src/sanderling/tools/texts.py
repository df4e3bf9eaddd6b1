"""Work on texts of any size without blocking the event loop, and differences for display."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio.to_thread

from sanderling.changes.editing.lines import TextDifference
from sanderling.changes.editing.text import decode
from sanderling.tools.outcome import Preview

MAX_SHOWN_LINES = 1000
MAX_ASKED_LINES, MAX_ASKED_LINE_CHARS = 50_000, 100_000
THREAD_BYTES = 16 * 1024
"""Larger texts are processed in a thread."""

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def difference(old: str, new: str) -> TextDifference:
    return await done(len(old) + len(new), TextDifference, old, new)


def asked_of_person(change: TextDifference) -> Preview:
    """Return the whole difference, so that the user can read all of what they approve."""
    return Preview(change.shown(MAX_ASKED_LINES, MAX_ASKED_LINE_CHARS).text, "diff")


def shown_to_person(change: TextDifference) -> Preview:
    return Preview(change.shown(MAX_SHOWN_LINES).text, "diff")


async def done(
    size: int, work: Callable[[Unpack[Arguments]], Result], *arguments: *Arguments
) -> Result:
    """Do `work`, in a thread if it processes many bytes."""
    if size < THREAD_BYTES:
        return work(*arguments)
    return await anyio.to_thread.run_sync(work, *arguments)


async def text_of(data: bytes) -> str:
    return (await done(len(data), decode, data)).text
