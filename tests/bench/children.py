"""
What child sessions cost: until the first request of one, memory, and the screen of their parent while four of them write.

`python -m tests.bench.children starts|memory COUNT` are the processes that are measured.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from sanderling.protocol.events import ChildChanged
from sanderling.providers import ModelRequest, Provider
from tests.bench.sandbox import pss_mb
from tests.bench.shared import Bench, Row, percentile, short
from tests.bench.stream import IDLE_S, RATE, type_until
from tests.children import delegate, said, tree
from tests.conftest import ROOT, cpu_s, happens

COUNT = 4
SETTLED_S = 1.0
HANG = {"delay_ms": 3_600_000}
TASKS = [f"Task {number}." for number in range(COUNT)]
MAX_START_MS = 100
MAX_CHILD_MB = 2.0
MAX_CPU = 5
MAX_ECHO_MS = 5


def children(bench: Bench) -> Iterator[Row]:
    starts = [float(_measured("starts", 1)) for _ in bench.times(7)]
    note = f"median of {len(starts)}"
    what = "delegate → the child's first request"
    yield Row(what, statistics.median(starts), "ms", MAX_START_MS, note)
    grown = [float(_measured("memory", COUNT)) / COUNT for _ in bench.times(3)]
    what = f"memory of each of {COUNT} children (PSS above the parent's)"
    yield Row(what, statistics.median(grown), "MB", MAX_CHILD_MB, f"median of {len(grown)}")
    yield from _screen(bench)


def _measured(what: str, count: int) -> str:
    argv = [sys.executable, "-m", "tests.bench.children", what, str(count)]
    return subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _screen(bench: Bench) -> Iterator[Row]:
    """The parent's chat while each child writes `RATE` deltas a second, with keys typed in the prompt."""
    duration_s = 3 if bench.is_quick else 10
    with bench.nvim({}) as nvim:
        script = Path(nvim.project).parent / "script.json"
        script.write_text(json.dumps({"version": 1, "reply": [*_writing(duration_s)]}))
        rules = [{"action": "allow", "tool": "delegate"}]
        nvim.setup(max_calls=0, provider="scripted", script=str(script), permissions=rules)
        nvim.open_prompt()
        nvim.follow(time.monotonic() + SETTLED_S)
        before, end = cpu_s(nvim.pid), time.monotonic() + IDLE_S
        before_echoes = type_until(nvim, lambda: time.monotonic() > end)
        idle = (cpu_s(nvim.pid) - before) / IDLE_S
        nvim.submit("Delegate.")
        nvim.wait_for_text(f"edit {COUNT}")
        before, begin = cpu_s(nvim.pid), time.monotonic()
        echoes = type_until(nvim, lambda: time.monotonic() > begin + duration_s - 1)
        busy = (cpu_s(nvim.pid) - before) / (time.monotonic() - begin)
        nvim.wait_until_idle()
    what = f"{COUNT} children at {RATE} deltas/s:"
    yield Row(f"{what} the parent's Neovim's CPU", 100 * (busy - idle), "%", MAX_CPU)
    note = f"{short(percentile(before_echoes, 99))} ms without children"
    echo = percentile(echoes, 99)
    yield Row(f"{what} key echo p99 in the parent", echo, "ms", MAX_ECHO_MS, note)


def _writing(duration_s: int) -> Iterator[dict[str, Any]]:
    words = "word " * duration_s * RATE
    text = {"text": words, "chunk_chars": len("word "), "chunk_delay_ms": 1000 / RATE}
    for task in TASKS:
        yield {"when": task, "step": [text]}
    yield {"step": [delegate(task) for task in TASKS]}
    yield {"step": [said("All done.")]}


# --- the processes that are measured -----------------------------------------------------------------------------------


class Noting:
    """A provider that notes when a child's request comes."""

    def __init__(self, inner: Provider, at: list[float]) -> None:
        self._inner = inner
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def stream(self, request: ModelRequest) -> Any:
        self._at.append(time.monotonic())
        async for item in self._inner.stream(request):
            yield item


async def starts(base: Path, _count: int) -> float:
    """The ms from the tool call until the child's request."""
    at: list[float] = []
    begun: list[float] = []
    options = {"wrap": lambda provider, _project: Noting(provider, at)}
    script = {TASKS[0]: [[said("Done.")]]}
    async with tree(base, [delegate(TASKS[0])], children=script, options=options) as it:
        it.on_event = lambda e: (
            begun.append(time.monotonic()) if isinstance(e, ChildChanged) else None
        )
        await it.run()
    return 1000 * (at[1] - begun[0])


async def memory(base: Path, count: int) -> float:
    """The MB that running children add to their parent's process."""
    tasks = TASKS[:count]
    script = {task: [[said("Begun."), HANG]] for task in tasks}
    async with tree(base, [delegate(task) for task in tasks], children=script, answer="") as it:
        it.submit()
        question = await it.asked()
        await anyio.sleep(SETTLED_S)
        before = pss_mb(os.getpid())
        it.answer(question, "session")
        await happens(lambda: len(it.children) == count)
        await anyio.sleep(SETTLED_S)
        grown = pss_mb(os.getpid()) - before
        it.agent.close()
    return grown


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HOME": folder, "XDG_CONFIG_HOME": folder}
        measure = {"starts": starts, "memory": memory}[sys.argv[1]]
        print(anyio.run(measure, Path(folder), int(sys.argv[2])))
