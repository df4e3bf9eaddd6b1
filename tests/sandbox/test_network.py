"""The proxy and the name server: real sockets, real clients, and everything a hostile one may send."""

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sanderling.errors import SandboxError
from sanderling.hosts import is_public
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.environment import proxy_environment, resolver_environment
from sanderling.sandbox.network import denied
from sanderling.sandbox.network import proxy as serving
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.network.names import answer_names
from sanderling.sandbox.network.proxy import serve_proxy
from tests.conftest import DEADLINE_S, examples, happens, passes, prove

pytestmark = pytest.mark.guard

NOT_LISTED, OFF = "not_listed", "network_off"

# --- what the tests share ----------------------------------------------------------------------------------------------

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Proxy:
    port: int
    rules: HostRules
    denials: list[Denial] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def listening(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    return socket.create_server((host, 0), family=family, backlog=64)


@asynccontextmanager
async def proxy_for(*hosts: str) -> AsyncIterator[Proxy]:
    listener = listening()
    proxy = Proxy(listener.getsockname()[1], HostRules(hosts))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_proxy, listener, proxy.rules, proxy.denials.append)
        yield proxy
        assert not tasks.cancel_scope.cancel_called
        tasks.cancel_scope.cancel()
    assert listener.fileno() == -1


@asynccontextmanager
async def server_for(handler: Handler, **options: Any) -> AsyncIterator[int]:
    """A server on loopback; yields its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


class HttpServer:
    """Answers every request with `response`, and keeps what it was sent."""

    def __init__(
        self, response: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    ) -> None:
        self.response = response
        self.requests: list[bytes] = []
        self.bodies: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        if b"\r\nexpect: 100-continue\r\n" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if length := self.header(b"content-length"):
            self.bodies.append(await reader.readexactly(int(length)))
        elif self.header(b"transfer-encoding"):
            self.bodies.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(self.response)
        await writer.drain()

    def header(self, name: bytes) -> bytes | None:
        for line in self.requests[-1].split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name:
                return value.strip()
        return None


async def say(port: int, data: bytes, *, is_final: bool = False) -> bytes:
    """Send `data` to the proxy and return all that it answers."""
    with anyio.fail_after(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            if is_final:
                writer.write_eof()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def open_tunnel(port: int, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return reader, writer


async def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a client beside the services of this loop."""
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process(command, check=False, env=environment | (env or {}))
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


# --- which hosts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry, host, port, is_allowed", [
    ("example.org", "example.org", 443, True),
    ("example.org", "example.org", 80, True),
    ("example.org", "example.org", 8443, False),
    ("example.org", "EXAMPLE.org.", 443, True),
    ("Example.ORG.", "example.org", 443, True),
    ("example.org", "www.example.org", 443, False),
    ("example.org", "badexample.org", 443, False),
    ("example.org", "example.org.evil.com", 443, False),
    ("example.org", "example.org..", 443, False),
    ("example.org", "", 443, False),
    ("example.org:8443", "example.org", 8443, True),
    ("example.org:8443", "example.org", 443, False),
    ("*.example.org", "www.example.org", 443, True),
    ("*.example.org", "a.b.example.org", 80, True),
    ("*.example.org", "example.org", 443, False),
    ("*.example.org", ".example.org", 443, False),
    ("*.example.org", "evilexample.org", 443, False),
    ("*.example.org", "a b.example.org", 443, False),
    ("*.example.org", "a\0.example.org", 443, False),
    ("*.example.org:8443", "www.example.org", 8443, True),
    ("192.0.2.7", "192.0.2.7", 443, True),
    ("192.0.2.7", "3221225991", 443, False),
    ("192.0.2.7", "0xc0000207", 443, False),
    ("192.0.2.7", "192.0.519", 443, False),
    ("192.0.2.7", "192.0.02.7", 443, False),
    ("192.0.2.7", "::ffff:192.0.2.7", 443, False),
    ("[::1]:8000", "::1", 8000, True),
    ("[::1]:8000", "[0:0::1]", 8000, True),
    ("[::1]:8000", "::1%lo", 8000, False),
    ("bücher.example", "xn--bcher-kva.example", 443, True),
    ("xn--bcher-kva.example", "BÜCHER.example", 443, True),
    ("my_host", "my_host", 80, True),
])  # fmt: skip
def test_a_host_is_allowed_where_its_entry_says(entry, host, port, is_allowed):
    assert HostRules((entry,)).allows(host, port) is is_allowed


@pytest.mark.parametrize("entry", [
    "", "*", "*.", "**.example.org", "a.*.org", "https://example.org", "example.org/path", "user@example.org",
    "example.org:0", "example.org:65536", "example.org:", "example.org:https", "example..org", "-a.org", "a b.org",
    "::1", "[::1", "[example.org]", "*.[::1]", "*.192.0.2.7", "2130706433", "127.1", "0x7f.0.0.1", "010.0.0.1",
    "[fe80::1%eth0]", "straße.example", "\uff11.\uff12.\uff13.\uff14", "a" * 64 + ".org", "a." * 127 + "org", "example.org\n", "é\0.org",
])  # fmt: skip
def test_a_malformed_entry_is_named(entry):
    with pytest.raises(SandboxError) as caught:
        HostRules(("fine.example", entry))
    assert repr(entry) in str(caught.value)


