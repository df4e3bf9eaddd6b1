"""The real provider against a server on this machine that sends whatever a network can."""

import asyncio
import base64
import json
import logging
import os
import resource
import socket
import ssl
import sys
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import anyio
import anyio.abc
import httpx2
import pytest
from tests import loopback
from tests.conftest import DEADLINE_S, happens, prove, prove_rest
from tests.loopback import (
    HANG_UP,
    RESET,
    STALL,
    Answer,
    LoopbackServer,
    Reply,
    Request,
    Status,
    Step,
    Verbatim,
    Wait,
)
from tests.profiles import write_profile
from tests.wires.asking import HISTORY, ask, run_out, said

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import (
    Message,
    RedactedThinkingBlock,
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
    UsageReport,
)
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.choice import choose
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.http import setup, trust
from sanderling.providers.http.transport import words_of

KEY = "sk-ant-this-is-secret"

Connect = Callable[..., AnthropicProvider]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_CUSTOM_HEADERS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def connect(server: LoopbackServer, tmp_path: Path) -> AsyncIterator[Connect]:
    """Make a provider that talks to the server; closed after the test."""
    providers: list[AnthropicProvider] = []

    def make(**settings: object) -> AnthropicProvider:
        options = {
            "state_dir": str(tmp_path),
            "base_url": server.url,
            "model": "claude-test",
        } | settings
        providers.append(AnthropicProvider(Settings(**options)))  # type: ignore[arg-type]
        return providers[-1]

    yield make
    for provider in providers:
        if provider._client:
            await provider._client.aclose()


async def fail(provider: AnthropicProvider) -> tuple[ProviderError, list[StreamItem]]:
    """Ask, expecting an error: it, and what came before it."""
    error, items = await run_out(provider)
    assert error is not None, "no error"
    return error, items


def blocks(items: list[StreamItem]) -> list[object]:
    return [item.block for item in items if isinstance(item, BlockDone)]


# --- what a good answer becomes ----------------------------------------------------------------------------------------


async def test_thinking_and_text_stream_in_order_and_the_blocks_carry_the_signature(
    server, connect
):
    server.answer(
        Reply(
            loopback.message_start(),
            loopback.thinking("Let me", " see.", signature="c2ln"),
            loopback.text("Good", " morning!", index=1),
            loopback.done(),
        )
    )
    items = await ask(connect())
    assert [item for item in items if not isinstance(item, UsageReport)] == [
        ThinkingPiece("Let me"),
        ThinkingPiece(" see."),
        BlockDone(ThinkingBlock("Let me see.", "c2ln")),
        TextPiece("Good"),
        TextPiece(" morning!"),
        BlockDone(TextBlock("Good morning!")),
        ReplyDone("end_turn"),
    ]


async def test_text_and_signature_of_a_blocks_start_are_part_of_it(server, connect):
    start = loopback.block_start(0, type="thinking", thinking="Hm", signature="c2ln")
    server.answer(
        Reply(
            loopback.message_start(),
            start + loopback.delta(0, "thinking_delta", thinking="m.") + loopback.block_stop(0),
            loopback.block_start(1, type="text", text="Go")
            + loopback.delta(1, text="od.")
            + loopback.block_stop(1),
            loopback.done(),
        )
    )
    items = await ask(connect())
    assert blocks(items) == [ThinkingBlock("Hmm.", "c2ln"), TextBlock("Good.")]
    assert said(items) == "Good."


async def test_redacted_thinking_is_kept_as_it_came(server, connect):
    start = loopback.block_start(0, type="redacted_thinking", data="ZW5jcnlwdGVk")
    server.answer(
        Reply(
            loopback.message_start(),
            start,
            loopback.block_stop(0),
            loopback.text("Hi.", index=1),
            loopback.done(),
        )
    )
    assert blocks(await ask(connect())) == [RedactedThinkingBlock("ZW5jcnlwdGVk"), TextBlock("Hi.")]


async def test_usage_is_cumulative_over_message_start_and_message_delta(server, connect):
    server.answer(
        Reply(
            loopback.message_start(
                input_tokens=7,
                output_tokens=1,
                cache_read_input_tokens=100,
                cache_creation_input_tokens=20,
            ),
            loopback.text("Hi."),
            loopback.done(output_tokens=42),
        )
    )
    reports = [item.usage for item in await ask(connect()) if isinstance(item, UsageReport)]
    assert reports == [Usage(7, 1, 20, 100), Usage(7, 42, 20, 100)]


@pytest.mark.parametrize(
    "on_the_wire, stop_reason",
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "context_full"),
        ("tool_use", "end_turn"),
        ("a_reason_of_a_later_api", "end_turn"),
    ],
)
async def test_stop_reason_reaches_the_end_of_the_reply(server, connect, on_the_wire, stop_reason):
    server.answer(Reply(loopback.message_start(), loopback.text("Hi."), loopback.done(on_the_wire)))
    assert (await ask(connect()))[-1] == ReplyDone(stop_reason)


@pytest.mark.parametrize(
    "pieces, tool_input",
    [(('{"comm', 'and": "ls ', '-l\\u00e9"}'), {"command": "ls -lé"}), ((), {})],
)
async def test_tool_input_is_joined_and_decoded(server, connect, pieces, tool_input):
    server.answer(
        Reply(
            loopback.message_start(),
            loopback.tool_use("t1", "bash", *pieces),
            loopback.done("tool_use"),
        )
    )
    assert blocks(await ask(connect())) == [ToolUse("t1", "bash", tool_input)]


# --- the request -------------------------------------------------------------------------------------------------------


async def test_request_says_what_is_asked_of_the_model(server, connect):
    history = [
        *HISTORY,
        Message(
            "assistant", (ThinkingBlock("Hm.", "c2ln"), ToolUse("t1", "bash", {"command": "ls"}))
        ),
        Message("user", (ToolResult("t1", "README", is_error=False),)),
    ]
    await ask(connect(max_tokens=1234), history)
    [request] = server.prompts
    assert request.json() == {
        "model": "claude-test",
        "max_tokens": 1234,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "cache_control": {"type": "ephemeral"},
        "stream": True,
        "thinking": {"type": "adaptive", "display": "summarized"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Good morning."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": "README",
                        "is_error": False,
                    }
                ],
            },
        ],
    }


async def test_request_says_nothing_of_thinking_when_it_is_switched_off(server, connect):
    await ask(connect(thinking=False))
    assert "thinking" not in server.prompts[0].json()


async def test_key_travels_where_the_api_and_proxies_of_earlier_versions_look(server, connect):
    await ask(connect())
    headers = server.prompts[0].headers
    names = sorted(name for name, value in headers.items() if KEY in value)
    assert names == ["authorization", "x-api-key"]


