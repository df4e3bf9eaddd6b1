"""The door: who has no token, comes from a foreign page, says too much or too many at once is refused, and the others do not notice."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections import deque
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from tests.acp.talk import AgentError
from tests.conftest import DEADLINE_S, prove, prove_rest
from tests.serve.talk import LOST, Client, Server, attached

WRONG = [
    {},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Bearer ü"},
    {"Authorization": "Basic {token}"},
    {"Authorization": "{token}"},
    {"Authorization": "Bearer {token}x"},
]
UPGRADE = b"\r\n".join(
    (
        *(b"GET /acp HTTP/1.1", b"Host: localhost", b"Connection: Upgrade", b"Upgrade: websocket"),
        *(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", b"\r\n"),
    )
)


async def status_of(server, **more):
    try:
        async with server.connect(**more):
            return 101
    except InvalidStatus as refused:
        is_silent = not refused.response.body
        return refused.response.status_code if is_silent else -1


@pytest.mark.parametrize("headers", prove_rest(WRONG, (2,), is_one=True))
async def test_without_the_token_nobody_is_let_in(serve, headers):
    server = serve()
    wrong = {name: value.replace("{token}", server.token) for name, value in headers.items()}
    assert await status_of(server, additional_headers=wrong) == 401
    assert await status_of(server) == 101


async def test_a_page_in_a_browser_is_let_in_where_that_was_allowed(serve):
    server = serve("--model", "demo", "--allow-origin", "https://good.example")
    assert await status_of(server, origin="https://evil.example") == 403
    assert await status_of(server, origin="null") == 403
    assert await status_of(server, origin="https://good.example") == 101
    assert await status_of(server, additional_headers={}, origin="https://good.example") == 401
    assert await status_of(server, url=server.url.replace("/acp", "/other")) == 404


@prove
def test_the_token_is_the_persons_alone_and_stays(serve, home):
    server = serve()
    path = home.state / "serve-token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(server.token) >= 43
    assert home.run("serve", "--token").stdout == f"{server.token}\n"
    assert server.token not in server.stderr_path.read_text()
    path.chmod(0o644)
    refused = home.run("serve", "--token")
    assert (refused.returncode, server.token in refused.stdout) == (2, False)
    assert "others can read" in refused.stderr


@pytest.mark.parametrize("listen", prove_rest(["0.0.0.0:0", "[::]:0", "192.0.2.1:0"], (0,)))
def test_what_others_can_reach_is_refused_unless_the_person_insists(home, listen):
    refused = home.run("serve", "--listen", listen)
    assert refused.returncode == 2
    assert "reverse proxy" in refused.stderr
    assert home.run("serve", "--listen", "nonsense").returncode == 2


@prove
async def test_a_message_that_is_too_long_ends_its_connection_before_it_is_read(serve, home):
    server = serve()
    async with attached(server) as client, server.connect() as bad:
        writer = bad.transport
        # The head of a masked text frame of 1 GB; of what follows some is written, as long as somebody reads.
        writer.write(b"\x81\xff" + struct.pack(">Q", 1 << 30) + os.urandom(4))
        with suppress(*LOST):
            writer.write(b"x" * (1 << 20))
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(bad.recv(), DEADLINE_S)
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
        session = await client.new(home)
        assert await client.prompt(session, "ping") == "end_turn"


@pytest.mark.parametrize(
    "frame",
    prove_rest(
        ["no JSON", "[]", "", "[1,2,3]", '{"jsonrpc":"2.0"}', "{" * 10_000, '"\\ud83d"', "\n{}\n"],
        (5,),
        is_one=True,
    ),
)
async def test_a_frame_that_is_no_message_is_answered_and_survived(serve, home, frame):
    server = serve()
    async with server.connect() as socket_:
        await socket_.send(frame)
        await socket_.send(b"\x00binary\xff")
        client = Client(socket_)
        await client.initialize()
        session = await client.new(home)
        assert await client.prompt(session, "ping") == "end_turn"


@pytest.mark.parametrize(
    "garbage", prove_rest([b"\x00" * 4096, b"GET / HTTP/1.1\r\n", b"{}\n"], (0,))
)
async def test_what_is_no_request_is_hung_up_on(serve, home, garbage):
    server = serve()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(garbage)
    async with attached(server) as client:
        session = await client.new(home)
        assert await client.prompt(session, "ping") == "end_turn"
    writer.close()


@prove
async def test_garbage_in_the_place_of_a_frame_ends_that_connection_alone(serve, home):
    server = serve()
    async with attached(server) as client, server.connect() as bad:
        bad.transport.write(b"\xff\xfe\xfd" * 100)
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(bad.recv(), DEADLINE_S)
        session = await client.new(home)
        assert await client.prompt(session, "ping") == "end_turn"


@prove
async def test_many_who_connect_and_say_nothing_keep_nobody_out(serve, home):
    server = serve()
    strangers = deque[socket.socket](maxlen=600)

    def knock():
        if len(strangers) == strangers.maxlen:
            strangers[0].close()
        each = socket.socket()
        each.setblocking(False)
        with suppress(BlockingIOError, OSError):
            each.connect(("127.0.0.1", server.port))
        strangers.append(each)

    async def keep_knocking():
        # A hundred a second: whoever has something to say gets in before so many others have come that it is pushed out.
        while True:
            knock()
            await asyncio.sleep(0.01)

    async with attached(server) as client:
        session = await client.new(home)
        for _ in range(600):
            knock()
        knocking = asyncio.create_task(keep_knocking())
        try:
            for _ in range(20):
                assert await client.prompt(session, "ping") == "end_turn"
                async with AsyncExitStack() as stack:
                    another = await entered(stack, server)
                    await another.again("resume", home, session)
        finally:
            knocking.cancel()
            for each in strangers:
                each.close()


async def entered(stack: AsyncExitStack, server: Server) -> Client:
    """A client that tries again when others push it out at the door: on a busy machine it takes longer there than they give it."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(InvalidMessage, ConnectionClosed, OSError):
                return await stack.enter_async_context(attached(server))


