"""The same through real sockets: what a connection does when it breaks is the kernel's to say, and the HTTP library's."""

import random

import pytest

from tests.api_rules.anthropic import request_refusals
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.streams import LAST_WORDS, STREAMS
from tests.fuzz.talk import check_resumed, check_talk, directory, talking
from tests.loopback import HANG_UP, RESET, STALL, Act, LoopbackServer, Reply

PLACES = 40 if IS_FULL else 3


@pytest.mark.parametrize("how", prove_rest([HANG_UP, RESET, STALL]), ids=lambda how: how.name)
@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunked", "to the end"])
async def test_an_answer_may_break_off_on_the_wire(how, is_chunked):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    with LoopbackServer() as server:
        for _ in range(PLACES):
            name = chance.choice(list(STREAMS))
            at = chance.randrange(len(STREAMS[name]) + 1)
            try:
                await break_off(server, STREAMS[name], at, how, is_chunked=is_chunked)
            except BaseException as error:
                error.add_note(f"{name}: {how} at byte {at}")
                raise


async def break_off(
    server: LoopbackServer, stream: bytes, at: int, how: Act, *, is_chunked: bool
) -> None:
    broken = Reply(stream[:at], how, is_chunked=is_chunked)
    server.answer(broken, Reply(stream), Reply(LAST_WORDS))
    server.requests.clear()
    with directory() as folder:
        async with talking(folder, base_url=server.url) as talk:
            await talk.ask("First.")
            await talk.ask("Second.")
            refused = [request_refusals(request.body) for request in server.prompts]
            assert refused == [[]] * len(refused)
            check_talk(talk)
            history = talk.session.history
        check_resumed(folder, history)
