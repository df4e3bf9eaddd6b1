"""The bytes of requests: a history is encoded message by message, and each message once."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from sanderling.protocol.messages import Message
from sanderling.text import printable

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


def _common_length(one: Sequence[Message], other: Sequence[Message]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a is not b), min(len(one), len(other)))


def encoded(value: Any) -> msgspec.Raw:
    """`value` as JSON that every API takes."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        # Half of a surrogate pair: whatever a file's name or a program's output was, the API must not refuse the conversation.
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return msgspec.Raw(msgspec.json.encode(json.loads(printable(text))))


def previous_end(history: Sequence[Message]) -> int | None:
    """The last message of the previous request: the one before the last that the model wrote."""
    for index in range(len(history) - 2, -1, -1):
        if (history[index].role, history[index + 1].role) == ("user", "assistant"):
            return index
    return None
