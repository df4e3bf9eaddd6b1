"""Answers in the format of Ollama's own API: https://docs.ollama.com/api/chat. A line of JSON for each piece, the last one `done`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.api_rules import Block
from tests.wires.chat import pieces


def line(message: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    data = {
        "model": "m",
        "created_at": "2026-11-23T12:00:00.000000Z",
        "message": {"role": "assistant", "content": ""} | (message or {}),
        "done": False,
    }
    return json.dumps(data | fields, ensure_ascii=False).encode() + b"\n"


def text(*words: str) -> bytes:
    return b"".join(line({"content": piece}) for piece in words)


def thinking(*words: str) -> bytes:
    return b"".join(line({"thinking": piece}) for piece in words)


def tool_use(name: str, arguments: object, **fields: Any) -> bytes:
    return line({"tool_calls": [{"function": {"name": name, "arguments": arguments}, **fields}]})


def done(reason: str = "stop", prompt: int = 10, completion: int = 5) -> bytes:
    counts = {"prompt_eval_count": prompt, "eval_count": completion}
    return line(done=True, done_reason=reason, total_duration=1_000_000, **counts)


def error(message: str = "as the test wants it") -> bytes:
    return json.dumps({"error": message}).encode() + b"\n"


error_body = error


def hello() -> bytes:
    return text("Hello", " there.") + done()


def events_of(content: Sequence[Block], reason: str = "stop") -> bytes:
    parts: list[bytes] = []
    for block in content:
        match block["type"]:
            case "text":
                parts.append(text(*pieces(block["text"])))
            case "thinking":
                parts.append(thinking(*pieces(block["thinking"])))
            case _:
                parts.append(tool_use(block["name"], block["input"]))
    return b"".join((*parts, done(reason)))
