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
        """Tokens of the model's context window that the request and its answer fill."""
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


StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "context_full",
    "cancelled",
    "interrupted",
    "error",
    "max_calls",
    "budget",
]


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    Lines of a buffer as the user sees them, unsaved text included; line numbers count from 1.

    `is_piped`: they came through standard input instead, and `path` only names that.
    """

    path: str
    first_line: int
    last_line: int
    text: str
    filetype: str = ""
    is_piped: bool = False


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A person's words, with an id of the face's choosing and the lines that go with them.

    `sent` is what the model is told in place of the words, where they are a command of a Markdown file.
    """

    id: str
    text: str
    selections: tuple[Selection, ...] = ()
    sent: str = ""
