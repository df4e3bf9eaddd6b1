"""Answers in the format of Responses: what they say, how they end."""

from collections.abc import Mapping
from typing import Any

from tests.fuzz.streams import EMOJI, READ, TELEPORT, TODO
from tests.wires.responses import (
    begin,
    call,
    done,
    error,
    event,
    events_of,
    failed,
    incomplete,
    item,
    said,
    thought,
)

THOUGHT = thought("Let me see.", "c2lnbmVk")


def _of(*items: Mapping[str, Any], reason: str = "") -> bytes:
    return events_of(items, reason)


def _cut(*items: Mapping[str, Any]) -> bytes:
    """The limit is reached within the last of the items, which is not done."""
    whole = b"".join(item(n, each) for n, each in enumerate(items))
    end = whole.rindex(b"event: response.output_item.done")
    return begin() + whole[:end] + incomplete("max_output_tokens", *items[:-1])


PLAIN: dict[str, bytes] = {
    "text": _of(said("Hello there.")),
    "two texts": _of(said("One."), said("Two.", "msg_2")),
    "unicode": _of(said(EMOJI)),
    "nothing but blanks": _of(said("\n\n")),
    "nothing": _of(),
    "text, cut by the limit": _of(said("And so on and"), reason="max_output_tokens"),
    "text, cut within": _cut(said("And so on and")),
    "withheld": _of(said("I would rath"), reason="content_filter"),
    "thought": _of(THOUGHT, said("I see.")),
    "an empty thought": _of(thought("", "c2lnbmVk"), said("I see.")),
    "a thought that is not sealed": _of(thought("Hm.", ""), said("I see.")),
    "nothing but a thought": _of(THOUGHT, reason="max_output_tokens"),
    "a thought, cut within": _cut(THOUGHT),
    "words in phases": _of(said("I look.", phase="commentary"), call("call_1", "read", READ)),
    "a tool": _of(call("call_1", "todo", TODO)),
    "three tools": _of(
        call("call_1", "todo", TODO),
        call("call_2", "read", READ, "fc_2"),
        call("call_3", "teleport", TELEPORT, "fc_3"),
    ),
    "thought, text and tools": _of(
        THOUGHT, said("I plan."), call("call_1", "todo", TODO), call("call_2", "read", READ, "fc_2")
    ),
    "interleaved thoughts": _of(
        THOUGHT,
        call("call_1", "read", READ),
        thought("Two.", "bmVk", "rs_2"),
        call("call_2", "todo", TODO, "fc_2"),
    ),
    "a tool, then a thought": _of(
        call("call_1", "todo", TODO), THOUGHT, reason="max_output_tokens"
    ),
    "a tool, then text": _of(call("call_1", "todo", TODO), said("Meanwhile")),
    "a tool without input": _of(call("call_1", "jobs", "")),
    "a wrong input": _of(call("call_1", "todo", '{"itemz": []}')),
    "an input that is no object": _of(call("call_1", "todo", "[1]")),
    "one id twice": _of(call("call_1", "todo", TODO), call("call_1", "todo", TODO, "fc_2")),
    "names that no API takes": _of(
        call("", "", READ),
        call("a b", "read\0 " * 100, READ, "fc_2"),
        call("call_1", "x" * 600, READ, "fc_3"),
    ),
    "half an input": _cut(call("call_1", "todo", TODO)),
    "a tool and half an input": _cut(
        call("call_1", "read", READ), call("call_2", "todo", TODO, "fc_2")
    ),
    "no end of the response": begin() + item(0, said("Hello")),
    "no beginning": item(0, said("Hello")) + done(said("Hello")),
    "failing at once": error(),
    "failing response": begin() + failed(),
    "failing in a text": begin() + item(0, said("Hel"))[:-200] + b"\n\n" + failed(),
    "failing after a tool": begin() + item(0, call("call_1", "todo", TODO)) + error(),
    "no deltas": begin()
    + event("response.output_item.done", output_index=0, item=said("Hello"))
    + event("response.output_item.done", output_index=1, item=call("call_1", "todo", TODO))
    + done(said("Hello"), call("call_1", "todo", TODO)),
    "nothing but the end": begin() + done(said("Hello"), call("call_1", "todo", TODO)),
    "an unknown item": begin()
    + event("response.output_item.added", output_index=0, item={"type": "hologram", "id": "h_1"})
    + event("response.hologram.delta", output_index=0, item_id="h_1", delta="x")
    + event("response.output_item.done", output_index=0, item={"type": "hologram", "id": "h_1"})
    + item(1, said("Words."))
    + done(said("Words.")),
    "half a surrogate pair": _of(said("<")).replace(b'"<"', rb'"\ud83d"'),
}
FRAMINGS = {
    "comments": lambda stream: b": hm\n\n" + stream.replace(b"\n\n", b"\n\n: hm\n\n"),
    "carriage returns": lambda stream: stream.replace(b"\n", b"\r\n"),
    "no names of events": lambda stream: b"\n".join(
        line for line in stream.split(b"\n") if not line.startswith(b"event: ")
    ),
    "a mark at the end": lambda stream: stream + b"data: [DONE]\n\n",
}
FRAMED = ("unicode", "thought, text and tools", "a tool and half an input")
STREAMS: dict[str, bytes] = PLAIN | {
    f"{name}, {framing}": frame(PLAIN[name])
    for framing, frame in FRAMINGS.items()
    for name in FRAMED
}
LAST_WORDS = _of(said("All done."))
