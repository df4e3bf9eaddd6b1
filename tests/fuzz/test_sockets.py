"""The same through real sockets: what a connection does when it breaks is the kernel's to say, and the HTTP library's."""

import random

import pytest

from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import check_resumed, check_talk, directory, talking
from tests.fuzz.wires import WIRES, Wire
from tests.loopback import HANG_UP, RESET, STALL, Act, LoopbackServer, Reply
from tests.wires.servers import SERVERS

PLACES = 40 if IS_FULL else 3
CASES = [
    (wire, how, is_chunked)
    for wire in WIRES
    for how in (HANG_UP, RESET, STALL)
    for is_chunked in (True, False)
]


@pytest.mark.parametrize(
    "wire_name, how, is_chunked", prove_rest(CASES, keep=(0, 1, 4, 5, *range(6, len(CASES), 7)))
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
