"""
Answers in the format of Responses: https://platform.openai.com/docs/api-reference/responses-streaming.

Items that begin, grow and are done; the last event has the whole response.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.api_rules import Block
from tests.wires.chat import pieces


def event(kind: str, **fields: Any) -> bytes:
    """Its number in the sequence is not one that anybody should read."""
    data = json.dumps({"type": kind, "sequence_number": 0} | fields, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def response(status: str = "in_progress", **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1795000000,
        "model": "m",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
    } | fields


def begin() -> bytes:
    return event("response.created", response=response()) + event(
        "response.in_progress", response=response()
    )


def usage(
    input_tokens: int = 10, output_tokens: int = 5, cached: int = 0, written: int = 0
) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


def done(*output: Mapping[str, Any], **counts: int) -> bytes:
    whole = response("completed", output=output, usage=usage(**counts))
    return event("response.completed", response=whole)


def incomplete(reason: str = "max_output_tokens", *output: Mapping[str, Any]) -> bytes:
    details = {"incomplete_details": {"reason": reason}, "usage": usage()}
    return event("response.incomplete", response=response("incomplete", output=output, **details))


def failed(code: str = "server_error", message: str = "as the test wants it") -> bytes:
    told = response("failed", error={"code": code, "message": message})
    return event("response.failed", response=told)


def error(code: str = "server_error", message: str = "as the test wants it") -> bytes:
    return event("error", code=code, message=message, param=None)


def said(words: str, item_id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": words, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": item_id,
        "role": "assistant",
        "status": "completed",
        "content": [part],
    } | fields


def thought(words: str, encrypted: str, item_id: str = "rs_1") -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": words}] if words else [],
        "encrypted_content": encrypted,
    }


def call(call_id: str, name: str, arguments: str, item_id: str = "fc_1") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": item_id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def custom_call(call_id: str, name: str, text: str, item_id: str = "ctc_1") -> dict[str, Any]:
    """A call of a tool that takes text instead of JSON."""
    return {
        "type": "custom_tool_call",
        "id": item_id,
        "call_id": call_id,
        "name": name,
        "input": text,
        "status": "completed",
    }


def item(index: int, whole: Mapping[str, Any]) -> bytes:
    """The events in which an item comes."""
    return b"".join(_item(index, whole))


def _item(index: int, whole: Mapping[str, Any]) -> Iterator[bytes]:
    at = {"output_index": index, "item_id": whole["id"]}
    empty = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
    }
    begun = {**whole, **empty.get(whole["type"], {"summary": [], "encrypted_content": ""})}
    if "status" in whole:
        begun["status"] = "in_progress"
    yield event("response.output_item.added", output_index=index, item=begun)
    match whole["type"]:
        case "message":
            for n, part in enumerate(whole["content"]):
                place = {**at, "content_index": n}
                yield event("response.content_part.added", **place, part={**part, "text": ""})
                for piece in pieces(part["text"]):
                    yield event("response.output_text.delta", **place, delta=piece, logprobs=[])
                yield event("response.output_text.done", **place, text=part["text"], logprobs=[])
                yield event("response.content_part.done", **place, part=part)
        case "reasoning":
            for n, part in enumerate(whole["summary"]):
                place = {**at, "summary_index": n}
                kind = "response.reasoning_summary"
                yield event(f"{kind}_part.added", **place, part={**part, "text": ""})
                for piece in pieces(part["text"]):
                    yield event(f"{kind}_text.delta", **place, delta=piece)
                yield event(f"{kind}_text.done", **place, text=part["text"])
                yield event(f"{kind}_part.done", **place, part=part)
        case "custom_tool_call":
            kind = "response.custom_tool_call_input"
            for piece in pieces(whole["input"]):
                yield event(f"{kind}.delta", **at, delta=piece)
            yield event(f"{kind}.done", **at, input=whole["input"])
        case _:
            kind = "response.function_call_arguments"
            for piece in pieces(whole["arguments"]):
                yield event(f"{kind}.delta", **at, delta=piece)
            yield event(f"{kind}.done", **at, arguments=whole["arguments"])
    yield event("response.output_item.done", output_index=index, item=whole)


def events_of(items: Sequence[Mapping[str, Any]], reason: str = "") -> bytes:
    """The stream that says `items`; for a `reason` it is incomplete."""
    end = incomplete(reason, *items) if reason else done(*items)
    return b"".join((begin(), *itertools.starmap(item, enumerate(items)), end))


def text(*words: str) -> bytes:
    return b"".join(item(n, said(each, f"msg_{n}")) for n, each in enumerate(words))


def hello() -> bytes:
    return events_of([said("Hello there.")])


def items_of(content: Sequence[Block], tag: str) -> list[dict[str, Any]]:
    """The items that say `content`; `tag` makes their ids those of one response."""
    found: list[dict[str, Any]] = []
    for n, block in enumerate(content):
        match block["type"]:
            case "text":
                found.append(said(block["text"], f"msg_{tag}{n}"))
            case "thinking":
                found.append(thought(block["thinking"], block["signature"], f"rs_{tag}{n}"))
            case _:
                arguments = json.dumps(block["input"], ensure_ascii=False)
                found.append(call(block["id"], block["name"], arguments, f"fc_{tag}{n}"))
    return found


def error_body(message: str, kind: str = "invalid_request_error") -> bytes:
    told = {"message": message, "type": kind, "param": None, "code": None}
    return json.dumps({"error": told}).encode()
