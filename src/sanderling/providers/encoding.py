"""Encoding of requests: each message of a history is encoded once."""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec

from sanderling import json_lines
from sanderling.protocol.messages import Message, ToolResult, ToolUse
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.endpoint import Quirks

MAX_KEY_CHARS = 64

EncodeMessage = Callable[[Message, Message | None], Iterable[msgspec.Raw]]


class EncodedHistory:
    """
    The history that was encoded last. Messages are recognized by identity, so a long history costs a copy of its bytes.

    `encode` turns a message, given the one before it, into one or more messages of the API.
    """

    def __init__(self, encode: EncodeMessage) -> None:
        self._encode = encode
        self._messages: list[Message] = []
        self._encoded: list[tuple[msgspec.Raw, ...]] = []

    def of(self, history: Sequence[Message]) -> list[tuple[msgspec.Raw, ...]]:
        known = _common_length(self._messages, history)
        del self._messages[known:], self._encoded[known:]
        for message in history[known:]:
            previous = self._messages[-1] if self._messages else None
            self._encoded.append(tuple(self._encode(message, previous)))
            self._messages.append(message)
        return self._encoded.copy()


class EncodedTools:
    """The tools that were encoded last, each by `encode`."""

    def __init__(self, encode: Callable[[ToolSpec], Any]) -> None:
        self._encode = encode
        self._specs: tuple[ToolSpec, ...] = ()
        self._encoded = msgspec.Raw(b"[]")

    def of(self, specs: tuple[ToolSpec, ...]) -> msgspec.Raw:
        if specs is not self._specs:
            self._specs, self._encoded = specs, encoded([*map(self._encode, specs)])
        return self._encoded


def _common_length(one: Sequence[Message], other: Sequence[Message]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a is not b), min(len(one), len(other)))


def encoded(value: Any) -> msgspec.Raw:
    """Return `value` as JSON that every API accepts, whatever bytes a file name or a program's output has."""
    return msgspec.Raw(json_lines.encoded(value))


def replays_thoughts(quirks: Quirks, message: Message, previous: Message | None) -> bool:
    """
    Return True if the reasoning of `message`, the answer to `previous`, is sent back.

    This depends only on what came before it in the turn, so that the bytes of a message never change.
    """
    blocks = chain(message.content, previous.content if previous else ())
    has_tools = any(isinstance(block, ToolUse | ToolResult) for block in blocks)
    return {"never": False, "with_tools": has_tools, "always": True}[quirks.replay_reasoning]


def previous_end(history: Sequence[Message]) -> int | None:
    """Return the index of the previous request's last message, which precedes the model's last one."""
    for index in range(len(history) - 2, -1, -1):
        if (history[index].role, history[index + 1].role) == ("user", "assistant"):
            return index
    return None


def cache_key(request: ModelRequest, quirks: Quirks) -> str:
    """
    Return the prompt cache's key, or "" without such a cache.

    From GPT-5.6 on, requests that begin alike should share a key, because each key has its own cache. So it is derived from the system
    prompt, which all sessions share. For earlier models the key only selects a machine, and one per session is enough. Sources:
    https://developers.openai.com/api/docs/guides/prompt-caching and
    https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching
    """
    match quirks.cache:
        case "key":
            return request.session_id[:MAX_KEY_CHARS]
        case "openai_explicit":
            return blake2b(request.system.encode(errors="replace"), digest_size=16).hexdigest()
        case _:
            return ""
