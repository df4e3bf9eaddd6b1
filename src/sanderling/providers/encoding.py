"""The bytes of requests: a history is encoded message by message, and each message once."""

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
    The history that was encoded last. A message is found again by identity, so that a long history costs a copy of its bytes.

    `encode` makes of a message, and of the one before it, as many as the API has for it.
    """

    def __init__(self, encode: EncodeMessage) -> None:
        self._encode = encode
        self._messages: list[Message] = []
        self._encoded: list[tuple[msgspec.Raw, ...]] = []

    def of(self, history: Sequence[Message]) -> list[tuple[msgspec.Raw, ...]]:
        """The bytes of each message of `history`."""
        known = _common_length(self._messages, history)
        del self._messages[known:], self._encoded[known:]
        for message in history[known:]:
            previous = self._messages[-1] if self._messages else None
            self._encoded.append(tuple(self._encode(message, previous)))
            self._messages.append(message)
        return self._encoded.copy()


class EncodedTools:
    """The tools that were encoded last, each as `encode` has it."""

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
    """`value` as JSON that every API takes, whatever a file's name or a program's output was."""
    return msgspec.Raw(json_lines.encoded(value))


def replays_thoughts(quirks: Quirks, message: Message, previous: Message | None) -> bool:
    """
    Say whether the model gets back what it thought for `message`, its answer to the `previous` one.

    What stands in the same turn before it decides, never what follows.
    """
    beside = chain(message.content, previous.content if previous else ())
    has_tools = any(isinstance(block, ToolUse | ToolResult) for block in beside)
    return {"never": False, "with_tools": has_tools, "always": True}[quirks.replay_reasoning]


def previous_end(history: Sequence[Message]) -> int | None:
    """The last message of the previous request: the one before the last that the model wrote."""
    for index in range(len(history) - 2, -1, -1):
        if (history[index].role, history[index + 1].role) == ("user", "assistant"):
            return index
    return None


def cache_key(request: ModelRequest, quirks: Quirks) -> str:
    """
    The key under which the request's prefix is kept; empty if there is none.

    Models from GPT-5.6 on find a prefix better if requests that begin alike have one key, and another key is another cache. So it
    is made of the system prompt, which all sessions share. Before them it only led to a machine, for which a session is enough.
    Sources: https://developers.openai.com/api/docs/guides/prompt-caching and
    https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching
    """
    match quirks.cache:
        case "key":
            return request.session_id[:MAX_KEY_CHARS]
        case "openai_explicit":
            return blake2b(request.system.encode(errors="replace"), digest_size=16).hexdigest()
        case _:
            return ""
