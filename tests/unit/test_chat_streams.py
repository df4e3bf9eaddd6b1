"""
What servers of chat completions really send, a file each in tests/golden/streams/chat, and what becomes of it.

A stream begins with a comment: the preset whose quirks hold, and what the stream shows. Beside it stands, as JSON, what the
conversation is told, how the answer ends, and what of it goes back with the next request. `python -m tests.unit.test_chat_streams`
writes what is so now.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock, ToolResult, ToolUse
from sanderling.providers import BlockDone, ModelRequest, StreamItem
from sanderling.providers.chat.reply import ChatDecoder
from sanderling.providers.chat.request import ChatEncoder
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.http.provider import events_of
from sanderling.session.history import UnansweredCalls, continued

STREAMS = Path(__file__).parent.parent / "golden" / "streams" / "chat"
NAMES = sorted(path.stem for path in STREAMS.glob("*.sse"))


async def outcome(name: str) -> dict[str, Any]:
    data = (STREAMS / f"{name}.sse").read_bytes()
    preset = data.decode("utf-8-sig").partition(".")[0].removeprefix(": ")
    quirks = load_endpoint(preset, {}).quirks
    decoder = ChatDecoder(quirks)
    items: list[StreamItem] = []
    error = ""
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        stream=httpx2.ByteStream(data),
        request=httpx2.Request("POST", "http://api.test"),
    )
    try:
        async for event in events_of(response):
            items += decoder.feed(event.data, event.event or "")
        items += decoder.end()
    except ProviderError as problem:
        error = f"{problem.kind}{', for now' if problem.is_temporary else ''}: {problem.message}"
    end = error or (decoder.stop_reason if decoder.is_done else "cut")
    return {
        "told": [{type(item).__name__: msgspec.to_builtins(item)} for item in items],
        "end": end,
        "goes back": _replayed(items, ChatEncoder(quirks)) if decoder.is_done else None,
    }


def _replayed(items: list[StreamItem], encoder: ChatEncoder) -> dict[str, Any] | None:
    """The model's message in the request after its answer."""
    asked = Message("user", (TextBlock("Hi"),))
    blocks = tuple(item.block for item in items if isinstance(item, BlockDone))
    replies = continued([asked], Message("assistant", blocks), UnansweredCalls())
    uses = [block.id for reply in replies for block in reply.content if isinstance(block, ToolUse)]
    results = Message("user", tuple(ToolResult(use_id, "ok") for use_id in uses))
    history = [asked, *replies, *([results] if uses else [])]
    messages = json.loads(encoder.encode(ModelRequest("", history), model="m"))["messages"]
    return next((message for message in messages if message["role"] == "assistant"), None)


@pytest.mark.parametrize("name", NAMES)
async def test_stream_becomes_what_the_golden_file_says(name):
    assert await outcome(name) == json.loads((STREAMS / f"{name}.json").read_text())


def test_each_stream_has_a_golden_file_and_there_are_enough():
    assert sorted(path.stem for path in STREAMS.glob("*.json")) == NAMES
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_that_is_told_holds_merged_or_broken_input(name):
    for told in (await outcome(name))["told"]:
        block = told.get("BlockDone", {"block": {}})
        if block.get("problem"):
            assert block["block"]["input"] == {}


if __name__ == "__main__":
    for each in NAMES:
        (STREAMS / f"{each}.json").write_text(
            json.dumps(asyncio.run(outcome(each)), indent=1, ensure_ascii=False) + "\n"
        )
