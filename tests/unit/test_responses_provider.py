"""The wire of the Responses API against a server on this machine that speaks it, and sends whatever a network can."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api_rules import responses as rules
from tests.conftest import prove_rest
from tests.loopback import HANG_UP, HTML, RESET, STALL, Reply, Status, Step, Wait
from tests.wires import responses as wire
from tests.wires.asking import HISTORY, answer_to, fail
from tests.wires.servers import ResponsesServer, told

from sanderling.config import Settings
from sanderling.protocol.messages import (
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    ReplyDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolSpec,
    UsageReport,
)
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.responses.provider import ResponsesProvider

KEY = "sk-proj-this-is-secret"
TOOLS = (ToolSpec("read", "Reads a file.", {"type": "object", "properties": {}}),)
THOUGHT = wire.thought("I look.", "gAAAAA")
CALL = wire.call("call_1", "read", '{"path": "a"}')
BEGINNING = wire.begin() + wire.item(0, wire.said("Good morning."))[:-250]

Connect = Callable[..., ResponsesProvider]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def server() -> Iterator[ResponsesServer]:
    with ResponsesServer() as server:
        yield server


@pytest.fixture
async def connect(server: ResponsesServer, tmp_path: Path) -> AsyncIterator[Connect]:
    """Make a provider that is OpenAI's in all but the address; closed after the test."""
    made: list[ResponsesProvider] = []

    def make(model: str = "gpt-6.1-sol", **settings: Any) -> ResponsesProvider:
        endpoint = load_endpoint("openai", {"openai": {"base_url": f"{server.url}/v1"}})
        made.append(ResponsesProvider(Settings(str(tmp_path), **settings), endpoint, model))
        return made[-1]

    yield make
    for provider in made:
        await provider.aclose()


async def ask(provider: ResponsesProvider, history: list[Message] = HISTORY) -> list[StreamItem]:
    return await answer_to(ModelRequest("Be brief.", history, TOOLS, "s1"), provider)


def refusal(status: int, message: str, **fields: Any) -> Status:
    retry_after = fields.pop("retry_after", None)
    body = json.loads(wire.error_body(message))
    body["error"] |= fields
    return Status(status, body=json.dumps(body).encode(), retry_after=retry_after)


async def test_thought_text_and_calls_arrive_as_they_are_said(server, connect):
    server.answer(Reply(wire.events_of([THOUGHT, wire.said("Well."), CALL])))
    items = await ask(connect())
    assert "".join(item.text for item in items if isinstance(item, ThinkingPiece)) == "I look."
    assert "".join(item.text for item in items if isinstance(item, TextPiece)) == "Well."
    assert [item.block for item in items if isinstance(item, BlockDone)] == [
        ThinkingBlock("I look.", "gAAAAA", {"id": "rs_1"}),
        TextBlock("Well.", {"id": "msg_1"}),
        ToolUse("call_1", "read", {"path": "a"}, {"id": "fc_1"}),
    ]
    assert items[-2:] == [UsageReport(Usage(10, 5)), ReplyDone("end_turn")]


async def test_request_is_openais_and_carries_the_key(server, connect):
    await ask(connect())
    [request] = server.prompts
    assert request.headers["authorization"] == f"Bearer {KEY}"
    body = request.json()
    assert (body["model"], body["store"], body["stream"]) == ("gpt-6.1-sol", False, True)
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["reasoning"] == {"summary": "auto"}
    assert body["input"][0]["role"] == "developer"
    assert body["prompt_cache_key"] != "s1"


@pytest.mark.parametrize(
    "model, has_marks, thinks",
    [
        ("gpt-6.2-astra", True, True),
        ("gpt-6-luna", True, True),
        ("gpt-5.6", True, True),
        ("gpt-5.6-terra", True, True),
        ("gpt-5.5-pro", False, True),
        ("gpt-5", False, True),
        ("gpt-5-mini", False, True),
        ("gpt-5.1-chat-latest", False, False),
        ("o4-mini", False, True),
        ("gpt-4.1", False, False),
        ("gpt-3.5-turbo", False, False),
    ],
)
async def test_models_are_asked_for_no_more_than_they_can(
    server, connect, model, has_marks, thinks
):
    await ask(connect(model))
    body = server.prompts[0].json()
    assert ("prompt_cache_breakpoint" in str(body)) is has_marks
    assert (body.get("prompt_cache_key") == "s1") is not has_marks
    assert ("reasoning" in body, "include" in body) == (thinks, thinks)


async def test_model_that_is_not_to_think_thinks_as_little_as_it_can(server, connect):
    await ask(connect(thinking=False))
    assert server.prompts[0].json()["reasoning"] == {"effort": "low"}


