"""A server of chat completions on this machine, which sends whatever a network can."""

import json
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conftest import DEADLINE_S, ROOT, prove, prove_rest
from tests.loopback import HANG_UP, HTML, RESET, STALL, Reply, Status, Verbatim, Wait
from tests.wires import chat
from tests.wires.asking import HISTORY, ask, fail, run_out, said
from tests.wires.servers import ChatServer, told

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import TextBlock, ToolUse, Usage
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    ReplyDone,
    TextPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.chat.provider import ChatProvider
from sanderling.providers.credentials import Credentials
from sanderling.providers.endpoint import load_endpoint

KEY = "sk-this-is-very-secret"

Connect = Callable[..., ChatProvider]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HERE_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KEYCHAIN_FILE", str(tmp_path / "keychain.json"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.keychain.FileKeychain")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as server:
        yield server


@pytest.fixture
async def connect(server: ChatServer, tmp_path: Path) -> AsyncIterator[Connect]:
    """Make a provider that talks to the server, as the table `here` says; closed after the test."""
    providers: list[ChatProvider] = []

    def make(model: str = "m", table: dict[str, Any] | None = None, **options: Any) -> ChatProvider:
        own = {"preset": "llamacpp", "base_url": f"{server.url}/v1", "api_key": "$HERE_KEY"}
        endpoint = load_endpoint("here", {"here": own | (table or {})})
        providers.append(ChatProvider(Settings(str(tmp_path), **options), endpoint, model))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.aclose()


async def test_answer_streams_and_ends_with_its_usage(server, connect):
    assert await ask(connect()) == [
        TextPiece("Hello"),
        TextPiece(" there."),
        UsageReport(Usage(10, 5)),
        BlockDone(TextBlock("Hello there.")),
        ReplyDone("end_turn"),
    ]
    (request,) = server.prompts
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.json()["model"] == "m"
    assert "max_tokens" not in request.json()


async def test_second_request_reuses_the_connection_and_a_closed_one_is_replaced(server, connect):
    provider = connect()
    for _ in range(3):
        assert said(await ask(provider)) == "Hello there."
    assert server.connection_count == 1
    server.hang_up()
    assert said(await ask(provider)) == "Hello there."
    assert server.connection_count == 2


async def test_most_tokens_are_said_when_the_person_wants_it(server, connect):
    provider = connect(max_tokens=5000)
    await ask(provider)
    provider.limits = ModelLimits(10_000, 1000)
    await ask(provider)
    assert [request.json()["max_tokens"] for request in server.prompts] == [5000, 1000]


async def test_other_model_is_asked_from_the_next_request_on_with_its_own_quirks(server, connect):
    server.endpoint = "openrouter"
    provider = connect("a/1", {"preset": "openrouter"})
    await ask(provider)
    provider.set_model("anthropic/2")
    assert provider.limits is None
    await ask(provider)
    bodies = [request.json() for request in server.prompts]
    assert [body["model"] for body in bodies] == ["a/1", "anthropic/2"]
    assert ["cache_control" in json.dumps(body) for body in bodies] == [False, True]


async def test_headers_may_name_variables_and_are_secret(server, connect, monkeypatch):
    monkeypatch.setenv("TENANT", "tenant-is-secret-too")
    server.answer(Status(400, body=chat.error_body("no tenant-is-secret-too here")))
    table = {"headers": {"X-Tenant": "${TENANT}", "X-App": "Sanderling"}}
    error = await fail(connect(table=table))
    headers = server.prompts[0].headers
    assert (headers["x-tenant"], headers["x-app"]) == ("tenant-is-secret-too", "Sanderling")
    assert "tenant-is-secret-too" not in error.message
    monkeypatch.delenv("TENANT")
    error = await fail(connect(table=table))
    assert "TENANT" in error.message
    assert len(server.prompts) == 1


async def test_without_a_key_this_machine_is_asked_all_the_same(server, connect, monkeypatch):
    monkeypatch.delenv("HERE_KEY")
    assert said(await ask(connect())) == "Hello there."
    assert "authorization" not in server.prompts[0].headers


async def test_without_a_key_the_remedy_names_variable_and_login(connect, monkeypatch):
    monkeypatch.delenv("HERE_KEY")
    error = await fail(connect(table={"base_url": "https://api.test/v1"}))
    assert (error.kind, error.is_temporary) == ("no_key", False)
    assert "HERE_KEY" in error.remedy
    assert ":Agent login here" in error.remedy