async def test_bearer_token_is_sent_as_no_key(server, connect, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-mine")
    await ask(connect())
    told = server.prompts[0].headers
    assert (told["authorization"], told.get("x-api-key")) == ("Bearer token-of-mine", None)


async def test_cookies_are_the_servers_unless_the_person_has_one(server, connect, monkeypatch):
    kind = "text/event-stream\r\nset-cookie: a=b"
    hello = Reply(*loopback.hello().steps, content_type=kind)
    for custom, cookies in (("", [None, "a=b"]), ("Cookie: sso=abc", ["sso=abc"] * 2)):
        monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", custom)
        server.answer(hello)
        provider = connect()
        for _ in cookies:
            assert said(await ask(provider))
        asked = server.prompts[-len(cookies) :]
        assert [prompt.headers.get("cookie") for prompt in asked] == cookies


async def test_header_of_the_persons_goes_before_ours_however_it_is_spelt(
    server, connect, monkeypatch
):
    monkeypatch.setenv(
        "ANTHROPIC_CUSTOM_HEADERS",
        "AUTHORIZATION: Basic x\nAnthropic-Beta: y\nX-Team: Jürgen\nContent-Length: 3",
    )
    await ask(connect())
    told = server.prompts[0].headers
    assert (told["authorization"], told["anthropic-beta"]) == ("Basic x", "y")
    assert told["x-team"].encode("latin-1").decode() == "Jürgen"
    assert told["content-length"] == str(len(server.prompts[0].body))


async def test_broken_tls_is_a_failure_of_the_connection(connect):
    provider = connect()
    await provider.prepare()
    broken = ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]")
    broken.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    assert isinstance(broken, provider._errors())
    kinds = [provider._explain(broken, is_streaming=it).kind for it in (False, True)]
    assert kinds == ["network", "cut"]


def test_words_of_a_failure_are_not_those_of_what_was_cancelled_for_it():
    failure = httpx2.ConnectTimeout("")
    failure.__cause__ = TimeoutError()
    failure.__cause__.__context__ = asyncio.CancelledError("Cancelled via cancel scope 7f52")
    assert words_of(failure) == "ConnectTimeout"