async def test_thoughts_come_back_as_they_were_and_the_prefix_stays(server, connect):
    provider, said = connect(), [THOUGHT, wire.said("Well.", phase="commentary"), CALL]
    server.answer(Reply(wire.events_of(said)))
    items = await ask(provider)
    blocks = tuple(item.block for item in items if isinstance(item, BlockDone))
    results = Message("user", (ToolResult("call_1", "ok"),))
    history = [*HISTORY, Message("assistant", blocks), results]
    await ask(provider, history)
    sent = server.prompts[1].json()["input"]
    assert rules.changed_thoughts(sent, [said]) == []
    assert [item["type"] for item in sent[2:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert sent[3]["phase"] == "commentary"
    assert server.connection_count == 1
    other = connect("gpt-6.1-sol")
    await ask(other, history)
    assert server.prompts[2].body == server.prompts[1].body, "as after a resume"


@pytest.mark.parametrize(
    "words",
    [
        "The encrypted content for item rs_1 could not be verified.",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ],
)
async def test_thoughts_that_cannot_be_unsealed_end_no_session(server, connect, words):
    """Another account goes on with the session, for instance."""
    old = ThinkingBlock("I look.", "gAAAAA", {"id": "rs_1"})
    history = [*HISTORY, Message("assistant", (old, TextBlock("Well.", {"id": "msg_1"})))]
    history += [Message("user", (TextBlock("Go on."),))]
    server.answer(refusal(400, words), Reply(wire.hello()))
    provider = connect()
    assert (await ask(provider, history))[-1] == ReplyDone("end_turn")
    new = ThinkingBlock("I see.", "gAAAAB", {"id": "rs_2"})
    history += [Message("assistant", (new, TextBlock("Oh.", {"id": "msg_2"}))), *HISTORY]
    await ask(provider, history)
    ids = [[item.get("id") for item in each.json()["input"]] for each in server.prompts]
    assert ids == [
        [None, None, "rs_1", "msg_1", None],
        [None, None, None, None],
        [None, None, None, None, "rs_2", "msg_2", None],
    ]


async def test_refusal_in_such_words_is_told_if_there_are_no_thoughts(server, connect):
    server.answer(refusal(400, "Invalid encrypted content."))
    assert (await fail(connect())).kind == "invalid_request"
    assert len(server.prompts) == 1


async def test_other_model_is_asked_from_the_next_request_on(server, connect):
    provider = connect()
    await ask(provider)
    provider.set_model("gpt-4.1")
    await ask(provider)
    first, second = (request.json() for request in server.prompts)
    assert (first["model"], second["model"]) == ("gpt-6.1-sol", "gpt-4.1")
    assert first["prompt_cache_key"] != second["prompt_cache_key"]


async def test_models_are_listed_the_newest_first(server, connect):
    models = [{"id": "old", "created": 1}, {"id": "new", "created": 3}, {"id": "mid", "created": 2}]
    server.models = told({"object": "list", "data": [*models, {"id": "a"}, {"id": "b"}]})
    assert await connect().list_models() == ("new", "mid", "old", "a", "b")


async def test_limits_that_openai_does_not_tell_are_those_that_are_known(connect):
    provider = connect("gpt-6.1-sol")
    await provider.learn_limits()
    assert provider.limits == ModelLimits(1_050_000, 128_000)


async def test_answer_that_comes_byte_by_byte_is_the_same(server, connect):
    stream = wire.events_of([THOUGHT, wire.said("Grüße 🐦"), CALL])
    server.answer(Reply(stream), Reply(stream, chunk_bytes=1))
    provider = connect()
    assert await ask(provider) == await ask(provider)


@pytest.mark.parametrize(
    "steps, kind",
    prove_rest(
        [
            ((BEGINNING, Wait(0.05), RESET), "cut"),
            ((BEGINNING, Wait(0.05), HANG_UP), "cut"),
            ((BEGINNING, STALL), "stalled"),
            ((STALL,), "stalled"),
            ((wire.begin(), wire.error("server_error")), "server"),
            ((wire.begin(), wire.failed("server_is_overloaded")), "overloaded"),
            ((wire.begin(), wire.failed("rate_limit_exceeded")), "rate_limited"),
            ((b"data: no json\n\n",), "malformed"),
            ((wire.event("response.output_text.delta", delta=7),), "malformed"),
            ((wire.event("response.output_item.done", item=7),), "malformed"),
        ]
    ),
)
async def test_answer_that_breaks_off_is_asked_for_again(server, connect, steps, kind):
    server.answer(Reply(*steps))
    error = await fail(connect(idle_timeout_s=0.5))
    assert (error.kind, error.is_temporary) == (kind, True)
    assert KEY not in str(error)


@pytest.mark.parametrize("steps", [(BEGINNING,), (wire.begin(),), (b"data: [DONE]\n\n",), ()])
async def test_stream_without_its_last_event_was_cut(server, connect, steps: tuple[Step, ...]):
    server.answer(Reply(*steps))
    assert not any(isinstance(item, ReplyDone) for item in await ask(connect()))


@pytest.mark.parametrize(
    "reason, stop_reason",
    [("max_output_tokens", "max_tokens"), ("content_filter", "refusal"), ("other", "max_tokens")],
)
async def test_answer_that_is_incomplete_says_why(server, connect, reason, stop_reason):
    server.answer(Reply(wire.events_of([wire.said("And so")], reason)))
    assert (await ask(connect()))[-1] == ReplyDone(stop_reason)


@pytest.mark.parametrize(
    "answer, kind, words",
    [
        (refusal(401, f"Incorrect API key provided: {KEY}.", code="invalid_api_key"), "auth", ""),
        (refusal(429, "You exceeded your quota", code="insufficient_quota"), "auth", "pay"),
        (
            refusal(400, "Your input exceeds it", code="context_length_exceeded"),
            "context_full",
            "too long",
        ),
        (refusal(404, "no such model", code="model_not_found"), "invalid_request", "not know"),
        (refusal(400, "Unknown parameter: 'x'.", param="x"), "invalid_request", "refused"),
        (Status(403, body=HTML, content_type="text/html"), "malformed", "log in"),
    ],
    ids=["key", "quota", "length", "model", "parameter", "page"],
)
async def test_refusal_that_does_not_pass_is_told_without_the_key(
    server, connect, answer, kind, words
):
    server.answer(answer)
    error = await fail(connect())
    assert (error.kind, error.is_temporary) == (kind, False)
    assert words in error.message
    assert error.remedy
    assert KEY not in str(error) + error.remedy


async def test_limit_of_requests_is_waited_for_as_long_as_the_api_says(server, connect):
    server.answer(refusal(429, "Rate limit", code="rate_limit_exceeded", retry_after=7))
    error = await fail(connect())
    assert (error.kind, error.is_temporary, error.retry_after_s) == ("rate_limited", True, 7.0)


@pytest.mark.parametrize(
    "words, wait_s",
    [
        ("Please try again in 6s.", 6.0),
        ("Please try again in 1m2.5s. Visit …", 62.5),
        ("Please try again in 250ms.", 0.25),
        ("Please try again in a while.", None),
    ],
)
async def test_limit_in_the_middle_of_an_answer_is_waited_for_as_it_says(
    server, connect, words, wait_s
):
    failed = wire.failed("rate_limit_exceeded", f"Rate limit reached on TPM. {words}")
    server.answer(Reply(wire.begin(), failed))
    error = await fail(connect())
    assert (error.kind, error.retry_after_s) == ("rate_limited", wait_s)


@pytest.mark.parametrize("code", ["invalid_prompt", "image_too_large", "bio_policy"])
async def test_answer_that_fails_for_what_was_asked_is_not_asked_for_again(server, connect, code):
    server.answer(Reply(wire.begin(), wire.failed(code, "Not this.")))
    error = await fail(connect())
    assert (error.kind, error.is_temporary) == ("invalid_request", False)


async def test_no_key_is_told_before_anything_is_sent(server, connect, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    table = {"openai": {"base_url": "https://api.test/v1"}}
    provider = connect()
    provider.endpoint = load_endpoint("openai", table)
    error = await fail(provider)
    assert error.kind == "no_key"
    assert "OPENAI_API_KEY" in error.remedy
    assert not server.requests


def test_who_asks_openai_loads_nobodys_sdk(server, tmp_path):
    code = """
import anyio, sys
from sanderling.config import Settings
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest
from sanderling.providers.choice import make_provider
async def main():
    own = {"mine": {"wire": "responses", "base_url": sys.argv[1]}}
    provider = make_provider(Settings(sys.argv[2], model="mine:m", providers=own))
    request = ModelRequest("", [Message("user", (TextBlock("Hi"),))])
    print([item async for item in provider.stream(request)][-1])
    print({"anthropic", "openai", "pydantic"} & set(sys.modules))
anyio.run(main)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, f"{server.url}/v1", tmp_path],
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.split("\n")[:2] == ["ReplyDone(stop_reason='end_turn')", "set()"]
