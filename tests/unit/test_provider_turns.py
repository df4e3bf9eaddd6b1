"""Turns of the real providers, over real connections: what fails on the way reaches the person, and ends no session."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import loopback
from tests.conftest import DEADLINE_S, happens, prove, prove_rest
from tests.fuzz.wires import WIRES
from tests.loopback import HANG_UP, RESET, STALL, LoopbackServer, Reply, Step, Verbatim, Wait
from tests.wires import chat, ollama, responses
from tests.wires.servers import SERVERS
from tests.wires.talk import ATTEMPTS, Talk

from sanderling.conversation.model_calls import WINDOW_S
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import (
    AnswerRestarted,
    ApprovalRequested,
    ErrorOccurred,
    Event,
    ProviderStarting,
    RetryScheduled,
    TextDelta,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
)
from sanderling.protocol.messages import Message, TextBlock, Usage

pytestmark = pytest.mark.usefixtures("alone")

TODO = '{"items": [{"content": "Look.", "status": "pending"}]}'


@dataclass(frozen=True)
class Words:
    """What an API says in its own format: the beginning of an answer, a failure in its middle, a sign of life, and whole answers."""

    beginning: bytes  # "Good mor"
    failure: bytes
    noise: bytes
    hello: bytes  # "Hello there."
    pieces: bytes  # many
    tool: bytes
    counted: bytes  # 1,000 tokens were taken, of which 400 were read from the cache and 100 written to it, and 50 given
    usage: Usage
    model: str  # that has a price


def _begun(stream: bytes, end: bytes) -> bytes:
    return stream[: stream.index(end)]


MANY = ["word "] * 2000
SPOKEN = {
    "anthropic": Words(
        loopback.message_start() + loopback.block_start() + loopback.delta(text="Good mor"),
        loopback.error("overloaded_error"),
        loopback.ping(),
        loopback.message_start() + loopback.text("Hello", " there.") + loopback.done(),
        loopback.message_start() + loopback.text(*MANY) + loopback.done(),
        loopback.message_start() + loopback.tool_use("t", "todo", TODO) + loopback.done("tool_use"),
        loopback.message_start(
            input_tokens=500, cache_read_input_tokens=400, cache_creation_input_tokens=100
        )
        + loopback.text("Done.")
        + loopback.done(output_tokens=50),
        Usage(500, 50, 100, 400),
        "claude-sonnet-5-5",
    ),
    "chat": Words(
        chat.begin() + chat.text("Good mor"),
        chat.error(),
        b": OPENROUTER PROCESSING\n\n",
        chat.hello(),
        chat.begin() + chat.text(*MANY) + chat.done(),
        chat.begin() + chat.tool_use("t", "todo", TODO) + chat.done("tool_calls"),
        chat.begin()
        + chat.text("Done.")
        + chat.finish()
        + chat.usage(1000, 50, 400, 100)
        + chat.DONE,
        Usage(500, 50, 100, 400),
        "deepseek:deepseek-v4-pro",
    ),
    "responses": Words(
        _begun(
            responses.events_of([responses.said("Good mor")]), b"event: response.output_text.done"
        ),
        responses.failed(),
        b": hm\n\n",
        responses.hello(),
        responses.begin()
        + b"".join(
            responses.event("response.output_text.delta", output_index=0, item_id="m", delta=piece)
            for piece in MANY
        )
        + responses.done(responses.said("".join(MANY), "m")),
        responses.events_of([responses.call("t", "todo", TODO)]),
        responses.begin()
        + responses.item(0, responses.said("Done."))
        + responses.done(input_tokens=1000, output_tokens=50, cached=400, written=100),
        Usage(500, 50, 100, 400),
        "openai:gpt-6.1-sol",
    ),
    "ollama": Words(
        ollama.text("Good mor"),
        ollama.error("llama runner process has terminated"),
        ollama.line(),
        ollama.hello(),
        ollama.text(*MANY) + ollama.done(),
        ollama.tool_use("todo", {"items": []}) + ollama.done(),
        ollama.text("Done.") + ollama.done(prompt=1000, completion=50),
        Usage(1000, 50),
        "ollama:m1",
    ),
}
CUTS: dict[str, tuple[Step, ...]] = {
    "end": (),
    "RST": (Wait(0.05), RESET),
    "FIN": (Wait(0.05), HANG_UP),
    "silence": (STALL,),
}


class WordyTalk(Talk):
    """One that knows what its server can say."""

    def __init__(self, name: str, server: LoopbackServer, state_dir: Path, **options: Any) -> None:
        super().__init__(WIRES[name], server.url, state_dir, **options)
        self.words = SPOKEN[name]

    def reply(self, *steps: Step) -> Reply:
        return Reply(*steps, content_type=self.wire.content_type)

    def hello(self) -> Reply:
        return self.reply(self.words.hello)

    def begun(self, *steps: Step) -> Reply:
        return self.reply(self.words.beginning, *steps)


@pytest.fixture(params=SPOKEN)
def server(request) -> Iterator[LoopbackServer]:
    with SERVERS[request.param]() as server:
        server.wire_name = request.param
        yield server


@pytest.fixture
async def talk(server, tmp_path) -> AsyncIterator[WordyTalk]:
    conversation = WordyTalk(server.wire_name, server, tmp_path)
    yield conversation
    await conversation.aclose()


def roles(server: LoopbackServer, request: int) -> list[str]:
    body = server.prompts[request].json()
    told = (item.get("role") for item in body.get("messages", body.get("input")))
    return [role for role in told if role not in ("system", "developer")]


@pytest.mark.parametrize("name", prove_rest(CUTS))
async def test_answer_that_is_cut_is_asked_for_again_and_replaced(server, talk, name):
    server.answer(talk.begun(*CUTS[name]), talk.hello())
    await talk.say("Good morning.")
    assert talk.of(ErrorOccurred) == []
    assert len(talk.of(AnswerRestarted)) == 1
    [text] = talk.session.history[-1].content
    assert text.text == "Hello there."
    assert server.prompts[0].body == server.prompts[1].body


async def test_answer_that_fails_in_its_middle_is_asked_for_again(server, talk):
    server.answer(talk.begun(talk.words.failure), talk.hello())
    await talk.say("Good morning.")
    assert talk.of(ErrorOccurred) == []
    assert len(server.prompts) == 2


@pytest.mark.parametrize("name", prove_rest([*CUTS, "failure"]))
async def test_answer_that_is_always_cut_is_kept_and_the_next_prompt_works(server, talk, name):
    steps = CUTS.get(name, (talk.words.failure,))
    server.answer(*[talk.begun(*steps)] * ATTEMPTS, talk.hello())
    await talk.say("Good morning.")
    [error] = talk.of(ErrorOccurred)
    assert error.kind in {"cut", "stalled", "overloaded", "server"}
    assert talk.events[-1] == TurnEnded("error")
    assert talk.session.history[-1] == Message("assistant", (TextBlock("Good mor"),))
    await talk.say("Go on.")
    assert talk.events[-1] == TurnEnded("end_turn")
    assert roles(server, -1) == ["user", "assistant", "user"]


@pytest.mark.parametrize("status", prove_rest([429, 408, 409, 500, 502, 503, 529]))
async def test_request_that_fails_for_a_while_is_made_again(server, talk, status):
    failure = server.refusal("No.", status)
    server.answer(failure, failure, talk.hello())
    await talk.say("Good morning.")
    assert talk.events[-1] == TurnEnded("end_turn")
    assert [event.attempt for event in talk.of(RetryScheduled)] == [2, 3]


@pytest.mark.parametrize("status", prove_rest([401, 400, 403, 404]))
async def test_request_that_fails_for_good_is_made_once(server, talk, status):
    server.answer(server.refusal("No.", status))
    await talk.say("Good morning.")
    assert (len(talk.of(ErrorOccurred)), talk.events[-1]) == (1, TurnEnded("error"))
    assert len(server.prompts) == 1


async def test_connection_that_breaks_before_the_answer_is_made_again(server, talk):
    server.answer(Verbatim(RESET), talk.hello())
    await talk.say("Good morning.")
    assert talk.events[-1] == TurnEnded("end_turn")
    assert len(talk.of(RetryScheduled)) == 1


@pytest.mark.parametrize("data", prove_rest([b"\xff\xfe", b"\xc3", b"\0", b"\xed\xa0\xbd"]))
async def test_bytes_that_are_no_text_end_no_session(server, talk, data):
    hello = talk.words.hello.replace(b"there", b"there" + data)
    server.answer(talk.reply(hello), talk.reply(hello), talk.hello())
    await talk.say("Good morning.")
    kinds = {error.kind for error in talk.of(ErrorOccurred)}
    assert kinds <= {"malformed"}
    await talk.say("Go on.")
    assert talk.events[-1] == TurnEnded("end_turn")


async def test_wait_that_the_api_asks_for_is_kept(server, talk):
    server.answer(server.refusal("No.", 429, retry_after=0.3), talk.hello())
    await talk.say("Good morning.")
    first, second = server.prompts
    assert second.at - first.at >= 0.3


@prove
async def test_signs_of_life_are_no_silence(server, talk):
    noise = [step for _ in range(4) for step in (Wait(0.2), talk.words.noise)]
    server.answer(talk.reply(*noise, talk.words.hello))
    await talk.say("Good morning.")
    assert talk.of(RetryScheduled) == []
    assert talk.events[-1] == TurnEnded("end_turn")


async def test_answer_that_the_person_stops_is_kept_and_nobody_goes_on_writing(server, talk):
    server.answer(talk.begun(STALL), talk.hello())

    async def stop() -> None:
        await happens(lambda: talk.of(TextDelta))
        talk.conversation.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await talk.say("Good morning.")
    assert talk.events[-1] == TurnEnded("cancelled")
    assert talk.session.history[-1] == Message("assistant", (TextBlock("Good mor"),))
    await happens(lambda: server.prompts[0].closed_at)
    await talk.say("Go on.")
    assert talk.events[-1] == TurnEnded("end_turn")
    assert roles(server, -1) == ["user", "assistant", "user"]


async def test_turn_without_a_key_ends_with_the_error_and_the_session_lives(
    server, tmp_path, monkeypatch
):
    """Who is asked on this very machine needs none."""
    for name in ("ANTHROPIC", "OPENAI"):
        monkeypatch.delenv(f"{name}_API_KEY")
    talk = WordyTalk(server.wire_name, server, tmp_path)
    server.answer(talk.hello())
    await talk.say("Good morning.")
    needs_key = server.wire_name == "anthropic"
    assert [event.kind for event in talk.of(ErrorOccurred)] == ["no_key"] * needs_key
    assert talk.events[-1] == TurnEnded("error" if needs_key else "end_turn")
    await talk.aclose()


@pytest.mark.parametrize("patience_s", [WINDOW_S, 0.0])
async def test_first_turn_says_that_modules_are_loading(server, talk, monkeypatch, patience_s):
    """Once, even if the model's window is not known in time."""
    monkeypatch.setattr("sanderling.conversation.model_calls.WINDOW_S", patience_s)
    server.answer(talk.hello())

    async def load_late() -> None:
        async with talk.provider._provider._loading:
            await talk.until(ProviderStarting)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load_late)
        await anyio.wait_all_tasks_blocked()
        await talk.say("Good morning.")
    await talk.say("Good evening.")
    kinds = [type(event) for event in talk.events]
    assert kinds.count(ProviderStarting) == 1
    assert kinds.index(TurnStarted) < kinds.index(ProviderStarting) < kinds.index(TextDelta)