@prove
async def test_many_who_are_refused_and_stay_hold_no_more_than_those_who_say_nothing(serve):
    server = serve()
    strangers = list[socket.socket]()
    for _ in range(400):
        each = socket.create_connection(("127.0.0.1", server.port))
        each.sendall(UPGRADE)
        assert b" 401 " in each.recv(100)
        strangers.append(each)
    assert open_files_of(server) < 300
    assert await status_of(server) == 101
    for each in strangers:
        each.close()


@prove
async def test_whoever_says_nothing_or_answers_no_ping_is_hung_up_on(serve, home):
    """One has a token and never begins; one was let in, and its machine has gone without a word."""
    server = serve()
    silent = await server.connect()
    async with attached(server) as client:
        session = await client.new(home)
        gone = await server.connect(ping_interval=None)
        half_open = Client(gone)
        await half_open.initialize()
        gone.transport.pause_reading()
        async with asyncio.timeout(90):
            await silent.wait_closed()
            while clients_of(server) > 1:
                await asyncio.sleep(0.5)
        assert silent.close_code == 1008
        assert await client.prompt(session, "ping") == "end_turn"
        gone.transport.abort()


def open_files_of(server):
    return len([*Path(f"/proc/{server.process.pid}/fd").iterdir()])


def clients_of(server):
    """How many connections the server has."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        is_its = int(fields[1].rpartition(":")[2], 16) == server.port
        found += is_its and fields[3] == "01"
    return found


@prove
async def test_ten_thousand_connections_are_survived(serve, home):
    server = serve()

    async def knock():
        with suppress(*LOST, TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /acp HTTP/1.1\r\n")
                writer.transport.abort()

    async with attached(server) as client:
        session = await client.new(home)
        for _ in range(100):
            await asyncio.gather(*(knock() for _ in range(100)))
            assert await client.prompt(session, "ping") == "end_turn"


@prove
async def test_a_connection_has_so_many_sessions_and_no_more(serve, home):
    server = serve()
    async with attached(server) as client:
        first = await client.new(home)
        for _ in range(63):
            await client.new(home)
        with pytest.raises(AgentError, match="at most 64"):
            await client.new(home)
        await client.request("session/close", sessionId=first)
        assert await client.new(home)


def test_a_mistake_in_the_settings_is_reported_at_the_start(home):
    home.config.write_text('model = "demo"\n\n[[permissions]]\ntool = "bash"\nallow = "yes"\n')
    done = subprocess.run(
        [sys.executable, "-m", "sanderling", "serve", "--listen", "127.0.0.1:0"],
        cwd=home.project,
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "config.toml:5: unknown key 'permissions[1].allow'" in done.stderr
