"""A server that sends our own secrets back, wherever an answer has room for words: no error repeats them."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.conftest import DEADLINE_S, prove_rest

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest
from sanderling.providers.choice import make_at
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.http.provider import HttpProvider

KEY, TOKEN = "secret-key-123456789", "header-token-abcdefgh"
WIRES = ("anthropic", "chat", "responses", "ollama")
REQUEST = ModelRequest("", [Message("user", (TextBlock("hi"),))])
EVENTS, LINES = "text/event-stream", "application/x-ndjson"


class Mirror(http.server.BaseHTTPRequestHandler):
    """Answers as the server's `how` says, with the secrets of the request in the place of `%s`."""

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        sent = f"{self.headers.get('authorization')} {self.headers.get('x-api-key')} {self.headers['x-token']}"
        status, headers, body = self.server.how  # pyright: ignore[reportAttributeAccessIssue]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value.replace("%s", sent))
        self.end_headers()
        self.wfile.write(body.replace("%s", sent).encode())


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refusal(words: str) -> str:
    return json.dumps({"type": "error", "error": {"type": "api_error", "message": words}})


HOW = {
    "status": (400, {}, refusal("%s")),
    "redirect": (307, {"location": "/?%s"}, ""),
    "type": (200, {"content-type": "x/%s"}, ""),
    "encoding": (200, {"content-type": "{type}", "content-encoding": "%s"}, ""),
    "event": (200, {"content-type": EVENTS}, f"event: error\ndata: {refusal('%s')}\n\n"),
    "line": (200, {"content-type": LINES}, '{"error": "%s"}\n'),
}


def make(server: http.server.ThreadingHTTPServer, tmp_path: Path, wire: str) -> HttpProvider:
    table = {
        "wire": wire,
        "base_url": f"http://127.0.0.1:{server.server_port}",
        "api_key": "$THE_KEY",
        "headers": {"x-token": "Bearer $THE_TOKEN"},
    }
    return make_at(load_endpoint("here", {"here": table}), "m", Settings(str(tmp_path)))


async def ask(provider: HttpProvider) -> str:
    """All that the error says."""
    with anyio.fail_after(DEADLINE_S), pytest.raises(ProviderError) as caught:
        await anext(provider.stream(REQUEST))
    return f"{caught.value} {caught.value.message} {caught.value.remedy}"


@pytest.mark.parametrize("how", prove_rest(HOW, is_one=True))
@pytest.mark.parametrize("wire", WIRES)
async def test_error_has_no_secret_that_was_sent(server, tmp_path, monkeypatch, wire, how):
    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.setenv("THE_TOKEN", TOKEN)
    status, headers, body = HOW[how]
    content_type = LINES if wire == "ollama" else EVENTS
    server.how = (
        status,
        {name: value.replace("{type}", content_type) for name, value in headers.items()},
        body,
    )
    provider = make(server, tmp_path, wire)
    told = await ask(provider)
    await provider.aclose()
    assert KEY not in told
    assert TOKEN not in told


async def test_error_has_no_key_that_was_sent_before_the_one_of_now(server, tmp_path, monkeypatch):
    monkeypatch.setenv("THE_TOKEN", TOKEN)
    monkeypatch.setenv("THE_KEY", KEY)
    server.how = (400, {}, refusal(f"{KEY} %s"))
    provider = make(server, tmp_path, "anthropic")
    assert KEY not in await ask(provider)
    monkeypatch.setenv("THE_KEY", f"{KEY}-1")
    provider._key_version = -1
    told = await ask(provider)
    await provider.aclose()
    assert KEY not in told
    assert "[the key]-1" not in told
