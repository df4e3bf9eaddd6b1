"""Hostile servers over HTTP, and hostile logins: what they answer is bounded, and nobody is led to where they want."""

import logging
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from sanderling.mcp.callback import waiting_for_browser
from sanderling.mcp.http import over_http
from sanderling.mcp.logins import ServerLogin
from sanderling.mcp.problems import ServerError, why
from sanderling.mcp.servers import ServerAddress
from tests.conftest import prove, prove_rest
from tests.mcp.hostile_http import Asked, Hostile, Reply, hostile_over_http
from tests.mcp.test_login import PAGE, browse, log_in

COUNTLESS = b'{"content":[],"structuredContent":{"a":[' + b"[]," * 1_000_000 + b"[]]}}"
EVENTS = {"Content-Type": "text/event-stream"}


async def called(server: Hostile) -> str:
    """What becomes of a call."""
    from mcp import Client  # half a second, for whoever needs it

    async with Client(
        over_http(ServerAddress(server.url), {}, lambda _: True), mode="legacy", cache=None
    ) as client:
        try:
            return str(await client.call_tool("x", {}))
        except Exception as error:  # noqa: BLE001
            return why(error)


@pytest.mark.parametrize("how", ["json", "events"])
async def test_an_answer_of_countless_values_is_an_error_before_they_are_made(how):
    async with hostile_over_http() as server:

        def answer(asked: Asked) -> Reply:
            if asked.message.get("method") != "tools/call":
                return server.take_message(asked)
            number = str(asked.message["id"]).encode()
            body = b'{"jsonrpc":"2.0","id":' + number + b',"result":' + COUNTLESS + b"}"
            if how == "json":
                return Reply(body)
            return Reply(b"event: message\r\ndata: " + body + b"\r\n\r\n", headers=EVENTS)

        server.routes["/mcp"] = answer
        assert "more than 100,000 values" in await called(server)


OK = b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"4711"}]}}'


@prove
@pytest.mark.parametrize("how", ["json", "events"])
@pytest.mark.parametrize(
    "line, words",
    [
        (OK.replace(b"4711", rb"4711 \ud83d."), "4711 \ufffd."),
        (OK[:-2] + b',"structuredContent":{"a":NaN}}}', "None"),
        (OK.replace(b"ID", b"ID.0"), "4711"),
        (b'[{"jsonrpc":"2.0","method":"notifications/progress"},' + OK + b"]", "4711"),
        (b'{"jsonrpc":"2.0","id":ID,"result":null}', "its result is null, not an object"),
        (b'{"jsonrpc":"2.0","id":ID,"error":{"code":"E","message":"no room"}}', "E: no room"),
    ],
)
async def test_an_answer_that_is_not_quite_one_is_read(how, line, words):
    async with hostile_over_http() as server:

        def answer(asked: Asked) -> Reply:
            if asked.message.get("method") != "tools/call":
                return server.take_message(asked)
            body = line.replace(b"ID", str(asked.message["id"]).encode())
            if how == "json":
                return Reply(body)
            return Reply(b"event: message\r\ndata: " + body + b"\r\n\r\n", headers=EVENTS)

        server.routes["/mcp"] = answer
        assert words in await called(server)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"result":{"content":[]}}',
        b"[" * 100_000,
    ],
)
async def test_what_is_no_message_costs_the_call_and_nothing_else(body):
    async with hostile_over_http() as server:
        server.called = Reply(body)
        assert "Failed to parse JSON response" in await called(server)


@pytest.mark.parametrize(
    "reply, words",
    [
        (Reply(b"Only at localhost:1", 403), "it answered 403 Forbidden: Only at localhost:1"),
        (
            Reply(b"<html><title>Not here</title>", 403, {"Content-Type": "text/html"}),
            "it answered 403 Forbidden: Not here",
        ),
        (Reply(b"", 502), "it answered 502 Bad Gateway"),
        (Reply({"id": None, "error": {"code": -32602, "message": "bad x"}}, 400), "bad x"),
    ],
)
async def test_an_error_response_is_reported_with_its_status_and_first_words(reply, words):
    async with hostile_over_http() as server:
        server.called = reply
        assert await called(server) == words


