"""A hostile server over HTTP on the loopback, in the test's own process: a path is answered as the test says."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import anyio
from anyio.abc import SocketAttribute, SocketStream

CRLF = b"\r\n"


class Asked(NamedTuple):
    """A request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


class Reply(NamedTuple):
    """An answer; a `pause_s` divides the bytes of its body."""

    body: bytes | dict[str, Any] = b""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    pause_s: float = 0


class Hostile:
    """The server at `url`, and all that it was `asked`. `routes` answer by the path; what has none is 404."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        self.asked: list[Asked] = []
        self.routes: dict[str, Callable[[Asked], Reply] | Reply] = {"/mcp": self.take_message}
        self.called = Reply({"result": {"content": []}})

    def of(self, path: str) -> list[Asked]:
        return [each for each in self.asked if each.path.partition("?")[0] == path]

    def take_message(self, asked: Asked) -> Reply:
        message = asked.message
        if asked.method != "POST" or "id" not in message:
            return Reply(status=202 if asked.method == "POST" else 405)
        if message["method"] == "tools/call":
            return self.called
        result: dict[str, Any] = {"tools": []}
        if message["method"] == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        return Reply({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            try:
                asked = await _read(stream)
                self.asked.append(asked)
                route = self.routes.get(asked.path.partition("?")[0], Reply(status=404))
                await _send(stream, route if isinstance(route, Reply) else route(asked))
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass


@asynccontextmanager
async def hostile_over_http() -> AsyncIterator[Hostile]:
    """The server, as long as the context lasts."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Hostile(listener.extra(SocketAttribute.local_port))
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()


async def _read(stream: SocketStream) -> Asked:
    data = b""
    while 2 * CRLF not in data:
        data += await stream.receive()
    head, _, body = data.partition(2 * CRLF)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, body)


async def _send(stream: SocketStream, reply: Reply) -> None:
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **reply.headers,
    }
    lines = "\r\n".join(f"{name}: {value}" for name, value in headers.items())
    await stream.send(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n\r\n".encode())
    if not reply.pause_s:
        await stream.send(body)
        return
    for number in range(len(body)):
        await stream.send(body[number : number + 1])
        await anyio.sleep(reply.pause_s)
