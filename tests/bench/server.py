"""
The model of the benchmark, in a process of its own (`python -m tests.bench.server`): the Messages API's wire format.

What is asked in another format (`FORMATS`, by path) is answered in that, with words alone.

It prints its port, then for each answer a line of JSON: when the request had arrived and when each mark left, in CLOCK_MONOTONIC,
which all processes share. The last words of a prompt say how it is answered:

    stream ID COUNT RATE       COUNT deltas, RATE of them per second; 0: all at once
    fill ID LINES [RATE]       that many lines, in large pieces; with a RATE in small ones, so many of them per second
    use ID COUNT TOOL INPUT    COUNT uses of a tool, one after the other; a value "#" becomes the number of the use
    think ID COUNT TOOL INPUT  the same, each after THINKING_S

Every answer begins with `begin<ID>` and ends with `end<ID>`; one that uses a tool does so behind its last use. Its line tells, too,
how many results the request held, what the last one begins with, and the Unix time.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from tests import loopback
from tests.bench.markdown import deltas, document
from tests.wires import chat, ollama, responses


def head(content_type: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


EVENTS = "text/event-stream; charset=utf-8"
HEAD = head(EVENTS)
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
FLOW_CHARS = 200
TOLD_CHARS = 200
THINKING_S = 0.4


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Answer:
    def __init__(self, words: str) -> None:
        kind, answer_id, *numbers = words.split()
        self.id = int(answer_id)
        self.sent: dict[str, float] = {}
        if kind == "fill":
            lines, self.rate = map(int, (*numbers, 0)[:2])
            text, size = document(lines), FLOW_CHARS if self.rate else FILL_CHARS
            starts = range(0, len(text), size)
            self.deltas = [(text[start : start + size], []) for start in starts]
        elif kind in ("use", "think"):
            self.rate, self.deltas = 0, []
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


def asked(messages: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The last words of the last prompt, and the results that have followed it."""
    results: list[str] = []
    for blocks in (message["content"] for message in reversed(messages)):
        results[:0] = [block["content"] for block in blocks if block["type"] == "tool_result"]
        if all(block["type"] == "text" for block in blocks):
            return blocks[-1]["text"], results
    raise ValueError("no prompt")


def asked_otherwise(body: dict[str, Any]) -> str:
    """The last words of the last prompt: texts are joined by a blank line in some formats."""
    items = body.get("messages") or body["input"]
    content = [item["content"] for item in items if item.get("role") == "user"][-1]
    return (content if isinstance(content, str) else content[-1]["text"]).rpartition("\n\n")[2]


def told_in_chat(*texts: str) -> bytes:
    return chat.begin() + chat.text(*texts) + chat.done()


def told_in_responses(*texts: str) -> bytes:
    return responses.begin() + responses.text("".join(texts)) + responses.done()


def told_in_ollama(*texts: str) -> bytes:
    return ollama.text(*texts) + ollama.done()


FORMATS = {
    "/v1/chat/completions": (EVENTS, told_in_chat),
    "/v1/responses": (EVENTS, told_in_responses),
    "/api/chat": ("application/x-ndjson", told_in_ollama),
}


async def answer_otherwise(path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
    at = time.monotonic()
    content_type, told_by = FORMATS[path]
    reply = Answer(asked_otherwise(json.loads(body)))
    told = told_by(*(text for text, _ in reply.deltas))
    writer.write(head(content_type) + chunk(told) + b"0\r\n\r\n")
    await writer.drain()
    print(json.dumps({"id": reply.id, "at": at}), flush=True)


def next_use(words: str, number: int) -> bytes:
    """The tool use with this number, as the API sends it; empty if the answer has no such use."""
    if not words.startswith(("use ", "think ")):
        return b""
    _, answer_id, count, tool, data = words.split(" ", 4)
    if number > int(count):
        return b""
    use = loopback.tool_use(f"toolu_{answer_id}_{number}", tool, data.replace('"#"', str(number)))
    return loopback.message_start() + use + loopback.done("tool_use")


async def answer(body: bytes, writer: asyncio.StreamWriter) -> None:
    at, unix_time = time.monotonic(), time.time()
    words, results = asked(json.loads(body)["messages"])
    reply = Answer(words)
    try:
        if use := next_use(words, len(results) + 1):
            await asyncio.sleep(THINKING_S if words.startswith("think ") else 0)
            writer.write(HEAD + chunk(use) + b"0\r\n\r\n")
            await writer.drain()
            reply.sent["use"] = time.monotonic()
        elif reply.rate:
            writer.write(HEAD)
            async for data in reply.chunks():
                writer.write(data)
                await writer.drain()
        else:
            whole = HEAD + b"".join([data async for data in reply.chunks()])
            reply.sent["first"] = time.monotonic()
            writer.write(whole)
            await writer.drain()
    finally:
        told = {
            "results": len(results),
            "told": results[-1][:TOLD_CHARS] if results else "",
            "unix_time": unix_time,
        }
        print(json.dumps({"id": reply.id, "at": at, "sent": reply.sent} | told), flush=True)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with (
        contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        contextlib.closing(writer),
    ):
        while True:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if (path := first.split()[1]) in FORMATS:
                await answer_otherwise(path, body, writer)
            elif path.startswith("/v1/messages"):
                await answer(body, writer)
            else:
                limits_head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(LIMITS)}\r\n\r\n"
                writer.write(limits_head.encode() + LIMITS)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