async def test_secrets_that_a_server_repeats_are_not_shown(server, connect, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway: Token gateway-secret")
    basic = base64.b64encode(b"user:pass-word").decode()
    told = f"gateway-secret, pass-word, {basic}"
    server.answer(Status(401, message=f"You sent {told}."))
    error, _ = await fail(connect(base_url=server.url.replace("//", "//user:pass-word@")))
    assert "You sent [the key], [the key], [the key] " in error.message


@pytest.mark.parametrize(
    "address",
    ["u:pass-word@h", "ftp://u:pass-word@h", "http://u:p/pass-word@h", "http://u:p#pass-word@h"],
)
async def test_password_in_an_address_that_is_none_is_not_shown(connect, monkeypatch, address):
    error, _ = await fail(connect(base_url=address))
    assert "is not the address of an API" in error.message
    assert "pass-word" not in error.message
    monkeypatch.setenv("https_proxy", "http://u:pass-word/@h:1")
    error, _ = await fail(connect())
    assert "pass-word" not in error.message


@pytest.fixture
def profile(monkeypatch, tmp_path) -> Path:
    """Write a profile, in the place of a key: the directory where it stands."""
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    for name, value in write_profile(tmp_path, "token-of-profile").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "anthropic"


@pytest.mark.usefixtures("profile")
async def test_profile_of_the_sdk_stands_in_the_place_of_a_key(server, connect):
    provider = connect()
    for _ in range(2):
        assert said(await ask(provider))
    for headers in (prompt.headers for prompt in server.prompts):
        assert headers["authorization"] == "Bearer token-of-profile"
        assert headers["anthropic-workspace-id"] == "w1"
        assert "oauth" in headers["anthropic-beta"]
        assert "x-api-key" not in headers
    assert await provider.list_models()


async def test_refused_token_of_a_profile_is_not_shown_and_is_read_again(server, connect, profile):
    provider = connect()
    await ask(provider)
    server.answer(Status(401, message="You sent token-of-profile."), loopback.hello())
    error, _ = await fail(provider)
    assert (error.kind, "[the key]" in error.message) == ("auth", True)
    assert "the tool that made the profile" in error.remedy
    write_profile(profile.parent, "another-token")
    assert said(await ask(provider))
    assert server.prompts[-1].headers["authorization"] == "Bearer another-token"


@pytest.mark.usefixtures("profile")
def test_profile_that_the_environment_names_counts_as_a_key(tmp_path):
    assert choose(Settings(str(tmp_path))) == "anthropic"


async def test_profile_without_its_token_says_what_is_missing(connect, profile):
    (profile / "credentials" / "default.json").unlink()
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("auth", False)
    assert f"Credentials file not found at {profile}" in error.message


BROKEN_PROFILES = {
    "no JSON": {"configs": "no JSON"},
    "too deep": {"configs": "[" * 100_000},
    "no address": {
        "configs": '{"authentication": {"type": "user_oauth"}, "base_url": "https://[::1"}'
    },
    "too deep a token": {"credentials": "[" * 100_000},
    "no time": {"credentials": '{"access_token": "token-of-it", "expires_at": 1e400}'},
    "no ASCII": {"credentials": '{"access_token": "t\\ud83dken", "expires_at": 4000000000}'},
}


@pytest.mark.parametrize("files", BROKEN_PROFILES.values(), ids=BROKEN_PROFILES)
async def test_whatever_is_wrong_with_a_profile_is_told(connect, profile, files):
    for part, text in files.items():
        (profile / part / "default.json").write_text(text)
    provider = connect(base_url="")
    for _ in range(2):
        error, _ = await fail(provider)
        assert (error.kind, error.is_temporary) == ("auth", False)
        assert "The profile has no usable token" in error.message


async def test_profile_may_hold_letters_of_any_language(server, connect, profile):
    told = {"authentication": {"type": "user_oauth"}, "workspace_id": "w\u00f6rk"}
    (profile / "configs" / "default.json").write_text(json.dumps(told))
    assert said(await ask(connect()))
    assert server.prompts[0].headers["anthropic-workspace-id"]


def expire(profile: Path, port: int) -> None:
    """Let the token of `profile` be over, and a new one be had at `port` of this machine."""
    told = {
        "authentication": {"type": "user_oauth", "client_id": "c"},
        "base_url": f"http://127.0.0.1:{port}",
    }
    (profile / "configs" / "default.json").write_text(json.dumps(told))
    old = {"access_token": "token-of-it", "refresh_token": "refresh-it", "expires_at": 1000}
    (profile / "credentials" / "default.json").write_text(json.dumps(old))


async def test_token_that_cannot_be_had_just_now_is_asked_for_again(connect, profile, unused_port):
    expire(profile, unused_port)
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("network", True)
    assert "The profile's token is not available just now" in error.message


async def test_nobody_waits_for_a_token_who_has_stopped(connect, profile):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        expire(profile, silent.getsockname()[1])
        provider = connect()
        with anyio.fail_after(DEADLINE_S), anyio.move_on_after(1) as stopping:
            await ask(provider)
        assert stopping.cancelled_caught


async def test_content_type_that_is_told_twice_is_one(server, connect):
    kind = "text/event-stream, text/event-stream"
    server.answer(Reply(*loopback.hello().steps, content_type=kind))
    assert said(await ask(connect()))


def test_certificates_that_have_changed_are_read_again(monkeypatch, tmp_path, certificate):
    path = tmp_path / "certificates.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(OSError, match="No such file"):
        trust.read_certificates()
    path.write_bytes(certificate.read_bytes())
    first = trust.read_certificates()
    assert trust.read_certificates() is first
    os.utime(path, (1, 1))
    trust.begin_reading()
    assert trust.read_certificates() is not first


async def test_profile_that_cannot_be_read_is_told(connect, profile):
    (profile / "configs" / "default.json").write_text("no JSON")
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("auth", False)
    assert "is not valid JSON" in error.message


@pytest.mark.parametrize("key", ["sk-secret\r", "sk-secret\n", " sk-secret", "sk-\u00e4secret"])
async def test_mangled_key_is_refused_without_being_quoted(connect, monkeypatch, key):
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    error, _ = await fail(connect())
    assert error.kind == "auth"
    assert "secret" not in error.message + error.remedy


@pytest.mark.parametrize("base_url", ["http://[::1", "http://x\n"])
async def test_address_that_is_none_is_told(connect, base_url):
    error, _ = await fail(connect(base_url=base_url))
    assert (error.kind, error.is_temporary) == ("network", False)
    assert "cannot be set up" in error.message


@pytest.mark.parametrize("port", ["99999", "0", "x"])
async def test_proxy_with_a_port_that_is_none_is_told_at_once(connect, monkeypatch, port):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("network", False)
    assert "cannot be set up" in error.message
    assert "ort" in error.message
    assert "proxy variables" in error.remedy


async def test_log_of_tls_keys_that_cannot_be_written_is_named(connect, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # else there is no such log
    monkeypatch.setenv("SSLKEYLOGFILE", "/nowhere/keys")
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("network", False)
    assert "SSLKEYLOGFILE=/nowhere/keys" in error.message
    assert "unset the wrong variable" in error.remedy


async def test_nothing_follows_the_api_to_another_address(server, connect):
    with LoopbackServer() as other:
        location = {"location": f"{other.url}/v1/messages"}
        server.answer(Status(307, headers=location))
        server.model_answer = Status(302, headers=location)
        error, _ = await fail(connect())
        assert "redirects to another address" in error.message
        with pytest.raises(ProviderError, match="another address"):
            await connect().fetch_limits()
        assert other.requests == []


async def test_key_that_the_api_quotes_is_not_repeated(server, connect):
    server.answer(Status(401, message=f"Received API key {KEY}, which is none"))
    error, _ = await fail(connect())
    assert "Received API key [the key], which is none" in error.message


@pytest.mark.parametrize("field", ["type", "message"])
@pytest.mark.parametrize("value", [["x"], {"a": 1}, 7, "null"])
async def test_error_whose_words_are_no_words_is_told_all_the_same(server, connect, field, value):
    told = {"type": "invalid_request_error", "message": "No."} | {field: value}
    server.answer(Status(400, body=json.dumps({"type": "error", "error": told}).encode()))
    error, _ = await fail(connect())
    assert error.kind == "invalid_request"


async def test_answer_without_an_end_is_given_up(server, connect, monkeypatch):
    monkeypatch.setattr("sanderling.providers.http.transport.MAX_REPLY_BYTES", 100_000)
    pieces = loopback.text(*["x" * 1000] * 200)
    server.answer(Reply(loopback.message_start(), pieces, loopback.done()))
    error, items = await fail(connect())
    assert (error.kind, error.is_temporary) == ("malformed", False)
    assert "does not end" in error.message
    assert said(items).startswith("xxx")


@prove
async def test_list_of_models_without_an_end_is_cut(server, connect):
    server.model_pages = deque(
        loopback.model_page(f"model-{number}", has_more=True) for number in range(200)
    )
    assert len(await connect().list_models()) <= 100


async def test_endless_words_of_an_error_are_cut(server, connect):
    server.answer(Status(400, message="x" * 1_000_000))
    error, _ = await fail(connect())
    assert len(error.message) < 1200


UNREADABLE = [None, "null", 7, [], "many", {"output_tokens": "many"}, {"input_tokens": -1}] + [
    {"input_tokens": value} for value in (10**30, 1e30, 1.5, True, [1])
]


@pytest.mark.parametrize("usage", UNREADABLE)
async def test_usage_that_cannot_be_read_counts_as_unknown(server, connect, usage):
    start = loopback.event("message_start", message={"usage": usage})
    end = loopback.event("message_delta", delta={"stop_reason": 7}, usage=usage)
    server.answer(Reply(start, loopback.text("Hi."), end, loopback.message_stop()))
    items = await ask(connect())
    assert said(items) == "Hi."
    assert {item.usage for item in items if isinstance(item, UsageReport)} <= {Usage()}
    assert items[-1] == ReplyDone("end_turn")


@pytest.mark.parametrize("start", [{}, {"message": None}, {"message": 3}])
async def test_beginning_that_says_nothing_begins_all_the_same(server, connect, start):
    begin = loopback.event("message_start", **start)
    server.answer(Reply(begin, loopback.text("Hi."), loopback.done()))
    assert said(await ask(connect())) == "Hi."


@pytest.mark.parametrize(
    "data", [b"3", b"[1, 2]", b"null", b"no JSON", b'{"type": 5}', b"[" * 100_000]
)
async def test_event_that_nobody_knows_is_passed_over_whatever_its_data(server, connect, data):
    unknown = b"event: hologram\ndata: " + data + b"\n\n"
    server.answer(Reply(loopback.message_start(), unknown, loopback.text("Hi."), loopback.done()))
    assert said(await ask(connect())) == "Hi."


@pytest.mark.parametrize("data", [b"3", b"[1, 2]", b'{"type": "hologram"}', b'{"type": 5}', b"{}"])
async def test_event_without_a_name_and_a_known_type_is_passed_over(server, connect, data):
    unknown = b"data: " + data + b"\n\n"
    server.answer(Reply(loopback.message_start(), unknown, loopback.text("Hi."), loopback.done()))
    assert said(await ask(connect())) == "Hi."


@pytest.mark.parametrize("chunk_bytes", [0, 1, 7])
async def test_bytes_that_are_no_utf8_are_replaced(server, connect, chunk_bytes):
    words = loopback.text("Grü<x>ße 🦀").replace(b"<x>", b"\xff\xc3")
    server.answer(Reply(loopback.message_start(), words, loopback.done(), chunk_bytes=chunk_bytes))
    shown = said(await ask(connect()))
    assert shown.startswith("Grü\ufffd")
    assert shown.endswith("ße 🦀")


BOMB_BYTES = 300_000_000


def _bomb() -> bytes:
    """Some 300 kB that are a comment of 300 MB."""
    packer = zlib.compressobj(9, wbits=31)
    piece = b"x" * 1_000_000
    pieces = [packer.compress(piece) for _ in range(BOMB_BYTES // len(piece))]
    return packer.compress(b": ") + b"".join(pieces) + packer.flush()


@contextmanager
def _within(more_bytes: int) -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < more_bytes


@prove
@pytest.mark.parametrize("status", [b"400 Bad Request", b"200 OK", b"529 Overloaded"])
async def test_body_that_unpacks_to_far_more_is_read_to_the_limit(server, connect, status):
    head = b"HTTP/1.1 %b\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n" % status
    bomb = _bomb()
    server.answer(Verbatim(head + b"content-length: %d\r\n\r\n" % len(bomb), bomb))
    with _within(150_000_000):
        error, _ = await fail(connect())
    assert error.is_temporary is (status == b"529 Overloaded")
    if status == b"200 OK":
        assert "does not end" in error.message


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip", "GZIP, identity", "raw deflate"])
async def test_packed_answer_is_unpacked(server, connect, encoding):
    body = loopback.message_start() + loopback.text("Hi.") + loopback.done()
    wbits = {"deflate": 15, "raw deflate": -15}.get(encoding, 31)
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(body) + packer.flush()
    header = f"content-encoding: {encoding.removeprefix('raw ')}\r\ntransfer".encode()
    server.answer(
        Verbatim(
            STREAM_HEAD.replace(b"transfer", header),
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed),
        )
    )
    assert said(await ask(connect())) == "Hi."


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip"])
async def test_answer_that_is_packed_as_nobody_asked_is_malformed(server, connect, encoding):
    head = STREAM_HEAD.replace(b"transfer", b"content-encoding: " + encoding + b"\r\ntransfer")
    server.answer(Verbatim(head, b"2\r\nxx\r\n0\r\n\r\n"))
    error, _ = await fail(connect())
    assert error.kind == "malformed"
    assert server.prompts[0].headers["accept-encoding"] == "gzip, deflate"


LOGIN_PAGES = [
    Status(200, body=loopback.HTML, content_type="text/html"),
    Status(200, body=loopback.HTML, content_type="Text/HTML; charset=utf-8"),
    Status(200, body=loopback.HTML, content_type="application/xhtml+xml"),
    Verbatim(b"HTTP/1.1 204 No Content\r\n\r\n"),
    Status(511, body=loopback.HTML, content_type="text/html"),
    Status(403, body=loopback.HTML, content_type="text/html"),
]


@pytest.mark.parametrize("page", LOGIN_PAGES, ids=range(len(LOGIN_PAGES)))
async def test_login_page_of_a_network_is_said_to_be_one_at_once(server, connect, page):
    server.answer(page)
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("malformed", False)
    assert "log in" in error.message
    server.model_pages = deque([page])
    with pytest.raises(ProviderError, match="log in"):
        await connect().list_models()


async def test_answer_that_stops_where_its_length_says_has_no_end(server, connect):
    head = STREAM_HEAD.replace(
        b"transfer-encoding: chunked", b"content-length: %d" % len(BEGINNING)
    )
    server.answer(Verbatim(head, BEGINNING))
    items = await ask(connect())
    assert said(items) == "Good mor"
    assert not any(isinstance(item, ReplyDone) for item in items)


ADDRESSES = {
    "api.example.org/v1": "http",
    "ftp://api.example.org": "http",
    "https://": "host",
    "https:///v1": "host",
    "http://127.0.0.1:99999": "65535",
    "http://127.0.0.1:port": "port",
    "http://127.0.0.1:0": "port",
    "localhost:8080": "http",
}


@pytest.mark.parametrize("url", ADDRESSES)
@pytest.mark.parametrize("name", ["base_url", "ANTHROPIC_BASE_URL"])
async def test_address_that_is_none_is_told_once_and_named(connect, monkeypatch, url, name):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url if name != "base_url" else "")
    error, _ = await fail(connect(base_url=url if name == "base_url" else ""))
    assert (error.kind, error.is_temporary) == ("network", False)
    assert error.message.startswith(f"{name} ")
    assert ADDRESSES[url] in error.message
    assert url in error.message


async def test_password_in_an_address_that_is_none_is_not_told(connect):
    error, _ = await fail(connect(base_url="http://me:secret@127.0.0.1:99999"))
    assert "secret" not in f"{error.message} {error.remedy}"


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_file_of_certificates_that_cannot_be_read_is_named(
    connect, monkeypatch, tmp_path, content
):
    path = tmp_path / "certificates.pem"
    if content:
        path.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    error, _ = await fail(connect())
    assert error.is_temporary is False
    assert f"SSL_CERT_FILE={path}" in error.message


async def test_socks_proxy_without_its_package_is_told_with_a_way_out(connect, monkeypatch):
    if find_spec("socksio"):
        pytest.skip("the package is here")
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    error, _ = await fail(connect(base_url="http://api.example.org"))
    assert "SOCKS" in error.message
    assert "httpx" not in error.message
    assert "pip install socksio" in error.remedy


@pytest.mark.parametrize("shown", [KEY, "sk-ant-api03-of-somebody-else"])
async def test_key_that_a_streamed_error_repeats_is_not_shown(server, connect, shown):
    error = loopback.error("authentication_error", f"invalid x-api-key: {shown}.")
    server.answer(Reply(loopback.message_start(), error))
    told, _ = await fail(connect())
    assert shown not in str(told)
    assert "invalid x-api-key: [" in told.message


async def test_key_that_stands_in_the_place_of_a_content_type_is_not_shown(server, connect):
    server.answer(Reply(b"x", content_type=KEY))
    told, _ = await fail(connect())
    assert KEY not in told.message


@pytest.mark.parametrize("value", ["nan", "-3", "inf", "soon"])
async def test_retry_after_that_is_no_time_is_passed_over(server, connect, value):
    server.answer(Status(429, retry_after=value))
    error, _ = await fail(connect())
    assert error.retry_after_s is None


async def test_closing_a_provider_gives_its_connections_back(server, connect):
    provider = connect()
    await ask(provider)
    await provider.aclose()
    with anyio.fail_after(DEADLINE_S):
        while server.connections:
            await anyio.sleep(0.01)


async def test_second_request_reuses_the_connection(server, connect):
    provider = connect()
    await ask(provider)
    await ask(provider)
    assert (len(server.prompts), server.connection_count) == (2, 1)


async def test_idle_connection_that_the_server_closed_is_replaced(server, connect):
    provider = connect()
    await ask(provider)
    server.hang_up()
    assert (await ask(provider))[-1] == ReplyDone("end_turn")
    assert server.connection_count == 2


async def test_failed_request_is_not_sent_again_behind_our_back(server, connect):
    server.answer(Status(529))
    await fail(connect())
    assert len(server.prompts) == 1


# --- what must change nothing ------------------------------------------------------------------------------------------

TRICKY = "Grüße, 世界 🦀\u2028next\u0085line\u00a0end"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("chunk_bytes", prove_rest([1, 2, 3, 7, 0]))
async def test_chunk_borders_and_line_ends_change_nothing(server, connect, chunk_bytes, newline):
    pieces = loopback.message_start(), loopback.text(TRICKY, TRICKY), loopback.done()
    server.answer(Reply(*pieces, chunk_bytes=chunk_bytes, newline=newline))
    items = await ask(connect())
    assert said(items) == TRICKY * 2
    assert blocks(items) == [TextBlock(TRICKY * 2)]
    assert items[-1] == ReplyDone("end_turn")


async def test_body_that_ends_with_its_connection_is_read_like_any_other(server, connect):
    server.answer(
        Reply(loopback.message_start(), loopback.text("Hi."), loopback.done(), is_chunked=False)
    )
    assert (await ask(connect()))[-1] == ReplyDone("end_turn")


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(loopback.ping(), id="ping"),
        pytest.param(loopback.comment(), id="comment"),
        pytest.param(b"\n\n\n", id="blank lines"),
        pytest.param(b"id: 7\nretry: 1000\n\n", id="other fields of an event"),
        pytest.param(
            loopback.event("from_the_future", index=7, what={"a": [1]}), id="unknown event"
        ),
        pytest.param(
            loopback.event("from_the_future", message="words", usage=[1], error="none"),
            id="unknown event that uses known names",
        ),
        pytest.param(loopback.delta(0, "glitter_delta", glitter=[1, 2]), id="unknown delta"),
        pytest.param(
            loopback.delta(0, "glitter_delta", text={"colour": "red"}),
            id="unknown delta that uses known names",
        ),
        pytest.param(
            loopback.delta(0, "citations_delta", citation={"type": "page_location"}), id="citation"
        ),
    ],
)
async def test_noise_between_the_pieces_changes_nothing(server, connect, noise):
    server.answer(
        Reply(
            loopback.comment(),
            loopback.message_start() + noise + loopback.block_start() + noise,
            loopback.delta(text="Good ") + noise + loopback.delta(text="morning."),
            noise
            + loopback.block_stop()
            + noise
            + loopback.message_delta()
            + noise
            + loopback.message_stop()
            + noise,
        )
    )
    items = await ask(connect())
    assert said(items) == "Good morning."
    assert blocks(items) == [TextBlock("Good morning.")]
    assert items[-1] == ReplyDone("end_turn")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram"},
        {"type": "hologram", "text": "invisible", "content": [{"type": "text"}]},
        {"type": "hologram", "data": {"x": 1}, "name": None},
    ],
    ids=["plain", "with content", "that uses known names"],
)
async def test_unknown_block_is_passed_over(server, connect, block):
    server.answer(
        Reply(
            loopback.message_start(),
            loopback.block_start(0, **block)
            + loopback.delta(0, text="lost")
            + loopback.block_stop(0),
            loopback.text("Hi.", index=1),
            loopback.done(),
        )
    )
    items = await ask(connect())
    assert (said(items), blocks(items)) == ("Hi.", [TextBlock("Hi.")])