async def test_key_that_is_kept_is_sent_and_can_be_replaced(server, connect, monkeypatch, tmp_path):
    monkeypatch.delenv("HERE_KEY")
    account = load_endpoint(
        "here", {"here": {"preset": "llamacpp", "api_key": "$HERE_KEY"}}
    ).account
    kept, provider = Credentials(tmp_path, account), connect()
    kept.store("first-key")
    await provider.prepare()
    assert (
        not provider.is_ready
    )  # the keychain might ask the person: not before they want something
    await ask(provider)
    kept.store("second-key")
    server.answer(Status(401, body=chat.error_body("bad key second-key", "invalid_api_key")))
    error = await fail(provider)
    assert error.kind == "auth"
    assert "second-key" not in error.message
    assert "Agent login here" in error.remedy
    sent = [request.headers["authorization"] for request in server.prompts]
    assert sent == ["Bearer first-key", "Bearer second-key"]


@pytest.mark.parametrize("key", ["sk\n", " sk", "sk-\u00e4"])
async def test_mangled_key_is_refused_without_being_quoted(server, connect, monkeypatch, key):
    monkeypatch.setenv("HERE_KEY", key)
    error = await fail(connect())
    assert error.kind == "auth"
    assert "HERE_KEY" in error.remedy
    assert key not in error.message
    assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        Status(401, body=chat.error_body(f"Incorrect API key: {KEY}", "invalid_api_key")),
        Status(400, body=f"Bad key {KEY}".encode()),
        Reply(chat.begin(), chat.error(f"The key {KEY} is wrong")),
        Reply(chat.begin(), chat.text("Hi"), RESET),
    ],
)
async def test_key_is_in_no_log_record_and_no_error(server, connect, caplog, answer):
    caplog.set_level(logging.DEBUG)
    server.answer(answer)
    error = await fail(connect())
    told = [error.message, error.remedy, str(error), caplog.text]
    assert not [words for words in told if KEY in words]


async def test_key_that_stands_in_the_place_of_a_content_type_is_not_shown(server, connect):
    server.answer(Reply(b"{}", content_type=f"text/{KEY}"))
    assert KEY not in (await fail(connect())).message


@pytest.mark.parametrize(
    "status, body, kind, words",
    [
        (401, chat.error_body("no", "invalid_api_key"), "auth", "HERE_KEY"),
        (402, chat.error_body("Insufficient Balance"), "auth", "credit"),
        (429, chat.error_body("slow", "rate_limit_exceeded"), "rate_limited", "/model"),
        (429, chat.error_body("no money", "insufficient_quota"), "auth", "credit"),
        (400, chat.error_body("x", "context_length_exceeded"), "context_full", "/compact"),
        (404, chat.error_body("no m", "model_not_found"), "invalid_request", "model"),
        (500, b"oops", "server", "prompt"),
        (503, HTML, "server", "prompt"),
        (529, b"", "overloaded", "/model"),
        (307, b"", "invalid_request", "base_url"),
    ],
)
async def test_status_becomes_a_sentence_and_a_remedy(  # noqa: PLR0917
    server, connect, status, body, kind, words
):
    headers = {"location": f"{server.url}/v2"} if status == 307 else {}
    server.answer(Status(status, body=body, headers=headers))
    error = await fail(connect())
    assert error.kind == kind
    assert words in error.remedy
    assert len(server.prompts) == 1


@pytest.mark.parametrize("header, seconds", [("retry-after", 7.0), ("retry-after-ms", 0.007)])
async def test_wait_that_the_server_asks_for_is_kept(server, connect, header, seconds):
    server.answer(Status(429, body=chat.error_body("slow"), headers={header: "7"}))
    assert (await fail(connect())).retry_after_s == seconds


@pytest.mark.parametrize(
    "code, kind, is_temporary",
    [(502, "server", True), (429, "rate_limited", True), ("context_length_exceeded", "context_full", False), (None, "server", True)],
)  # fmt: skip
async def test_error_in_the_stream_is_told_by_its_code(server, connect, code, kind, is_temporary):
    said_error = {"error": {"message": "Upstream", "code": code}}
    server.answer(Reply(chat.begin(), chat.text("Hel"), chat.event(said_error)))
    error, items = await run_out(connect())
    assert said(items) == "Hel"
    assert error
    assert (error.kind, error.is_temporary) == (kind, is_temporary)


@pytest.mark.parametrize("ending", [RESET, HANG_UP])
async def test_connection_that_breaks_in_the_answer_is_cut(server, connect, ending):
    server.answer(Reply(chat.begin(), chat.text("Hel"), ending))
    error, items = await run_out(connect())
    assert said(items) == "Hel"
    assert error
    assert (error.kind, error.is_temporary) == ("cut", True)


