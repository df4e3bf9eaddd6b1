"""Two ends of a connection in one process: what a test writes line by line, and reads."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from sanderling.acp.wire.connection import AcpConnection, Method
from sanderling.acp.wire.wire_log import WireLog
from tests.conftest import DEADLINE_S


class Pipe:
    """A pipe that never fills: bytes that are sent can be received."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[bytes](100_000)
        self.is_read = True

    async def send(self, item: bytes) -> None:
        if not self.is_read:
            raise anyio.BrokenResourceError
        await self._send.send(item)

    async def receive(self) -> bytes:
        return await self._receive.receive()

    def end(self) -> None:
        self._send.close()

    def close(self) -> None:
        self._send.close()
        self._receive.close()


class Line:
    """The other end of a connection, held by hand."""

    def __init__(self, to: Pipe, from_: Pipe, connection: AcpConnection) -> None:
        self.connection = connection
        self.to, self.from_ = to, from_
        self._rest = b""

    async def write(self, *messages: Any) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else msgspec.json.encode(message) + b"\n"
            await self.to.send(data)

    async def read(self) -> Any:
        with anyio.fail_after(DEADLINE_S):
            while b"\n" not in self._rest:
                self._rest += await self.from_.receive()
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line)

    async def ask(self, method: str, params: Any = None, request_id: Any = 1) -> Any:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        await self.write(message if params is None else message | {"params": params})
        return await self.read()


@asynccontextmanager
async def connected(
    methods: Mapping[str, Method],
    notifications: Mapping[str, Callable[[msgspec.Raw], None]] | None = None,
    *,
    wire_log: WireLog | None = None,
    on_end: Callable[[], None] | None = None,
) -> AsyncGenerator[Line]:
    """A connection that serves while the context lasts."""
    to, from_ = Pipe(), Pipe()
    connection = AcpConnection(
        to, from_, methods, notifications or {}, wire_log=wire_log, on_end=on_end
    )
    line = Line(to, from_, connection)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.serve)
            yield line
            to.end()
    finally:
        to.close()
        from_.close()