@pytest.mark.parametrize(
    "escaped, shown",
    [
        (r"before \ud83d after", "before \ufffd after"),
        (r"before \ude00 after", "before \ufffd after"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83d", "\ufffd"),
        (r"a\"b\\c\ud83d\n", 'a"b\\c\ufffd\n'),
    ],
)
async def test_half_a_surrogate_pair_is_shown_as_a_replacement_character(
    server, connect, escaped, shown
):
    data = f'{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{escaped}"}}}}'
    event = f"event: content_block_delta\ndata: {data}\n\n".encode()
    server.answer(
        Reply(
            loopback.message_start() + loopback.block_start() + loopback.delta(text="<"),
            event + loopback.delta(text=">") + loopback.block_stop() + loopback.done(),
        )
    )
    assert said(await ask(connect())) == f"<{shown}>"


# --- what is not the API's format --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"type": "content_block_delta", "ind', id="truncated"),
        pytest.param(b"upstream timed out", id="no JSON"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b'{"index": 0}', id="no type"),
        pytest.param(b'{"type": 5}', id="type is a number"),
        pytest.param(
            b'{"type": "content_block_start", "content_block": {}}', id="block without type"
        ),
        pytest.param(
            b'{"type": "content_block_start", "content_block": {"type": "text", "text": 7}}',
            id="text is a number",
        ),
        pytest.param(
            b'{"delta": {"text": "\\ud83d"}, "type": 5}', id="half a pair and a wrong type"
        ),
        pytest.param(b'{"type": NaN}', id="NaN"),
        pytest.param(b'{"type": "x", "a": ' + b"[" * 100_000, id="nested without end"),
    ],
)
async def test_what_breaks_the_format_is_malformed(server, connect, data):
    server.answer(
        Reply(
            loopback.message_start(),
            loopback.text("Hi."),
            b"event: content_block_delta\ndata: " + data + b"\n\n",
            loopback.done(),
        )
    )
    error, items = await fail(connect())
    assert error.kind == "malformed"
    assert said(items) == "Hi."
    assert "proxy" in error.remedy
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    "partial_json", ['{"command":"ls', '{"command":"ls"}}}', "[1]", '"ls"', "null", '{"a":NaN}']
)
async def test_tool_input_that_is_no_json_object_is_told_and_ends_nothing(
    server, connect, partial_json
):
    server.answer(
        Reply(
            loopback.message_start(), loopback.tool_use("t1", "bash", partial_json), loopback.done()
        )
    )
    error, items = await run_out(connect())
    assert error is None
    [done] = [item for item in items if isinstance(item, BlockDone)]
    assert done.block == ToolUse("t1", "bash", {})
    assert "must be a JSON object" in done.problem
    assert partial_json in done.problem


