"""
Ollama's responses: the lines of a stream, a model, the list of models.

A line is a piece of the message, with whole tool uses; the last one is `done`. A line `{"error": …}` ends the stream, too. The count of
prompt tokens includes cached ones. Wire format: https://docs.ollama.com/api/chat
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.messages import TextBlock, ThinkingBlock, ToolUse, Usage
from sanderling.providers import (
    BlockDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.http.bodies import Decoder, count, decode, field, read_refusal, tool_input
from sanderling.providers.http.models import MAX_MODELS, is_name
from sanderling.providers.ollama.errors import explain

THOUGHT = {"field": "thinking"}
"""Marks reasoning that is sent back. Ollama signs nothing, and reasoning without a mark is not kept."""

_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)


class _Function(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: tuple[_Call, ...] | None = None


class _Line(msgspec.Struct):
    message: _Message | None = None
    done: bool = False
    done_reason: Any = None
    prompt_eval_count: Any = None
    eval_count: Any = None
    error: Any = None


class _Show(msgspec.Struct):
    model_info: Any = None
    parameters: Any = None
    capabilities: Any = None
    remote_host: Any = None


class _Tag(msgspec.Struct):
    name: str


class _Tags(msgspec.Struct):
    models: tuple[_Tag, ...]


_line_decoder = msgspec.json.Decoder(_Line)
_show_decoder = msgspec.json.Decoder(_Show)
_tags_decoder = msgspec.json.Decoder(_Tags)


class ShownModel(msgspec.Struct, frozen=True):
    """
    A model as Ollama shows it: its largest window, the window that its Modelfile sets, and its abilities.

    A window of 0 and abilities of None are unknown. A model that `is_remote` uses no local memory.
    """

    window_tokens: int = 0
    num_ctx: int = 0
    abilities: frozenset[str] | None = None
    is_remote: bool = False


def decode_show(data: bytes) -> ShownModel:
    shown = decode(_show_decoder, data)
    named = field(shown.model_info, "general.architecture")
    window = count(field(shown.model_info, f"{named}.context_length"))
    wanted = _NUM_CTX.search(shown.parameters) if isinstance(shown.parameters, str) else None
    abilities = cast("object", shown.capabilities)
    return ShownModel(
        window or 0,
        int(wanted[1]) if wanted else 0,
        frozenset(map(str, cast("list[object]", abilities)))
        if isinstance(abilities, list)
        else None,
        is_remote=bool(shown.remote_host),
    )


def decode_tags(data: bytes) -> tuple[str, ...]:
    """Return the names of the installed models in Ollama's order, newest first."""
    return tuple(tag.name for tag in decode(_tags_decoder, data).models if is_name(tag.name))[
        :MAX_MODELS
    ]


def _input(arguments: msgspec.Raw) -> tuple[dict[str, Any], str]:
    """Decode the arguments. Some models write the object as a string; null and an empty string have no fields."""
    given: object = msgspec.json.decode(arguments)
    is_text = given is None or isinstance(given, str)
    return tool_input(str(given or "") if is_text else bytes(arguments).decode())


class LineDecoder:
    """Splits a stream into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[str]:
        piece = piece.replace(b"\r", b"\n")  # JSON strings contain neither
        self._rest += piece
        if b"\n" in piece:
            *lines, self._rest = self._rest.split(b"\n")
            yield from (line.decode() for line in lines)

    def end(self) -> Iterator[str]:
        """Yield the last line if it is complete JSON; otherwise it was cut off."""
        with suppress(msgspec.DecodeError):
            msgspec.json.decode(self._rest)
            yield self._rest.decode()


class OllamaDecoder(Decoder):
    """
    Turns the lines of one reply of `model` into stream items.

    An answer that stopped for its length, but has fewer than `max_tokens`, has filled the window.
    """

    def __init__(self, model: str, max_tokens: int = 0) -> None:
        super().__init__()
        self._model = model
        self._max_tokens = max_tokens
        self._kind: type[TextPiece | ThinkingPiece] = TextPiece
        self._pieces: list[str] = []

    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        del event  # lines have no name
        if not data.strip() or self.is_done:
            return
        line = decode(_line_decoder, data)
        if line.error is not None:
            raise self._failure(line.error)
        self.has_started = True
        if message := line.message:
            yield from self._grow(ThinkingPiece, message.thinking)
            yield from self._grow(TextPiece, message.content)
            for call in message.tool_calls or ():
                yield from self._finish_block()
                yield ToolUseBegun()
                given, problem = _input(call.function.arguments)
                yield BlockDone(ToolUse(call.id or "", call.function.name, given), problem)
        if line.done:
            yield from self._finish_block()
            self.is_done = self.is_over = True
            usage = Usage(count(line.prompt_eval_count) or 0, count(line.eval_count) or 0)
            if line.done_reason == "length":
                is_full = 0 < usage.output_tokens < self._max_tokens
                self.stop_reason = "context_full" if is_full else "max_tokens"
            yield UsageReport(usage)

    def _grow(
        self, kind: type[TextPiece | ThinkingPiece], text: str | None
    ) -> Iterator[StreamItem]:
        if not text:
            return
        if kind is not self._kind:
            yield from self._finish_block()
        self._kind, self.has_words = kind, True
        self._pieces.append(text)
        yield kind(text)

    def _finish_block(self) -> Iterator[StreamItem]:
        text, self._pieces = "".join(self._pieces), []
        if text and self._kind is TextPiece:
            yield BlockDone(TextBlock(text))
        elif text:
            yield BlockDone(ThinkingBlock(text, "", THOUGHT))

    def _failure(self, error: object) -> ProviderError:
        _, words = read_refusal({"error": error})
        return explain(200, words, self._model)
