"""
A server on this machine that speaks the Messages API's wire format byte by byte.

It runs in a thread of the test process. What it answers is data: `server.answer(Reply(text("hi"), done()), Status(529))` answers
the next request with the first, and all after it with the last. Steps of a reply are bytes (the helpers make events), `Wait`, `Until`, or
one of `STALL`, `RESET`, `HANG_UP`; bytes between two waits leave in one write, so that a benchmark measures its client.
Like the API it refuses a history that breaks the API's rules (`api_rules/anthropic.py`).
Wire format: https://docs.anthropic.com/en/api/messages-streaming
"""

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from tests.api_rules.anthropic import refusals

# --- what to answer ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wait:
    """Waits count from the one before, not from when it was over: a hundred of 10 ms take a second."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Say no more until somebody sets the event."""

    event: threading.Event


class Act(Enum):
    STALL = auto()  # say no more, and keep the connection until the peer closes it
    RESET = auto()  # RST
    HANG_UP = auto()  # FIN before the last chunk


STALL, RESET, HANG_UP = Act.STALL, Act.RESET, Act.HANG_UP
Step = bytes | Wait | Until | Act


class Reply:
    """200 and its steps. `chunk_bytes` cuts them into chunks of that many bytes; without `is_chunked` the body ends with the connection."""

    def __init__(
        self,
        *steps: Step,
        chunk_bytes: int = 0,
        newline: bytes = b"\n",
        content_type: str = "text/event-stream; charset=utf-8",
        is_chunked: bool = True,
    ) -> None:
        self.steps = [
            step.replace(b"\n", newline) if isinstance(step, bytes) else step for step in steps
        ]
        self.chunk_bytes = chunk_bytes
        self.is_chunked = is_chunked
        framing = "transfer-encoding: chunked" if is_chunked else "connection: close"
        self.head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{framing}\r\n\r\n".encode()

    def framed(self, data: bytes) -> bytes:
        if not self.is_chunked:
            return data
        size = self.chunk_bytes or len(data) or 1
        return b"".join(
            b"%x\r\n%b\r\n" % (len(chunk), chunk)
            for chunk in (data[start : start + size] for start in range(0, len(data), size))
        )

    def moves(self) -> Iterator[Step]:
        """The steps as they leave: head first, framed, neighbours joined."""
        waiting = [self.head]
        for step in self.steps:
            if isinstance(step, bytes):
                waiting.append(self.framed(step))
            else:
                yield b"".join(waiting)
                yield step
                waiting = []
        yield b"".join((*waiting, b"0\r\n\r\n" if self.is_chunked else b""))
        if not self.is_chunked:
            yield HANG_UP