async def test_tool_input_that_is_broken_and_long_is_shown_in_part(server, connect):
    partial_json = '{"content":"' + "x" * 100_000
    server.answer(
        Reply(
            loopback.message_start(),
            loopback.tool_use("t1", "write", partial_json),
            loopback.done(),
        )
    )
    _, items = await run_out(connect())
    [done] = [item for item in items if isinstance(item, BlockDone)]
    assert len(done.problem) < 1000
    assert done.problem.endswith("x…")


async def test_html_page_instead_of_a_stream_is_malformed(server, connect):
    server.answer(Reply(loopback.HTML, content_type="text/html; charset=utf-8"))
    error, items = await run_out(connect())
    assert error is not None, "the stream just ended: the person would read of an answer cut off"
    assert (error.kind, items) == ("malformed", [])


async def test_json_document_instead_of_a_stream_is_malformed(server, connect):
    server.answer(Reply(b'{"type": "message", "content": []}', content_type="application/json"))
    error, items = await run_out(connect())
    assert error is not None, "the stream just ended: the person would read of an answer cut off"
    assert (error.kind, items) == ("malformed", [])


# --- answers that do not reach their end -------------------------------------------------------------------------------

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    "said", [STREAM_HEAD + b"zz\r\nhello\r\n", b"x" * 200_000], ids=["chunk", "head without end"]
)
async def test_what_breaks_http_is_malformed_and_not_out_of_reach(server, connect, said):
    server.answer(Verbatim(said, HANG_UP))
    error, _ = await fail(connect())
    assert error.kind == "malformed"
    assert "base_url" in error.remedy