async def test_connection_that_breaks_before_the_answer_is_a_network_error(server, connect):
    server.answer(Verbatim(RESET))
    error = await fail(connect())
    assert (error.kind, error.is_temporary) == ("network", True)


async def test_end_without_reason_or_mark_is_no_end_of_the_reply(server, connect):
    server.answer(Reply(chat.begin(), chat.tool_use("call_1", "ls", "{}")))
    items = await ask(connect())
    assert items == [ToolUseBegun()]


@pytest.mark.parametrize("ending", prove_rest([RESET, HANG_UP, STALL]))
async def test_what_breaks_after_the_reason_to_stop_breaks_nothing(
    server, connect, ending, monkeypatch
):
    monkeypatch.setattr(ChatProvider, "last_words_s", 0.2)
    call = chat.tool_use("call_1", "ls", "{}")
    server.answer(Reply(chat.begin(), call, chat.finish("tool_calls"), Wait(0.05), ending))
    items = await ask(connect())
    assert items[1:] == [BlockDone(ToolUse("call_1", "ls", {})), ReplyDone("end_turn")]


@prove
async def test_usage_that_comes_late_is_waited_for(server, connect):
    server.answer(Reply(chat.begin(), chat.finish(), Wait(0.3), chat.usage(7, 3), STALL))
    assert UsageReport(Usage(7, 3)) in await ask(connect())


@prove
async def test_silence_is_stalled_and_comments_are_no_silence(server, connect):
    server.answer(Reply(chat.begin(), chat.text("Hel"), STALL))
    assert (await fail(connect(idle_timeout_s=0.2))).kind == "stalled"
    comment = b": OPENROUTER PROCESSING\n\n"
    pauses = [each for _ in range(14) for each in (comment, Wait(0.2))]
    server.answer(Reply(chat.begin(), *pauses, chat.text("Hello."), chat.done()))
    assert said(await ask(connect(idle_timeout_s=2))) == "Hello."


@pytest.mark.parametrize(
    "answer",
    [
        Reply(HTML, content_type="text/html"),
        Status(403, body=HTML, content_type="text/html"),
        Status(511, body=HTML),
    ],
)
async def test_login_page_of_a_network_is_said_to_be_one_at_once(server, connect, answer):
    server.answer(answer)
    error = await fail(connect())
    assert "log in" in error.message
    assert not error.is_temporary


@pytest.mark.parametrize(
    "answer",
    [
        Reply(b'{"choices": []}', content_type="application/json"),
        Reply(b"data: {broken\n\n"),
        Reply(b"data: " + b"[" * 100_000 + b"\n\n"),
    ],
)
async def test_what_breaks_the_format_is_malformed(server, connect, answer):
    server.answer(answer)
    assert (await fail(connect())).kind == "malformed"


@pytest.mark.parametrize(
    "body, kind, words",
    [
        ({"error": "Unexpected endpoint or method. Returning 200 anyway"}, "malformed", "Unexpected endpoint"),
        ({"error": {"code": "context_length_exceeded", "message": "no room"}}, "context_full", "no room"),
        ({"error": {"type": "x", "message": f"no {KEY}"}}, "malformed", "no [the key]"),
        ({"choices": []}, "malformed", "application/json instead of"),
    ],
)  # fmt: skip
async def test_refusal_with_a_status_that_says_nothing_is_wrong_is_told(
    server, connect, body, kind, words
):
    server.answer(Status(200, body=json.dumps(body).encode()))
    error = await fail(connect())
    assert error.kind == kind
    assert words in error.message


async def test_answer_without_an_end_is_given_up(server, connect, monkeypatch):
    monkeypatch.setattr("sanderling.providers.http.transport.MAX_REPLY_BYTES", 100_000)
    server.answer(Reply(chat.begin(), *[chat.text("x" * 1000)] * 200))
    error = await fail(connect())
    assert "does not end" in error.message
    assert not error.is_temporary


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000])
async def test_chunk_borders_and_characters_across_them_change_nothing(
    server, connect, chunk_bytes
):
    words = "Grüße, 日本 🦀"
    reply = (chat.begin(), chat.text(*words), chat.done())
    charset = "text/event-stream; charset=iso-8859-1"
    server.answer(Reply(*reply, chunk_bytes=chunk_bytes, content_type=charset))
    assert said(await ask(connect())) == words


