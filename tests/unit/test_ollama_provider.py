"""Ollama's wire against a server on this machine that speaks it, and refuses what Ollama would not do as it was meant."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conftest import DEADLINE_S, happens, prove_rest
from tests.loopback import (
    HANG_UP,
    RESET,
    STALL,
    Answer,
    Reply,
    Request,
    Status,
    Step,
    Until,
    Verbatim,
)
from tests.wires import ollama as wire
from tests.wires.asking import HISTORY, ask, fail, said
from tests.wires.servers import OllamaServer, told

from sanderling.config import Settings
from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.providers import BlockDone, ModelLimits, ModelRequest, ReplyDone, UsageReport
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.ollama.provider import OllamaProvider
from sanderling.providers.ollama.request import NO_IMAGE

MISSING = b'{"error":"model \'m\' not found"}'

Connect = Callable[..., OllamaProvider]


def reply(*steps: Step, **options: Any) -> Reply:
    return Reply(*steps, **{"content_type": "application/x-ndjson"} | options)


def refusal(status: int, words: str) -> Status:
    return Status(status, body=json.dumps({"error": words}).encode())


class Server(OllamaServer):
    """One whose answer to `/api/show` can be another."""

    show_answer: Answer | None = None

    def told_besides(self, request: Request) -> Answer | None:
        if request.path == "/api/show" and self.show_answer:
            return self.show_answer
        return super().told_besides(request)

    def show(self, window: int | None = 32_768, **fields: Any) -> None:
        length = {} if window is None else {"qwen3moe.context_length": window}
        info = {"general.architecture": "qwen3moe", "clip.context_length": 77, **length}
        self.shown = {"model_info": info, "capabilities": ["completion", "tools"], **fields}

    @property
    def num_ctx(self) -> int:
        return self.prompts[-1].json()["options"]["num_ctx"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
async def connect(server: Server, tmp_path: Path) -> AsyncIterator[Connect]:
    """Make a provider that talks to the server; closed after the test."""
    made: list[OllamaProvider] = []

    def make(model: str = "m", table: dict[str, Any] | None = None, **settings: Any):
        endpoint = load_endpoint("ollama", {"ollama": {"base_url": server.url, **(table or {})}})
        made.append(OllamaProvider(Settings(str(tmp_path), **settings), endpoint, model))
        return made[-1]

    yield make
    for provider in made:
        await provider.aclose()


@pytest.mark.parametrize("chunk_bytes", [0, 3])
async def test_an_answer_streams_whatever_pieces_it_comes_in(server, connect, chunk_bytes):
    words = wire.thinking("Hm.") + wire.text("Good", " morning, \u2028you.") + wire.done()
    server.answer(reply(words, chunk_bytes=chunk_bytes))
    items = await ask(connect())
    assert said(items) == "Good morning, \u2028you."
    assert items[-2:] == [UsageReport(Usage(10, 5)), ReplyDone("end_turn")]


async def test_a_tool_use_and_its_result_go_there_and_back(server, connect):
    server.answer(reply(wire.tool_use("read", {"path": "a.py"}) + wire.done()), reply(wire.hello()))
    provider = connect()
    (use,) = [
        item.block for item in await ask(provider) if isinstance(item, BlockDone)
    ]  # without an id, which the conversation gives it
    assert use == ToolUse("", "read", {"path": "a.py"})
    history = [
        *HISTORY,
        Message("assistant", (ToolUse("use", "read", {"path": "a.py"}),)),
        Message("user", (ToolResult("use", "1: a"),)),
    ]
    assert said(await ask(provider, history)) == "Hello there."
    assert server.prompts[-1].json()["messages"][-1]["content"] == "1: a"


async def test_one_connection_serves_all_requests(server, connect):
    provider = connect()
    for _ in range(3):
        await ask(provider)
    assert server.connection_count == 1


@pytest.mark.parametrize("end", [HANG_UP, RESET])
async def test_an_answer_that_breaks_off_was_cut(server, connect, end):
    server.answer(reply(wire.text("Good", " mor"), end))
    assert (await fail(connect())).kind == "cut"


async def test_an_answer_that_stops_without_its_last_line_has_no_end(server, connect):
    server.answer(reply(wire.text("Good", " morning") + wire.line({"content": " you"})[:50]))
    items = await ask(connect())
    assert said(items) == "Good morning"
    assert not any(isinstance(item, ReplyDone) for item in items)


async def test_a_server_that_says_no_more_is_not_waited_for(server, connect):
    server.answer(reply(wire.text("Good"), STALL))
    assert (await fail(connect(idle_timeout_s=0.3))).kind == "stalled"


async def test_whoever_stops_reading_stops_the_server(server, connect):
    server.answer(reply(wire.text("Good", " morning"), STALL))
    async with aclosing(connect().stream(ModelRequest("", HISTORY))) as stream:
        async for _ in stream:
            break
    with anyio.fail_after(DEADLINE_S):
        while not server.prompts[0].closed_at:
            await anyio.sleep(0.005)


@pytest.mark.parametrize(
    "window, modelfile, num_ctx",
    prove_rest([
        (32_768, "", 32_768),
        (16_384, "", 16_384),
        (262_144, "", 65_536),
        (262_144, 'stop  "<|im_end|>"\nnum_ctx                        131072', 131_072),
        (32_768, "num_ctx 131072", 32_768),
        (262_144, "num_ctx 4096", 16_384),
        (None, "", 32_768),
        (0, "", 32_768),
        (None, "num_ctx 65536", 32_768),
    ]),
)  # fmt: skip
async def test_the_window_is_the_models_as_far_as_memory_may_hold_it(
    server, connect, window, modelfile, num_ctx
):
    server.show(window, parameters=modelfile)
    provider = connect()
    await ask(provider)
    assert server.num_ctx == num_ctx
    await provider.learn_limits()
    assert provider.limits == ModelLimits(num_ctx)


async def test_a_model_in_the_cloud_has_its_whole_window(server, connect):
    server.show(262_144, remote_host="https://ollama.com:443")
    await ask(connect())
    assert server.num_ctx == 262_144


@pytest.mark.parametrize("window, num_ctx", [(262_144, 131_072), (65_536, 65_536), (None, 131_072)])
async def test_the_person_says_how_large_the_window_is_to_be(
    server, connect, tmp_path, window, num_ctx
):
    server.show(window, parameters="num_ctx 20000")
    (tmp_path / "config/sanderling").mkdir(parents=True)
    (tmp_path / "config/sanderling/models.toml").write_text(
        '[ollama."qwen3:30b"]\nwindow_tokens = 131_072\n'
    )
    await ask(connect("qwen3:30b"))
    assert server.num_ctx == num_ctx
    body = {"options": {"num_ctx": 24_000}}
    await ask(connect("qwen3:30b", {"quirks": {"body": body}}))
    assert server.num_ctx == 24_000


@pytest.mark.parametrize(
    "window, table, remedy",
    [
        (8_192, {}, "Choose another model: /model."),
        (8_192, {"quirks": {"body": {"options": {"num_ctx": 8192}}}}, "num_ctx"),
        (65_536, {"quirks": {"body": {"options": {"num_ctx": 8192}}}}, "num_ctx"),
    ],
)
async def test_a_window_that_is_too_small_to_work_in_is_refused_before_anything_is_asked(
    server, connect, window, table, remedy
):
    server.show(window)
    error = await fail(connect("tiny", table))
    words = "The window of 'tiny' has 8,192 tokens, and work with tools needs at least 16,384."
    assert (error.kind, error.message, error.is_temporary) == ("invalid_request", words, False)
    assert remedy in error.remedy
    assert server.prompts == []


@pytest.mark.parametrize(
    "answer",
    [Status(404, body=b"404 page not found", content_type="text/plain"), told([]), told("{")],
)
async def test_who_shows_no_models_is_asked_with_the_window_of_an_unknown_one(
    server, connect, answer
):
    server.show_answer = answer
    await ask(connect())
    assert server.num_ctx == 32_768
    assert "think" not in server.prompts[0].json()


async def test_a_model_is_shown_once_and_another_again(server, connect):
    provider = connect()
    for model in ("m", "m", "n", "m"):
        provider.set_model(model)
        await ask(provider)
        await provider.learn_limits()
    shown = [request.json() for request in server.requests if request.path == "/api/show"]
    assert shown == [{"model": "m"}, {"model": "n"}]


@pytest.mark.parametrize(
    "abilities, thinking, think",
    [(["thinking"], True, True), (["thinking"], False, False), ([], True, None), (None, True, None)],
)  # fmt: skip
async def test_only_who_can_think_is_asked_to(server, connect, abilities, thinking, think):
    server.show(capabilities=abilities)
    await ask(connect(thinking=thinking))
    assert server.prompts[0].json().get("think") == think


@pytest.mark.parametrize("abilities", [["tools"], ["tools", "vision"], None])
async def test_only_who_can_see_is_shown_images(server, connect, abilities):
    server.show(capabilities=abilities)
    image = ImageBlock(ImageSource("image/png", "iVBORw0KGgo="))
    history = [
        *HISTORY,
        Message("assistant", (ToolUse("u", "read", {}),)),
        Message("user", (ToolResult("u", (image,)),)),
    ]
    await ask(connect(), history)
    message = server.prompts[0].json()["messages"][-1]
    sees = abilities != ["tools"]
    assert ("images" in message, message["content"]) == (sees, "" if sees else NO_IMAGE)


async def test_a_model_that_is_not_there_can_be_pulled(server, connect):
    server.show_answer = Status(404, body=MISSING)
    error = await fail(connect("qwen3-coder:30b"))
    assert error.message == "Ollama does not have the model 'qwen3-coder:30b'."
    assert error.remedy.startswith("Get it with `ollama pull qwen3-coder:30b`, or choose another")
    assert not error.is_temporary


@pytest.mark.parametrize(
    "refused, kind, told_of",
    [
        ((404, 'model "m" not found, try pulling it first'), "invalid_request", "`ollama pull m`"),
        ((400, "registry.ollama.ai/library/m:latest does not support tools"), "invalid_request", "does not support tools"),
        ((400, '"m" does not support chat'), "invalid_request", "does not support chat"),
        ((500, "model requires more system memory (42.1 GiB) than is available (15.3 GiB)"), "invalid_request", "smaller window"),
        ((400, "request (70000 tokens) exceeds the available context size (65536 tokens)"), "context_full", "/compact"),
        ((503, "server busy, please try again.  maximum pending requests exceeded"), "server", "server busy"),
        ((500, "llama runner process has terminated: exit status 2"), "server", "terminated"),
        ((500, "error parsing tool call: raw='{', err=unexpected end of JSON input"), "malformed", "cannot read"),
        ((401, "unauthorized"), "auth", "`ollama signin`"),
        ((429, "you have reached your hourly usage limit"), "rate_limited", "hourly"),
    ],
)  # fmt: skip
async def test_a_refusal_is_told_with_what_can_be_done(server, connect, refused, kind, told_of):
    server.answer(refusal(*refused))
    error = await fail(connect())
    assert error.kind == kind
    assert told_of in f"{error.message} {error.remedy}"


async def test_a_server_that_does_not_run_can_be_started(connect, unused_port):
    error = await fail(connect(table={"base_url": f"http://127.0.0.1:{unused_port}"}))
    assert (error.kind, error.is_temporary) == ("network", False)
    assert "`ollama serve`" in error.remedy


async def test_a_page_for_people_is_no_answer(server, connect):
    server.answer(Status(200, body=b"<html>Log in</html>", content_type="text/html"))
    assert "a web page" in (await fail(connect())).message


async def test_a_key_is_sent_and_never_told(server, connect, monkeypatch):
    monkeypatch.setenv("OLLAMA_API_KEY", "a-secret-of-mine")
    server.answer(refusal(500, "what is 'Bearer a-secret-of-mine'?"))
    error = await fail(connect(table={"api_key": "$OLLAMA_API_KEY"}))
    assert server.prompts[0].headers["authorization"] == "Bearer a-secret-of-mine"
    assert "secret" not in f"{error.message} {error.remedy}"


async def test_the_models_are_those_that_were_pulled(connect):
    assert await connect().list_models() == ("m",)


async def test_a_model_that_is_chosen_while_another_is_looked_at_is_asked_from_the_next_request_on(
    server, connect
):
    provider = connect()
    is_shown = threading.Event()
    server.show_answer = Verbatim(Until(is_shown), *told(server.shown).moves())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, provider)
        await happens(lambda: server.requests)
        provider.set_model("another")
        is_shown.set()
    assert [request.json()["model"] for request in server.prompts] == ["m"]
