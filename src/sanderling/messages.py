"""
The conversation as the model sees it.

The structs have the shape of the Anthropic Messages API, so that their JSON is a request's `messages` as it stands.
Source: https://docs.anthropic.com/en/api/messages
"""

from typing import Any, Literal

import msgspec


class TextBlock(msgspec.Struct, tag="text", frozen=True):
    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking", frozen=True):
    """`signature` proves to the API that the model wrote `thinking`; a block without one is refused."""

    thinking: str
    signature: str


class RedactedThinkingBlock(msgspec.Struct, tag="redacted_thinking", frozen=True):
    data: str


class ToolUse(msgspec.Struct, tag="tool_use", frozen=True):
    id: str
    name: str
    input: dict[str, Any]


class ImageSource(msgspec.Struct, tag="base64", frozen=True):
    media_type: str
    data: str


class ImageBlock(msgspec.Struct, tag="image", frozen=True):
    source: ImageSource


class ToolResult(msgspec.Struct, tag="tool_result", frozen=True):
    tool_use_id: str
    content: str | tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False


ContentBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUse | ToolResult


class Message(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: tuple[ContentBlock, ...]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the API counts them: `input_tokens` are those neither read from nor written to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    @property
    def context_tokens(self) -> int:
        """What the request and its answer fill of the model's context window."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_creation_input_tokens
            + self.cache_read_input_tokens
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class CommandRecord(msgspec.Struct, frozen=True):
    """
    A command that the person ran: how it ended, in words, and what it wrote, within bounds.

    No message by itself: the next prompt tells the model of it.
    """

    command: str
    outcome: str
    output: str
