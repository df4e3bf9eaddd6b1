"""
Golden streams of Ollama's own API: what is made of each quirk stands beside it.

From its documentation and its source (0.32), a file for each: `NAME.ndjson` as it is sent, `NAME.txt` as it is understood.
"""

from pathlib import Path

import msgspec
import pytest

from sanderling.errors import ProviderError
from sanderling.protocol.messages import TextBlock, ThinkingBlock, ToolUse
from sanderling.providers import (
    BlockDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.ollama.reply import LineDecoder, OllamaDecoder

STREAMS = Path(__file__).parent.parent / "golden/streams/ollama"
NAMES = sorted(path.stem for path in STREAMS.glob("*.ndjson"))
MAX_TOKENS = 100


def quoted(value: object) -> str:
    return msgspec.json.encode(value).decode()


def told(item: StreamItem) -> str:  # noqa: PLR0911 - one for each kind
    match item:
        case TextPiece(text):
            return f"text {quoted(text)}"
        case ThinkingPiece(text):
            return f"thinking {quoted(text)}"
        case ToolUseBegun():
            return "tool use begun"
        case BlockDone(TextBlock(text), ""):
            return f"  text block {quoted(text)}"
        case BlockDone(ThinkingBlock(text, "", {"field": "thinking"}), ""):
            return f"  thinking block {quoted(text)}"
        case BlockDone(ToolUse(use_id, name, data), problem):
            use = f"  tool use {use_id or '-'} {name} {quoted(data)}"
            return f"{use} | {problem}" if problem else use
        case UsageReport(usage):
            return f"usage {usage.input_tokens} {usage.output_tokens}"
        case _:
            raise AssertionError(item)


def understood(data: bytes, piece_bytes: int) -> str:
    decoder, splitter = OllamaDecoder("qwen3-coder:30b", MAX_TOKENS), LineDecoder()
    lines: list[str] = []
    try:
        for start in range(0, len(data), piece_bytes):
            for line in splitter.feed(data[start : start + piece_bytes]):
                lines += map(told, decoder.feed(line))
        for line in splitter.end():
            lines += map(told, decoder.feed(line))
        lines += map(told, decoder.end())
    except ProviderError as error:
        lines.append(f"error {error.kind}: {error.message} {error.remedy}".rstrip())
    else:
        lines.append(f"done: {decoder.stop_reason}" if decoder.is_done else "cut")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("piece_bytes", [1 << 20, 7, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_understood_as_it_was_whatever_pieces_it_comes_in(name, piece_bytes):
    expected = (STREAMS / f"{name}.txt").read_text(encoding="utf-8")
    assert understood((STREAMS / f"{name}.ndjson").read_bytes(), piece_bytes) == expected


def test_there_is_a_stream_for_each_quirk():
    assert {path.stem for path in STREAMS.glob("*.txt")} == set(NAMES)
    assert len(NAMES) >= 25
