"""An answer that breaks off at any byte, in any way: the conversation goes on as if nothing had happened."""

import pytest

from sanderling.protocol.events import CompactionStarted
from tests.conftest import prove_rest
from tests.fuzz import IS_FULL
from tests.fuzz.streams import STREAMS
from tests.fuzz.talk import (
    HOWS,
    Answer,
    How,
    Talk,
    api_client,
    check_log_of_killed_host,
    check_resumed,
    check_talk,
    directory,
    last_words,
    talking,
)

SAMPLE_STEP = 211
RESUMED_EACH = 7


async def break_off(stream: bytes, at: int, how: How, *, is_steered: bool, is_queued: bool) -> None:
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
        async with api_client() as (api, client):
            api.answers = [Answer(stream, at, how, happen), Answer(stream), last_words()]
            async with talking(folder, client) as talk:
                await talk.ask("First.")
                said_before = talk.said.copy()
                await talk.ask("Second.")
                check_talk(talk)
                is_shortened = talk.count(CompactionStarted)
                history = talk.session.history
            check_resumed(folder, history)
            if at % RESUMED_EACH == 0:
                async with talking(folder, client) as talk:
                    await talk.ask("Third.")
                    assert talk.session.history[: len(history)] == history
            assert api.refused == []
            assert is_shortened or api.changes == []
    for log in logs:
        check_log_of_killed_host(log, said_before)


def places(name: str) -> list[tuple[int, How]]:
    """Where the answer breaks off, and how: at every byte, in ways that take turns; a few of them in the sample."""
    number = list(STREAMS).index(name)
    step = 1 if IS_FULL else SAMPLE_STEP
    ats = range(number % step, len(STREAMS[name]) + 1, step)
    return [(at, HOWS[(at // step + number) % len(HOWS)]) for at in ats]


@pytest.mark.parametrize("name", prove_rest(STREAMS, keep=range(0, len(STREAMS), 8)))
async def test_an_answer_may_break_off_anywhere(name):
    for at, how in places(name):
        try:
            await break_off(STREAMS[name], at, how, is_steered=at % 3 == 1, is_queued=at % 3 == 2)
        except BaseException as error:
            error.add_note(f"{name}: {how} at byte {at}")
            raise
