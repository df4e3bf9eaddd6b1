"""The journal of what the agent changes: what it adds to a command, and to an edit, in projects of some size."""

import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from sanderling.changes.commands import CommandChanges
from sanderling.changes.journal import Journal
from sanderling.sandbox.confinement import SessionSandbox
from tests.bench.shared import Bench, Row, median_row, timed
from tests.sandboxes import kept, policy_below, sandbox_of
from tests.unit.test_file_tools import Place
from tests.unit.test_restorer import Agent

PER_DIRECTORY = 10
TEXT = "a line of about forty characters or so.\n" * 50
LIMITS_MS = {10_000: (30, None), 40_000: (120, 600)}
UNDONE = 200  # files
GIT = ["git", "-c", "user.name=Bench", "-c", "user.email=bench@example.com"]


def changes(bench: Bench) -> Iterator[Row]:
    for count, limits in LIMITS_MS.items():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            project = Path(folder, "home", "project")
            _fill(project, count)
            found: list[Row] = []
            anyio.run(_measure, bench, project, count, limits, found)
            yield from found


def _fill(project: Path, count: int) -> None:
    for number in range(count):
        directory = project / f"src/{number // 1000}/{number // PER_DIRECTORY % 100}"
        if number % PER_DIRECTORY == 0:
            directory.mkdir(parents=True, exist_ok=True)
        (directory / f"file_{number}.py").write_text(TEXT)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "files"]):
        subprocess.run([*GIT, *arguments], cwd=project, check=True)


@asynccontextmanager
async def _opened(project: Path) -> AsyncIterator[tuple[SessionSandbox, Journal]]:
    base = project.parent.parent
    sandbox = sandbox_of(policy_below(base))
    async with kept(sandbox):
        await sandbox.environment.files()
        journal = Journal(base / "changes", "bench", str(project), print)
        yield sandbox, journal
        journal.close()


async def _measure(
    bench: Bench, project: Path, count: int, limits: tuple[float, float | None], found: list[Row]
) -> None:
    name = f"{count:,} files"
    firsts: list[float] = []
    for _ in bench.times(5):
        async with _opened(project) as (sandbox, journal):
            recorder = CommandChanges(journal, lambda: False, print)
            with timed(firsts):
                await recorder.look(sandbox.environment)
    found.append(median_row(f"first look at {name}", firsts, "ms", limits[1]))
    async with _opened(project) as (sandbox, journal):
        recorder = CommandChanges(journal, lambda: False, print)
        await recorder.look(sandbox.environment)
        path = next((project / "src/0/1").iterdir())
        nothing: list[float] = []
        one: list[float] = []
        edits: list[float] = []
        for number in bench.times(40):
            with timed(nothing):
                async with recorder.during(sandbox.environment, "t"):
                    pass
            with timed(one):
                async with recorder.during(sandbox.environment, "t"):
                    path.write_text(f"{number}\n{TEXT}")
            with timed(edits):
                old, new = f"{number} old".encode(), f"{number} new".encode()
                async with journal.editing(f"{project}/edited", old, 0o644, new, "t"):
                    pass
    found.append(
        median_row(f"a command changes nothing of {name}: added", nothing, "ms", limits[0])
    )
    found.append(median_row(f"a command changes one of {name}: added", one, "ms"))
    found.append(median_row(f"an edit, beside {name}: added", edits, "ms", 5))


def undo(bench: Bench) -> Iterator[Row]:
    """What taking back a turn costs, whose command has changed many files; sandbox, journal and disk included."""
    with tempfile.TemporaryDirectory(prefix="sanderling-bench-") as directory:
        spent = anyio.run(_spent_ms, Place(Path(directory)), len(list(bench.times(5))))
    yield median_row(f"undo of {UNDONE} files", spent, "ms", 300)


async def _spent_ms(place: Place, times: int) -> list[float]:
    paths = [place.project / f"file{number}.py" for number in range(UNDONE)]
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
            with timed(spent):
                undone = await agent.undo()
            assert len(undone.steps) == UNDONE
            await agent.redo()
    return spent