@pytest.mark.parametrize("address, is_expected", [
    ("93.184.215.14", True),
    ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
    ("64:ff9b::5db8:d70e", True),  # NAT64 of a public address
    ("127.0.0.1", False), ("127.8.8.8", False), ("0.0.0.0", False), ("10.1.2.3", False), ("172.16.0.1", False),
    ("192.168.1.1", False), ("169.254.169.254", False), ("100.64.0.1", False), ("224.0.0.1", False),
    ("255.255.255.255", False), ("240.0.0.1", False), ("198.18.0.1", False),
    ("192.0.0.192", False), ("192.88.99.1", False), ("3fff::1", False), ("64:ff9b::c000:c0", False),
    ("::", False), ("::1", False), ("::127.0.0.1", False), ("::ffff:127.0.0.1", False), ("::ffff:8.8.8.8", False),
    ("fe80::1", False), ("fe80::1%2", False), ("fec0::1", False), ("fc00::1", False), ("fd00:ec2::254", False),
    ("ff02::1", False), ("2002:7f00:1::", False), ("2002:808:808::", False), ("2001:0:7f00:1::", False),
    ("2001:db8::1", False), ("64:ff9b::7f00:1", False), ("64:ff9b::a9fe:a9fe", False), ("64:ff9b:1::1", False),
])  # fmt: skip
def test_only_addresses_on_the_internet_are_public(address, is_expected):
    assert is_public(address) is is_expected


# --- tunnels -----------------------------------------------------------------------------------------------------------


async def test_a_tunnel_carries_both_ways_and_closes_each_way_by_itself():
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{len(await reader.read())} bytes, then the end".encode())

    async with server_for(count) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        reader, writer = await open_tunnel(proxy.port, f"127.0.0.1:{port}")
        writer.write(b"x" * 3_000_000)
        writer.write_eof()
        assert await reader.read() == b"3000000 bytes, then the end"
        writer.close()
    assert proxy.denials == []


async def test_what_follows_the_head_at_once_goes_through_the_tunnel():
    async with server_for(echo) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        head = f"CONNECT 127.0.0.1:{port} HTTP/1.0\r\n\r\n".encode()
        answer = await say(proxy.port, head + b"early", is_final=True)
        assert answer.endswith(b"\r\n\r\nearly")


async def test_a_tunnel_reaches_ipv6():
    async with proxy_for("[::1]:1") as proxy:
        answer = await say(proxy.port, b"CONNECT [0::1]:1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ")  # nobody listens there
        assert b"::1 does not answer on port 1." in answer


async def test_who_does_not_read_is_sent_no_more():
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with server_for(flood) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        reader, writer = await open_tunnel(proxy.port, f"127.0.0.1:{port}")
        before = -1
        with anyio.fail_after(DEADLINE_S):
            while sent != before:
                before = sent
                await anyio.sleep(0.2)
        assert sent < 32 << 20  # what the kernel's buffers take; Python's take nothing
        writer.transport.abort()
        del reader


@prove
async def test_a_flood_leaves_the_loop_to_others():
    swallowed = 0

    async def swallow(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal swallowed
        while data := await reader.read(1 << 20):
            swallowed += len(data)

    async with server_for(swallow) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        script = (
            "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "s.sendall(sys.argv[2].encode() + b'\\r\\nHost: x\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n')\n"
            "while True: s.sendall(b'1\\r\\nx\\r\\n' * 10000)"
        )
        target = f"POST http://127.0.0.1:{port}/ HTTP/1.1"
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(proxy.port), target
        )
        await happens(lambda: swallowed > 10_000)
        # Others are served all the while, and so are we, or this would not go on.
        for _ in range(20):
            assert (await say(proxy.port, b"CONNECT a:1 HTTP/1.0\r\n\r\n")).startswith(
                b"HTTP/1.1 403"
            )
        before = swallowed
        await happens(lambda: swallowed > before + 10_000)
        client.kill()
        await client.wait()


@prove
async def test_costly_heads_of_many_clients_take_turns_with_the_loop(monkeypatch):
    turns, read_in, next_event = 0, Counter[int](), h11.Connection.next_event

    def noted(connection: h11.Connection) -> object:
        event = next_event(connection)
        read_in[turns] += isinstance(event, h11.Request)
        return event

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    monkeypatch.setattr(h11.Connection, "next_event", noted)
    head = b"GET http://other.example/ HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 4000
    async with proxy_for() as proxy:
        clients = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(60)]
        for _, writer in clients:
            writer.write(head)
        async with anyio.create_task_group() as tasks:
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(count_turns)
            for _, writer in clients:
                writer.write(b"\r\n")  # all at once
            for reader, writer in clients:
                assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
                writer.close()
            tasks.cancel_scope.cancel()
    assert read_in.total() == len(clients)
    assert max(read_in.values()) <= 2  # one before, one after the counter has had its turn


# --- requests that are forwarded ---------------------------------------------------------------------------------------


