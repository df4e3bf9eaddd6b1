"""
A request for a chat completion as bytes.

A request begins with the bytes of the one before it: a message is encoded once, from nothing but itself and the message before it. If the
server's cache needs marks, they are inserted: at the end of the system prompt, of text that other conversations begin with, of the
previous request, and of this one.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec

from sanderling.protocol.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Message,
    SharedBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest
from sanderling.providers.encoding import (
    EncodedHistory,
    EncodedTools,
    cache_key,
    encoded,
    function_tool,
    previous_end,
    replays_thoughts,
    with_mark,
)
from sanderling.providers.endpoint import NO_DOCUMENT, Quirks, with_fields
from sanderling.providers.turns import ACKNOWLEDGED, Turns

_MARKS: dict[str, tuple[str, dict[str, str]]] = {
    "anthropic": ("cache_control", {"type": "ephemeral"}),
    "openai_explicit": ("prompt_cache_breakpoint", {"mode": "explicit"}),
}
_NINE = re.compile(r"[A-Za-z0-9]{9}")
SHOWN_BELOW = "(An image, shown below.)"
NOT_SHOWN = "(An image, which this model cannot be shown.)"


class ChatEncoder:
    """Remembers the history that it has encoded last."""

    def __init__(self, quirks: Quirks = Quirks()) -> None:  # noqa: B008 - frozen
        self.quirks = quirks
        self._mark = _MARKS.get(quirks.cache)
        self._turns = Turns(quirks, is_joining=True)
        self._history = EncodedHistory(self._messages)
        self._tools = EncodedTools(
            partial(function_tool, is_strict=quirks.strict_schemas, is_full=quirks.full_schemas)
        )

    def encode(
        self, request: ModelRequest, *, model: str, max_tokens: int = 0, thinking: bool = True
    ) -> bytes:
        """Encode a request. With `max_tokens` 0 the server decides."""
        quirks = self.quirks
        body: dict[str, Any] = {"model": self.quirks.sent_name(model), "stream": True}
        if max_tokens and quirks.max_tokens_name:
            body[quirks.max_tokens_name] = max_tokens
        if quirks.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if key := cache_key(request, quirks):
            body["prompt_cache_key"] = key
        if request.tools:
            body["tools"] = self._tools.of(request.tools)
            if quirks.parallel_tools is not None:
                body["parallel_tool_calls"] = quirks.parallel_tools
        body |= with_fields(quirks.reasoning(thinking=thinking, effort=request.effort), quirks.body)
        body["messages"] = self._all_messages(request)
        return msgspec.json.encode(body)

    def _all_messages(self, request: ModelRequest) -> list[msgspec.Raw]:
        history = self._turns.of(request.history)
        parts = self._history.of(history)
        if self._mark and history[-1].role == "user":
            for index in {previous_end(history) or 0, len(parts) - 1}:
                parts[index] = (*parts[index][:-1], with_mark(parts[index][-1], *self._mark))
        messages = list(chain.from_iterable(parts))
        if request.system:
            system = encoded(self._spoken(self.quirks.system_role, [_text(request.system)]))
            messages.insert(0, with_mark(system, *self._mark) if self._mark else system)
        return messages

    def _messages(self, message: Message, previous: Message | None) -> Iterator[msgspec.Raw]:
        """Return the one or more messages that the format needs for `message`."""
        is_user = message.role == "user"
        return map(encoded, self._user(message) if is_user else self._assistant(message, previous))

    def _user(self, message: Message) -> Iterator[dict[str, Any]]:
        results = [block for block in message.content if isinstance(block, ToolResult)]
        for result in results:
            content = list(self._result_parts(result))
            yield self._spoken("tool", content, tool_call_id=self._id(result.tool_use_id))
        parts: list[dict[str, Any]] = []
        if self.quirks.images == "user":
            parts += chain.from_iterable(map(_shown_below, results))
        parts += self._said(message)
        if parts:
            if self.quirks.takes_turns and results:  # images of the results
                yield from self._assistant(ACKNOWLEDGED, None)
            yield self._spoken("user", parts)

    def _said(self, message: Message) -> Iterator[dict[str, Any]]:
        for block in message.content:
            match block:
                case SharedBlock(text) if self._mark:
                    yield _text(text) | dict([self._mark])
                case TextBlock(text):
                    yield _text(text)
                case ImageBlock():
                    yield _text(NOT_SHOWN) if self.quirks.images == "none" else _image(block)
                case _:
                    pass

    def _result_parts(self, result: ToolResult) -> Iterator[dict[str, Any]]:
        blocks = result.content
        if result.is_error:
            yield _text("Error:")
        for block in (TextBlock(blocks),) if isinstance(blocks, str) else blocks:
            match block:
                case TextBlock(text):
                    yield _text(text)
                case ImageBlock() if self.quirks.images == "tool":
                    yield _image(block)
                case DocumentBlock():
                    yield _text(NO_DOCUMENT)
                case ImageBlock():
                    yield _text(SHOWN_BELOW if self.quirks.images == "user" else NOT_SHOWN)

    def _assistant(self, message: Message, previous: Message | None) -> Iterator[dict[str, Any]]:
        text = "\n\n".join(block.text for block in message.content if isinstance(block, TextBlock))
        fields: dict[str, Any] = {"role": "assistant", "content": text or None}
        for block in message.content:
            if isinstance(block, TextBlock | ToolUse):
                fields |= block.extra.get("message", {})
        uses = [block for block in message.content if isinstance(block, ToolUse)]
        fields |= self._thoughts(
            message, text, is_replayed=replays_thoughts(self.quirks, message, previous)
        )
        if uses:
            fields["tool_calls"] = self._calls(uses)
        yield fields

    def _thoughts(self, message: Message, text: str, *, is_replayed: bool) -> dict[str, Any]:
        if not is_replayed:
            return {}
        kept = [b for b in message.content if isinstance(b, ThinkingBlock) and b.extra]
        thoughts = "\n\n".join(block.thinking for block in kept)
        if not thoughts:
            blank = self.quirks.blank_reasoning
            return {self.quirks.reasoning_fields[0]: blank} if blank else {}
        field = str(kept[0].extra.get("field", self.quirks.reasoning_fields[0]))
        if field == "content":
            part = {"type": "thinking", "thinking": [_text(thoughts)]}
            return {"content": [part, *([_text(text)] if text else [])]}
        return {field: thoughts}

    def _calls(self, uses: Sequence[ToolUse]) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        for use in uses:
            function = {"name": use.name, "arguments": bytes(encoded(use.input)).decode()}
            call = {"id": self._id(use.id), "type": "function", "function": function}
            calls.append(call | use.extra.get("call", {}))
        calls[0] = self.quirks.stand_in | calls[0]
        return calls

    def _id(self, use_id: str) -> str:
        """Return `use_id` in the format that the server requires; the same for a tool use and its result."""
        if self.quirks.tool_ids == "any" or _NINE.fullmatch(use_id):
            return use_id
        digest = blake2b(use_id.encode("utf-8", "surrogatepass"), digest_size=6).digest()
        return base64.b32encode(digest).decode()[:9]

    def _spoken(self, role: str, parts: list[dict[str, Any]], **fields: str) -> dict[str, Any]:
        """Return a message with `parts`; as plain text if possible, because not every server accepts parts."""
        texts = [part["text"] for part in parts if part["type"] == "text"]
        is_plain = len(texts) == len(parts) and not self._mark
        return {"role": role, **fields, "content": "\n\n".join(texts) if is_plain else parts}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(image: ImageBlock) -> dict[str, Any]:
    url = f"data:{image.source.media_type};base64,{image.source.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _images(block: ContentBlock) -> list[dict[str, Any]]:
    parts = block.content if isinstance(block, ToolResult) else ()
    return [_image(part) for part in parts if isinstance(part, ImageBlock)]


def _shown_below(result: ToolResult) -> Iterable[dict[str, Any]]:
    images = _images(result)
    return (_text(f"From the tool result {result.tool_use_id}:"), *images) if images else ()
