"""
Answers of the Messages API, byte by byte as it sends them: what they say, how they are framed, how they end.

The tools that they use count for themselves: `todo` keeps the last list that was written, `read` and `teleport` change nothing.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests import loopback
from tests.loopback import (
    block_start,
    block_stop,
    comment,
    delta,
    done,
    message_delta,
    message_start,
    message_stop,
    ping,
    text,
    thinking,
    tool_use,
)

TODO = json.dumps({"items": [{"content": "Look.", "status": "in_progress"}]})
READ = json.dumps({"path": "notes.txt"})
TELEPORT = json.dumps({"to": "mars", "at": [1, {"x": None}]})
EMOJI = "Grüße, 日本, 🦀👩‍👩‍👧, e\u0301, \u2028 and \u200f too"
SIGNED_IN_TWO = (
    block_start(0, type="thinking", thinking="", signature="")
    + delta(0, "thinking_delta", thinking="Hm.")
    + delta(0, "signature_delta", signature="c2ln")
    + delta(0, "signature_delta", signature="bmVk")
    + block_stop(0)
)
UNSIGNED = (
    block_start(0, type="thinking", thinking="", signature="")
    + delta(0, "thinking_delta", thinking="Hm.")
    + block_stop(0)
)
REDACTED = block_start(0, type="redacted_thinking", data="c2VjcmV0") + block_stop(0)


def _of(*blocks: bytes, stop_reason: str = "end_turn") -> bytes:
    return message_start() + b"".join(blocks) + done(stop_reason)


def _cut_input(*blocks: bytes) -> bytes:
    """The limit of tokens is reached in the middle of a tool's input."""
    start = block_start(len(blocks), type="tool_use", id="toolu_cut", name="todo", input={})
    half = delta(len(blocks), "input_json_delta", partial_json='{"items": [{"content": "Lo')
    return _of(*blocks, start + half + block_stop(len(blocks)), stop_reason="max_tokens")


def _failing(error_type: str, *blocks: bytes) -> bytes:
    return message_start() + b"".join(blocks) + loopback.error(error_type)


