"""A person who does anything at any time, to a model whose answers break off: nothing invalid is sent, nothing is lost."""

import random

import anyio
import anyio.lowlevel
import pytest

from sanderling.protocol.actions import Compact, ReleaseWaiting, UndoCompaction
from tests.fuzz import IS_FULL
from tests.fuzz.streams import STREAMS
from tests.fuzz.talk import (
    Answer,
    Talk,
    api_client,
    check_resumed,
    check_talk,
    directory,
    last_words,
    talking,
)

RUNS = 1500 if IS_FULL else 12
CHUNK = 50 if IS_FULL else 3
ACTIONS = 15
MODELS = ("claude-sonnet-5-5", "claude-opus-5-5")


def act(talk: Talk, chance: random.Random) -> None:
    conversation = talk.conversation
    waiting = conversation.parts.waiting.shown()
    match chance.randrange(12):
        case 0 | 1 | 2:
            talk.submit(f"Submitted {len(talk.said)}.")
        case 3 | 4:
            talk.steer(f"Steered {len(talk.said)}.")
        case 5 | 6:
            conversation.cancel()
        case 7:
            conversation.set_model(chance.choice(MODELS))
        case 8:
            conversation.act(Compact("what matters"))
        case 9:
            conversation.act(UndoCompaction())
        case 10:
            conversation.set_mode(chance.choice(("ask", "auto", "plan")))
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


def some_answers(chance: random.Random) -> list[Answer]:
    return [some_answer(chance, STREAMS[name]) for name in chance.choices(list(STREAMS), k=40)]


def some_answer(chance: random.Random, stream: bytes) -> Answer:
    is_cut = chance.random() < 0.3
    return Answer(
        stream,
        chance.randrange(len(stream)) if is_cut else -1,
        chance.choice(("cut", "reset")),
        chunk_bytes=chance.choice((10, 100, 10_000)),
    )


async def live_through(chance: random.Random) -> None:
    with directory() as folder:
        async with api_client() as (api, client):
            api.answers = some_answers(chance)
            async with talking(folder, client) as talk:
                for _ in range(ACTIONS):
                    act(talk, chance)
                    await wait_a_little(chance)
                api.answers = [last_words()]
                await talk.ask("At last.")
                assert api.refused == []
                check_talk(talk)
                history = talk.session.history
            check_resumed(folder, history)


@pytest.mark.parametrize("first", range(0, RUNS, CHUNK))
async def test_whatever_the_person_does(first):
    for seed in range(first, first + CHUNK):
        try:
            await live_through(random.Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
