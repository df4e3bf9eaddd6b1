"""
A request as bytes.

Ollama keeps what it has computed as long as the next request begins with the same bytes, so a message is encoded once. What does not
fit into the window it would drop without a word, the oldest first: `truncate` and `shift` make that an error.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from sanderling.protocol.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.endpoint import Quirks
from sanderling.text import printable

NO_IMAGE = "[an image, which this model cannot see]"


class Ask(msgspec.Struct, frozen=True):
    """
    The wishes of a request, beside the conversation.

    `max_tokens` of 0 leaves the answer's length to the window; without `think`, None, the model cannot think.
    """

    model: str
    num_ctx: int
    max_tokens: int = 0
    think: bool | None = None
    has_images: bool = True


class _Function(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _System(msgspec.Struct, tag="system", tag_field="role"):
    content: str


class _User(msgspec.Struct, tag="user", tag_field="role"):
    content: str


class _Assistant(msgspec.Struct, tag="assistant", tag_field="role", omit_defaults=True):
    content: str
    thinking: str = ""
    tool_calls: tuple[_Call, ...] = ()


class _Tool(msgspec.Struct, tag="tool", tag_field="role", omit_defaults=True):
    tool_name: str
    tool_call_id: str
    content: str
    images: tuple[str, ...] = ()


_WireMessage = _System | _User | _Assistant | _Tool


class OllamaEncoder:
    """Remembers the history that it has encoded last."""

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._has_images = True
        self._messages: list[Message] = []
        self._encoded: list[list[msgspec.Raw]] = []

    def encode(self, request: ModelRequest, ask: Ask) -> bytes:
        own = dict(self._quirks.body)
        options: dict[str, Any] = {**own.pop("options", {}), "num_ctx": ask.num_ctx}
        if ask.max_tokens:
            options["num_predict"] = ask.max_tokens
        body: dict[str, Any] = {
            "model": ask.model,
            "stream": True,
            **self._effort(ask.think),
            "truncate": False,
            "shift": False,
            **own,
            "options": options,
        }
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        system = [_encoded(_System(request.system))] if request.system else []
        body["messages"] = [*system, *self._encode_history(request.history, ask)]
        return msgspec.json.encode(body)

    def _effort(self, think: bool | None) -> dict[str, Any]:
        if think is None:
            return {}
        return self._quirks.effort.get("on" if think else "off") or {"think": think}

    def _encode_history(self, history: Sequence[Message], ask: Ask) -> Iterator[msgspec.Raw]:
        known = _common_length(self._messages, history) if ask.has_images == self._has_images else 0
        self._has_images = ask.has_images
        del self._messages[known:], self._encoded[known:]
        for n in range(known, len(history)):
            messages = self._wire_messages(history, n)
            self._messages.append(history[n])
            self._encoded.append([_encoded(message) for message in messages])
        return (message for messages in self._encoded for message in messages)

    def _wire_messages(self, history: Sequence[Message], n: int) -> Iterator[_WireMessage]:
        message = history[n]
        texts = [block.text for block in message.content if isinstance(block, TextBlock)]
        if message.role == "assistant":
            uses = [block for block in message.content if isinstance(block, ToolUse)]
            is_replayed = self._quirks.replay_reasoning == "always" or (
                self._quirks.replay_reasoning == "with_tools"
                and (uses or _answers_tools(history, n))
            )
            thoughts = [
                each.thinking for each in message.content if isinstance(each, ThinkingBlock)
            ]
            yield _Assistant(
                "\n\n".join(texts),
                "\n\n".join(thoughts) if is_replayed else "",
                tuple(_Call(use.id, _Function(use.name, use.input)) for use in uses),
            )
            return
        names = (
            {b.id: b.name for b in history[n - 1].content if isinstance(b, ToolUse)} if n else {}
        )
        for block in message.content:
            if isinstance(block, ToolResult):
                yield self._tool_message(block, names.get(block.tool_use_id, ""))
        if texts:
            yield _User("\n\n".join(texts))

    def _tool_message(self, result: ToolResult, name: str) -> _Tool:
        if isinstance(result.content, str):
            return _Tool(name, result.tool_use_id, result.content)
        images = [block.source.data for block in result.content if isinstance(block, ImageBlock)]
        texts = [block.text for block in result.content if isinstance(block, TextBlock)]
        if not self._has_images:
            texts, images = [*texts, *(NO_IMAGE for _ in images)], []
        return _Tool(name, result.tool_use_id, "\n\n".join(texts), tuple(images))


def _answers_tools(history: Sequence[Message], n: int) -> bool:
    """Say whether what stands before the message `n` are results: its turn has used tools."""
    return n > 0 and any(isinstance(block, ToolResult) for block in history[n - 1].content)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _encoded(message: _WireMessage) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(message))
    except UnicodeEncodeError:  # half of a surrogate pair
        text = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        return msgspec.Raw(msgspec.json.encode(json.loads(printable(text))))


def _common_length(one: Sequence[Message], other: Sequence[Message]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a is not b), min(len(one), len(other)))