PLAIN: dict[str, bytes] = {
    "text": _of(text("Hello", " there.")),
    "two texts": _of(text("One."), text("Two.", index=1)),
    "unicode": _of(text(*EMOJI.split(" "))),
    "lines": _of(text("a\n", "\n```py\n", "x = 1\n", "```\n")),
    "blank text": _of(text(" ", "\n"), text("Then words.", index=1)),
    "nothing but blanks": _of(text("\n\n")),
    "empty text": _of(text(), text("Words.", index=1)),
    "nothing": _of(),
    "text, cut by the limit": _of(text("And so on and"), stop_reason="max_tokens"),
    "refusal": _of(text("I would rath"), stop_reason="refusal"),
    "a stop sequence": _of(text("Until here"), stop_reason="stop_sequence"),
    "a full window": _of(text("No ro"), stop_reason="model_context_window_exceeded"),
    "thought": _of(thinking("Let me", " see."), text("I see.", index=1)),
    "a signature in two": _of(SIGNED_IN_TWO, text("I see.", index=1)),
    "an unsigned thought": _of(UNSIGNED, text("I see.", index=1)),
    "a redacted thought": _of(REDACTED, text("I see.", index=1)),
    "nothing but a thought": _of(thinking("So much to", " think"), stop_reason="max_tokens"),
    "a tool": _of(tool_use("toolu_1", "todo", TODO), stop_reason="tool_use"),
    "a tool in pieces": _of(
        text("I plan."),
        tool_use("toolu_1", "todo", TODO[:9], TODO[9:30], TODO[30:], index=1),
        stop_reason="tool_use",
    ),
    "three tools": _of(
        tool_use("toolu_1", "todo", TODO),
        tool_use("toolu_2", "read", READ, index=1),
        tool_use("toolu_3", "teleport", TELEPORT, index=2),
        stop_reason="tool_use",
    ),
    "thought, text and tools": _of(
        thinking("First the plan."),
        text("I plan.", index=1),
        tool_use("toolu_1", "todo", TODO, index=2),
        tool_use("toolu_2", "read", READ, index=3),
        stop_reason="tool_use",
    ),
    "interleaved thoughts": _of(
        thinking("One."),
        tool_use("toolu_1", "read", READ, index=1),
        thinking("Two.", index=2),
        tool_use("toolu_2", "todo", TODO, index=3),
        stop_reason="tool_use",
    ),
    "a tool, then a thought": _of(
        tool_use("toolu_1", "todo", TODO), thinking("What if", index=1), stop_reason="tool_use"
    ),
    "a tool, then text": _of(
        tool_use("toolu_1", "todo", TODO), text("Meanwhile", index=1), stop_reason="tool_use"
    ),
    "a tool without input": _of(tool_use("toolu_1", "jobs"), stop_reason="tool_use"),
    "a wrong input": _of(tool_use("toolu_1", "todo", '{"itemz": []}'), stop_reason="tool_use"),
    "an input that is no object": _of(tool_use("toolu_1", "todo", "[1]"), stop_reason="tool_use"),
    "one id twice": _of(
        tool_use("toolu_1", "todo", TODO),
        tool_use("toolu_1", "todo", TODO, index=1),
        stop_reason="tool_use",
    ),
    "names that no API takes": _of(
        tool_use("", "", READ),
        tool_use("a b", "read\0 " * 100, READ, index=1),
        tool_use("toolu_1", "x" * 600, READ, index=2),
        stop_reason="tool_use",
    ),
    "half an input": _cut_input(),
    "a tool and half an input": _cut_input(tool_use("toolu_1", "todo", TODO)),
    "thought, text and half an input": _cut_input(thinking("Hm."), text("I plan.", index=1)),
    "overloaded at once": _failing("overloaded_error"),
    "overloaded in a text": _failing("overloaded_error", block_start(), delta(text="Hel")),
    "failing after a tool": _failing("api_error", tool_use("toolu_1", "todo", TODO)),
    "failing in a thought": _failing(
        "timeout_error",
        block_start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Hm"),
    ),
    "no last event": message_start() + text("Hello") + message_delta(),
    "no block's end": message_start() + block_start() + delta(text="Hello") + done(),
    "an unknown block": _of(
        block_start(0, type="hologram", text="x") + delta(0, text="x") + block_stop(0),
        text("Words.", index=1),
    ),
    "half a surrogate pair": _of(text("<").replace(b'"<"', rb'"\ud83d"'), text("Words.", index=1)),
}


def _between_events(stream: bytes, noise: bytes) -> bytes:
    return noise + stream.replace(b"\n\n", b"\n\n" + noise)


def _with_json(stream: bytes, **options: Any) -> bytes:
    """The same events, their JSON written otherwise."""
    return b"\n".join(
        b"data: " + json.dumps(json.loads(line[6:]), **options).encode("utf-8", "surrogatepass")
        if line.startswith(b"data: ")
        else line
        for line in stream.split(b"\n")
    )


FRAMINGS: dict[str, Callable[[bytes], bytes]] = {
    "pings": lambda stream: _between_events(stream, ping()),
    "comments and unknown events": lambda stream: _between_events(
        stream, comment() + loopback.event("weather", sky="blue")
    ),
    "carriage returns": lambda stream: stream.replace(b"\n", b"\r\n"),
    "spaces and escaped letters": _with_json,
    "early end of the message": lambda stream: stream + message_stop(),
}
FRAMED = ("unicode", "thought", "a tool and half an input")


def _all() -> Iterator[tuple[str, bytes]]:
    for name, stream in PLAIN.items():
        is_text = b"\\u" not in stream
        yield name, _with_json(stream, separators=(",", ":"), ensure_ascii=not is_text)
    for framing, frame in FRAMINGS.items():
        yield from ((f"{name}, {framing}", frame(PLAIN[name])) for name in FRAMED)


STREAMS: dict[str, bytes] = dict(_all())
LAST_WORDS = _of(text("All done."))