async def test_a_request_is_forwarded_for_the_host_in_its_target():
    server = HttpServer()
    async with server_for(server) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        answer = await say(
            proxy.port,
            f"GET HTTP://127.0.0.1:{port}?q=1 HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: keep-alive, X-Hop\r\n"
            "X-Hop: 1\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n"
            "Upgrade: h2c\r\nAccept: */*\r\n\r\n".encode(),
        )
        assert answer.endswith(b"\r\n\r\nhello")
        assert b"connection: close\r\n" in answer.lower()
        line, *headers = server.requests[0].decode().lower().split("\r\n")
        assert line == "get /?q=1 http/1.1"
        assert [header for header in headers if header] == [
            f"host: 127.0.0.1:{port}",
            "accept: */*",
            "connection: close",
        ]


@pytest.mark.parametrize("body, expected", [
    (b"Content-Length: 5\r\n\r\nabcde", b"abcde"),
    (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1\r\nx\r\n0\r\n\r\n", b"1\r\nx\r\n0\r\n\r\n"),
])  # fmt: skip
async def test_a_body_is_forwarded_with_one_length(body, expected):
    server = HttpServer()
    async with server_for(server) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        head = f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n".encode()
        assert (await say(proxy.port, head + body)).endswith(b"hello")
        assert server.bodies == [expected]


@pytest.mark.parametrize("response, expected", [
    (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),  # as Python's http.server does
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nProxy-Authenticate: Basic\r\n\r\ngone", b"gone"),
])  # fmt: skip
@needs("curl")
async def test_curl_reads_every_kind_of_answer(response, expected):
    async with server_for(HttpServer(response)) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        for option in ("--http1.1", "--http1.0"):
            url = f"http://127.0.0.1:{port}/"
            done = await run("curl", "-sS", option, "--noproxy", "", "-x", proxy.url, url)
            assert (done.returncode, done.stdout) == (0, expected.decode()), done.stderr


@needs("curl")
async def test_curl_sends_a_large_body_that_waits_for_a_continue(tmp_path):
    server = HttpServer()
    (tmp_path / "large").write_bytes(b"x" * 5_000_000)
    async with server_for(server, limit=1 << 23) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        command = ["curl", "-sS", "--noproxy", "", "-x", proxy.url, "-H", "Expect: 100-continue"]
        command += ["--expect100-timeout", "20", "-T", str(tmp_path / "large")]
        done = await run(*command, f"http://127.0.0.1:{port}/")
        assert done.stdout == "hello", done.stderr
        assert len(server.bodies[0]) == 5_000_000


async def test_an_answer_before_the_end_of_the_body_arrives():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    async with server_for(refuse) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        head = (
            f"POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n"
        )
        assert (await say(proxy.port, head.encode() + b"x" * 4_000_000)).endswith(b"\r\n\r\nbig")


async def test_a_second_request_on_a_connection_is_not_served():
    server = HttpServer()
    async with server_for(server) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        evil = b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await say(proxy.port, request + evil)).count(b"HTTP/1.1") == 1
        assert len(server.requests) == 1