async def test_cancelling_closes_the_connection_and_the_next_request_works(server, connect):
    server.answer(Reply(chat.begin(), chat.text("Hel"), STALL), Reply(chat.hello()))
    provider = connect()
    with anyio.fail_after(DEADLINE_S):
        async with aclosing(provider.stream(ModelRequest("", HISTORY))) as stream:
            async for item in stream:
                if isinstance(item, TextPiece):
                    break
        while server.prompts[0].closed_at is None:
            await anyio.sleep(0.005)
    assert said(await ask(provider)) == "Hello there."


async def test_refused_connection_is_told_with_the_host(connect):
    error = await fail(connect(table={"base_url": "http://127.0.0.1:1/v1"}))
    assert (error.kind, error.is_temporary) == ("network", False)
    assert "Start the server" in error.remedy
    assert "127.0.0.1:1" in error.message


@pytest.mark.parametrize("base_url", ["http://", "http://x:0"])
async def test_address_that_is_none_is_told(connect, base_url):
    error = await fail(connect(table={"base_url": base_url}))
    assert "base_url is not the address of an API" in error.message


async def test_certificate_that_nobody_vouches_for_is_told_and_one_that_is_named_is_good(
    connect, certificate, monkeypatch
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ChatServer(tls=context) as server:
        table = {"base_url": f"{server.url}/v1"}
        error = await fail(connect(table=table))
        assert (error.kind, error.is_temporary) == ("network", False)
        assert "SSL_CERT_FILE" in error.remedy
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert said(await ask(connect(table=table))) == "Hello there."


async def test_no_proxy_leads_to_this_machine(connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert said(await ask(connect())) == "Hello there."


async def test_proxy_of_the_environment_leads_elsewhere(server, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.prompt_path = "http://api.test/v1/chat/completions"
    provider = connect(table={"base_url": "http://api.test/v1"})
    assert said(await ask(provider)) == "Hello there."


@pytest.mark.parametrize(
    "listed, limits",
    [
        ({"id": "m"}, ModelLimits()),
        ({"id": "m", "context_length": 200_000, "top_provider": {"max_completion_tokens": 8_000}}, ModelLimits(200_000, 8_000)),
        ({"id": "m", "context_window": 131_072, "max_completion_tokens": 65_536}, ModelLimits(131_072, 65_536)),
        ({"id": "m", "max_context_length": 128_000}, ModelLimits(128_000)),
        ({"id": "m", "max_model_len": 4096}, ModelLimits(4096)),
        ({"id": "m", "meta": {"n_ctx_train": 32_768}}, ModelLimits(32_768)),
        ({"id": "models/m", "context_length": None}, ModelLimits()),
        ({"id": "m", "context_length": "many"}, ModelLimits()),
    ],
)  # fmt: skip
async def test_limits_are_what_the_list_of_models_tells(server, connect, listed, limits):
    server.models = told({"data": [{"id": "other", "context_length": 1}, listed]})
    provider = connect()
    await provider.learn_limits()
    assert provider.limits == limits


async def test_models_are_listed_in_the_servers_order(server, connect):
    server.models = told({"object": "list", "data": [{"id": "b"}, {"id": "models/a"}, {"x": 1}, 7]})
    assert await connect().list_models() == ("b", "a")


@pytest.mark.parametrize(
    "answer", [Status(404), told({"data": 1}), told("x"), Status(200, body=b"<")]
)
async def test_models_that_are_not_listed_are_an_error_and_no_limits(server, connect, answer):
    server.models = answer
    provider = connect()
    with pytest.raises(ProviderError):
        await provider.list_models()
    await provider.learn_limits()
    assert provider.limits == ModelLimits()


CODE = """
import sys, anyio
from sanderling.config import Settings
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest
from sanderling.providers.choice import make_provider

async def main():
    here = {"here": {"preset": "llamacpp", "base_url": sys.argv[1]}}
    provider = make_provider(Settings(sys.argv[2], model="here:m", providers=here))
    request = ModelRequest("", [Message("user", (TextBlock("Hi"),))])
    print([item async for item in provider.stream(request)][-1])
    await provider.aclose()

anyio.run(main)
print([name for name in sys.modules if name.startswith("anthropic") or "providers.anthropic" in name])
"""


def test_nothing_of_another_provider_is_loaded(server, tmp_path):
    arguments = [sys.executable, "-c", CODE, f"{server.url}/v1", str(tmp_path)]
    run = subprocess.run(
        arguments, cwd=ROOT, env=os.environ, check=True, capture_output=True, text=True
    )
    assert run.stdout.splitlines() == ["ReplyDone(stop_reason='end_turn')", "[]"]
