"""The end of an answer, on all wires: a stated stop reason is one, a clean end without one is not, and nothing after it counts."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests import loopback
from tests.conftest import prove_rest
from tests.fuzz.wires import WIRES
from tests.loopback import HANG_UP, RESET, STALL, LoopbackServer, Reply, Step, Wait
from tests.wires import chat, ollama, responses
from tests.wires.servers import SERVERS
from tests.wires.talk import Talk

from sanderling.protocol.events import ErrorOccurred, RetryScheduled, TurnEnded
from sanderling.protocol.messages import TextBlock, ToolUse

pytestmark = pytest.mark.usefixtures("alone")

TODO = '{"items": [{"content": "Look.", "status": "pending"}]}'
HELLO = {
    "anthropic": loopback.message_start() + loopback.text("Hello there.") + loopback.done(),
    "chat": chat.hello(),
    "responses": responses.hello(),
    "ollama": ollama.hello(),
}
# The last part of an answer, whose stop reason stands before it.
AFTER_THE_REASON = {
    "anthropic": [loopback.message_stop()],
    "chat": [chat.DONE, chat.usage() + chat.DONE],
}
TOOL = {
    "anthropic": loopback.message_start()
    + loopback.tool_use("late", "todo", TODO)
    + loopback.done("tool_use"),
    "chat": chat.begin() + chat.tool_use("late", "todo", TODO) + chat.done("tool_calls"),
    "responses": responses.events_of([responses.call("late", "todo", TODO, "fc_late")]),
    "ollama": ollama.tool_use("todo", {"items": []}) + ollama.done(),
}
SECOND = {
    "anthropic": loopback.message_start() + loopback.text("Second.") + loopback.done(),
    "chat": chat.begin() + chat.text("Second.") + chat.done(),
    "responses": responses.events_of([responses.said("Second.", "msg_2")]),
    "ollama": ollama.text("Second.") + ollama.done(),
}


@pytest.fixture(params=HELLO)
def wire(request) -> str:
    return request.param


@pytest.fixture
def server(wire) -> Iterator[LoopbackServer]:
    with SERVERS[wire]() as server:
        yield server


@pytest.fixture
async def talk(wire, server, tmp_path) -> AsyncIterator[Talk]:
    talk = Talk(WIRES[wire], server.url, tmp_path)
    yield talk
    await talk.aclose()


def reply(talk: Talk, *steps: Step, **options) -> Reply:
    return Reply(*steps, content_type=talk.wire.content_type, **options)


async def says_hello(talk: Talk) -> bool:
    """Say something; return whether the answer is HELLO."""
    await talk.say("Good morning.")
    texts = [block.text for block in talk.history[-1].content if isinstance(block, TextBlock)]
    return texts == ["Hello there."]


@pytest.mark.parametrize("ending", prove_rest(["", "RST", "FIN", "unframed", "silence"]))
@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_a_stop_reason_is_the_end_whatever_is_left_out_after_it(wire, server, talk, ending):
    steps = {"RST": (Wait(0.05), RESET), "FIN": (Wait(0.05), HANG_UP), "silence": (STALL,)}
    for last in AFTER_THE_REASON[wire]:
        answer = HELLO[wire].removesuffix(last)
        assert answer != HELLO[wire]
        is_chunked = ending != "unframed"
        server.answer(reply(talk, answer, *steps.get(ending, ()), is_chunked=is_chunked))
        assert await says_hello(talk)
        assert talk.of(RetryScheduled) == talk.of(ErrorOccurred) == []


@pytest.mark.parametrize("wire", ["responses"])
async def test_the_mark_of_the_end_is_the_end_of_a_response(server, talk, wire):
    """Some gateways send `[DONE]`, as Chat Completions has it, instead of `response.completed`."""
    answer = HELLO[wire][: HELLO[wire].index(b"event: response.completed")]
    server.answer(reply(talk, answer, chat.DONE))
    assert await says_hello(talk)
    assert len(server.prompts) == 1


@pytest.mark.parametrize("wire", ["anthropic"])
async def test_a_tool_whose_block_is_left_open_runs_at_the_stop_reason(server, talk, wire):
    use = loopback.tool_use("t1", "todo", TODO).removesuffix(loopback.block_stop())
    server.answer(
        reply(talk, loopback.message_start(), use, loopback.message_delta("tool_use")),
        reply(talk, HELLO[wire]),
    )
    assert await says_hello(talk)
    assert [type(block) for block in talk.history[1].content] == [ToolUse]


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("newline", prove_rest([b"\n", b"\r\n", b"\r"]))
async def test_the_last_event_needs_no_blank_line(server, talk, wire, newline, cut):
    answer = HELLO[wire].rstrip(b"\n") + b"\n" * (2 - cut)
    server.answer(reply(talk, answer, newline=newline, chunk_bytes=7))
    assert await says_hello(talk)
    assert len(server.prompts) == 1


async def test_a_last_event_that_is_cut_in_its_middle_is_no_end(server, talk, wire):
    answer = HELLO[wire].rstrip(b"\n")[:-4]
    if wire in ("anthropic", "chat"):
        answer = answer[: answer.rindex(b"stop")]
        answer = answer[: answer.rindex(b'"')]
    server.answer(reply(talk, answer), reply(talk, HELLO[wire]))
    assert await says_hello(talk)


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_an_answer_without_a_reason_is_asked_for_twice_at_most(
    server, talk, wire, is_chunked
):
    cut = {"anthropic": b"event: message_delta", "responses": b"event: response.completed"}
    end = HELLO[wire].rindex(cut[wire]) if wire in cut else HELLO[wire].index(b"there") - 200
    answer = reply(talk, HELLO[wire][: max(0, end)], is_chunked=is_chunked)
    server.answer(answer)
    await talk.say("Good morning.")
    assert [error.kind for error in talk.of(ErrorOccurred)] == ["cut"]
    assert len(server.prompts) == 2


async def test_an_answer_in_another_encoding_is_not_paid_for_ten_times(server, talk, wire):
    server.answer(reply(talk, HELLO[wire].decode().encode("utf-16")))
    assert await says_hello(talk) or len(server.prompts) <= 2


@pytest.mark.parametrize("pieces", prove_rest(["one", "two", "bytes"]))
async def test_nothing_after_the_end_counts_and_no_tool_in_it_runs(server, talk, wire, pieces):
    steps: tuple[Step, ...] = (HELLO[wire], SECOND[wire], TOOL[wire])
    if pieces == "two":
        steps = (HELLO[wire], Wait(0.1), TOOL[wire], Wait(0.1), SECOND[wire])
    server.answer(reply(talk, *steps, chunk_bytes=1 if pieces == "bytes" else 0))
    assert await says_hello(talk)
    assert talk.events[-1] == TurnEnded("end_turn")
    assert len(server.prompts) == 1


@pytest.mark.parametrize("tail", [0, 1])
@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_no_tool_runs_that_comes_between_stop_reason_and_end(server, talk, wire, tail):
    end = AFTER_THE_REASON[wire][-1]
    late = TOOL[wire] + SECOND[wire] if tail else TOOL[wire].removesuffix(end)
    server.answer(reply(talk, HELLO[wire].removesuffix(end), late, end))
    assert await says_hello(talk)
    assert len(server.prompts) == 1


async def test_the_tool_of_an_answer_runs_once_though_the_answer_comes_twice(server, talk, wire):
    server.answer(reply(talk, TOOL[wire] * 2), reply(talk, HELLO[wire]))
    assert await says_hello(talk)
    assert len([b for b in talk.history[1].content if isinstance(b, ToolUse)]) == 1


@pytest.mark.parametrize("wire", ["chat"])
async def test_usage_that_comes_after_the_stop_reason_counts(server, talk):
    answer = chat.begin() + chat.text("Hello there.") + chat.finish()
    server.answer(reply(talk, answer, Wait(0.05), chat.usage(7, 3), chat.DONE))
    await talk.say("Good morning.")
    assert talk.session.last_usage.input_tokens == 7


# --- an input that the token limit cuts off -----------------------------------------------------------------------------

PART = '{"path": "long.txt", "content": "aaaa bbbb'
CUT = {
    "anthropic": loopback.message_start()
    + loopback.tool_use("t1", "write", PART)
    + loopback.done("max_tokens"),
    "chat": chat.begin() + chat.tool_use("t1", "write", PART) + chat.done("length"),
    "responses": responses.events_of(
        [responses.call("t1", "write", PART) | {"status": "incomplete"}], "max_output_tokens"
    ),
}


@pytest.mark.parametrize("wire", prove_rest(CUT, is_one=True))
@pytest.mark.parametrize("limit", [0, 4096])
async def test_an_input_cut_off_at_the_limit_says_so_with_the_limit_and_a_remedy(
    server, wire, limit, tmp_path
):
    talk = Talk(WIRES[wire], server.url, tmp_path, max_tokens=limit)
    server.answer(reply(talk, CUT[wire]), reply(talk, HELLO[wire]))
    await talk.say("Good morning.")
    [result] = talk.results
    limits = {"anthropic": "32,000", "chat": "5", "responses": "5"}
    words = (
        f"reached its limit of {f'{limit:,}' if limit else limits[wire]} tokens inside this input"
    )
    assert words in result.content
    assert "`write` the first part" in result.content
    assert "aaaa" not in result.content
    assert result.is_error
    assert await says_hello(talk)
    await talk.aclose()


@pytest.mark.parametrize("wire", CUT)
async def test_an_input_that_is_no_json_in_a_whole_answer_is_not_blamed_on_the_limit(
    server, wire, talk
):
    whole = {
        "anthropic": loopback.message_start()
        + loopback.tool_use("t1", "write", PART)
        + loopback.done("tool_use"),
        "chat": chat.begin() + chat.tool_use("t1", "write", PART) + chat.done("tool_calls"),
        "responses": responses.events_of([responses.call("t1", "write", PART)]),
    }
    server.answer(reply(talk, whole[wire]), reply(talk, HELLO[wire]))
    await talk.say("Good morning.")
    [result] = talk.results
    assert "limit" not in result.content
    assert "must be a JSON object" in result.content
