"""
A request as bytes.

Ollama reuses what it has computed as long as the next request begins with the same bytes, so each message is encoded once. If a
conversation does not fit into the window, Ollama silently drops its beginning; `truncate` and `shift` turn that into an error.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from sanderling.protocol.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Message,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.protocol.modes import Effort
from sanderling.providers import ModelRequest
from sanderling.providers.encoding import (
    EncodedHistory,
    EncodedTools,
    encoded,
    function_tool,
    replays_thoughts,
)
from sanderling.providers.endpoint import NO_DOCUMENT, Quirks
from sanderling.providers.turns import Turns

NO_IMAGE = "[an image, which this model cannot see]"


class Ask(msgspec.Struct, frozen=True):
    """
    A request's parameters, apart from the conversation.

    With `max_tokens` 0 only the window limits the answer. `think` is None for a model that cannot reason.
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


class _User(msgspec.Struct, tag="user", tag_field="role", omit_defaults=True):
    content: str
    images: tuple[str, ...] = ()


class _Assistant(msgspec.Struct, tag="assistant", tag_field="role", omit_defaults=True):
    content: str
    thinking: str = ""
    tool_calls: tuple[_Call, ...] = ()


class _Tool(msgspec.Struct, tag="tool", tag_field="role", omit_defaults=True):
    tool_name: str
    tool_call_id: str
    content: str
    images: tuple[str, ...] = ()


class OllamaEncoder:
    """Remembers the history that it has encoded last."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self._has_images = True
        self._turns = Turns(quirks, is_joining=True)
        self._history = EncodedHistory(self._encode_message)
        self._tools = EncodedTools(function_tool)

    def encode(self, request: ModelRequest, ask: Ask) -> bytes:
        own = dict(self.quirks.body)
        options: dict[str, Any] = {**own.pop("options", {}), "num_ctx": ask.num_ctx}
        if ask.max_tokens:
            options["num_predict"] = ask.max_tokens
        body: dict[str, Any] = {
            "model": ask.model,
            "stream": True,
            **self._effort(ask.think, request.effort),
            "truncate": False,
            "shift": False,
            **own,
            "options": options,
        }
        if request.tools:
            body["tools"] = self._tools.of(request.tools)
        system = [encoded(_System(request.system))] if request.system else []
        if ask.has_images != self._has_images:
            self._has_images = ask.has_images
            self._history = EncodedHistory(self._encode_message)
        history = self._history.of(self._turns.of(request.history))
        body["messages"] = [*system, *chain.from_iterable(history)]
        return msgspec.json.encode(body)

    def _effort(self, think: bool | None, effort: Effort) -> dict[str, Any]:
        if think is None:
            return {}
        fields = self.quirks.reasoning(thinking=think, effort=effort if think else "default")
        return fields or {"think": think}

    def _encode_message(self, message: Message, previous: Message | None) -> Iterator[msgspec.Raw]:
        if message.role == "assistant":
            yield encoded(self._models_message(message, previous))
            return
        before = previous.content if previous else ()
        names = {block.id: block.name for block in before if isinstance(block, ToolUse)}
        for block in message.content:
            if isinstance(block, ToolResult):
                yield encoded(self._tool_message(block, names.get(block.tool_use_id, "")))
        images = tuple(b.source.data for b in message.content if isinstance(b, ImageBlock))
        unseen = () if self._has_images else tuple(TextBlock(NO_IMAGE) for _ in images)
        if texts := _texts((*unseen, *message.content)):
            yield encoded(_User(texts, images if self._has_images else ()))

    def _models_message(self, message: Message, previous: Message | None) -> _Assistant:
        uses = [block for block in message.content if isinstance(block, ToolUse)]
        thoughts = [each.thinking for each in message.content if isinstance(each, ThinkingBlock)]
        return _Assistant(
            _texts(message.content),
            "\n\n".join(thoughts) if replays_thoughts(self.quirks, message, previous) else "",
            tuple(_Call(use.id, _Function(use.name, use.input)) for use in uses),
        )

    def _tool_message(self, result: ToolResult, name: str) -> _Tool:
        """Return the result of a tool. Ollama has no field for errors, so the text says so."""
        content = result.content
        blocks = (TextBlock(content),) if isinstance(content, str) else content
        images = tuple(block.source.data for block in blocks if isinstance(block, ImageBlock))
        unseen = () if self._has_images else tuple(TextBlock(NO_IMAGE) for _ in images)
        unseen += tuple(TextBlock(NO_DOCUMENT) for b in blocks if isinstance(b, DocumentBlock))
        failed = (TextBlock("Error:"),) if result.is_error else ()
        text = _texts((*failed, *blocks, *unseen))
        return _Tool(name, result.tool_use_id, text, images if self._has_images else ())


def _texts(blocks: Iterable[ContentBlock | ResultBlock]) -> str:
    return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock))
