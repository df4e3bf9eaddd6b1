"""Texts of any size: work on them without blocking the event loop, differences for display, and what fits in a result."""

from collections.abc import Callable, Iterable
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


def fitting(lines: Iterable[str], max_bytes: int) -> list[str]:
    """Return the first lines that fit in `max_bytes` with their line ends."""
    found: list[str] = []
    for line in lines:
        max_bytes -= len(line.encode()) + 1
        if max_bytes < 0:
            break
        found.append(line)
    return found
