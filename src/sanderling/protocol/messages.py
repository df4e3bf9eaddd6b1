"""
The conversation as the model sees it.

The structs have the shape of the Anthropic Messages API, so their JSON can be used as a request's `messages`. Source:
https://docs.anthropic.com/en/api/messages

`extra` of a block holds the provider's fields that we do not know. They are sent back unread, and only to the model that wrote them.
"""

from operator import add
from typing import Any, Literal

import msgspec

from sanderling.protocol.modes import Effort
from sanderling.text import signal_name


class TextBlock(msgspec.Struct, tag="text", frozen=True, omit_defaults=True):
    text: str
    extra: dict[str, Any] = {}


class NoteBlock(TextBlock, tag="text", frozen=True, omit_defaults=True):
    """Sanderling's words after tool results, not the user's. As JSON it is a `TextBlock`."""


class SharedBlock(TextBlock, tag="text", frozen=True, omit_defaults=True):
    """Text with which several conversations begin. APIs with marks for their cache get one at its end."""


class ThinkingBlock(msgspec.Struct, tag="thinking", frozen=True, omit_defaults=True):
    """
    `signature` proves to the API that the model wrote `thinking`.

    A block without signature and `extra` is dropped: no API accepts it back.
    """

    thinking: str
    signature: str
    extra: dict[str, Any] = {}


class RedactedThinkingBlock(msgspec.Struct, tag="redacted_thinking", frozen=True):
    data: str


class ToolUse(msgspec.Struct, tag="tool_use", frozen=True, omit_defaults=True):
    id: str
    name: str
    input: dict[str, Any]
    extra: dict[str, Any] = {}


class ImageSource(msgspec.Struct, tag="base64", frozen=True):
    media_type: str
    data: str


class ImageBlock(msgspec.Struct, tag="image", frozen=True):
    source: ImageSource


PDF_TYPE = "application/pdf"


class DocumentBlock(msgspec.Struct, tag="document", frozen=True):
    """A PDF. The number of `pages` is not sent."""

    source: ImageSource
    title: str
    pages: int


ResultBlock = TextBlock | ImageBlock | DocumentBlock


def kind_of(block: ImageBlock | DocumentBlock) -> str:
    return "an image" if isinstance(block, ImageBlock) else "a PDF"


def text_of(content: str | tuple[ResultBlock, ...]) -> str:
    """Return the text of a result, with the names of images and PDFs in their place."""
    if isinstance(content, str):
        return content
    return "\n".join(
        block.text if isinstance(block, TextBlock) else f"[{kind_of(block)}]" for block in content
    )


class ToolResult(msgspec.Struct, tag="tool_result", frozen=True):
    tool_use_id: str
    content: str | tuple[ResultBlock, ...]
    is_error: bool = False


SEARCH_TOOL = "web_search"
"""The tool that searches the web, offered only if `[web_search]` says how."""


class WebSearch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A web search that the API made, for the screen; `detail` lists what it found."""

    id: str
    query: str
    summary: str = ""
    detail: str = ""
    is_error: bool = False


class ServerBlock(msgspec.Struct, tag="server", frozen=True, omit_defaults=True):
    """
    A part of an answer in which the API used a tool of its own: `data` is the block or item as the API sent it.

    It is sent back unread, and only to the model that wrote it. A call and its result can be two blocks. `shown` describes the search on
    the block that ends it.
    """

    data: dict[str, Any]
    shown: WebSearch | None = None


ContentBlock = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUse
    | ToolResult
    | ImageBlock
    | ServerBlock
)


class Message(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: tuple[ContentBlock, ...]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts as the API reports them: `input_tokens` excludes tokens read from or written to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    web_searches: int = 0  # made by the API

    @property
    def context_tokens(self) -> int:
        """The tokens of the context window that the request and its answer fill."""
        return sum(msgspec.structs.astuple(self)[:4])

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


_ENDINGS = {
    "succeeded": ("", "succeeded {took}"),
    "failed": ("", "failed with exit status {status} {took}"),
    "killed": ("was ", "ended by {signal} {took}"),
    "stopped": ("was ", "stopped {took}"),
    "interrupted": ("was ", "interrupted"),
    "not_started": ("", "did not start: {problem}"),
    "not_run": ("", "did not run: {problem}"),
    "running": ("is ", "still running"),
    "unknown": ("has ", "ended"),
}


class CommandEnding(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The end of a user's command.

    `status` is the exit status if it "exited", negative for a signal; `problem` is why it did not start or run.
    """

    how: Literal["exited", "stopped", "interrupted", "not_started", "not_run", "running", "unknown"]
    status: int = 0
    took_s: float = 0.0
    problem: str = ""

    @property
    def is_success(self) -> bool:
        return self.how == "exited" and not self.status

    @property
    def description(self) -> str:
        """The ending in words that follow "it", for the model."""
        return "".join(self._words())

    @property
    def shown(self) -> str:
        """The ending as a sentence, for the screen."""
        _, words = self._words()
        return f"{words[0].upper()}{words[1:]}."

    def _words(self) -> tuple[str, str]:
        """Return the auxiliary verb, which the screen omits, and the rest."""
        exited = "killed" if self.status < 0 else "failed" if self.status else "succeeded"
        auxiliary, words = _ENDINGS[exited if self.how == "exited" else self.how]
        text = words.format(
            status=self.status,
            signal=signal_name(-self.status),
            took=f"after {self.took_s:.1f} s",
            problem=self.problem,
        )
        return auxiliary, text.rstrip(".")


class CommandRecord(msgspec.Struct, frozen=True):
    """
    A command that the user ran, and its output, within limits.

    It is not a message of its own: the next prompt includes it.
    """

    command: str
    output: str
    ending: CommandEnding = CommandEnding("unknown")


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

    `is_piped`: the text came from standard input, and `path` is only a label. `origin` describes the source of an @mention; a mention
    that is not a file has the mention as its `path`. With a `media_type` it is an image, and `text` is its base64.
    """

    path: str
    first_line: int
    last_line: int
    text: str
    filetype: str = ""
    is_piped: bool = False
    origin: str = ""
    media_type: str = ""


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A user's prompt, with an id that the frontend chose and the attached lines.

    `sent` is what the model gets instead of `text`, if that was a slash command. `effort` and `model` are those of its turn, if not the
    session's.
    """

    id: str
    text: str
    selections: tuple[Selection, ...] = ()
    sent: str = ""
    effort: Effort | None = None
    model: str = ""
