"""Servers: commands that go on and talk with us, with what was declared for them alone, and no longer than on the terms of their start."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.execution_environment import RunningServer
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.sandbox.sandbox import DISK_CHECK_S, IDLE
from tests.conftest import passes, prove, prove_rest
from tests.sandbox.test_files import session_of
from tests.sandbox.test_grants import said
from tests.sandbox.test_network import server_for
from tests.sandbox.test_rest import would_rest
from tests.sandbox.test_sandbox import LEVELS, MOUNTED, happens, is_alive

pytestmark = pytest.mark.guard

END = "<end>"
SHELL = ["sh", "-c", f'while read -r line; do eval "$line" 2>&1; echo "{END}"; done']


async def said_by(process: Any, line: str) -> str:
    """What a shell in the place of `process` answers to a line."""
    await process.stdin.send(f"{line}\n".encode())
    said = b""
    while not said.endswith(f"{END}\n".encode()):
        said += await process.stdout.receive()
    return said.decode().removesuffix(f"{END}\n")


class Server:
    """A shell that serves: it runs each line that it is sent."""

    def __init__(self, process: RunningServer, denials: list[Denial]) -> None:
        self.process = process
        self.denials = denials

    async def said(self, line: str) -> str:
        return await said_by(self.process, line)


@asynccontextmanager
async def server_in(
    session: SessionSandbox, grant: Grant = NO_GRANT, **env: str
) -> AsyncIterator[Server]:
    denials: list[Denial] = []
    process = await session.spawn_server(
        "notes", SHELL, env=env, grant=grant, on_denied=denials.append
    )
    try:
        yield Server(process, denials)
    finally:
        process.close()


@pytest.mark.parametrize("level", prove_rest(LEVELS))
async def test_server_has_what_was_declared_for_it_and_no_more(place, level):
    read, write = place.base / "granted", place.base / "written"
    write.mkdir()
    (read / "note").write_text("noted\n")
    grant = Grant((str(read),), (str(write),)).identified()
    async with (
        session_of(place, level=level) as session,
        server_in(session, grant, TOKEN="t0k") as server,
    ):
        assert (
            await server.said(f"cat {read}/note; echo $TOKEN; pwd")
            == f"noted\nt0k\n{place.project}\n"
        )
        assert "cannot create" in await server.said(f"(echo x >{read}/new)")
        assert await server.said(f"echo x >{write}/new; cat {write}/new; cat file") == "x\npublic\n"
        refused = await server.said(f"cat {place.secret}/file {place.home}/.gitconfig-of-mine")
        assert "secret" not in refused.replace(str(place.secret), "")
        own = await said(session, f"cat {read}/note {write}/new; echo [$TOKEN]")
        assert "noted" not in own
        assert own.endswith("[]\n")


@pytest.mark.parametrize("level", prove_rest(LEVELS))
async def test_server_with_rights_of_its_own_shares_no_place_with_commands(place, level):
    async with session_of(place, level=level) as session, server_in(session, TOKEN="t") as server:
        await said(session, "echo bad >$HOME/.profile; echo bad >$TMPDIR/x")
        assert "No such file" in await server.said("cat $HOME/.profile")
        assert "No such file" in await server.said("cat $TMPDIR/x")
        await server.said("echo token >$HOME/kept; echo token >$TMPDIR/kept")
        assert await server.said("cat $HOME/kept $TMPDIR/kept") == "token\ntoken\n"
        private = f"{place.base}/state/servers/notes/home/kept"
        found = await said(session, f"cat $HOME/kept $TMPDIR/kept {private}; ls -A /tmp")
        assert "token" not in found
        assert len(place.temporary_directories()) == 2
    assert place.temporary_directories() == []
    assert await anyio.Path(private).read_text() == "token\n"  # as what commands keep in HOME


@prove
@pytest.mark.parametrize("level", prove_rest(MOUNTED, keep=(0,)))
async def test_no_command_reaches_what_a_server_listens_on(place, level):
    listen = "python3 -m http.server --bind 127.0.0.1 8765 >/dev/null 2>&1 & sleep 0.1"
    ask = "for i in 1 2 3 4 5 6 7 8 9; do curl -s --noproxy '*' http://127.0.0.1:8765/file && break; sleep 0.1; done"
    async with session_of(place, level=level) as session, server_in(session, TOKEN="t") as server:
        await server.said(listen)
        assert await server.said(ask) == "public\n"
        assert await said(session, ask) == ""


async def test_server_with_nothing_of_its_own_is_where_commands_are(place):
    async with session_of(place) as session, server_in(session) as server:
        await said(session, "echo x >/tmp/shared")
        assert await server.said("cat /tmp/shared") == "x\n"


@pytest.mark.parametrize("level", prove_rest(MOUNTED, keep=(0,)))
async def test_server_reaches_the_hosts_that_were_declared_and_commands_do_not(place, level):
    async def answer(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nhi\n")

    async with (
        server_for(answer) as port,
        server_for(answer) as other,
        session_of(place, level=level) as session,
    ):
        ask = "curl -s --noproxy '' -x ${http_proxy:-http://127.0.0.1:3128} http://127.0.0.1:%d/"
        grant = Grant(hosts=(f"127.0.0.1:{port}",))
        async with server_in(session, grant) as server:
            assert await server.said(ask % port) == "hi\n"
            assert "sandbox blocks" in await server.said(ask % other)
            assert "hi" not in await server.said(f"curl -s --noproxy '*' http://127.0.0.1:{other}/")
            assert [(each.target, each.rule) for each in server.denials] == [
                (f"127.0.0.1:{other}", "not_listed")
            ]
            assert await said(session, ask % port) == ""
            assert session.environment.network == "off"
            assert place.events == []


@pytest.mark.parametrize("level", prove_rest(MOUNTED, keep=(0,)))
async def test_a_declared_loopback_port_is_on_the_loopback_inside(place, level):
    async def answer(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nhi\n")

    async with (
        server_for(answer) as port,
        server_for(answer) as other,
        session_of(place, level=level) as session,
    ):
        ask = "curl -s http://%s:%d/"
        async with server_in(session, Grant(hosts=(f"127.0.0.1:{port}",))) as server:
            for host in ("127.0.0.1", "localhost", "[::1]"):
                assert await server.said(ask % (host, port)) == "hi\n"
            assert await server.said(ask % ("127.0.0.1", other)) == ""
            own = "(python3 -m http.server --bind 127.0.0.1 8766 >/dev/null 2>&1 &) ; "
            own += "for i in 1 2 3 4 5 6 7 8 9; do curl -s http://127.0.0.1:8766/file && break; sleep 0.2; done"
            assert await server.said(own) == "public\n"
            assert await said(session, ask % ("127.0.0.1", port)) == ""
            assert server.denials == []


async def test_a_loopback_port_is_there_as_long_as_it_is_allowed(place):
    async def answer(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nhi\n")

    async with server_for(answer) as port, session_of(place) as session:
        ask = f"curl -s http://127.0.0.1:{port}/; echo $?"
        grant = Grant(hosts=(f"localhost:{port}",))
        assert await said(session, ask) == "7\n"
        for _ in range(2):
            async with session.environment.lending(grant):
                assert await said(session, ask) == "hi\n0\n"
            assert await said(session, ask) == "7\n"
        await session.environment.extend(grant)
        assert await said(session, ask) == "hi\n0\n"
        async with session.environment.lending(Grant(read_paths=(str(place.base / "granted"),))):
            assert await said(session, ask, Grant((str(place.base / "granted"),))) == "hi\n0\n"
        await session.environment.set_network("off")
        assert await said(session, ask) == "7\n"
        taken = (
            f"python3 -c 'import socket; socket.create_server((\"127.0.0.1\", {port})); print(1)'"
        )
        assert await said(session, taken) == "1\n"


async def test_declared_hosts_need_a_proxy(place):
    async with session_of(place, level="landlock") as session:
        with pytest.raises(SandboxError, match="proxy"):
            async with server_in(session, Grant(hosts=("example.org",))):
                pass


async def test_path_that_was_replaced_since_it_was_declared_is_not_let_in(place):
    declared = place.project / "data"
    declared.mkdir()
    grant = Grant((str(declared),)).identified()
    async with session_of(place) as session:
        await said(session, f"rmdir data; ln -s {place.secret} data")
        with pytest.raises(SandboxError, match="changed after you approved it"):
            async with server_in(session, grant):
                pass


@pytest.mark.parametrize("level", prove_rest(LEVELS, keep=(0,)))
async def test_plan_mode_ends_a_server_and_the_next_one_cannot_write(place, level):
    write = place.base / "written"
    write.mkdir()
    grant = Grant(write_paths=(str(write),)).identified()
    async with session_of(place, level=level) as session:
        async with server_in(session, grant) as server:
            await server.said(f"echo 1 >one; echo 1 >{write}/one")
            session.set_mode("ro")
            assert await server.process.wait() == -signal.SIGKILL
        async with server_in(session, grant) as server:
            refused = await server.said(
                f"(echo 2 >two); (echo 2 >{write}/two); cat one {write}/one"
            )
            assert refused.count("cannot create") == 2
            assert refused.endswith("1\n1\n")
            session.set_mode("rw")
            assert await server.process.wait() == -signal.SIGKILL
    assert not (place.project / "two").exists()
    assert not (write / "two").exists()


async def test_server_ends_when_the_sandbox_is_switched_and_when_the_network_opens(place):
    async with session_of(place) as session:
        for change in (
            lambda: session.switch(is_on=False),
            lambda: session.switch(is_on=True),
            lambda: session.set_network("on"),
            lambda: session.set_network("off"),
        ):
            async with server_in(session, TOKEN="t") as server:
                assert await server.said("echo $TOKEN") == "t\n"
                if changing := change():
                    await changing
                assert await server.process.wait() == -signal.SIGKILL


@prove
async def test_other_modes_and_hosts_for_commands_let_a_server_live(place):
    async with session_of(place) as session, server_in(session, TOKEN="t") as server:
        session.set_mode("rw")
        async with session.environment.lending(Grant(hosts=("example.org",))):
            pass
        await session.confined.extend(Grant((str(place.base / "granted"),)).identified())
        assert await server.said("echo here") == "here\n"
        assert "No such file" in await server.said(f"ls {place.base}/granted")


async def test_server_without_a_sandbox_has_its_pipes_and_ends_with_what_it_started(place):
    async with session_of(place) as session:
        session.switch(is_on=False)
        async with server_in(session, TOKEN="t") as server:
            assert await server.said("echo $TOKEN") == "t\n"
            pid = int(await server.said("sleep 600 & echo $!"))
            assert is_alive(pid)
        await happens(lambda: not is_alive(pid))


async def test_errors_of_a_server_come_apart(place):
    async with session_of(place) as session:
        process = await session.spawn_server(
            "notes", ["sh", "-c", "echo out; echo err >&2"], env={}
        )
        assert process.stdout
        assert process.stderr
        assert await process.stdout.receive() == b"out\n"
        assert await process.stderr.receive() == b"err\n"
        process.close()


@prove
async def test_session_does_not_rest_while_a_server_lives(place):
    async with session_of(place) as session, server_in(session) as server:
        await would_rest(session)
        assert await server.said("echo here") == "here\n"


@prove
@pytest.mark.parametrize("name", ["../up", "a/b", ""])
async def test_name_that_leads_elsewhere_is_none_for_a_server(place, name):
    async with session_of(place) as session:
        with pytest.raises(SandboxError, match="valid server name"):
            await session.spawn_server(name, SHELL, env={"A": "b"})


@prove
async def test_twenty_servers_start_side_by_side(place):
    async with session_of(place) as session:
        found: list[str] = []

        async def serve(number: int) -> None:
            process = await session.spawn_server(f"n{number}", SHELL, env={"N": str(number)})
            found.append(await Server(process, []).said("echo $N"))
            process.close()

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(serve, number)
        assert sorted(map(int, found)) == list(range(20))


@prove
async def test_looks_are_seldom_while_only_servers_run_and_often_again_with_a_command(
    place, monkeypatch
):
    looks = list[float]()

    def pauses() -> list[float]:
        return [later - earlier for earlier, later in pairwise(looks)]

    async with session_of(place) as session, server_in(session) as server:
        sandbox = session.manager.sandbox
        assert sandbox
        monkeypatch.setattr(sandbox, "retire_views", lambda: looks.append(anyio.current_time()))
        while len(looks) < 4:
            await passes(DISK_CHECK_S / 2)
        assert min(pauses()) > 0.9 * IDLE * DISK_CHECK_S
        process = await session.environment.spawn(["sleep", "600"])
        looks.clear()
        while len(looks) < 4:
            await passes(DISK_CHECK_S / 2)
        assert min(pauses()) < 0.5 * IDLE * DISK_CHECK_S
        process.close()
        assert await server.said("echo here") == "here\n"
