"""`sanderling serve`: a client over WebSocket beside one over standard input and output, one that comes again, and many."""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.acp.talk import Home
from tests.bench.shared import Bench, Row
from tests.serve.talk import Server

CHUNKS = 1_000
MANY = 20
MISSED = 500  # updates


class _Client:
    """One connection, and the moments at which chunks came over it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = 0
        self.life = ""
        self.seq = 0

    async def ask(self, method: str, **params: Any) -> tuple[Any, list[float]]:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        await self._socket.send(json.dumps(message))
        chunks: list[float] = []
        while True:
            frame = await self._socket.recv(decode=False)
            if b'"agent_message_chunk"' in frame:
                chunks.append(time.monotonic())
            elif b'"method"' not in frame:
                return json.loads(frame)["result"], chunks

    async def open(self, folder: str) -> str:
        ours = {"_meta": {"sanderling": {"resume": True}}}
        await self.ask("initialize", protocolVersion=1, clientCapabilities=ours)
        said, _ = await self.ask("session/new", cwd=folder, mcpServers=[])
        self.life = said["_meta"]["sanderling"]["life"]
        return said["sessionId"]

    async def prompt(self, session: str, text: str) -> list[float]:
        block = {"type": "text", "text": text}
        return (await self.ask("session/prompt", sessionId=session, prompt=[block]))[1]


def serve(bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        step = {"text": "word " * CHUNKS, "chunk_chars": 5}
        script = home.folder / "script.json"
        script.write_text(json.dumps({"version": 1, "reply": [{"step": [step], "repeat": True}]}))
        server = Server(home, "--model", f"script:{script}")
        try:
            yield from asyncio.run(_measured(bench, server, str(home.project)))
            server.finish()
        finally:
            server.kill()


async def _measured(bench: Bench, server: Server, folder: str) -> list[Row]:
    warm: list[float] = []
    flood: list[float] = []
    async with server.connect(compression=None) as socket:
        client = _Client(socket)
        session = await client.open(folder)
        await client.prompt(session, "ping")
        for _ in bench.times(8):
            for _ in range(5):
                began = time.monotonic()
                warm.append(1000 * ((await client.prompt(session, "ping"))[0] - began))
            began = time.monotonic()
            chunks = await client.prompt(session, "go")
            assert len(chunks) >= CHUNKS
            flood.append(1000 * (chunks[-1] - began))
    caught_up = [await _come_again(server, session, client.life, folder) for _ in bench.times(8)]
    per_client_mb = await _memory_of_many(server, folder)
    return [
        Row("serve: prompt → first chunk, warm, WebSocket", statistics.median(warm), "ms", 10),
        Row(f"serve: {CHUNKS:,} chunks over WebSocket", statistics.median(flood), "ms", 1_000),
        Row(
            f"serve: connect again → {MISSED} updates caught up",
            statistics.median(caught_up),
            "ms",
            300,
        ),
        Row(f"serve: memory a client with a session, of {MANY}", per_client_mb, "MB", 6),
    ]


async def _come_again(server: Server, session: str, life: str, folder: str) -> float:
    """The time until one that was cut off has the last updates, and its session."""
    began = time.monotonic()
    async with server.connect(compression=None, close_timeout=0.1) as socket:
        client = _Client(socket)
        ours = {"_meta": {"sanderling": {"resume": True}}}
        await client.ask("initialize", protocolVersion=1, clientCapabilities=ours)
        place = {"_meta": {"sanderling": {"life": life, "after": 10}}}
        said, _ = await client.ask(
            "session/resume", sessionId=session, cwd=folder, mcpServers=[], **place
        )
        assert said["_meta"]["sanderling"]["is_continued"]
        for _ in range(MISSED):
            await socket.recv(decode=False)
        return 1000 * (time.monotonic() - began)


async def _memory_of_many(server: Server, folder: str) -> float:
    before = _rss_mb(server.process.pid)
    sockets: list[ClientConnection] = []
    for _ in range(MANY):
        sockets.append(await server.connect(compression=None))
        client = _Client(sockets[-1])
        await client.prompt(await client.open(folder), "ping")
    after = _rss_mb(server.process.pid)
    for socket in sockets:
        await socket.close()
    return (after - before) / MANY


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
