"""Servers over HTTP: what the connection lets through, and what becomes of it."""

from contextlib import asynccontextmanager

import anyio
import pytest

from sanderling.errors import ConfigError
from sanderling.mcp.problems import ServerError
from sanderling.mcp.servers import ServerAddress
from sanderling.protocol.events import Notice
from tests.conftest import prove, prove_rest
from tests.mcp.talk import everything_over_http, notes_over_http, says, talking, uses


@pytest.mark.parametrize(
    "url, problem",
    [
        ("ftp://a.b/mcp", "https://host/path"),
        ("https://", "https://host/path"),
        ("https://a.b:99999/", "https://host/path"),
        ("https://2130706433/", "https://host/path"),
        ("https://me:pw@a.b/", "no password"),
        ("https://a.b/#x", "no password and no #"),
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url, problem):
    with pytest.raises(ConfigError, match=problem):
        ServerAddress(url)


def test_headers_are_not_sent_where_everybody_could_read_them():
    with pytest.raises(ConfigError, match="use https"):
        ServerAddress("http://a.example/mcp", has_secrets=True)
    ServerAddress("http://127.0.0.1/mcp", has_secrets=True)
    ServerAddress("http://a.example/mcp")


@pytest.mark.parametrize(
    "url, host, address, is_let",
    [
        ("https://a.example/", "a.example", "93.184.216.34", True),
        ("https://a.example/", "a.example", "127.0.0.1", False),
        ("https://a.example/", "a.example", "10.1.2.3", False),
        ("https://a.example/", "a.example", "169.254.169.254", False),
        ("https://a.example/", "a.example", "::1", False),
        ("https://10.1.2.3/", "10.1.2.3", "10.1.2.3", True),
        ("http://localhost/", "localhost", "127.0.0.1", True),
        ("http://127.0.0.1/", "127.0.0.1", "127.0.0.1", True),
        ("http://localhost/", "auth.example", "127.0.0.1", False),
        ("http://localhost/", "localhost", "10.1.2.3", False),
    ],
)
def test_a_name_leads_to_the_internet_or_where_the_url_says(url, host, address, is_let):
    assert ServerAddress(url).may_be_at(host, address, 443) is is_let


def test_an_address_in_a_network_around_can_be_declared():
    place = ServerAddress("https://intra.example/", ("10.1.2.3", "intra.example"))
    assert place.may_be_at("intra.example", "10.1.2.3", 443)
    assert not place.may_be_at("intra.example", "10.1.2.4", 443)


@pytest.mark.parametrize(
    "scheme, host, port, is_own",
    [
        ("https", "a.example", 443, True),
        ("https", "a.example", 8443, False),
        ("http", "a.example", 80, False),
        ("https", "b.example", 443, False),
    ],
)
def test_headers_are_for_the_servers_own_origin(scheme, host, port, is_own):
    assert ServerAddress("https://a.example/mcp").is_own(scheme, host, port) is is_own


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


ALLOWED = ({"action": "allow", "tool": "mcp__it__*"},)


@pytest.mark.parametrize(
    "how", prove_rest([(), ("json",)], keep=(0,), is_one=True), ids=["events", "json"]
)
async def test_a_server_over_http_is_called_with_its_headers(
    tmp_path, unused_port, monkeypatch, how
):
    monkeypatch.setenv("NOTES_KEY", "secret-of-notes")
    with notes_over_http(unused_port, *how) as url:
        servers = {"it": {"url": url, "headers": {"X-Key": "$NOTES_KEY"}}}
        script = (uses("mcp__it__echo", text="hello"), uses("mcp__it__headers"), says("Done."))
        async with talking(tmp_path, *script, mcp_servers=servers, permissions=ALLOWED) as talk:
            ready = await talk.state("it", "ready")
            assert ready.era == "2026-07-28"
            await talk.say("go")
            echoed, headers = talk.results()
            assert echoed.startswith("hello")
            assert "x-key: secret-of-notes" in headers
            assert "accept-encoding: identity" in headers
            assert "secret-of-notes" not in repr(talk.of(Notice)) + repr(
                talk.services.servers.shown()
            )


@pytest.mark.parametrize("value", ["secret\r\nX-More: 1", "secret-é"])
async def test_a_header_that_none_can_be_is_told_without_it(tmp_path, monkeypatch, value):
    monkeypatch.setenv("NOTES_KEY", value)
    servers = {"it": {"url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": "$NOTES_KEY"}}}
    async with talking(tmp_path, mcp_servers=servers) as talk:
        failed = await talk.state("it", "failed")
        assert failed.why == "the header X-Key contains an invalid character"
        assert "secret" not in repr(talk.events)


@prove
async def test_a_server_that_ends_is_there_again_when_it_is(tmp_path, unused_port):
    servers = {"it": {"url": f"http://127.0.0.1:{unused_port}/mcp"}}
    script = (uses("mcp__it__echo", text="one"), says("Done."), uses("mcp__it__echo", text="two"))
    async with talking(tmp_path, *script, mcp_servers=servers, permissions=ALLOWED) as talk:
        with notes_over_http(unused_port):
            talk.agent.services.servers.source.servers["it"].restart()
            await talk.state("it", "ready")
            await talk.say("go")
        server = talk.services.servers.source.servers["it"]
        with pytest.raises(Exception, match=r"cannot be reached|ended meanwhile"):
            await server.call("echo", {"text": "nobody"})
        assert "cannot be reached" in (await talk.state("it", "restarting")).why
        with notes_over_http(unused_port):
            await talk.state("it", "ready")
            await talk.say("go on")
        assert [result.partition("\n")[0] for result in talk.results()] == ["one", "two"]