async def test_first_words_of_an_answer_that_comes_at_once_are_not_kept_from_the_screen(
    server, talk
):
    """Whoever draws gets its turn on the loop right after them, with all of the answer there to be read."""
    server.answer(talk.reply(talk.words.pieces))
    said_when_drawn: list[int] = []

    def emit(event: Event) -> None:
        talk.events.append(event)
        if isinstance(event, TextDelta) and len(talk.of(TextDelta)) == 1:
            asyncio.get_running_loop().call_soon(
                lambda: said_when_drawn.append(len(talk.of(TextDelta)))
            )

    talk.conversation.services.calls._emit = emit
    await talk.say("Tell me all.")
    assert said_when_drawn == [1]
    assert len(talk.of(TextDelta)) == len(MANY)


async def test_request_for_the_limits_goes_before_the_prompt_only_to_a_server_on_this_machine(
    server, talk
):
    server.answer(talk.hello())
    await talk.say("Good morning.")
    with anyio.fail_after(DEADLINE_S):
        while len(server.requests) == 1 and talk.provider.limits is None:
            await talk.say("And?")
    first = next(each for each in server.requests if each.path != "/api/show")
    is_asked_first = talk.provider.is_local and server.wire_name != "ollama"  # which shows it
    assert first.method == ("GET" if is_asked_first else "POST")


