"""Answers in the format of Chat Completions, as those who speak it send them: what they say, how they cut it, how they end."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.streams import EMOJI, READ, TELEPORT, TODO
from tests.wires.chat import (
    DONE,
    begin,
    chunk,
    done,
    error,
    event,
    finish,
    text,
    thinking,
    tool_use,
    usage,
)


def _of(*parts: bytes, reason: str = "stop") -> bytes:
    return begin() + b"".join(parts) + done(reason)


def _calls(*parts: bytes) -> bytes:
    return _of(*parts, reason="tool_calls")


def _call(function: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """One delta of a call, with no more than this."""
    return chunk({"tool_calls": [fields | ({"function": function} if function else {})]})


SIGNED = {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}
MARKED = {"extra_content": {"google": {"thought": True}}}
DETAIL = {"type": "reasoning.encrypted", "data": "c2VjcmV0", "id": "rs_1", "index": 0}
PLAIN: dict[str, bytes] = {
    "text": _of(text("Hello", " there.")),
    "unicode": _of(text(*EMOJI.split(" "))),
    "lines": _of(text("a\n", "\n```py\n", "x = 1\n", "```\n")),
    "nothing but blanks": _of(text("\n\n")),
    "nothing": _of(),
    "no words, no choice": begin() + usage() + DONE,
    "text, cut by the limit": _of(text("And so on and"), reason="length"),
    "withheld": _of(text("I would rath"), reason="content_filter"),
    "thought": _of(thinking("Let me", " see."), text("I see.")),
    "thought in another field": _of(thinking("Let me", " see.", field="reasoning"), text("So.")),
    "thought with details": _of(chunk({"reasoning_details": [DETAIL]}), text("I see.")),
    "a thought between tags": _of(
        chunk({"content": "<thought>Hm.", **MARKED}),
        chunk({"content": " So.", **MARKED}),
        text("</thought>I see."),
    ),
    "nothing but a thought": _of(thinking("So much to", " think"), reason="length"),
    "a tool": _calls(tool_use("call_1", "todo", TODO)),
    "a tool in pieces": _calls(
        text("I plan."), tool_use("call_1", "todo", TODO[:9], TODO[9:30], TODO[30:])
    ),
    "three tools": _calls(
        tool_use("call_1", "todo", TODO),
        tool_use("call_2", "read", READ, index=1),
        tool_use("call_3", "teleport", TELEPORT, index=2),
    ),
    "thought, text and tools": _calls(
        thinking("First the plan."),
        text("I plan."),
        tool_use("call_1", "todo", TODO),
        tool_use("call_2", "read", READ, index=1),
    ),
    "a signed call": _calls(thinking("Hm."), tool_use("call_1", "read", READ, **SIGNED)),
    "a tool, then text": _calls(tool_use("call_1", "todo", TODO), text("Meanwhile")),
    "a tool without input": _calls(tool_use("call_1", "jobs")),
    "a wrong input": _calls(tool_use("call_1", "todo", '{"itemz": []}')),
    "an input that is no object": _calls(tool_use("call_1", "todo", "[1]")),
    "one id twice": _calls(
        tool_use("call_1", "todo", TODO), tool_use("call_1", "todo", TODO, index=1)
    ),
    "names that no API takes": _calls(
        tool_use("", "", READ),
        tool_use("a b", "read\0 " * 100, READ, index=1),
        tool_use("call_1", "x" * 600, READ, index=2),
    ),
    "calls without an index": _calls(
        _call({"name": "todo", "arguments": TODO}, id="call_1", type="function"),
        _call({"name": "read", "arguments": READ}, id="call_2", type="function"),
    ),
    "calls at one index": _calls(
        _call({"name": "todo", "arguments": TODO}, index=0, id="call_1"),
        _call({"name": "read", "arguments": READ}, index=0, id="call_2"),
    ),
    "calls without ids": _calls(
        _call({"name": "todo", "arguments": TODO}, index=0),
        _call({"name": "read", "arguments": READ}, index=1),
    ),
    "a name that comes again": _calls(
        _call({"name": "todo", "arguments": TODO[:20]}, index=0, id="call_1"),
        _call({"name": "todo", "arguments": TODO[20:]}, index=0, id="call_1"),
    ),
    "a name that comes late": _calls(
        _call({"arguments": ""}, index=0, id="call_1"),
        _call({"name": "todo"}, index=0),
        _call({"arguments": TODO}, index=0),
    ),
    "empty fields in pieces": _calls(
        _call({"name": "todo", "arguments": ""}, index=0, id="call_1", type="function"),
        _call({"name": "", "arguments": TODO}, index=0, id="", type=""),
    ),
    "nulls in pieces": _calls(
        _call({"name": "todo", "arguments": None}, index=0, id="call_1", type="function"),
        _call({"name": None, "arguments": TODO}, index=0, id=None, type=None),
    ),
    "an input that is an object": _calls(
        _call({"name": "todo", "arguments": json.loads(TODO)}, index=0, id="call_1")
    ),
    "two inputs in one": _calls(tool_use("call_1", "todo", TODO + READ)),
    "two calls in one piece": _calls(
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "call_1", "function": {"name": "todo", "arguments": TODO}},
                    {"index": 1, "id": "call_2", "function": {"name": "read", "arguments": READ}},
                ]
            }
        )
    ),
    "a call with the reason to stop": begin()
    + chunk(
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "function": {"name": "todo", "arguments": TODO}}
            ]
        },
        "tool_calls",
    )
    + DONE,
    "half an input": _of(tool_use("call_1", "todo", TODO[:20]), reason="length"),
    "a tool and half an input": _of(
        tool_use("call_1", "read", READ),
        tool_use("call_2", "todo", TODO[:20], index=1),
        reason="length",
    ),
    "calls that stop as words do": _of(tool_use("call_1", "todo", TODO)),
    "no mark at the end": begin() + text("Hello") + finish() + usage(),
    "no usage": begin() + text("Hello") + finish() + DONE,
    "usage with the reason to stop": begin()
    + text("Hello")
    + chunk({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1})
    + DONE,
    "no reason to stop": begin() + text("Hello") + DONE,
    "failing at once": error(),
    "failing in a text": begin() + text("Hel") + error(),
    "failing after a tool": begin() + tool_use("call_1", "todo", TODO) + error(),
    "a failure in a choice": begin()
    + text("Hel")
    + event(
        {
            "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}],
            "error": {"code": 502, "message": "Upstream"},
        }
    ),
    "no role, no model": b"".join(
        event({"choices": [{"delta": delta}]}) for delta in ({"content": "Hello"}, {})
    )
    + event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    + DONE,
    "a list of parts": _of(chunk({"content": [{"type": "text", "text": "Hello"}]})),
    "a thought among the parts": _of(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        chunk({"content": [{"type": "text", "text": "Hello"}]}),
    ),
    "half a surrogate pair": _of(text("<").replace(b'"<"', rb'"\ud83d"'), text("Words.")),
}


def _between_events(stream: bytes, noise: bytes) -> bytes:
    return noise + stream.replace(b"\n\n", b"\n\n" + noise)


FRAMINGS: dict[str, Callable[[bytes], bytes]] = {
    "comments": lambda stream: _between_events(stream, b": OPENROUTER PROCESSING\n\n"),
    "empty choices": lambda stream: _between_events(stream, chunk()),
    "carriage returns": lambda stream: stream.replace(b"\n", b"\r\n"),
    "no blank after the colon": lambda stream: stream.replace(b"data: ", b"data:"),
    "nulls": lambda stream: stream.replace(
        b'"delta": {', b'"delta": {"refusal": null, "function_call": null, "audio": null, '
    ).replace(b", }", b"}"),
}
FRAMED = ("unicode", "thought, text and tools", "a tool and half an input")


def _all() -> Iterator[tuple[str, bytes]]:
    yield from PLAIN.items()
    for framing, frame in FRAMINGS.items():
        yield from ((f"{name}, {framing}", frame(PLAIN[name])) for name in FRAMED)


STREAMS: dict[str, bytes] = dict(_all())
LAST_WORDS = _of(text("All done."))
