"""What taking back a turn costs: 200 files that a command has changed, in the sandbox, journal and disk included."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from tests.bench.shared import Bench, Row, median_row
from tests.unit.test_file_tools import Place
from tests.unit.test_restorer import Agent

FILES = 200
TARGET_MS = 300


def undo(bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="sanderling-bench-") as directory:
        spent = anyio.run(_spent_ms, Place(Path(directory)), len(list(bench.times(5))))
    yield median_row(f"undo of {FILES} files", spent, "ms", TARGET_MS)


async def _spent_ms(place: Place, times: int) -> list[float]:
    paths = [place.project / f"file{number}.py" for number in range(FILES)]
    place.project.mkdir(parents=True)

    def write(text: str) -> None:
        for path in paths:
            path.write_text(text * 50)

    write("a line of a file\n")
    spent: list[float] = []
    async with place.desk(is_on=True) as desk:
        agent = Agent(desk)
        await agent.command(lambda: write("another line of it\n"), *paths)
        for _ in range(times):
            began = time.perf_counter()
            undone = await agent.undo()
            spent.append(1e3 * (time.perf_counter() - began))
            assert len(undone.steps) == FILES
            await agent.redo()
    return spent
