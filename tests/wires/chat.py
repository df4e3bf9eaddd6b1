"""
Answers in the format of Chat Completions: https://platform.openai.com/docs/api-reference/chat-streaming.

`data:` lines of chunks, then `[DONE]`. How an endpoint tells its thoughts is its own affair (`THOUGHTS`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.api_rules import Block

DONE = b"data: [DONE]\n\n"
PIECE_CHARS = 40
# The field of a delta that a thought comes in.
THOUGHTS = {
    "deepseek": "reasoning_content",
    "doubao": "reasoning_content",
    "xai": "reasoning_content",
    "llamacpp": "reasoning_content",
    "vllm": "reasoning",
    "groq": "reasoning",
    "openrouter": "reasoning",
}


def chunk(
    delta: Mapping[str, Any] | None = None, finish_reason: str | None = None, **fields: Any
) -> bytes:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
    data: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1795000000,
        "model": "m",
        "choices": [] if delta is None else choices,
    }
    return event(data | fields)


def event(data: object) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def begin() -> bytes:
    return chunk({"role": "assistant", "content": ""})


def text(*pieces: str) -> bytes:
    return b"".join(chunk({"content": piece}) for piece in pieces)


def thinking(*pieces: str, field: str = "reasoning_content") -> bytes:
    return b"".join(chunk({field: piece}) for piece in pieces)


def tool_use(use_id: str, name: str, *partial_json: str, index: int = 0, **extra: Any) -> bytes:
    function = {"name": name, "arguments": ""}
    first = {"index": index, "id": use_id, "type": "function", "function": function} | extra
    return chunk({"tool_calls": [first]}) + b"".join(
        chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        for piece in partial_json
    )


def finish(reason: str = "stop") -> bytes:
    return chunk({}, reason)


def usage(prompt: int = 10, completion: int = 5, cached: int = 0, written: int = 0) -> bytes:
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
    }
    return chunk(usage=counts)


def done(reason: str = "stop") -> bytes:
    return finish(reason) + usage() + DONE


def error(message: str = "as the test wants it", kind: str = "server_error") -> bytes:
    return event({"error": {"message": message, "type": kind, "code": None, "param": None}})


def hello() -> bytes:
    return begin() + text("Hello", " there.") + done()


def error_body(message: str, kind: str = "invalid_request_error") -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": None}}).encode()


def message_of(content: Sequence[Block], endpoint: str) -> dict[str, Any]:
    """The message of `endpoint` that says `content`, as it would be sent in one piece."""
    message: dict[str, Any] = {"role": "assistant"}
    words = "".join(block["text"] for block in content if block["type"] == "text")
    thoughts = [block for block in content if block["type"] == "thinking"]
    calls = [_call(block, endpoint) for block in content if block["type"] == "tool_use"]
    message["content"] = words or None
    if thoughts and (field := THOUGHTS.get(endpoint)):
        message[field] = "".join(block["thinking"] for block in thoughts)
    if thoughts and endpoint == "gemini":
        message["thought"] = "".join(block["thinking"] for block in thoughts)
    if thoughts and endpoint == "openrouter":
        message["reasoning_details"] = [_detail(block) for block in thoughts]
    if calls and thoughts and endpoint == "gemini":
        calls[0]["extra_content"] = {"google": {"thought_signature": thoughts[0]["signature"]}}
    return message | ({"tool_calls": calls} if calls else {})


def _detail(thought: Block) -> dict[str, Any]:
    return {
        "type": "reasoning.text",
        "text": thought["thinking"],
        "signature": thought["signature"],
        "format": "anthropic-claude-v1",
        "index": 0,
    }


def _call(use: Block, endpoint: str) -> dict[str, Any]:
    arguments = json.dumps(use["input"], ensure_ascii=False)
    del endpoint
    return {
        "id": use["id"],
        "type": "function",
        "function": {"name": use["name"], "arguments": arguments},
    }


def events_of(message: Mapping[str, Any], endpoint: str, reason: str = "") -> bytes:
    """The stream in which `endpoint` sends `message`."""
    field = THOUGHTS.get(endpoint, "reasoning_content")
    calls = message.get("tool_calls", ())
    parts = [begin(), thinking(*pieces(message.get(field) or ""), field=field)]
    marked = {"extra_content": {"google": {"thought": True}}}
    if thought := message.get("thought"):
        parts += [chunk({"content": each} | marked) for each in pieces(f"<thought>{thought}")]
        parts.append(text("</thought>"))
    parts += [chunk({"reasoning_details": [each]}) for each in message.get("reasoning_details", ())]
    parts.append(text(*pieces(message.get("content") or "")))
    for index, call in enumerate(calls):
        extra = {key: call[key] for key in call if key not in ("id", "type", "function")}
        function = call["function"]
        arguments = pieces(function["arguments"])
        parts.append(tool_use(call["id"], function["name"], *arguments, index=index, **extra))
    return b"".join((*parts, done(reason or ("tool_calls" if calls else "stop"))))


def pieces(words: str) -> list[str]:
    return [words[start : start + PIECE_CHARS] for start in range(0, len(words), PIECE_CHARS)]
