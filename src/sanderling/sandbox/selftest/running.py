"""Runs a self-test and compares what happened in the sandbox and without it."""

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import anyio

from sanderling.sandbox.selftest.scene import Scene
from sanderling.sandbox.selftest.trials import ESCAPES, NOT_HERE, TASKS

TIMEOUT_S = 60.0
TIMED_OUT = -1
MAX_DETAIL_CHARS = 200


class Ended(NamedTuple):
    """The exit status and the output of an attempt."""

    status: int
    output: str


Start = Callable[[Sequence[str]], Awaitable[Ended]]
"""Runs a command to its end."""
Confine = Callable[[Scene], AbstractAsyncContextManager[Start]]
"""Returns how commands of a scene's project are run, while the context lasts."""


class Result(NamedTuple):
    """
    One escape or task: what happened without the sandbox and in it. `is_right` is the judgement.

    Attributes:
        works: it succeeded without the sandbox, so that its outcome inside says something.
        works_inside: it succeeded in the sandbox, too.
        detail: the last line of what it printed, if that explains the outcome.
    """

    name: str
    words: str
    is_escape: bool
    works: bool
    works_inside: bool
    is_missing: bool = False
    detail: str = ""

    @property
    def is_right(self) -> bool:
        if self.is_escape:
            return self.works and not self.works_inside
        return self.works_inside or self.is_missing

    @property
    def outcome(self) -> str:
        if self.is_missing:
            return self.detail
        if self.is_escape and not self.works:
            return f"cannot be judged, because it fails without the sandbox, too: {self.detail}"
        if self.is_escape:
            return "succeeded in the sandbox" if self.works_inside else "refused"
        return "works" if self.works_inside else f"fails in the sandbox: {self.detail}"

    def __str__(self) -> str:
        return f"{self.words}: {self.outcome}"


async def run(directory: Path, confine: Confine) -> list[Result]:
    """Run everything in new scenes below `directory`. `confine` starts the commands of the second one."""
    with Scene(directory) as scene:
        free = await _attempt_all(scene, unconfined)
    with Scene(directory) as scene:
        async with confine(scene) as start:
            inside = await _attempt_all(scene, start)
    results: list[Result] = []
    for name, (works, ended) in free.items():
        works_inside, ended_inside = inside[name]
        words = (ESCAPES.get(name) or TASKS[name]).words
        is_escape = name in ESCAPES
        explains = ended if is_escape or ended.status == NOT_HERE else ended_inside
        results.append(
            Result(
                name,
                words,
                is_escape,
                works,
                works_inside,
                is_missing=not is_escape and ended.status == NOT_HERE,
                detail=_last_line(explains.output),
            )
        )
    return results


def why_nothing_starts(results: Sequence[Result]) -> str:
    """Return a sentence if all tasks failed with the same words: then no program starts, and refused escapes say nothing. Else ""."""
    tasks = [each for each in results if not each.is_escape and not each.is_missing]
    reasons = {each.detail for each in tasks}
    is_single = len(tasks) == 1
    if is_single or len(reasons) != 1 or any(each.works_inside for each in tasks):
        return ""
    return f"no program starts in the sandbox: {reasons.pop()}"


async def _attempt_all(scene: Scene, start: Start) -> dict[str, tuple[bool, Ended]]:
    outcomes: dict[str, tuple[bool, Ended]] = {}
    for name in (*TASKS, *ESCAPES):
        ended = await start(command(scene, name))
        if escape := ESCAPES.get(name):
            outcomes[name] = scene.has_escaped(escape.evidence, ended.output), ended
        else:
            outcomes[name] = ended.status == 0, ended
    return outcomes


def command(scene: Scene, name: str) -> list[str]:
    python = os.path.realpath(
        sys.executable
    )  # of a virtual environment, the sandbox shows only the libraries
    return [python, "-I", "-S", str(scene.script), name, json.dumps(scene.facts())]


async def unconfined(argv: Sequence[str]) -> Ended:
    with anyio.move_on_after(TIMEOUT_S):
        ended = await anyio.run_process(argv, check=False, stderr=subprocess.STDOUT)
        return Ended(ended.returncode, ended.stdout.decode(errors="replace"))
    return Ended(TIMED_OUT, f"it took longer than {TIMEOUT_S:.0f} s")


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:MAX_DETAIL_CHARS] if lines else "it printed nothing"