async def test_tokens_are_what_the_api_has_counted_and_cost_what_its_list_says(server, tmp_path):
    model = SPOKEN[server.wire_name].model
    server.endpoint = model.partition(":")[0]
    talk = WordyTalk(server.wire_name, server, tmp_path, model=model)
    server.answer(talk.reply(talk.words.counted))
    await talk.say("Good morning.")
    assert talk.of(ErrorOccurred) == []
    last = talk.of(UsageUpdated)[-1]
    assert last.last_request == last.total == talk.words.usage
    cost = talk.conversation.services.calls.prices.cost_usd(talk.words.model, talk.words.usage)
    assert (last.cost_usd, last.is_priced) == (cost or 0.0, cost is not None)
    await talk.aclose()


async def test_a_price_that_nobody_knows_is_not_nothing(server, tmp_path):
    name = server.wire_name
    model = "claude-unheard-of" if name == "anthropic" else f"{WIRES[name].models[0]}-unheard-of"
    talk = WordyTalk(name, server, tmp_path, model=model)
    server.answer(talk.reply(talk.words.counted))
    await talk.say("Good morning.")
    assert not talk.of(UsageUpdated)[-1].is_priced
    await talk.aclose()


async def test_turn_that_asks_too_often_wants_to_know_whether_to_go_on(server, tmp_path):
    talk = WordyTalk(server.wire_name, server, tmp_path, max_calls=2)
    server.answer(talk.reply(talk.words.tool))

    async def deny() -> None:
        await happens(lambda: talk.of(ApprovalRequested))
        [asked] = talk.of(ApprovalRequested)
        talk.conversation.act(AnswerApproval(asked.id, "deny"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deny)
        await talk.say("Plan.")
    assert len(server.prompts) == 2
    assert talk.events[-1] == TurnEnded("max_calls")
    await talk.aclose()
