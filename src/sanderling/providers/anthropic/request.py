"""
A request as bytes.

What a request begins with must be what the one before it was, byte for byte, or the API's cache is of no use: tools, system,
every earlier message. A message is encoded once, and found again by identity, so that a long history costs a copy of its bytes.

Where the cache may be read or written is marked (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching), at most
four times. One mark is the system prompt's end, which covers the tools before it, for whatever happens to the conversation. One
is the request's own, which the API moves to the last block. But from a mark the API looks back over no more than 20 blocks: where
the previous request ended further back, as it does after many uses of tools in one message, that place is marked as well.
"""

from collections.abc import Sequence
from itertools import chain

import msgspec

from sanderling.protocol.messages import Message, ToolResult
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.encoding import EncodedHistory, encoded, previous_end
from sanderling.text import printable

LOOK_BACK_BLOCKS = 18  # of 20: whether the marked block itself counts is not said


class _CacheControl(msgspec.Struct, tag="ephemeral"):
    """Kept for 5 minutes after its last use."""


class _SystemBlock(msgspec.Struct, tag="text"):
    text: str
    cache_control: _CacheControl


class _Thinking(msgspec.Struct, tag="adaptive"):
    display: str


class _Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    model: str
    max_tokens: int
    stream: bool
    cache_control: _CacheControl
    thinking: _Thinking | None = None
    tools: tuple[ToolSpec, ...] = ()
    system: tuple[_SystemBlock, ...] = ()
    messages: list[msgspec.Raw]


_MARK = _CacheControl()


class RequestEncoder:
    """Remembers the history that it has encoded last."""

    def __init__(self) -> None:
        self._history = EncodedHistory(_encode_message)

    def encode(
        self, request: ModelRequest, *, model: str, max_tokens: int, thinking: bool
    ) -> bytes:
        messages = list(chain.from_iterable(self._history.of(request.history)))
        end = previous_end(request.history)
        if end is not None and _count_blocks(request.history[end + 1 :]) > LOOK_BACK_BLOCKS:
            messages[end] = _marked(messages[end])
        body = _Body(
            model=model,
            max_tokens=max_tokens,
            stream=True,
            cache_control=_MARK,
            # Newer models think whether asked or not, and say nothing meanwhile unless told to.
            thinking=_Thinking(display="summarized") if thinking else None,
            tools=request.tools,
            system=(_SystemBlock(printable(request.system), _MARK),) if request.system else (),
            messages=messages,
        )
        return msgspec.json.encode(body)


def _count_blocks(messages: Sequence[Message]) -> int:
    """The number of blocks as the API may count them: those inside of tool results as well."""
    return sum(
        1
        + (
            len(block.content)
            if isinstance(block, ToolResult) and isinstance(block.content, tuple)
            else 0
        )
        for message in messages
        for block in message.content
    )


def _encode_message(message: Message, _previous: Message | None) -> tuple[msgspec.Raw]:
    return (encoded(message),)


def _marked(message: msgspec.Raw) -> msgspec.Raw:
    """`message` with a mark in its last block: a message ends with its content, and that with a block."""
    block = bytes(message).removesuffix(b"}]}")
    return msgspec.Raw(block + b',"cache_control":' + msgspec.json.encode(_MARK) + b"}]}")
