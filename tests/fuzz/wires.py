"""The formats in which the API of these tests may speak, each with its answers, its judge, and the settings that choose it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.api_rules import Block, anthropic, chat, ollama, responses
from tests.cached_api import events_of
from tests.fuzz import chat_streams, ollama_streams, responses_streams, streams
from tests.wires import chat as chat_wire
from tests.wires import ollama as ollama_wire
from tests.wires import responses as responses_wire

SIGNATURE = b"c2lnbmVk"
SEALED = {"signature": SIGNATURE.decode()}
NOWHERE = "http://127.0.0.1:9"  # nobody is asked there


@dataclass(frozen=True)
class Wire:
    """`bytes_of` makes the events with which the API sends some content; `models` are names of two that it has."""

    name: str
    streams: Mapping[str, bytes]
    last_words: bytes
    bytes_of: Callable[..., bytes]
    refusals: Callable[[bytes], list[str]]
    models: tuple[str, str]
    provider: Mapping[str, Any]
    path: str
    content_type: str = "text/event-stream"

    def providers(self, url: str = NOWHERE) -> dict[str, dict[str, Any]]:
        """The setting for a server at `url`."""
        name = self.models[0].partition(":")[0]
        base = url + self.path.removesuffix("/chat/completions").removesuffix("/responses")
        return {name: {**self.provider, "base_url": base.removesuffix("/api/chat")}}


def _sealed(content: tuple[Block, ...]) -> list[Block]:
    return [{**block, **SEALED} if block["type"] == "thinking" else block for block in content]


def _of_anthropic(*content: Block) -> bytes:
    return events_of(_sealed(content))


def _of_chat(*content: Block) -> bytes:
    return chat_wire.events_of(chat_wire.message_of(_sealed(content), "any"), "any")


def _of_responses(*content: Block) -> bytes:
    return responses_wire.events_of(responses_wire.items_of(_sealed(content), ""))


def _of_ollama(*content: Block) -> bytes:
    return ollama_wire.events_of(content)


ANTHROPIC = Wire(
    "anthropic",
    streams.STREAMS,
    streams.LAST_WORDS,
    _of_anthropic,
    anthropic.request_refusals,
    ("claude-sonnet-5-5", "claude-opus-5-5"),
    {},
    "/v1/messages",
)
ALL = (
    ANTHROPIC,
    Wire(
        "chat",
        chat_streams.STREAMS,
        chat_streams.LAST_WORDS,
        _of_chat,
        lambda body: chat.request_refusals(body, "any"),
        ("any:m1", "any:m2"),
        {"wire": "chat", "quirks": {"replay_reasoning": "always"}},
        "/v1/chat/completions",
    ),
    Wire(
        "responses",
        responses_streams.STREAMS,
        responses_streams.LAST_WORDS,
        _of_responses,
        responses.request_refusals,
        ("openai:m1", "openai:m2"),
        {},
        "/v1/responses",
    ),
    Wire(
        "ollama",
        ollama_streams.STREAMS,
        ollama_streams.LAST_WORDS,
        _of_ollama,
        ollama.request_refusals,
        ("ollama:m1", "ollama:m2"),
        {},
        "/api/chat",
        "application/x-ndjson",
    ),
)
WIRES = {wire.name: wire for wire in ALL}
OTHERS = ALL[1:]