@prove
async def test_a_server_that_has_failed_is_tried_again_when_it_is_called(
    tmp_path, unused_port, monkeypatch
):
    monkeypatch.setattr("sanderling.mcp.server.MAX_FAILURES", 1)
    servers = {"it": {"url": f"http://127.0.0.1:{unused_port}/mcp"}}
    async with talking(tmp_path, mcp_servers=servers) as talk:
        failed = await talk.state("it", "failed")
        assert f"127.0.0.1:{unused_port} cannot be reached" in failed.why
        with notes_over_http(unused_port):
            result = await talk.services.servers.source.servers["it"].call(
                "echo", {"text": "again"}
            )
        assert result.content[0].text == "again"


async def test_without_the_network_it_says_what_opens_it(tmp_path):
    servers = {"it": {"url": "https://mcp.example/mcp"}}
    async with talking(tmp_path, mcp_servers=servers) as talk:
        failed = await talk.state("it", "failed")
        assert failed.why == (
            "mcp.example:443 is blocked: `:AgentNet on` opens the network, or add it to the server's `hosts`"
        )
        notices = [notice.text for notice in talk.of(Notice) if "mcp.example" in notice.text]
        assert len(notices) == 1


async def test_a_name_that_leads_to_this_machine_is_refused(tmp_path, monkeypatch):
    async def found(_, port, **__):
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("sanderling.mcp.http.anyio.getaddrinfo", found)
    servers = {"it": {"url": "https://mcp.example/mcp", "hosts": ["mcp.example"]}}
    async with talking(tmp_path, mcp_servers=servers) as talk:
        failed = await talk.state("it", "failed")
        assert "mcp.example leads to 127.0.0.1, which is not on the internet" in failed.why


def test_hosts_of_a_server_that_are_none_are_told():
    with pytest.raises(ConfigError, match="in its hosts, 'no host' is not a host"):
        ServerAddress("https://a.example", ("no host",))


@pytest.mark.parametrize(
    "status, headers, told",
    prove_rest(
        [
            (307, {"Location": "http://127.0.0.1:1/elsewhere"}, "not followed"),
            (401, {}, "it requires a login"),
            (200, {"Content-Encoding": "gzip"}, "it compresses its answers"),
            (200, {"Content-Type": "text/html"}, "Unexpected content type"),
        ]
    ),
)
async def test_an_answer_that_is_none_is_told(tmp_path, status, headers, told, monkeypatch):
    monkeypatch.setattr("sanderling.mcp.server.MAX_FAILURES", 1)
    async with (
        answering(status, headers, b"x") as url,
        talking(tmp_path, mcp_servers={"it": {"url": url}}) as talk,
    ):
        assert told in (await talk.state("it", "failed")).why


async def test_a_body_without_end_costs_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("sanderling.mcp.server.MAX_FAILURES", 1)
    monkeypatch.setattr("sanderling.mcp.http.MAX_MESSAGE_BYTES", 1 << 20)
    headers = {"Content-Type": "application/json"}
    async with (
        answering(200, headers, b"[" * (8 << 20)) as url,
        talking(tmp_path, mcp_servers={"it": {"url": url}}) as talk,
    ):
        assert "it answers with more than 1,048,576 bytes" in (await talk.state("it", "failed")).why


def answering(status, headers, body):
    """A server that answers everything so."""

    async def serve(stream):
        async with stream:
            with anyio.move_on_after(10):
                head = b""
                while b"\r\n\r\n" not in head:
                    head += await stream.receive()
                lines = [f"{name}: {value}" for name, value in headers.items()]
                lines += [f"Content-Length: {len(body)}", "Connection: close"]
                await stream.send(f"HTTP/1.1 {status} X\r\n{chr(13) + chr(10)}".encode()[:-2])
                await stream.send("\r\n".join([*lines, "", ""]).encode())
                try:
                    await stream.send(body)
                except anyio.BrokenResourceError:
                    return

    @asynccontextmanager
    async def running():
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield f"http://127.0.0.1:{port}/mcp"
            tasks.cancel_scope.cancel()

    return running()


@prove
async def test_server_everything_of_npm_over_http(tmp_path, unused_port):
    script = (uses("mcp__it__echo", message="hello"), says("Done."))
    with everything_over_http(unused_port) as (url, server):
        servers = {"it": {"url": url}}
        async with talking(tmp_path, *script, mcp_servers=servers, permissions=ALLOWED) as talk:
            assert (await talk.state("it", "ready")).era == "2025-11-25"
            await talk.until(talk.services.servers.commands)
            ready = talk.services.servers.shown()[0]
            assert "it:simple-prompt" in ready.prompts
            assert any(uri.startswith("demo://") for uri in ready.resources)
            await talk.say("go")
            assert talk.results() == ["Echo: hello"]
            server.kill()
            with pytest.raises(ServerError, match=r"cannot be reached|ended meanwhile"):
                await talk.services.servers.source.servers["it"].call("echo", {"message": "x"})
            await talk.state("it", "restarting")
