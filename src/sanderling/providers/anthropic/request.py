"""
A request as bytes.

A request must begin with the bytes of the one before it, or the API's cache is useless: tools, system prompt, every earlier message. A
message is encoded once and recognized by identity, so a long history costs a copy of its bytes.

Marks say where the cache may be read or written (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching), at most four. One
is at the end of the system prompt: it covers the tools too, and is valid whatever happens to the conversation. One is the request's own,
which the API moves to the last block. One is at the end of text that other conversations begin with (`SharedBlock`). But from a mark the API looks back over at most 20 blocks. If the previous request ended further
back, as it does after many tool uses in one message, its end is marked as well.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from sanderling.protocol.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    ImageSource,
    Message,
    RedactedThinkingBlock,
    ResultBlock,
    ServerBlock,
    SharedBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
)
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.anthropic.late_tools import Addition, LateTools
from sanderling.providers.encoding import EncodedHistory, encoded, previous_end, with_mark
from sanderling.providers.endpoint import ANTHROPIC, NO_DOCUMENT, Quirks, with_fields
from sanderling.providers.turns import Turns
from sanderling.text import printable

LOOK_BACK_BLOCKS = 18  # of 20: the documentation does not say whether the marked block counts


_MARK = {"type": "ephemeral"}  # kept for 5 minutes after its last use
NOT_SHOWN = TextBlock("(An image, which this model cannot be shown.)")


class _Text(TextBlock, tag="text", frozen=True, omit_defaults=True):
    """Text with the API's own fields. The citations that it made contain the places in encrypted results."""

    citations: tuple[Any, ...] = ()
    cache_control: dict[str, str] | None = None


class _Document(msgspec.Struct, tag="document", frozen=True):
    source: ImageSource
    title: str


class _Result(msgspec.Struct, tag="tool_result", frozen=True):
    tool_use_id: str
    content: tuple[TextBlock | ImageBlock | _Document, ...]
    is_error: bool


class _WireMessage(msgspec.Struct, frozen=True):
    role: str
    content: tuple[ContentBlock | _Result | dict[str, Any], ...]


class RequestEncoder:
    """Remembers the history that it encoded last. Other APIs of this wire have their own `quirks`."""

    def __init__(self, quirks: Quirks = ANTHROPIC.quirks) -> None:
        self.quirks = quirks
        self._is_marked = quirks.cache == "anthropic"
        self._turns = Turns(quirks)
        self._history = EncodedHistory(self._encode_message)
        self.late_tools: LateTools | None = None

    def encode(
        self,
        request: ModelRequest,
        *,
        model: str,
        max_tokens: int,
        thinking: bool,
        diagnosed: str | None = None,
    ) -> bytes:
        """Encode a request; the API says what its cache missed since the answer with the id `diagnosed`, "" before the first."""
        name = self.quirks.sent_name(model)
        body: dict[str, Any] = {"model": name, "max_tokens": max_tokens, "stream": True}
        if self._is_marked:
            body["cache_control"] = _MARK
        if diagnosed is not None:
            body["diagnostics"] = {"previous_message_id": diagnosed or None}
        body |= with_fields(
            self.quirks.reasoning(thinking=thinking, effort=request.effort), self.quirks.body
        )
        history = self._turns.of(request.history)
        tools, additions = request.tools, ()
        if self.late_tools:
            tools, additions = self.late_tools.split(tools, history)
        if tools := self._with_own(tools, request):
            body["tools"] = tools
        if request.system:
            system = {"type": "text", "text": printable(request.system)}
            body["system"] = [system | ({"cache_control": _MARK} if self._is_marked else {})]
        body["messages"] = self._messages(history, additions)
        return msgspec.json.encode(body)

    def _with_own(
        self, tools: Sequence[ToolSpec], request: ModelRequest
    ) -> tuple[ToolSpec | dict[str, Any], ...]:
        """Return the tools. The API's own is last, so that the user can turn it on without other definitions changing."""
        own = (self.quirks.web_search,) if request.searches_web and self.quirks.web_search else ()
        return (*tools, *own)

    def encode_prewarm(self, request: ModelRequest, model: str) -> bytes:
        """
        Encode a request that has no answer and caches the tools and the system prompt; empty without marks.

        The API takes it only without streaming and thinking, on which this part of the cache does not depend.
        """
        if not (self._is_marked and request.system):
            return b""
        body: dict[str, Any] = {"model": self.quirks.sent_name(model), "max_tokens": 0}
        body |= self.quirks.body
        if tools := self._with_own(request.tools, request):
            body["tools"] = tools
        system = {"type": "text", "text": printable(request.system), "cache_control": _MARK}
        body |= {"system": [system], "messages": [Message("user", (TextBlock("."),))]}
        return msgspec.json.encode(body)

    def _messages(
        self, history: Sequence[Message], additions: Sequence[Addition]
    ) -> list[msgspec.Raw]:
        messages = list(chain.from_iterable(self._history.of(history)))
        end = previous_end(history) if self._is_marked else None
        if end is not None:
            added = sum(len(each.tools) for each in additions if each.after > end)
            if _count_blocks(history[end + 1 :]) + added > LOOK_BACK_BLOCKS:
                messages[end] = with_mark(messages[end], "cache_control", _MARK)
        for each in reversed(additions):
            messages.insert(each.after, each.encoded())
        return messages

    def _encode_message(self, message: Message, _previous: Message | None) -> tuple[msgspec.Raw]:
        blocks = tuple(map(self._fit, message.content))
        blank = self.quirks.blank_reasoning
        if blank and message.role == "assistant" and not any(map(_is_thought, blocks)):
            blocks = (ThinkingBlock(blank, ""), *blocks)
        return (encoded(_WireMessage(message.role, blocks)),)

    def _fit(self, block: ContentBlock) -> ContentBlock | _Result | dict[str, Any]:
        """Remove Sanderling's own fields from `block`, and images and PDFs that the model cannot take."""
        match block:
            case ServerBlock(data):
                return data
            case TextBlock(text, extra):
                mark = _MARK if self._is_marked and isinstance(block, SharedBlock) else None
                return _Text(text, citations=tuple(extra.get("citations", ())), cache_control=mark)
            case ThinkingBlock(extra=extra) if extra:
                return replace(block, extra={})
            case ToolResult(tool_use_id, tuple(parts), is_error):
                return _Result(tool_use_id, tuple(map(self._part, parts)), is_error)
            case ImageBlock() if self.quirks.images == "none":
                return NOT_SHOWN
            case _:
                return block

    def _part(self, part: ResultBlock) -> TextBlock | ImageBlock | _Document:
        match part:
            case DocumentBlock(source, title):
                is_taken = self.quirks.documents != "none"
                return _Document(source, printable(title)) if is_taken else TextBlock(NO_DOCUMENT)
            case ImageBlock() if self.quirks.images == "none":
                return NOT_SHOWN
            case _:
                return part


def _is_thought(block: ContentBlock | _Result | dict[str, Any]) -> bool:
    return isinstance(block, ThinkingBlock | RedactedThinkingBlock)


def _count_blocks(messages: Sequence[Message]) -> int:
    """Return the number of blocks as the API may count them, including those in tool results."""
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