# --- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_host_that_is_not_listed_is_refused_and_reported_once():
    async with proxy_for("allowed.example") as proxy:
        for _ in range(3):
            answer = await say(proxy.port, b"CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            head, body = answer.decode().split("\r\n\r\n")
            assert head.startswith(
                "HTTP/1.1 403 Not a listed host (Sanderling sandbox, see :AgentNet)"
            )
            assert "other.example:443: only listed hosts" in body
            assert ":AgentNet" in body
        answer = await say(proxy.port, b"GET http://other.example/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert proxy.denials == [
            Denial("connect", "other.example:443", NOT_LISTED),
            Denial("connect", "other.example:80", NOT_LISTED),
        ]


async def test_reports_are_bounded_however_many_hosts_are_asked_for():
    async with proxy_for() as proxy:
        for i in range(denied.MAX_REPORTS + 20):
            await say(proxy.port, f"CONNECT h{i}.example:443 HTTP/1.0\r\n\r\n".encode())
        assert len(proxy.denials) == denied.MAX_REPORTS


async def test_a_listed_name_of_a_private_address_is_refused_unless_the_address_is_listed_too():
    async with server_for(echo) as port:
        request = f"CONNECT localhost:{port} HTTP/1.0\r\n\r\n".encode()
        async with proxy_for(f"localhost:{port}") as proxy:
            assert (await say(proxy.port, request)).startswith(b"HTTP/1.1 403 ")
            [denial] = proxy.denials
            assert denial.target in (f"127.0.0.1:{port}", f"[::1]:{port}")
            assert denial.reason == "localhost resolves to an address that is not public"
        async with proxy_for(f"localhost:{port}", f"127.0.0.1:{port}") as proxy:
            answer = await say(proxy.port, request + b"hi", is_final=True)
            assert answer.endswith(b"\r\n\r\nhi")


async def test_a_name_that_does_not_exist_is_a_bad_gateway():
    async with proxy_for("nosuch.invalid") as proxy:
        answer = await say(proxy.port, b"CONNECT nosuch.invalid:443 HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"nosuch.invalid cannot be resolved" in answer


TRICKS = [
    "CONNECT {ok}@{evil}", "CONNECT {evil}#{ok}", "CONNECT {evil}?{ok}", "CONNECT {evil}/{ok}", "CONNECT {ok}.{evil}",
    "CONNECT {ok}.evil.example:{port}", "CONNECT http://{evil}/", "CONNECT {evil}", "CONNECT 2130706433:{port}",
    "CONNECT 0x7f000001:{port}", "CONNECT 0177.0.0.1:{port}", "CONNECT 127.1:{port}", "CONNECT 127.0.0.01:{port}",
    "CONNECT 0:{port}", "CONNECT [::ffff:127.0.0.1]:{port}", "CONNECT [::127.0.0.1]:{port}", "CONNECT [::1%lo]:{port}",
    "CONNECT localhost:{port}", "CONNECT 127.0.0.1:{port}\0{ok}", "CONNECT {ok} {evil}", "CONNECT {ok}\t{evil}",
    "CONNECT 127.0.0.1:+{port}", "CONNECT 127.0.0.1:", "CONNECT 127.0.0.1", "CONNECT :{port}", "CONNECT {evil}:{port}",
    "CONNECT 127.0.0.1:65537", "CONNECT 127.0.0.1:-1", "CONNECT 127.0.0.1:0", "CONNECT 127.0.0.1:99999999999999999999",
    "CONNECT *", "CONNECT /", "CONNECT 127.0.0.1%00.evil:{port}", "CONNECT \uff11\uff12\uff17.0.0.1:{port}",
    "GET http://{ok}@{evil}/", "GET http://{ok}#@{evil}/", "GET http://{evil}#{ok}/", "GET http://{evil}\\@{ok}/",
    "GET http://{ok}:80@{evil}/", "GET http:///{evil}", "GET http:{evil}", "GET //{evil}/", "GET https://{evil}/",
    "GET ftp://{evil}/", "GET http://2130706433:{port}/", "GET http://127.1:{port}/", "GET http://%3127.0.0.1:{port}/",
    "GET http://127.0.0.1.:{port}/", "GET http://localhost:{port}/", "GET /", "GET *", "OPTIONS *", "get {evil}",
    "GET http://{evil}:{port}/", "GET http://[{evil}]/", "GET http://[::1]:{port}/", "GET http://{evil},{ok}/",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_spelling_reaches_a_host_that_is_not_listed(trick):
    ok, evil = HttpServer(), HttpServer()
    async with (
        server_for(ok) as ok_port,
        server_for(evil) as port,
        proxy_for(f"127.0.0.1:{ok_port}", "localhost") as proxy,
    ):
        allowed = f"127.0.0.1:{ok_port}"
        line = trick.format(ok=allowed, evil=f"127.0.0.1:{port}", port=port)
        request = f"{line} HTTP/1.1\r\nHost: {allowed}\r\n\r\n".encode()
        answer = await say(proxy.port, request, is_final=True)
        assert answer[:13] in (b"HTTP/1.1 400 ", b"HTTP/1.1 403 ", b"HTTP/1.1 502 ")
    assert evil.requests == []


# --- limits ------------------------------------------------------------------------------------------------------------


async def test_a_head_must_arrive_in_time_and_size(monkeypatch):
    async with proxy_for() as proxy:
        answer = await say(proxy.port, b"CONNECT a:1 HTTP/1.0\r\nX: " + b"x" * 40_000)
        assert answer.startswith(b"HTTP/1.1 431 ")
        monkeypatch.setattr(serving, "HEAD_S", 0.3)
        with anyio.fail_after(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            # An end, too: one more byte came while it was closed.
            with suppress(ConnectionResetError):
                while not reader.at_eof():  # one byte at a time, for ever
                    writer.write(b"X")
                    with anyio.move_on_after(0.02):
                        await reader.read()
            writer.transport.abort()


@prove
async def test_an_idle_tunnel_is_closed():
    async with server_for(echo) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        reader, writer = await open_tunnel(proxy.port, f"127.0.0.1:{port}")
        for _ in range(3):  # use keeps it open
            writer.write(b"x")
            assert await reader.readexactly(1)
            await passes(0.6 * serving.IDLE_S)
        await passes(0.6 * serving.IDLE_S)
        with anyio.fail_after(DEADLINE_S):
            assert await reader.read() == b""
        writer.close()


async def test_clients_beyond_the_limit_wait_for_a_place(monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 2)
    async with server_for(echo) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        writers = [(await open_tunnel(proxy.port, f"127.0.0.1:{port}"))[1] for _ in range(2)]
        with anyio.move_on_after(0.3) as waits:
            await say(proxy.port, b"CONNECT a:1 HTTP/1.0\r\n\r\n")
        assert waits.cancelled_caught
        writers[0].transport.abort()
        assert (await say(proxy.port, b"CONNECT a:1 HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 403")
        writers[1].close()


# --- everything else that bytes can do ---------------------------------------------------------------------------------

seen_by_audit: list[tuple[str, Any]] | None = None


@sys.addaudithook
def audit(event: str, args: tuple[Any, ...]) -> None:
    """Every connection and every lookup of this process, as the interpreter sees them."""
    if seen_by_audit is not None and event in ("socket.connect", "socket.getaddrinfo"):
        seen_by_audit.append((event, args[1] if event == "socket.connect" else args[:2]))


WORDS = (
    "OK EVIL OK_PORT EVIL_PORT 127.0.0.1 localhost 2130706433 0x7f.1 ::1 [::1] [::ffff:7f00:1]"
    " @ # / ? : [ ] % %00 \\ . , http:// é * 0 65536 - a HTTP/1.1"
)
ATOMS = [*WORDS.split(), *"\0 \t\r\n"]
HEADERS = [
    "Host: EVIL",
    "Host: OK",
    "Content-Length: 3",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Connection: close, host",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Expect: 100-continue",
    " folded",
    "X: \0",
    ": x",
    "é: é",
    "Proxy-Connection: keep-alive",
    "X: " + "y" * 900,
]
METHODS = ["CONNECT", "GET", "POST", "HEAD", "OPTIONS", "connect", "", "G\0T"]
BODIES = [
    "",
    "abc",
    "3\r\nabc\r\n0\r\n\r\n",
    "ffffffffffffffffffff\r\n",
    "CONNECT EVIL HTTP/1.1\r\n\r\n",
    "3;ext=\0\r\nabc\r\n",
    "0\r\nHost: EVIL\r\n\r\n",
    "\r\n" * 50,
]

TARGETS = st.one_of(
    st.sampled_from(["OK", "EVIL", "http://OK/", "http://EVIL/"]),
    st.lists(st.sampled_from(ATOMS), max_size=8).map("".join),
)
REQUESTS = st.builds(
    lambda method, target, version, headers, body: "\r\n".join(
        [f"{method} {target} {version}", *headers, "", body]
    ),
    st.sampled_from(METHODS),
    TARGETS,
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/2", ""]),
    st.lists(st.sampled_from(HEADERS), max_size=5),
    st.sampled_from(BODIES),
)
BYTES = st.one_of(REQUESTS.map(str.encode), st.binary(max_size=300))
MANY = settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@prove
@MANY
@given(BYTES)
@example(b"")
@example(b"CONNECT OK HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
@example(b"POST http://OK/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
def test_no_bytes_of_a_client_break_the_proxy_or_lead_it_elsewhere(data: bytes):
    async def attempt() -> None:
        global seen_by_audit  # noqa: PLW0603
        async with (
            server_for(HttpServer()) as ok_port,
            server_for(HttpServer()) as evil_port,
            proxy_for(f"127.0.0.1:{ok_port}") as proxy,
        ):
            request = data
            for word, port in ((b"OK", ok_port), (b"EVIL", evil_port)):
                request = request.replace(word + b"_PORT", b"%d" % port)
                request = request.replace(word, b"127.0.0.1:%d" % port)
            seen_by_audit = []
            await say(proxy.port, request, is_final=True)
            seen, seen_by_audit = seen_by_audit, None
            allowed = ("127.0.0.1", ok_port)
            own = ("socket.connect", ("127.0.0.1", proxy.port))
            assert seen.pop(0) == own
            assert {(address[0], address[1]) for _, address in seen} <= {
                allowed,
                (b"127.0.0.1", ok_port),
            }
            assert (await say(proxy.port, b"GET / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 400")

    anyio.run(attempt)


RESPONSES = st.builds(
    lambda status, headers, body: "\r\n".join([status, *headers, "", body]).encode(),
    st.sampled_from([
        "HTTP/1.1 200 OK", "HTTP/1.0 200", "HTTP/1.1 101 Switching", "HTTP/1.1 100 Continue", "HTTP/1.1 204 x",
        "HTTP/1.1 304 x", "HTTP/1.1 999 x", "HTTP/1.1 099 x", "HTTP/9.9 200 OK", "SSH-2.0-x", "",
    ]),
    st.lists(st.sampled_from(HEADERS), max_size=4),
    st.sampled_from(BODIES),
)  # fmt: skip


@prove
@MANY
@given(st.one_of(RESPONSES, st.binary(max_size=200)), st.sampled_from(["GET", "HEAD", "POST"]))
def test_no_bytes_of_a_server_break_the_proxy(response: bytes, method: str):
    async def attempt() -> None:
        async with (
            server_for(HttpServer(response)) as port,
            proxy_for(f"127.0.0.1:{port}") as proxy,
        ):
            request = f"{method} http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n"
            await say(proxy.port, request.encode(), is_final=True)
            assert (await say(proxy.port, b"GET / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 400")

    anyio.run(attempt)


# --- clients people use ------------------------------------------------------------------------------------------------


@needs("curl")
async def test_curl_tunnels_and_says_why_it_may_not():
    async with server_for(HttpServer()) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        env = proxy_environment(proxy.port)
        done = await run("curl", "-sS", "-p", "--noproxy", "", f"http://127.0.0.1:{port}/", env=env)
        assert done.stdout == "hello", done.stderr
        done = await run("curl", "-sS", "https://other.example/", env=env)
        assert "403" in done.stderr
        done = await run("curl", "-sS", "http://other.example/", env=env)
        assert "other.example:80: only listed hosts" in done.stdout


FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read())"


@prove
async def test_python_says_why_it_may_not_and_needs_no_proxy_for_loopback():
    async with server_for(HttpServer()) as port, proxy_for() as proxy:
        env = proxy_environment(proxy.port)
        for host in ("127.0.0.1", "localhost"):
            done = await run(sys.executable, "-c", FETCH, f"http://{host}:{port}/", env=env)
            assert done.stdout == "b'hello'\n", done.stderr
        done = await run(sys.executable, "-c", FETCH, "https://other.example/", env=env)
        assert "403 Not a listed host (Sanderling sandbox, see :AgentNet)" in done.stderr


async def test_the_bypass_has_no_entry_that_breaks_httpx():
    for name in ("no_proxy", "NO_PROXY"):
        assert not [each for each in proxy_environment(1)[name].split(",") if "[" in each]


@prove
async def test_httpx_uses_the_proxy_and_reaches_the_loopback_without_it(tmp_path):
    install = ("-m", "pip", "install", "-q", "--target", str(tmp_path), "httpx")
    done = await run(sys.executable, *install, env={})
    if done.returncode:
        pytest.skip(f"httpx cannot be installed: {done.stderr}")
    script = "import httpx, sys; print(httpx.get(sys.argv[1]).text)"
    async with server_for(HttpServer()) as port, proxy_for() as proxy:
        env = {**proxy_environment(proxy.port), "PYTHONPATH": str(tmp_path)}
        url = f"http://127.0.0.1:{port}/"
        done = await run(sys.executable, "-c", script, url, env=env)
        assert done.stdout == "hello\n", done.stderr
        done = await run(sys.executable, "-c", script, "http://other.example/", env=env)
        assert "other.example:80: only listed hosts" in done.stdout


MARK = "sanderling-0123456789abcdef"
HTTPX = "import httpx, sys; print(httpx.get(sys.argv[1]).text)"
NODE = "fetch(process.argv[1]).then((r) => r.text()).then(console.log)"
CLIENTS = {
    "curl": ("curl", "-sS", "{url}"),
    "wget": ("wget", "-qO-", "--tries=1", "{url}"),
    "python": (sys.executable, "-c", FETCH, "{url}"),
    "httpx": (sys.executable, "-c", HTTPX, "{url}"),
    "git": ("git", "ls-remote", "{url}"),
    "pip": (
        sys.executable,
        *[
            "-m",
            "pip",
            "download",
            "--no-cache-dir",
            "--retries",
            "0",
            "--trusted-host",
            "other.example",
            "-i",
        ],
        *("{url}", "nothing"),
    ),
    "npm": (
        *["npm", "view", "--no-update-notifier", "--fetch-retries=0", "--registry={url}"],
        "nothing",
    ),
    "node": ("node", "-e", NODE, "{url}"),
}


@prove
@pytest.mark.parametrize("scheme, port", [("https", 443), ("http", 80)])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_refusal_has_the_mark_of_the_client(client, scheme, port, tmp_path):
    program, *arguments = CLIENTS[client]
    if not shutil.which(program) or (client == "httpx" and not find_spec("httpx")):
        pytest.skip(f"there is no {client}")
    url = f"{scheme}://other.example/"
    async with proxy_for() as proxy:
        env = {**proxy_environment(proxy.port, MARK), "HOME": str(tmp_path)}
        done = await run(program, *(each.format(url=url) for each in arguments), env=env)
        found = {denial for denial in proxy.denials if "other" in denial.target}
        if client == "node" and not found:
            pytest.skip("this node knows no proxy in its environment")
        assert found == {Denial("connect", f"other.example:{port}", NOT_LISTED, by=MARK)}, done


@prove
@pytest.mark.parametrize("client", ["curl", "wget", "python", "httpx", "node"])
async def test_a_client_with_a_mark_reaches_a_listed_host_and_the_loopback(client):
    program, *arguments = CLIENTS[client]
    if not shutil.which(program) or (client == "httpx" and not find_spec("httpx")):
        pytest.skip(f"there is no {client}")
    server = HttpServer()
    async with server_for(server) as port, proxy_for(f"127.0.0.1:{port}") as proxy:
        url = f"http://127.0.0.1:{port}/"
        env = proxy_environment(proxy.port, MARK)
        for bypass in (env["no_proxy"], "none.example"):
            env |= {"no_proxy": bypass, "NO_PROXY": bypass}
            done = await run(program, *(each.format(url=url) for each in arguments), env=env)
            assert "hello" in done.stdout, done
    assert b"proxy-auth" not in b"".join(server.requests).lower()


@pytest.mark.parametrize(
    "header, mark",
    [
        (f"Basic {b64encode(f'{MARK}:x'.encode()).decode()}", MARK),
        (f"basic  {b64encode(f'{MARK}:'.encode()).decode()}", MARK),
        (f"Bearer {b64encode(f'{MARK}:x'.encode()).decode()}", ""),
        ("Basic %%%", ""),
        ("Basic", ""),
        (f"Basic {b64encode(b'j1:x').decode()}", ""),
        (f"Basic {b64encode(f'{MARK}0:x'.encode()).decode()}", ""),
        ("Basic /zp4", ""),  # not UTF-8
    ],
)
async def test_only_a_mark_of_ours_is_taken_from_a_request(header, mark):

    async with proxy_for() as proxy:
        head = f"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: {header}\r\n\r\n"
        assert (await say(proxy.port, head.encode())).startswith(b"HTTP/1.1 403")
        assert [denial.by for denial in proxy.denials] == [mark]


async def test_a_name_is_reported_with_its_mark_and_not_again_without():
    async with names_answered() as (client, denials):
        domain = resolver_environment(MARK)["LOCALDOMAIN"]
        await ask(
            client, *map(query, (f"Example.org.{domain}", "example.org", "localhost.example"))
        )
        await ask(client, *map(query, ("other.example", f"localhost.{domain}")))
    assert denials == [
        Denial("resolve", "example.org", OFF, by=MARK),
        Denial("resolve", "localhost.example", OFF),
        Denial("resolve", "other.example", OFF),
    ]


@needs("git")
async def test_git_says_that_it_may_not():
    async with proxy_for() as proxy:
        env = proxy_environment(proxy.port)
        done = await run("git", "ls-remote", "https://other.example/x.git", env=env)
        assert "403" in done.stderr
        assert [denial.target for denial in proxy.denials] == ["other.example:443"]


# --- names -------------------------------------------------------------------------------------------------------------


def query(name: str, kind: int = 1, *, flags: int = 0x0100) -> bytes:
    labels = b"".join(bytes([len(label)]) + label for label in name.encode().split(b".") if label)
    return (
        struct.pack("!6H", 0x1234, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)
    )


@asynccontextmanager
async def names_answered(rule: str = OFF) -> AsyncIterator[tuple[socket.socket, list[Denial]]]:
    """A client's socket, connected to a name server; and what that reported."""
    responder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    responder.bind(("127.0.0.1", 0))
    denials: list[Denial] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(responder.getsockname())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_names, responder, denials.append, rule)
            yield client, denials
            tasks.cancel_scope.cancel()
    assert responder.fileno() == -1


async def ask(client: socket.socket, *queries: bytes) -> bytes:
    """Send the queries, and one more that is well-formed; return the answer to the first that gets one."""
    loop = asyncio.get_running_loop()
    for data in (*queries, query("localhost")):
        await loop.sock_sendall(client, data)
    with anyio.fail_after(DEADLINE_S):
        first = answer = await loop.sock_recv(client, 4096)
        while not answer.endswith(query("localhost")[12:]):
            answer = await loop.sock_recv(client, 4096)
    return first


async def test_a_name_does_not_exist_and_is_reported_once():
    async with names_answered() as (client, denials):
        asked = query("Example.org", 1)
        answer = await ask(client, asked, query("example.ORG", 28), asked)
        ident, flags, *counts = struct.unpack_from("!6H", answer)
        assert (ident, flags, counts) == (0x1234, 0x8183, [1, 0, 0, 0])  # NXDOMAIN
        assert answer[12:] == asked[12:]
        assert denials == [Denial("resolve", "example.org", OFF)]


async def test_names_of_this_machine_and_of_addresses_are_not_reported():
    quiet = [
        "",
        "localhost",
        "api.localhost",
        socket.gethostname(),
        "1.0.0.127.in-addr.arpa",
        "1.ip6.arpa",
    ]
    async with names_answered() as (client, denials):
        await ask(client, *map(query, quiet))
        assert denials == []


async def test_a_reported_name_is_printable_and_the_reports_are_bounded():
    async with names_answered() as (client, denials):
        await ask(client, query("\x1b[31mred\n.exämple"))
        assert denials == [Denial("resolve", "\ufffd[31mred\ufffd.ex\ufffd\ufffdmple", OFF)]
        for i in range(200):
            await ask(client, query(f"{i}.example"))
        assert len(denials) == denied.MAX_REPORTS


async def test_a_name_is_reported_again_later(monkeypatch):
    monkeypatch.setattr(denied, "REPEAT_S", 0.05)
    async with names_answered() as (client, denials):
        for _ in range(2):
            await ask(client, query("example.org"))
            await anyio.sleep(0.1)
        assert len(denials) == 2


HOSTILE_QUERIES = [
    b"", b"\0", query("a.example")[:-1], query("a.example", flags=0x8180), query("a.example", flags=0x2800),
    struct.pack("!6H", 1, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",  # a pointer to itself
    struct.pack("!6H", 1, 0, 1, 0, 0, 0) + b"\x3f" * 300, struct.pack("!6H", 1, 0, 2, 0, 0, 0) + query("a")[12:],
    query(".".join(["a" * 63] * 5)), query("a" * 64), struct.pack("!6H", 1, 0, 0, 0, 0, 0),
]  # fmt: skip


@MANY
@given(
    st.one_of(
        st.binary(max_size=600),
        st.tuples(st.binary(min_size=2, max_size=12), st.binary(max_size=300)).map(
            lambda parts: parts[0].ljust(12, b"\0") + parts[1]
        ),
        st.sampled_from(HOSTILE_QUERIES),
    )
)
def test_no_datagram_breaks_the_name_server(data: bytes):
    async def attempt() -> None:
        async with names_answered() as (client, denials):
            assert await ask(client, data)
            assert all(len(d.target) <= 255 and d.target.isprintable() for d in denials)
            if data in HOSTILE_QUERIES:
                assert denials == []

    anyio.run(attempt)


# --- a real network namespace ------------------------------------------------------------------------------------------

INSIDE = """
import array, fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # SIOCSIFFLAGS: UP, RUNNING
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
with socket.socket(fileno=int(sys.argv[1])) as host, \\
        socket.create_server(("127.0.0.1", 3128)) as listener, \\
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as responder:
    responder.bind(("127.0.0.1", 53))
    socket.send_fds(host, [b"x"], [listener.fileno(), responder.fileno()])
    host.recv(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def can_unshare() -> bool:
    command = ["unshare", "-Urnm", "mount", "--bind", "/dev/null", "/etc/resolv.conf"]
    return (
        bool(shutil.which("unshare"))
        and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="no user namespaces here")


@dataclass
class Session:
    """What ran in a namespace of its own, and what the services outside said."""

    output: str
    denials: list[Denial]


async def run_inside(
    tmp_path: Path, hosts: Sequence[str], *command: str, rule: str = NOT_LISTED
) -> Session:
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\nsearch .\noptions timeout:1 attempts:1\n")
    ours, theirs = socket.socketpair()
    denials: list[Denial] = []
    with ours, theirs:
        ours.settimeout(DEADLINE_S)
        bind = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
        inside = [sys.executable, "-I", "-c", INSIDE, str(theirs.fileno()), *command]
        process = await asyncio.create_subprocess_exec(
            *("unshare", "-Urnm", "sh", "-c", bind, "sh", str(conf), *inside),
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **proxy_environment(3128)},
        )
        theirs.close()
        _, fds, _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 2)
        listener, responder = (socket.socket(fileno=fd) for fd in fds)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_proxy, listener, HostRules(tuple(hosts)), denials.append)
            tasks.start_soon(answer_names, responder, denials.append, rule)
            ours.send(b"x")
            with anyio.fail_after(DEADLINE_S):
                output, _ = await process.communicate()
            tasks.cancel_scope.cancel()
    return Session(output.decode(), denials)


async def test_when_the_hosts_change_only_connections_to_those_that_are_gone_are_cut():
    async with server_for(echo) as one, server_for(echo) as other:
        kept, gone = f"127.0.0.1:{one}", f"127.0.0.1:{other}"
        async with proxy_for(kept, gone) as proxy:
            reader, writer = await open_tunnel(proxy.port, kept)
            cut_reader, cut_writer = await open_tunnel(proxy.port, gone)
            proxy.rules.change((kept, "new.example"))
            with anyio.fail_after(DEADLINE_S):
                assert await cut_reader.read() == b""
            writer.write(b"still there")
            assert await reader.readexactly(11) == b"still there"
            for each in (writer, cut_writer):
                each.close()


@needs_namespaces
@needs("curl")
async def test_inside_a_namespace_only_the_proxy_leads_out(tmp_path):
    server = HttpServer()
    async with server_for(server) as port:
        url = f"http://127.0.0.1:{port}/"
        script = f"""
            curl -sS --noproxy '*' {url}; echo direct: $?
            curl -sS --noproxy '' {url}; echo " proxy: $?"
            curl -sS -p --noproxy '' {url}; echo " tunnel: $?"
            curl -sS -o /dev/null -w '%{{http_connect}}\\n' https://other.example/
            curl -sS --noproxy '*' https://other.example/ 2>&1
        """
        session = await run_inside(tmp_path, [f"127.0.0.1:{port}"], "sh", "-c", script)
    assert "direct: 7" in session.output
    assert "hello proxy: 0" in session.output
    assert "hello tunnel: 0" in session.output
    assert "\n403\n" in session.output
    assert "Could not resolve host: other.example" in session.output
    assert session.denials == [
        Denial("connect", "other.example:443", NOT_LISTED),
        Denial("resolve", "other.example", NOT_LISTED),
    ]


LOOK_UP = """
import socket
try:
    socket.getaddrinfo("www.example.org", 443)
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME)
"""


@needs_namespaces
async def test_inside_a_namespace_a_lookup_fails_for_good(tmp_path):
    session = await run_inside(tmp_path, (), sys.executable, "-I", "-c", LOOK_UP, rule=OFF)
    assert session.output == "True\n"  # no answer at all would be EAI_AGAIN, after seconds
    assert session.denials == [Denial("resolve", "www.example.org", OFF)]


@needs_namespaces
@needs("node")
async def test_inside_a_namespace_both_of_nodes_resolvers_fail_for_good(tmp_path):
    script = """
        const dns = require('dns');
        dns.lookup('a.example', (one) => dns.resolve4('b.example', (two) =>
          console.log(one.code, two.code)));
    """
    session = await run_inside(tmp_path, (), "node", "-e", script)
    assert session.output == "ENOTFOUND ENOTFOUND\n"
    assert [each.target for each in session.denials] == ["a.example", "b.example"]