@pytest.fixture(autouse=True)
def _keychain(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("KEYCHAIN_FILE", str(tmp_path / "keychain.json"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.keychain.FileKeychain")


class Wanting:
    """What a server that wants a login says, so that a test changes a part of it."""

    def __init__(self, server: Hostile, state_dir: Path) -> None:
        self.server = server
        self.state_dir = state_dir
        self.added = ""  # to what the browser brings
        origin = server.origin
        self.resource = {"resource": server.url, "authorization_servers": [f"{origin}/"]}
        self.metadata = {
            "issuer": f"{origin}/",
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
            "response_types_supported": ["code"],
        }
        self.tokens = Reply(
            {"access_token": "secret-a", "refresh_token": "secret-r", "token_type": "Bearer"}
        )
        self.challenge = f'Bearer resource_metadata="{origin}/resource"'
        server.routes |= {
            "/mcp": self.take,
            "/resource": lambda _: Reply(self.resource),
            "/.well-known/oauth-authorization-server": lambda _: Reply(self.metadata),
            "/register": lambda asked: Reply({"client_id": "c", **asked.message}, 201),
            "/authorize": self._send_back,
            "/token": lambda _: self.tokens,
        }

    def take(self, asked: Asked) -> Reply:
        if "authorization" in asked.headers:
            return self.server.take_message(asked)
        return Reply(status=401, headers={"WWW-Authenticate": self.challenge})

    def _send_back(self, asked: Asked) -> Reply:
        query = {name: each for name, [each] in parse_qs(urlsplit(asked.path).query).items()}
        location = f"{query['redirect_uri']}?code=k&state={query['state']}{self.added}"
        return Reply(status=302, headers={"Location": location})


@pytest.fixture
def wanting_server(tmp_path):
    """A server that wants a login, as long as the test is in it."""

    @asynccontextmanager
    async def running():
        async with hostile_over_http() as server:
            yield Wanting(server, tmp_path / "state")

    return running


async def test_a_login_at_one_that_is_right_works(wanting_server):
    async with wanting_server() as wanting:
        await log_in(wanting.server.url, wanting.state_dir)
        [asked] = wanting.server.of("/token")
        assert asked.form["resource"] == wanting.server.url
        assert asked.form["code_verifier"]


async def refused(wanting: Wanting) -> str:
    """Why the login is not made; nothing was sent for a token, and nothing is kept."""
    with pytest.raises(ServerError) as error:
        await log_in(wanting.server.url, wanting.state_dir)
    assert not ServerLogin(wanting.state_dir, "it", wanting.server.url).is_known()
    return str(error.value)


@pytest.mark.parametrize("path", ["/resource", "/.well-known/oauth-authorization-server"])
@pytest.mark.parametrize("size", ["giant", "slow"])
async def test_a_document_is_small_and_comes_soon(wanting_server, path, size, monkeypatch):
    async with wanting_server() as wanting:
        monkeypatch.setattr("sanderling.mcp.http.DOCUMENT_S", 0.2)
        slow, giant = Reply(b"x" * 1000, pause_s=0.05), Reply(b"[" * (1 << 20))
        wanting.server.routes[path] = slow if size == "slow" else giant
        told = {"giant": "more than 262,144 bytes", "slow": "did not arrive"}
        assert told[size] in await refused(wanting)


@pytest.mark.parametrize(
    "key, place, told",
    [
        ("authorization_endpoint", "http://192.168.1.1/reboot", "is not allowed"),
        ("authorization_endpoint", "https://other.example/authorize", "the result would go to"),
        ("issuer", "https://other.example/", "issuer mismatch"),
        ("token_endpoint", "http://other.example/token", "its login would be sent"),
        ("registration_endpoint", "http://other.example/", "its login would be sent"),
    ],
)
async def test_a_login_leads_to_where_it_began(wanting_server, key, place, told):
    async with wanting_server() as wanting:
        wanting.metadata[key] = place
        assert told in await refused(wanting)
        assert wanting.server.of("/token") == []


async def test_a_resource_that_is_another_one_is_refused(wanting_server):
    async with wanting_server() as wanting:
        wanting.resource["resource"] = "https://other.example/mcp"
        assert "does not match" in await refused(wanting)


async def test_a_document_does_not_lead_elsewhere(wanting_server):
    async with wanting_server() as wanting, hostile_over_http() as other:
        wanting.server.routes["/resource"] = Reply(status=307, headers={"Location": other.url})
        await log_in(wanting.server.url, wanting.state_dir)
        assert other.asked == []


async def test_a_code_of_another_issuer_is_refused(wanting_server):
    async with wanting_server() as wanting:
        wanting.added = "&iss=https%3A%2F%2Fother.example%2F"
        assert "iss mismatch" in await refused(wanting)
        assert wanting.server.of("/token") == []


async def test_a_login_without_proof_of_who_began_it_is_refused(wanting_server):
    async with wanting_server() as wanting:
        wanting.metadata["code_challenge_methods_supported"] = ["plain"]
        assert "no PKCE" in await refused(wanting)


@pytest.mark.parametrize(
    "reply",
    prove_rest(
        [
            Reply({"access_token": "secret-a", "refresh_token": "secret-r"}, 202),
            Reply({"access_token": ["secret-a"], "refresh_token": "secret-r"}),
            Reply(b"secret-r", 500),
        ]
    ),
)
async def test_what_a_token_endpoint_answers_is_not_told(wanting_server, reply, caplog):
    async with wanting_server() as wanting:
        caplog.set_level(logging.DEBUG)
        wanting.tokens = reply
        told = await refused(wanting)
        assert told == f"it gave no token (HTTP {reply.status})"
        assert "secret-" not in caplog.text


async def test_a_redirect_takes_no_token_elsewhere(wanting_server):
    async with wanting_server() as wanting, hostile_over_http() as other:

        def take(asked: Asked) -> Reply:
            if "authorization" not in asked.headers:
                return wanting.take(asked)
            return Reply(status=307, headers={"Location": other.url})

        wanting.server.routes["/mcp"] = take
        with pytest.raises(ServerError, match="not followed"):
            await log_in(wanting.server.url, wanting.state_dir)
        assert other.asked == []


@pytest.mark.parametrize(
    "line", [b"GET http://[ HTTP/1.1", b"GET //[/callback?state=right HTTP/1.1", b"\0", b"GET"]
)
async def test_another_program_of_this_machine_does_not_end_a_login(line):
    async with waiting_for_browser() as callback:
        callback.expect(PAGE)
        port = urlsplit(callback.redirect_uri).port
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(line + b"\r\n\r\n")
        assert (await browse(f"{callback.redirect_uri}?code=c&state=right")).status_code == 200
