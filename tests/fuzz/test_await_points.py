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
from tests.cached_api import text, thought, use
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import (
    Answer,
    api_client,
    bytes_of,
    check_resumed,
    check_talk,
    directory,
    last_words,
    talking,
)

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
    """What the model answers, one request after the other."""

    answers: tuple[Answer, ...]
    mode: Mode = "auto"
    is_compacted: bool = False
    is_confined: bool = False


TURNS = {
    "tools beside each other": Turn(
        (Answer(bytes_of(thought("Hm."), text("I plan."), TODO, READ)),)
    ),
    "one after the other": Turn(
        (Answer(bytes_of(TODO)), Answer(bytes_of(thought("Well."), READ)), Answer(bytes_of(WRITE)))
    ),
    "what waits for another": Turn((Answer(bytes_of(WRITE, SLEEP, ECHO)),)),
    "questions": Turn((Answer(bytes_of(text("May I?"), WRITE, ECHO)),), mode="ask"),
    "a retry": Turn((Answer(bytes_of(thought("Hm."), TODO), at=700), Answer(bytes_of(TODO, READ)))),
    "a summary": Turn((Answer(bytes_of(SUMMARY)), Answer(bytes_of(TODO))), is_compacted=True),
    "in the sandbox": Turn((Answer(bytes_of(SLEEP)),), is_confined=True),
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


async def stop_at(name: str, step: int, *, is_steered: bool) -> bool:
    """Run the turn and stop it at this step; return whether it had that many."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    turn = TURNS[name]
    with directory(None) if turn.is_confined else directory() as folder:
        async with api_client() as (api, client):
            api.answers = [last_words()]
            async with talking(folder, client, is_confined=turn.is_confined) as talk:
                talk.conversation.set_mode(turn.mode)
                await talk.ask("Before.")
                api.answers = [*turn.answers, last_words()]
                if turn.is_compacted:
                    talk.conversation.act(Compact("what matters"))
                talk.submit("First.")
                if is_steered:
                    talk.steer("Steer.")
                loop.deed, loop.at = talk.conversation.cancel, loop.count + 1 + step
                await talk.be_quiet()
                was_stopped, loop.at = loop.count >= loop.at, -1
                api.answers = [last_words()]
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


async def stop_everywhere(name: str) -> int:
    step, settled = 0, 0
    while settled < SETTLED:
        try:
            was_stopped = await stop_at(name, step, is_steered=step % 2 == 1)
        except BaseException as error:
            error.add_note(f"{name}: stopped at step {step}")
            raise
        settled = 0 if was_stopped else settled + 1
        step += 1 if IS_FULL else SAMPLE_STEP
    return step


@pytest.mark.parametrize("name", prove_rest(TURNS, keep=(0, 3, -1)))
def test_a_turn_may_be_stopped_at_each_await(name):
    steps = anyio.run(stop_everywhere, name, backend_options={"loop_factory": CountingLoop})
    assert steps > 2 * SAMPLE_STEP