class Status:
    """An answer in one piece: an error in the API's format, unless `body` says something else."""

    def __init__(
        self,
        status: int,
        error_type: str = "",
        message: str = "as the test wants it",
        *,
        retry_after: object = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> None:
        if body is None:
            error = {"type": error_type or ERROR_TYPES.get(status, "api_error"), "message": message}
            body = json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()
        phrase = next((s.phrase for s in HTTPStatus if s == status), "Overloaded")
        lines = [f"content-type: {content_type}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if retry_after is not None:
            lines.append(f"retry-after: {retry_after}")
        self.data = "\r\n".join([f"HTTP/1.1 {status} {phrase}", *lines, "", ""]).encode() + body

    def moves(self) -> Iterator[Step]:
        yield self.data


class Verbatim:
    """An answer as it stands, head and framing included."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps

    def moves(self) -> Iterator[Step]:
        yield from self.steps


Answer = Reply | Status | Verbatim
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
HTML = b"<!DOCTYPE html>\n<html>\n<body>Log in to the hotel's network: now</body>\n</html>\n"


def model_info(max_input_tokens: Any, max_tokens: Any) -> Status:
    info = {"type": "model", "id": "m", "display_name": "M", "created_at": "2026-01-01T00:00:00Z"}
    limits = {"max_input_tokens": max_input_tokens, "max_tokens": max_tokens}
    return Status(200, body=json.dumps(info | limits).encode())


def model_page(*models: str, has_more: bool = False) -> Status:
    page = {"data": [{"type": "model", "id": model} for model in models], "has_more": has_more}
    ends = {"first_id": models[0], "last_id": models[-1]} if models else {}
    return Status(200, body=json.dumps(page | ends).encode())


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind} | fields, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def message_start(message_id: str = "msg_1", /, **usage: int) -> bytes:
    message = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    return event(
        "message_start",
        message=message | {"usage": {"input_tokens": 10, "output_tokens": 1} | usage},
    )


def block_start(index: int = 0, **block: Any) -> bytes:
    return event(
        "content_block_start", index=index, content_block=block or {"type": "text", "text": ""}
    )


def delta(index: int = 0, kind: str = "text_delta", **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind} | fields)


def block_stop(index: int = 0) -> bytes:
    return event("content_block_stop", index=index)


def text(*pieces: str, index: int = 0) -> bytes:
    return b"".join(
        (block_start(index), *(delta(index, text=piece) for piece in pieces), block_stop(index))
    )


def thinking(*pieces: str, signature: str = "c2lnbmVk", index: int = 0) -> bytes:
    start = block_start(index, type="thinking", thinking="", signature="")
    deltas = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
    return b"".join(
        (start, *deltas, delta(index, "signature_delta", signature=signature), block_stop(index))
    )


def tool_use(use_id: str, name: str, *partial_json: str, index: int = 0) -> bytes:
    start = block_start(index, type="tool_use", id=use_id, name=name, input={})
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in partial_json]
    return b"".join((start, *deltas, block_stop(index)))


def message_delta(stop_reason: str = "end_turn", **usage: int) -> bytes:
    reason = {"stop_reason": stop_reason, "stop_sequence": None}
    return event("message_delta", delta=reason, usage={"output_tokens": 5} | usage)


def message_stop() -> bytes:
    return event("message_stop")


def done(stop_reason: str = "end_turn", **usage: int) -> bytes:
    return message_delta(stop_reason, **usage) + message_stop()


def ping() -> bytes:
    return event("ping")


def comment() -> bytes:
    return b": nothing to see here\n\n"


def error(error_type: str, message: str = "as the test wants it") -> bytes:
    return event("error", error={"type": error_type, "message": message})


def hello() -> Reply:
    return Reply(message_start(), text("Hello", " there."), done())


# --- the server --------------------------------------------------------------------------------------------------------


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)
    closed_at: float | None = None  # when the peer closed the connection that it came on

    def json(self) -> Any:
        return json.loads(self.body)


class Connection(asyncio.Protocol):
    """One TCP connection: reads requests, answers them one after the other."""

    def __init__(self, server: "LoopbackServer") -> None:
        self.server = server
        self.buffer = b""
        self.requests: list[Request] = []
        self.answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connection_count += 1
        self.server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", 0))
        if blank and len(rest) >= length:
            self.buffer = rest[length:]
            request = Request(*first.split()[:2], headers, rest[:length])
            self.requests.append(request)
            self.server.requests.append(request)
            self.answering = asyncio.ensure_future(self.play(self.server.answer_to(request)))

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for request in self.requests:
            request.closed_at = request.closed_at or time.monotonic()
        self.server.connections.discard(self)
        if self.answering:
            self.answering.cancel()

    async def play(self, answer: Answer) -> None:
        due = time.monotonic()
        for move in answer.moves():
            match move:
                case bytes():
                    self.transport.write(move)
                case Wait(seconds):
                    due += seconds
                    await asyncio.sleep(due - time.monotonic())
                case Until(event):
                    while not event.is_set():
                        await asyncio.sleep(0.005)
                    due = time.monotonic()
                case Act.STALL:
                    return
                case Act.RESET:
                    peer: socket.socket = self.transport.get_extra_info("socket")
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.transport.abort()
                    return
                case Act.HANG_UP:
                    self.transport.close()
                    return


class LoopbackServer:
    """`with LoopbackServer() as server`: listens on `server.url`, keeps what it was sent in `server.requests`."""

    prompt_path = "/v1/messages"

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Request] = []
        self.connections: set[Connection] = set()
        self.connection_count = 0
        self.model_answer: Answer = model_info(1_000_000, 128_000)
        self.model_pages: deque[Answer] = deque([model_page("claude-test")])
        self.tunnel_answer: Answer = Status(404)
        self._answers: deque[Answer] = deque([hello()])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def answer(self, *answers: Answer) -> None:
        self._answers = deque(answers)

    @property
    def prompts(self) -> list[Request]:
        """The requests for an answer; the others ask for the model's limits."""
        return [request for request in self.requests if request.path == self.prompt_path]

    def hang_up(self) -> None:
        """Close every connection, as a server does with those that idle."""

        async def close() -> None:
            for connection in list(self.connections):
                connection.transport.close()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()

    def answer_to(self, request: Request) -> Answer:
        if request.method == "CONNECT":
            return self.tunnel_answer
        if (request.method, request.path) != ("POST", self.prompt_path):
            return self.told_besides(request) or Status(404)
        if broken := self.refusals(request):
            return self.refusal("; ".join(broken))
        return self._answers.popleft() if len(self._answers) > 1 else self._answers[0]

    # --- the format ----------------------------------------------------------------------------------------------------

    def told_besides(self, request: Request) -> Answer | None:
        """What there is but answers."""
        if request.method == "GET" and request.path.startswith("/v1/models/"):
            return self.model_answer
        if request.method == "GET" and request.path.partition("?")[0] == "/v1/models":
            return self.model_pages.popleft() if len(self.model_pages) > 1 else self.model_pages[0]
        return None

    def refusals(self, request: Request) -> list[str]:
        return refusals(request.json()["messages"])

    def refusal(self, words: str, status: int = 400, **options: Any) -> Status:
        return Status(status, message=words, **options)

    # --- the thread ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        listen = self._loop.create_server(lambda: Connection(self), "127.0.0.1", 0, ssl=self._tls)
        self._server = asyncio.run_coroutine_threadsafe(listen, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _tb: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for listening in self._server.sockets:
            self._loop.remove_reader(listening)
        # A server that has closed gives nobody a transport any more, and leaves open whoever it has just accepted.
        for _ in range(2):
            await asyncio.sleep(0)
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        answering = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
        await asyncio.sleep(0)  # the aborted connections close their sockets