BEGINNING = loopback.message_start() + loopback.block_start() + loopback.delta(text="Good mor")


async def test_end_without_message_stop_is_no_end_of_the_reply(server, connect):
    server.answer(Reply(BEGINNING))
    items = await ask(connect())
    assert said(items) == "Good mor"
    assert not any(isinstance(item, ReplyDone) for item in items)


@pytest.mark.parametrize("ending", [RESET, HANG_UP], ids=["RST", "FIN"])
async def test_connection_that_breaks_mid_stream_is_cut(server, connect, ending):
    server.answer(Reply(BEGINNING, Wait(0.05), ending))
    error, items = await fail(connect())
    assert (error.kind, error.is_temporary) == ("cut", True)
    assert said(items) == "Good mor"
    assert str(error) == error.message != ""


async def test_connection_that_breaks_before_the_answer_is_a_network_error(server, connect):
    server.answer(Reply(RESET))
    error, items = await fail(connect())
    assert (error.kind, error.is_temporary, items) == ("network", True, [])
    assert error.message
    assert error.remedy


@pytest.mark.parametrize(
    "error_type, kind",
    [
        ("overloaded_error", "overloaded"),
        ("api_error", "server"),
        ("timeout_error", "server"),
        ("rate_limit_error", "rate_limited"),
        ("authentication_error", "auth"),
        ("permission_error", "auth"),
        ("billing_error", "auth"),
        ("invalid_request_error", "invalid_request"),
        ("request_too_large", "context_full"),
        ("an_error_of_a_later_api", "server"),
    ],
)
async def test_error_event_mid_stream_is_told_by_its_type(server, connect, error_type, kind):
    server.answer(Reply(BEGINNING, loopback.error(error_type, "the words of the API")))
    error, items = await fail(connect())
    assert error.kind == kind
    assert error.is_temporary is (kind in {"overloaded", "server", "rate_limited"})
    assert kind == "overloaded" or "the words of the API" in error.message
    assert error.remedy
    assert said(items) == "Good mor"


async def test_silence_longer_than_the_idle_timeout_is_stalled(server, connect):
    server.answer(Reply(BEGINNING, STALL))
    error, items = await fail(connect(idle_timeout_s=0.6))
    assert error.kind == "stalled"
    assert "0.6 s" in error.message
    assert said(items) == "Good mor"


async def test_silence_before_the_first_byte_is_stalled(server, connect):
    server.answer(Reply(Wait(5)))
    error, _ = await fail(connect(idle_timeout_s=0.3))
    assert error.kind == "stalled"


@prove
async def test_pings_keep_a_silent_answer_alive(server, connect):
    pings: list[Step] = []
    for _ in range(14):
        pings += [Wait(0.2), loopback.ping()]
    server.answer(Reply(BEGINNING, *pings, loopback.block_stop() + loopback.done()))
    assert (await ask(connect(idle_timeout_s=2)))[-1] == ReplyDone("end_turn")


# --- requests that the API refuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer, kind, in_message, in_remedy",
    prove_rest(
        [
            (
                Status(401, message="invalid bearer token"),
                "auth",
                "invalid bearer token",
                "ANTHROPIC_API_KEY",
            ),
            (Status(403, message="not for you"), "auth", "not for you", "ANTHROPIC_API_KEY"),
            (
                Status(404, message="model: claude-test"),
                "invalid_request",
                "model: claude-test",
                "base_url",
            ),
            (
                Status(400, message="too long by 7 tokens"),
                "invalid_request",
                "too long by 7 tokens",
                "prompt",
            ),
            (
                Status(400, message="prompt is too long: 200001 tokens > 200000 maximum"),
                "context_full",
                "200001 tokens",
                "/compact",
            ),
            (Status(413, message="over 32 MB"), "context_full", "over 32 MB", "/compact"),
            (Status(402, "billing_error", "no credit"), "auth", "cannot pay", "credit"),
            (Status(408, body=b"", content_type="text/plain"), "server", "408", "continue"),
            (Status(409, "invalid_request_error", "busy"), "server", "busy", "continue"),
            (
                Status(429, message="slow down", retry_after=7),
                "rate_limited",
                "slow down",
                "for 7 s",
            ),
            (Status(429, message="slow down"), "rate_limited", "slow down", "continue"),
            (Status(500, message="oh no"), "server", "oh no", "continue"),
            (Status(503, "overloaded_error"), "overloaded", "overloaded", "continue"),
            (Status(529), "overloaded", "overloaded", "continue"),
            (
                Status(502, body=loopback.HTML, content_type="text/html"),
                "server",
                "502",
                "continue",
            ),
            (Status(503, body=b"", content_type="text/plain"), "server", "503", "continue"),
            (Status(407, body=b"", content_type="text/plain"), "invalid_request", "407", "proxy"),
        ],
        keep=(0, 4, 9, 13, -1),
    ),
    ids=[
        *("401", "403", "404", "400", "400 too long", "413", "402", "408 empty", "409"),
        *("429 in 7 s", "429", "500", "503 overloaded", "529", "502 as HTML", "503 empty"),
        "407 empty",
    ],
)
async def test_status_becomes_a_sentence_and_a_remedy(  # noqa: PLR0917
    server, connect, answer, kind, in_message, in_remedy
):
    server.answer(answer)
    error, items = await fail(connect())
    assert error.kind == kind
    assert error.is_temporary is (kind in {"rate_limited", "overloaded", "server"})
    assert in_message in error.message
    assert in_remedy in error.remedy
    assert "again" not in error.remedy, "whoever reads it has waited for every retry"
    assert error.remedy.endswith(".")
    assert error.message.endswith(".")
    assert "\n" not in error.message, "a sentence, not a page"
    assert items == []


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_kept_in_seconds(server, connect, headers, seconds):
    server.answer(Status(429, headers=headers))
    error, _ = await fail(connect())
    assert error.retry_after_s == seconds


