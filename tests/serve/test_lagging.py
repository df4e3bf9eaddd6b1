"""Several tasks wait for one client that reads slowly, and each of them continues."""

import anyio

from sanderling.acp.agent.client import Client
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.content import text_block
from sanderling.acp.wire.outbox import Outbox
from sanderling.acp.wire.updates import AgentMessageChunk
from sanderling.serve.broadcast import AHEAD_BYTES, Broadcast, Watcher
from tests.conftest import happens

LARGE = AgentMessageChunk(content=text_block("x" * (AHEAD_BYTES // 2)))
COUNT = 12


class SlowReader:
    """The client's end of a connection: it says nothing, and reads nothing before `may_read`."""

    def __init__(self) -> None:
        self.may_read = anyio.Event()
        self.text = b""

    async def send(self, item: bytes) -> None:
        await self.may_read.wait()
        self.text += item

    async def receive(self) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError


async def test_each_of_two_tasks_that_wait_for_an_outbox_continues_when_it_is_empty():
    reader, done = SlowReader(), []
    outbox = Outbox(reader)

    async def drain(name: str) -> None:
        await outbox.drain()
        done.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.serve)
        outbox.add(b"line\n")
        for name in ("first", "second"):
            tasks.start_soon(drain, name)
        await anyio.wait_all_tasks_blocked()
        reader.may_read.set()
        await happens(lambda: set(done) == {"first", "second"})
        tasks.cancel_scope.cancel()


async def test_both_sessions_of_a_connection_that_lags_are_shown_to_their_end():
    reader = SlowReader()
    connection = AcpConnection(reader, reader, {}, {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.serve)
        for name in ("one", "two"):
            broadcast = Broadcast(name, tasks)
            watcher = Watcher(broadcast, connection, Client(), lambda: None)
            broadcast.add(watcher)
            watcher.begin()
            for _ in range(COUNT):
                broadcast.tell(LARGE)
        await anyio.wait_all_tasks_blocked()
        reader.may_read.set()
        await happens(lambda: reader.text.count(b"session/update") == 2 * COUNT)
        tasks.cancel_scope.cancel()


async def test_two_questions_reach_a_client_that_lags():
    reader = SlowReader()
    connection = AcpConnection(reader, reader, {}, {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.serve)
        broadcast = Broadcast("one", tasks)
        watcher = Watcher(broadcast, connection, Client(), lambda: None)
        broadcast.add(watcher)
        watcher.begin()
        for _ in range(COUNT):
            broadcast.tell(LARGE)
        for name in ("first", "second"):
            tasks.start_soon(broadcast.ask, f"question/{name}", {}, dict, lambda _: True)
        await anyio.wait_all_tasks_blocked()
        reader.may_read.set()
        await happens(lambda: reader.text.count(b"question/") == 2)
        tasks.cancel_scope.cancel()
