"""Who wrote the lines of a file with many changes: the first answer, and later ones, which read only what is new."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio

from sanderling.blame.origins import Origins
from sanderling.changes.journal import Journal
from sanderling.changes.states import FileChange
from sanderling.config import Settings
from sanderling.providers.models.known import load_models
from sanderling.session.ledger import Prices
from tests.bench.shared import Bench, Row, median_row, timed

LINES, CHANGES, MODE = 2_000, 2_000, 0o644


def blame(bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="sanderling-bench-") as folder:
        root = Path(folder)
        anyio.run(_record, root)
        firsts: list[float] = []
        seconds: list[float] = []
        for _ in bench.times(5):
            prices = Prices(load_models(Settings(str(root))))
            origins = Origins(root / "sessions", str(root), prices)
            for spent in (firsts, seconds):
                with timed(spent):
                    found = origins.blame(str(root / "a.py"))
            assert found.lines
    name = f"blame of {CHANGES:,} changes to {LINES:,} lines"
    yield median_row(name, firsts, "ms", 1_500)
    yield median_row(f"{name}, again", seconds, "ms", 150)


async def _record(root: Path) -> None:
    lines = [f"value_{number} = compute(number={number})" for number in range(LINES)]
    path = root / "a.py"
    journal = Journal(root / "changes", "s1", str(root), print)
    states = []
    for number in range(CHANGES):
        states.append(await journal.keep(str(path), _data(lines), MODE))
        lines[number * 389 % LINES] = f"agent_{number} = other({number})"
        if number:
            journal.begin_turn(f"p{number // 5}")
            await journal.note(FileChange(str(path), states[-2], states[-1], f"t{number}"))
    path.write_bytes(_data(lines))
    journal.close()


def _data(lines: list[str]) -> bytes:
    return "\n".join([*lines, ""]).encode()