async def test_refused_connection_is_a_network_error_that_names_the_host(connect, unused_port):
    error, _ = await fail(connect(base_url=f"http://127.0.0.1:{unused_port}"))
    assert (error.kind, error.is_temporary) == ("network", True)
    assert "127.0.0.1" in error.message
    assert "network" in error.remedy


async def test_without_a_key_the_remedy_is_to_set_one(server, connect, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    error, _ = await fail(connect(provider="anthropic"))
    assert error.kind == "no_key"
    assert "ANTHROPIC_API_KEY" in error.remedy
    assert server.prompts == []


async def test_name_that_nobody_knows_is_a_temporary_network_error(connect):
    error, _ = await fail(connect(base_url="http://nowhere.invalid"))
    assert (error.kind, error.is_temporary) == ("network", True)
    assert "nowhere.invalid" in error.message


@pytest.mark.parametrize(
    "body", [b"zzz\r\n", b"5\r\nabcdefgh\r\n", b"-1\r\n"], ids=["size", "length", "negative size"]
)
async def test_chunks_that_are_none_are_temporary(server, connect, body):
    server.answer(Verbatim(STREAM_HEAD, b"%x\r\n%b\r\n" % (len(BEGINNING), BEGINNING), body))
    error, items = await fail(connect())
    assert (error.kind, error.is_temporary) == ("cut", True)
    assert said(items) == "Good mor"


async def test_compressed_body_that_is_none_is_malformed(server, connect):
    head = STREAM_HEAD.replace(b"transfer-encoding: chunked", b"content-encoding: gzip")
    server.answer(Verbatim(head, BEGINNING, HANG_UP))
    error, _ = await fail(connect())
    assert (error.kind, error.is_temporary) == ("malformed", True)


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[LoopbackServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with LoopbackServer(context) as server:
        yield server


async def test_certificate_that_nobody_vouches_for_is_told_at_once(tls_server, connect):
    error, _ = await fail(connect(base_url=tls_server.url))
    assert (error.kind, error.is_temporary) == ("network", False)
    assert "certificate" in error.message
    assert "SSL_CERT_FILE" in error.remedy
    assert tls_server.requests == []


async def test_certificate_that_the_environment_names_is_good(
    tls_server, connect, certificate, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert (await ask(connect(base_url=tls_server.url)))[-1] == ReplyDone("end_turn")


async def test_server_without_tls_is_told_at_once(connect):
    async def refuse(peer: anyio.abc.SocketStream) -> None:
        async with peer:
            await peer.receive()
            await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with anyio.create_task_group() as tasks:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        tasks.start_soon(listener.serve, refuse)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        error, _ = await fail(connect(base_url=f"https://127.0.0.1:{port}"))
        tasks.cancel_scope.cancel()
    await listener.aclose()
    assert (error.kind, error.is_temporary) == ("network", False)
    assert f"127.0.0.1:{port} does not speak TLS" in error.message
    assert "use http:// in base_url" in error.remedy


ALERT = bytes.fromhex("15030100020246")


async def test_server_that_answers_in_tls_alone_is_told_at_once(connect):
    async def refuse(peer: anyio.abc.SocketStream) -> None:
        async with peer:
            await peer.receive()
            await peer.send(ALERT)

    async with anyio.create_task_group() as tasks:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        tasks.start_soon(listener.serve, refuse)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        error, _ = await fail(connect(base_url=f"http://127.0.0.1:{port}"))
        tasks.cancel_scope.cancel()
    await listener.aclose()
    assert (error.kind, error.is_temporary) == ("network", False)
    assert f"127.0.0.1:{port} does not answer in HTTP" in error.message
    assert "use https:// in base_url" in error.remedy


async def test_server_that_is_silent_in_the_handshake_is_tried_again(connect, monkeypatch):
    monkeypatch.setattr(setup, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error, _ = await fail(connect(base_url=f"https://127.0.0.1:{port}"))
    assert (error.kind, error.is_temporary) == ("network", True)


@pytest.mark.parametrize("status, is_temporary", [(407, False), (403, False), (502, True)])
async def test_proxy_that_refuses_is_told(server, connect, monkeypatch, status, is_temporary):
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTPS_PROXY", server.url)
    server.tunnel_answer = Status(status)
    error, _ = await fail(connect(base_url="https://api.invalid"))
    assert (error.kind, error.is_temporary) == ("network", is_temporary)
    assert str(status) in error.message
    assert "proxy" in error.remedy


# --- cancelling --------------------------------------------------------------------------------------------------------


async def test_cancelling_mid_stream_closes_the_connection_and_the_next_request_works(
    server, connect
):
    server.answer(Reply(BEGINNING, STALL), loopback.hello())
    provider = connect()
    with anyio.fail_after(DEADLINE_S):
        with anyio.CancelScope() as scope:
            async with aclosing(provider.stream(ModelRequest("Be brief.", HISTORY))) as stream:
                async for item in stream:
                    if isinstance(item, TextPiece):
                        scope.cancel()
        assert scope.cancelled_caught
        await happens(lambda: server.prompts[0].closed_at)
        assert (await ask(provider))[-1] == ReplyDone("end_turn")


async def test_answer_that_is_complete_does_not_wait_for_a_server_that_keeps_the_stream_open(
    server, connect
):
    server.answer(Reply(loopback.message_start(), loopback.text("Hi."), loopback.done(), STALL))
    assert (await ask(connect()))[-1] == ReplyDone("end_turn")


# --- limits ------------------------------------------------------------------------------------------------------------


async def test_limits_are_learned_and_lower_max_tokens(server, connect):
    server.model_answer = loopback.model_info(200_000, 8_192)
    provider = connect()
    await provider.learn_limits()
    await ask(provider)
    assert provider.limits == ModelLimits(200_000, 8_192)
    assert server.requests[0].path == "/v1/models/claude-test"
    assert server.prompts[0].json()["max_tokens"] == 8_192


@pytest.mark.parametrize(
    "answer", [Status(404), Status(200, body=b'{"id": "m"}')], ids=["unknown", "no limits"]
)
async def test_another_servers_window_is_found_in_its_list(tmp_path, answer):
    """As of llama.cpp, whose list has `meta.n_ctx`."""

    class Listing(LoopbackServer):
        def answer_to(self, request: Request) -> Answer:
            if request.path == "/v1/models":
                listed = [{"id": "m", "object": "model", "meta": {"n_ctx": 8192}}]
                return Status(200, body=json.dumps({"object": "list", "data": listed}).encode())
            return super().answer_to(request)

    with Listing() as server:
        server.model_answer = answer
        table = {"here": {"wire": "anthropic", "base_url": server.url}}
        provider = AnthropicProvider(Settings(str(tmp_path)), load_endpoint("here", table), "m")
        await provider.learn_limits()
        assert provider.limits == ModelLimits(8192)
        await provider.aclose()


async def test_limits_do_not_raise_what_the_user_wants(server, connect):
    provider = connect(max_tokens=100)
    await provider.learn_limits()
    await ask(provider)
    assert server.prompts[0].json()["max_tokens"] == 100


@pytest.mark.parametrize(
    "answer",
    prove_rest(
        [
            pytest.param(Status(404), id="404"),
            pytest.param(Status(500), id="500"),
            pytest.param(Status(200, body=b"{}"), id="empty object"),
            pytest.param(Status(200, body=loopback.HTML, content_type="text/html"), id="HTML"),
            pytest.param(Status(200, body=b'{"id": "m'), id="truncated"),
            pytest.param(Status(200, body=b"[]"), id="array"),
            pytest.param(loopback.model_info("many", "some"), id="words"),
            pytest.param(loopback.model_info(None, None), id="null"),
            pytest.param(Reply(RESET), id="RST"),
        ]
    ),
)
async def test_limits_that_the_server_does_not_tell_are_passed_over(server, connect, answer):
    server.model_answer = answer
    provider = connect()
    with anyio.fail_after(DEADLINE_S):
        await provider.learn_limits()
    assert provider.limits == ModelLimits()
    assert (await ask(provider))[-1] == ReplyDone("end_turn")
    assert server.prompts[0].json()["max_tokens"] == 32_000


async def test_limits_are_asked_for_again_when_a_short_turn_cancelled_the_question(server, connect):
    server.model_answer = Reply(STALL)
    provider = connect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.learn_limits)
        await happens(lambda: server.requests)
        tasks.cancel_scope.cancel()
    assert provider.limits is None


async def test_limits_that_are_told_after_the_model_was_changed_are_not_the_new_ones(
    server, connect
):
    told = b'{"max_input_tokens": 1, "max_tokens": 1}'
    server.model_answer = Reply(Wait(0.2), told, content_type="application/json")
    provider = connect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.learn_limits)
        await happens(lambda: server.requests)
        provider.set_model("claude-other")
    assert provider.limits is None


# --- models ------------------------------------------------------------------------------------------------------------


async def test_another_model_is_asked_from_the_next_request_on(server, connect):
    provider = connect()
    await provider.learn_limits()
    await ask(provider)
    provider.set_model("claude/other")
    assert (provider.model, provider.limits) == ("claude/other", None)
    await ask(provider)
    assert [request.json()["model"] for request in server.prompts] == [
        "claude-test",
        "claude/other",
    ]
    await provider.learn_limits()
    assert server.requests[-1].path == "/v1/models/claude%2Fother"


async def test_models_of_all_pages_are_listed_newest_first(server, connect):
    server.model_pages = deque(
        [
            loopback.model_page("claude-9", "claude-8", has_more=True),
            loopback.model_page("claude-8", "claude-7"),
        ]
    )
    assert await connect().list_models() == ("claude-9", "claude-8", "claude-7")
    assert [request.path for request in server.requests] == [
        "/v1/models?limit=1000",
        "/v1/models?limit=1000&after_id=claude-8",
    ]


async def test_page_of_models_that_comes_again_and_again_is_the_last(server, connect):
    server.model_pages = deque([loopback.model_page("claude-9", has_more=True)])
    assert await connect().list_models() == ("claude-9",)


@pytest.mark.parametrize(
    "answer, kind",
    [
        (Status(401), "auth"),
        (Status(200, body=b"[]"), "malformed"),
        (Status(200, body=loopback.HTML), "malformed"),
        (Reply(RESET), "network"),
        (Reply(STALL), "stalled"),
    ],
    ids=["401", "array", "HTML", "RST", "silence"],
)
async def test_models_that_are_not_listed_are_an_error(server, connect, answer, kind):
    server.model_pages = deque([answer])
    with pytest.raises(ProviderError) as caught:
        await connect(idle_timeout_s=0.5).list_models()
    assert caught.value.kind == kind


# --- the key -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [loopback.hello(), Status(401), Status(500), Reply(BEGINNING, RESET)],
    ids=["200", "401", "500", "RST"],
)
async def test_key_is_in_no_log_record_and_no_error(server, connect, caplog, answer):
    caplog.set_level(logging.DEBUG)
    server.answer(answer)
    provider = connect()
    await provider.learn_limits()
    error, _ = await run_out(provider)
    assert caplog.records, "the test would prove nothing"
    for record in caplog.records:
        assert KEY not in record.getMessage()
        assert KEY not in repr(record.__dict__)
    assert error is None or KEY not in f"{error!r} {error.message} {error.remedy}"


async def test_modules_that_cannot_be_loaded_are_told_in_a_sentence(connect, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)  # what imports it is an ImportError
    error, items = await fail(connect())
    assert (error.kind, error.is_temporary, items) == ("internal", False, [])
    assert error.message.startswith(
        "The modules that talk to the API cannot be loaded (import of httpx2"
    )
    assert "make install" in error.remedy
