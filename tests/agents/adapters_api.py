"""A model behind the APIs of Messages, Responses, Chat Completions and Gemini, on the loopback: it uses a tool once, then says "pong"."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Event = dict[str, Any]


class ModelApi:
    """The server, while its context lasts."""

    def __init__(self) -> None:
        self._tool: tuple[str, dict[str, Any]] | None = None
        self._bodies: list[bytes] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_HEAD(self) -> None:
                self._answer(b"", "text/plain")

            def do_GET(self) -> None:
                self._answer(b'{"data": [], "object": "list"}', "application/json")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                self._answer(api._reply(self.path, body), "text/event-stream")

            def _answer(self, data: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def uses(self, tool: str, arguments: dict[str, Any]) -> None:
        self._tool = tool, arguments

    def result(self) -> str:
        """The result of the tool, as the model was told of it."""
        marks = (b'"tool_result"', b'"function_call_output"')
        found = [body for body in self._bodies if any(mark in body for mark in marks)]
        body = found[-1].decode()
        return body[max(body.rfind(mark.decode()) for mark in marks) :][:4000]

    def _reply(self, path: str, body: bytes) -> bytes:
        self._bodies.append(body)
        is_first = b"tool_result" not in body and b"function_call_output" not in body
        if "/chat/completions" in path:
            return _chat()
        if "enerateContent" in path:
            return _gemini(is_stream="stream" in path)
        tool = self._tool if is_first and b"ping" in body else None
        events = _messages(tool) if "/messages" in path else _responses(tool)
        lines = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return "".join(lines).encode()


def _chat() -> bytes:
    chunk: Event = {"id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said: Event = {"index": 0, "delta": {"role": "assistant", "content": "pong"}}
    end: Event = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks = ({**chunk, "choices": [said]}, {**chunk, "choices": [end], "usage": usage})
    lines = (*map(json.dumps, chunks), "[DONE]")
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def _gemini(*, is_stream: bool) -> bytes:
    content: Event = {"role": "model", "parts": [{"text": "pong"}]}
    reply: Event = {
        "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }
    data = json.dumps(reply)
    return (f"data: {data}\n\n" if is_stream else data).encode()


def _messages(tool: tuple[str, dict[str, Any]] | None) -> list[Event]:
    block: Event = {"type": "text", "text": ""}
    delta: Event = {"type": "text_delta", "text": "pong"}
    if tool:
        block = {"type": "tool_use", "id": "toolu_1", "name": tool[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(tool[1])}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    reason = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def _responses(tool: tuple[str, dict[str, Any]] | None) -> list[Event]:
    item: Event = {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "pong", "annotations": []}],
    }
    if tool:
        item = {
            "id": "fc_1",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_1",
            "name": tool[0],
            "arguments": json.dumps(tool[1]),
        }
    response: Event = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-6"}
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    begun = {**response, "status": "in_progress", "output": []}
    delta = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "pong",
    }
    done = {**response, "status": "completed", "output": [item], "usage": usage}
    events = [
        {"type": "response.created", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", **({} if tool else {"content": []})},
        },
        *([] if tool else [delta]),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
