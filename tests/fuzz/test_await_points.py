"""A turn that uses tools, stopped at each step of the event loop: wherever it waits, it can be stopped, and the next one works."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from sanderling.protocol.actions import Compact
from sanderling.protocol.modes import Mode
from tests.api_rules import Block
from tests.cached_api import text, thought, use
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import (
    Answer,
    check_resumed,
    check_talk,
    directory,
    in_process_api,
    last_words,
    talking,
)
from tests.fuzz.wires import WIRES, Wire

SAMPLE_STEP = 17
SETTLED = 3  # runs in a row whose turn had ended before the step
TODO = use("todo_1", "todo", items=[{"content": "Look.", "status": "in_progress"}])
READ = use("read_1", "read", path="notes.txt")
WRITE = use("write_1", "write", path="new.txt", content="New.\n")
SLEEP = use("bash_1", "bash", command="echo begun; sleep 0.02; echo done >> runs.txt")
ECHO = use("bash_2", "bash", command="echo more >> runs.txt")
SUMMARY = text("The person wants a plan; todo has it, new.txt is written, runs.txt counts.")


@dataclass(frozen=True)
class Turn:
    """What the model answers, one request after the other. Of the first answer only so many bytes come, if it `is_cut_at` them."""

    answers: tuple[tuple[Block, ...], ...]
    is_cut_at: int = -1
    mode: Mode = "auto"
    is_compacted: bool = False
    is_confined: bool = False

    def answers_of(self, wire: Wire) -> list[Answer]:
        first, *others = (wire.bytes_of(*content) for content in self.answers)
        return [Answer(first, self.is_cut_at), *map(Answer, others), last_words(wire)]


TURNS = {
    "tools beside each other": Turn(((thought("Hm."), text("I plan."), TODO, READ),)),
    "one after the other": Turn(((TODO,), (thought("Well."), READ), (WRITE,))),
    "what waits for another": Turn(((WRITE, SLEEP, ECHO),)),
    "questions": Turn(((text("May I?"), WRITE, ECHO),), mode="ask"),
    "a retry": Turn(((thought("Hm."), TODO), (TODO, READ)), is_cut_at=700),
    "a summary": Turn(((SUMMARY,), (TODO,)), is_compacted=True),
    "in the sandbox": Turn(((SLEEP,),), is_confined=True),
}


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts its steps, and does a deed before the one with the number `at`: each step ends where a task waits, or before it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.at = -1
        self.deed: Callable[[], None] = lambda: None

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._step, callback, args, context=context)

    def _step(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.count += 1
        if self.count == self.at:
            self.deed()
        callback(*args)


async def stop_at(wire: Wire, name: str, step: int, *, is_steered: bool) -> bool:
    """Run the turn and stop it at this step; return whether it had that many."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    turn = TURNS[name]
    with directory(None) if turn.is_confined else directory() as folder:
        async with in_process_api(wire) as (api, make):
            api.answers = [last_words(wire)]
            async with talking(folder, make, wire=wire, is_confined=turn.is_confined) as talk:
                talk.conversation.controls.set_mode(turn.mode)
                await talk.ask("Before.")
                api.answers = turn.answers_of(wire)
                if turn.is_compacted:
                    talk.conversation.act(Compact("what matters"))
                talk.submit("First.")
                if is_steered:
                    talk.steer("Steer.")
                loop.deed, loop.at = talk.conversation.cancel, loop.count + 1 + step
                await talk.be_quiet()
                was_stopped, loop.at = loop.count >= loop.at, -1
                api.answers = [last_words(wire)]
                await talk.ask("Second.")
                assert api.refused == []
                check_talk(talk)
                history = talk.session.history
                check_runs(folder)
            check_resumed(folder, history)
    return was_stopped


def check_runs(folder: Path) -> None:
    """Each command did what it does at most once."""
    runs = folder / "project" / "runs.txt"
    done = runs.read_text().splitlines() if runs.exists() else []
    assert sorted(done) in ([], ["done"], ["done", "more"], ["more"])


async def stop_everywhere(wire: Wire, name: str) -> int:
    step, settled = 0, 0
    while settled < SETTLED:
        try:
            was_stopped = await stop_at(wire, name, step, is_steered=step % 2 == 1)
        except BaseException as error:
            error.add_note(f"{wire.name}, {name}: stopped at step {step}")
            raise
        settled = 0 if was_stopped else settled + 1
        step += 1 if IS_FULL else SAMPLE_STEP
    return step


CASES = [(wire, name) for wire in WIRES for name in TURNS]
QUICK = (0, len(CASES) - 1)


@pytest.mark.parametrize("wire, name", prove_rest(CASES, keep=QUICK))
def test_a_turn_may_be_stopped_at_each_await(wire, name):
    options = {"loop_factory": CountingLoop}
    steps = anyio.run(stop_everywhere, WIRES[wire], name, backend_options=options)
    assert steps > 2 * SAMPLE_STEP
