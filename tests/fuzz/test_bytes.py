"""An answer that ends at any byte: what the provider says of it is the beginning of what it says of the whole."""

import random
from collections.abc import Sequence

import pytest

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import BlockDone, ModelRequest, Provider, ReplyDone, StreamItem
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import (
    Answer,
    check_resumed,
    check_talk,
    directory,
    in_process_api,
    settings_in,
    talking,
)
from tests.fuzz.wires import WIRES, Wire
from tests.loopback import HANG_UP, RESET, STALL, Act, LoopbackServer, Reply
from tests.wires.servers import SERVERS

REQUEST = ModelRequest("", [Message("user", (TextBlock("Go."),))])
SAMPLE_STEP = 127
HOWS = ("cut", "reset")


async def heard(provider: Provider) -> tuple[list[StreamItem], str]:
    """What the provider says, and the kind of error that it ends with."""
    items: list[StreamItem] = []
    try:
        async for item in provider.stream(REQUEST):
            items.append(item)  # noqa: PERF401 - what came before an error counts
    except ProviderError as error:
        return items, error.kind
    return items, ""


def blocks(items: Sequence[StreamItem]) -> list[BlockDone]:
    return [item for item in items if isinstance(item, BlockDone)]


def is_done(items: Sequence[StreamItem]) -> bool:
    return any(isinstance(item, ReplyDone) for item in items)


async def check(wire: Wire, name: str) -> None:
    stream = wire.streams[name]
    with directory() as folder:
        async with in_process_api(wire) as (api, make):
            provider = make(settings_in(folder, wire))
            api.answers = [Answer(stream)]
            whole, _ = await heard(provider)
            was_done = dict.fromkeys(HOWS, False)  # an end closes the last line, a reset does not
            for at in range(0, len(stream), 1 if IS_FULL else SAMPLE_STEP):
                how = HOWS[at % 2]
                api.answers = [Answer(stream, at, how, chunk_bytes=1 + at % 50)]
                items, error = await heard(provider)
                try:
                    assert blocks(items) == blocks(whole)[: len(blocks(items))]
                    assert error in {"", "cut", "network", "server", "overloaded", "malformed"}
                    assert not (is_done(items) and error)
                    assert is_done(items) or error or how == "cut"
                    assert is_done(items) >= was_done[how], "with more it has its end, too"
                    was_done[how] = is_done(items)
                except AssertionError as problem:
                    problem.add_note(f"{wire.name}, {name}: {how} at byte {at}: {items}")
                    raise
            assert api.refused == []
            await provider.aclose()


CASES = [(wire.name, name) for wire in WIRES.values() for name in wire.streams]


@pytest.mark.parametrize("wire, name", prove_rest(CASES, keep=range(3, len(CASES), 24)))
async def test_what_is_heard_of_an_answer_that_breaks_off_is_the_beginning_of_it(wire, name):
    await check(WIRES[wire], name)


# --- real sockets -------------------------------------------------------------------------------------------------------


PLACES = 40 if IS_FULL else 3
BROKEN = [
    (wire, how, is_chunked)
    for wire in WIRES
    for how in (HANG_UP, RESET, STALL)
    for is_chunked in (True, False)
]


@pytest.mark.parametrize(
    "wire_name, how, is_chunked", prove_rest(BROKEN, keep=(0, 1, 4, 5, *range(6, len(BROKEN), 7)))
)
async def test_an_answer_may_break_off_on_the_wire(wire_name, how, is_chunked):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    wire = WIRES[wire_name]
    with SERVERS[wire_name]() as server:
        for _ in range(PLACES):
            name = chance.choice(list(wire.streams))
            at = chance.randrange(len(wire.streams[name]) + 1)
            try:
                await break_off(server, wire, name, at, how, is_chunked=is_chunked)
            except BaseException as error:
                error.add_note(f"{wire_name}, {name}: {how} at byte {at}")
                raise


async def break_off(
    server: LoopbackServer, wire: Wire, name: str, at: int, how: Act, *, is_chunked: bool
) -> None:
    stream, kind = wire.streams[name], wire.content_type
    broken = Reply(stream[:at], how, is_chunked=is_chunked, content_type=kind)
    server.answer(
        broken, Reply(stream, content_type=kind), Reply(wire.last_words, content_type=kind)
    )
    server.requests.clear()
    with directory() as folder:
        async with talking(folder, wire=wire, base_url=server.url) as talk:
            await talk.ask("First.")
            await talk.ask("Second.")
            refused = [wire.refusals(request.body) for request in server.prompts]
            assert refused == [[]] * len(refused)
            check_talk(talk)
            history = talk.session.history
        check_resumed(folder, history)
