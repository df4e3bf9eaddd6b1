"""An answer that breaks off at any byte, in any way: the conversation goes on as if nothing had happened."""

import pytest

from sanderling.protocol.events import CompactionStarted
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.talk import (
    HOWS,
    Answer,
    How,
    Talk,
    check_log_of_killed_host,
    check_resumed,
    check_talk,
    directory,
    in_process_api,
    last_words,
    talking,
)
from tests.fuzz.wires import WIRES, Wire

SAMPLE_STEP = 421
RESUMED_EACH = 7


async def break_off(
    wire: Wire, stream: bytes, at: int, how: How, *, is_steered: bool, is_queued: bool
) -> None:
    """Ask, have the answer break off, ask again; then take the session up from its log."""
    logs: list[bytes] = []
    talk: Talk | None = None

    def happen() -> None:
        assert talk
        if is_steered:
            talk.steer("Steer.")
        if is_queued:
            talk.submit("Queue.")
        logs.append(talk.session.path.read_bytes())
        if how == "cancel":
            talk.conversation.cancel()

    with directory() as folder:
        async with in_process_api(wire) as (api, make):
            api.answers = [Answer(stream, at, how, happen), Answer(stream), last_words(wire)]
            async with talking(folder, make, wire=wire) as talk:
                await talk.ask("First.")
                said_before = talk.said.copy()
                await talk.ask("Second.")
                check_talk(talk)
                is_shortened = talk.count(CompactionStarted)
                history = talk.session.history
            check_resumed(folder, history)
            if at % RESUMED_EACH == 0:
                async with talking(folder, make, wire=wire) as talk:
                    await talk.ask("Third.")
                    assert talk.session.history[: len(history)] == history
            assert api.refused == []
            assert is_shortened or api.changes == []
    for log in logs:
        check_log_of_killed_host(log, said_before)


def places(wire: Wire, name: str) -> list[tuple[int, How]]:
    """Where the answer breaks off, and how: at every byte, in ways that take turns; a few of them in the sample."""
    number = list(wire.streams).index(name)
    step = 1 if IS_FULL else min(SAMPLE_STEP, len(wire.streams[name]) // len(HOWS) or 1)
    ats = range(number % step, len(wire.streams[name]) + 1, step)
    return [(at, HOWS[(at // step + number) % len(HOWS)]) for at in ats]


def cases() -> list[tuple[str, str]]:
    return [(wire.name, name) for wire in WIRES.values() for name in wire.streams]


@pytest.mark.parametrize("wire_name, name", prove_rest(cases(), keep=range(0, len(cases()), 64)))
async def test_an_answer_may_break_off_anywhere(wire_name, name):
    wire = WIRES[wire_name]
    for at, how in places(wire, name):
        is_steered, is_queued = at % 3 == 1, at % 3 == 2
        try:
            await break_off(
                wire, wire.streams[name], at, how, is_steered=is_steered, is_queued=is_queued
            )
        except BaseException as error:
            error.add_note(f"{wire_name}, {name}: {how} at byte {at}")
            raise
