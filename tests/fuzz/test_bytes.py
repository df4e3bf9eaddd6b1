"""An answer that ends at any byte: what the provider says of it is the beginning of what it says of the whole."""

from collections.abc import Sequence

import pytest

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import BlockDone, ModelRequest, Provider, ReplyDone, StreamItem
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import Answer, directory, in_process_api, settings_in
from tests.fuzz.wires import WIRES, Wire

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
