"""A person who does anything at any time, to a model whose answers break off: nothing invalid is sent, nothing is lost."""

import random

import anyio
import anyio.lowlevel
import pytest

from sanderling.protocol.actions import Compact, ReleaseWaiting, UndoCompaction
from tests.conftest import prove, prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import (
    Answer,
    Talk,
    check_resumed,
    check_talk,
    directory,
    in_process_api,
    last_words,
    talking,
)
from tests.fuzz.wires import ANTHROPIC, OTHERS, Wire

RUNS = 1500 if IS_FULL else 12
CHUNK = 50 if IS_FULL else 3
ACTIONS = 15


def act(talk: Talk, wire: Wire, chance: random.Random) -> None:
    conversation = talk.conversation
    waiting = conversation.services.waiting.shown()
    match chance.randrange(12):
        case 0 | 1 | 2:
            talk.submit(f"Submitted {len(talk.said)}.")
        case 3 | 4:
            talk.steer(f"Steered {len(talk.said)}.")
        case 5 | 6:
            conversation.cancel()
        case 7:
            conversation.controls.set_model(chance.choice(wire.models))
        case 8:
            conversation.act(Compact("what matters"))
        case 9:
            conversation.act(UndoCompaction())
        case 10:
            conversation.controls.set_mode(chance.choice(("ask", "auto", "plan")))
        case _ if prompts := (*waiting.steering, *waiting.queued):
            prompt = chance.choice(prompts)
            talk.edit(prompt.id, f"{prompt.text} Edited.")
        case _:
            conversation.act(ReleaseWaiting())


async def wait_a_little(chance: random.Random) -> None:
    """Some steps of the loop, or until something has come of it."""
    for _ in range(chance.choice((0, 1, 3, 10, 30))):
        await anyio.lowlevel.checkpoint()
    if chance.random() < 0.3:
        await anyio.sleep(chance.random() * 0.02)


def some_answers(wire: Wire, chance: random.Random) -> list[Answer]:
    names = chance.choices(list(wire.streams), k=40)
    return [some_answer(chance, wire.streams[name]) for name in names]


def some_answer(chance: random.Random, stream: bytes) -> Answer:
    is_cut = chance.random() < 0.3
    return Answer(
        stream,
        chance.randrange(len(stream)) if is_cut else -1,
        chance.choice(("cut", "reset")),
        chunk_bytes=chance.choice((10, 100, 10_000)),
    )


async def live_through(wire: Wire, chance: random.Random) -> None:
    with directory() as folder:
        async with in_process_api(wire) as (api, make):
            api.answers = some_answers(wire, chance)
            async with talking(folder, make, wire=wire) as talk:
                for _ in range(ACTIONS):
                    act(talk, wire, chance)
                    await wait_a_little(chance)
                api.answers = [last_words(wire)]
                await talk.ask("At last.")
                assert api.refused == []
                check_talk(talk)
                history = talk.session.history
            check_resumed(folder, history)


async def live_through_some(wire: Wire, first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            await live_through(wire, random.Random(seed))
        except BaseException as error:
            error.add_note(f"{wire.name}, seed {seed}")
            raise


@pytest.mark.parametrize("first", prove_rest(range(0, RUNS, CHUNK), is_one=True, keep=(1,)))
async def test_whatever_the_person_does(first):
    await live_through_some(ANTHROPIC, first)


@prove
@pytest.mark.parametrize("first", range(0, RUNS, CHUNK))
@pytest.mark.parametrize("wire", OTHERS, ids=lambda wire: wire.name)
async def test_whatever_the_person_does_in_another_format(wire, first):
    await live_through_some(wire, first)
