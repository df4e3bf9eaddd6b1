"""
The model of the benchmark: the Messages API's wire format, in a process of its own (`python -m tests.bench.server`).

It prints its port, then for each answer a line of JSON: when the request had arrived and when each mark left, in CLOCK_MONOTONIC,
which all processes share. The last words of a request say how it is answered:

    stream ID COUNT RATE    COUNT deltas, RATE of them per second; 0: all at once
    fill ID LINES           that many lines, in large pieces

Every answer begins with `begin<ID>` and ends with `end<ID>`.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

from tests import loopback
from tests.bench.markdown import deltas, document

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LIMITS = json.dumps(
    {
        "type": "model",
        "id": "m",
        "display_name": "M",
        "created_at": "2026-01-01T00:00:00Z",
        "max_input_tokens": 100_000_000,
        "max_tokens": 64_000,
    }
).encode()
FILL_CHARS = 1000


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Answer:
    def __init__(self, words: str) -> None:
        kind, answer_id, *numbers = words.split()
        self.id = int(answer_id)
        self.sent: dict[str, float] = {}
        if kind == "fill":
            self.rate = 0
            text = document(int(numbers[0]))
            starts = range(0, len(text), FILL_CHARS)
            self.deltas = [(text[start : start + FILL_CHARS], []) for start in starts]
        else:
            count, self.rate = map(int, numbers)
            self.deltas = list(deltas(count))
        self.deltas.insert(0, (f"begin{self.id:06} ", []))
        self.deltas.append((f"\n\nend{self.id:06} ", []))

    async def chunks(self) -> AsyncIterator[bytes]:
        yield chunk(loopback.message_start() + loopback.block_start())
        start = time.monotonic()
        for n, (text, marks) in enumerate(self.deltas):
            data = chunk(loopback.delta(text=text))
            if self.rate:
                await asyncio.sleep(start + n / self.rate - time.monotonic())
                self.sent |= dict.fromkeys(marks, time.monotonic())
            yield data
        yield chunk(loopback.block_stop() + loopback.done()) + b"0\r\n\r\n"


async def answer(body: bytes, writer: asyncio.StreamWriter) -> None:
    at = time.monotonic()
    reply = Answer(json.loads(body)["messages"][-1]["content"][-1]["text"])
    try:
        if reply.rate:
            writer.write(HEAD)
            async for data in reply.chunks():
                writer.write(data)
                await writer.drain()
        else:
            writer.write(HEAD + b"".join([data async for data in reply.chunks()]))
            await writer.drain()
    finally:
        print(json.dumps({"id": reply.id, "at": at, "sent": reply.sent}), flush=True)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with (
        contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        contextlib.closing(writer),
    ):
        while True:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if first.startswith("post"):
                await answer(body, writer)
            else:
                head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(LIMITS)}\r\n\r\n"
                writer.write(head.encode() + LIMITS)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
