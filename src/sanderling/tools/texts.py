"""Texts of any size: worked on without holding up everything else, and their differences as they are shown."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio.to_thread

from sanderling.editing.lines import Difference
from sanderling.editing.text import decode
from sanderling.tools.outcome import Preview

MAX_SHOWN_LINES = 1000
MAX_ASKED_LINES, MAX_ASKED_LINE_CHARS = 50_000, 100_000
THREAD_BYTES = 16 * 1024
"""Work on more than that would hold up everything else."""

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


async def difference(old: str, new: str) -> Difference:
    return await done(len(old) + len(new), Difference, old, new)


def asked_of_person(change: Difference) -> Preview:
    """The whole difference: nobody can approve what they cannot read. The float shows as much as has room, and `p` the rest."""
    return Preview(change.shown(MAX_ASKED_LINES, MAX_ASKED_LINE_CHARS).text, "diff")


def shown_to_person(change: Difference) -> Preview:
    return Preview(change.shown(MAX_SHOWN_LINES).text, "diff")


async def done(
    size: int, work: Callable[[Unpack[Arguments]], Result], *arguments: *Arguments
) -> Result:
    """Do `work`, in a thread if there are so many bytes of it."""
    if size < THREAD_BYTES:
        return work(*arguments)
    return await anyio.to_thread.run_sync(work, *arguments)


async def text_of(data: bytes) -> str:
    return (await done(len(data), decode, data)).text
