"""
The API's answers: events of a stream, models.

What the SDK leaves loose is decided here: what the answer is made of is decoded strictly, and a stream without its `message_stop`
has no end. What is only told beside it, counts and reasons, is unknown where it cannot be read: the answer is paid for.
Wire format: https://docs.anthropic.com/en/api/messages-streaming
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, TypeVar, cast

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.messages import (
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUse,
    Usage,
)
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.anthropic.errors import explain_status, malformed
from sanderling.text import printable

MAX_SHOWN_INPUT_CHARS = 500

# What an object is, its `type` says; only then is it decoded, so that one of a later API is passed over whatever it holds.


class _Kind(msgspec.Struct):
    type: str


# A number that Lua can hold.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None


class _MessageStart(msgspec.Struct):
    message: Any = None


class _BlockStart(msgspec.Struct):
    content_block: msgspec.Raw


class _BlockDelta(msgspec.Struct):
    delta: msgspec.Raw


class _BlockStop(msgspec.Struct):
    pass


class _MessageDelta(msgspec.Struct):
    delta: Any = None
    usage: Any = None


class _MessageStop(msgspec.Struct):
    pass


class _WireError(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Error(msgspec.Struct):
    error: _WireError


class _Refusal(msgspec.Struct):
    error: dict[str, Any]


class _WireText(msgspec.Struct):
    text: str


class _WireThinking(msgspec.Struct):
    thinking: str
    signature: str = ""


class _WireRedacted(msgspec.Struct):
    data: str


class _WireToolUse(msgspec.Struct):
    id: str
    name: str


class _WireSignature(msgspec.Struct):
    signature: str


class _WireJson(msgspec.Struct):
    partial_json: str


class _WireModel(msgspec.Struct):
    max_input_tokens: _Count = None
    max_tokens: _Count = None


class _WireModelName(msgspec.Struct):
    id: str


class ModelPage(msgspec.Struct):
    """Some of the models, newest first; what follows `last_id` is on the next page."""

    data: tuple[_WireModelName, ...]
    has_more: bool = False
    last_id: str | None = None


_WireBlock = _WireText | _WireThinking | _WireRedacted | _WireToolUse

_kind_decoder = msgspec.json.Decoder(_Kind)
_model_decoder = msgspec.json.Decoder(_WireModel)
_page_decoder = msgspec.json.Decoder(ModelPage)
_input_decoder = msgspec.json.Decoder(dict[str, Any])
_event_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "message_start": msgspec.json.Decoder(_MessageStart),
    "content_block_start": msgspec.json.Decoder(_BlockStart),
    "content_block_delta": msgspec.json.Decoder(_BlockDelta),
    "content_block_stop": msgspec.json.Decoder(_BlockStop),
    "message_delta": msgspec.json.Decoder(_MessageDelta),
    "message_stop": msgspec.json.Decoder(_MessageStop),
    "error": msgspec.json.Decoder(_Error),
}
_block_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "text": msgspec.json.Decoder(_WireText),
    "thinking": msgspec.json.Decoder(_WireThinking),
    "redacted_thinking": msgspec.json.Decoder(_WireRedacted),
    "tool_use": msgspec.json.Decoder(_WireToolUse),
}
_delta_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "text_delta": msgspec.json.Decoder(_WireText),
    "thinking_delta": msgspec.json.Decoder(_WireThinking),
    "signature_delta": msgspec.json.Decoder(_WireSignature),
    "input_json_delta": msgspec.json.Decoder(_WireJson),
}

_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}

NAMELESS = ("", "message")  # as events are that have no name
MAX_COUNT = 2**53  # what Lua can hold

T = TypeVar("T")


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | str | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.ValidationError, RecursionError) as error:
        raise malformed(str(error)) from error
    except msgspec.DecodeError:
        pass
    # Half of a surrogate pair is no text in any encoding, yet a proxy that cuts strings can send one: show U+FFFD instead.
    try:
        value = json.loads(bytes(data) if isinstance(data, msgspec.Raw) else data)
        return decoder.decode(printable(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise malformed(str(error)) from error


def _decode_if_known(
    decoders: Mapping[str, msgspec.json.Decoder[Any]], data: str | msgspec.Raw
) -> Any:
    decoder = decoders.get(_decode(_kind_decoder, data).type)
    return _decode(decoder, data) if decoder else None


def _decode_event(data: str, name: str) -> Any:
    """The event that `data` holds, None for one of a later API. One without a name is such if it is JSON of another form."""
    if name not in NAMELESS:
        return _decode_if_known(_event_decoders, data)
    try:
        kind = _field(json.loads(data), "type")
    except (ValueError, RecursionError) as error:
        raise malformed(str(error)) from error
    return _decode_if_known(_event_decoders, data) if kind in _event_decoders else None


def _broken_input(text: str) -> str:
    """Cut off at the limit of tokens, most of the time."""
    try:
        json.loads(text)
        reason = "it is no object, or too deep"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    shown = text if len(text) <= MAX_SHOWN_INPUT_CHARS else f"{text[:MAX_SHOWN_INPUT_CHARS]}…"
    return f"The input is not the JSON object that it must be ({reason}). What arrived: {printable(shown)}"


def decode_limits(data: bytes) -> ModelLimits:
    model = _decode(_model_decoder, data)
    return ModelLimits(model.max_input_tokens or 0, model.max_tokens or 0)


def decode_page(data: bytes) -> ModelPage:
    return _decode(_page_decoder, data)


def decode_refusal(data: bytes) -> tuple[str, str]:
    """The type of the error and what is said of it; empty where it is not the API's own. A proxy's may hold anything."""
    error: dict[str, Any] = {}
    with suppress(ValueError, RecursionError, msgspec.ValidationError):
        body = json.loads(data.decode(json.detect_encoding(data), "replace"))
        error = msgspec.convert(body, _Refusal).error
    kind, words = (
        told if isinstance(told := error.get(key), str) else "" for key in ("type", "message")
    )
    return kind, printable(words)


class ReplyDecoder:
    """Turns the events of one reply into stream items. What a later API adds is passed over, what breaks its format is an error."""

    def __init__(self, without_key: Callable[[str], str] = str) -> None:
        self._without_key = without_key
        self.has_started = self.has_words = False
        self.is_done = False
        self.stop_reason: StopReason = "end_turn"
        self._block: _WireBlock | None = None
        self._pieces: list[str] = []
        self._signature = ""
        self._usage = Usage()

    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        """`event` is its name."""
        if not data or (event not in _event_decoders and event not in NAMELESS):
            return
        match _decode_event(data, event):
            case _MessageStart(message):
                self.has_started = True
                yield self._report(_field(message, "usage"))
            case _BlockStart(raw_block):
                yield from self._start_block(_decode_if_known(_block_decoders, raw_block))
            case _BlockDelta(raw_delta):
                if self._block:
                    yield from self._grow_block(_decode_if_known(_delta_decoders, raw_delta))
            case _BlockStop():
                if self._block:
                    yield self._finished(self._block)
                self._block = None
            case _MessageDelta(delta, usage):
                self.stop_reason = _STOP_REASONS.get(str(_field(delta, "stop_reason")), "end_turn")
                if usage is not None:
                    yield self._report(usage)
            case _MessageStop():
                self.is_done = True
            case _Error(error):
                words = self._without_key(error.message or error.type)
                raise explain_status(error.type, HTTPStatus.OK, words)
            case _:
                pass  # a ping, or an event of a later API

    def _start_block(self, block: _WireBlock | None) -> Iterator[StreamItem]:
        self._block, self._pieces, self._signature = block, [], ""
        if isinstance(block, _WireText | _WireThinking):
            yield from self._grow_block(block)
        elif isinstance(block, _WireToolUse):
            yield ToolUseBegun()

    def _grow_block(self, delta: Any) -> Iterator[StreamItem]:
        match delta:
            case _WireText(text) if text:
                self._pieces.append(text)
                self.has_words = True
                yield TextPiece(text)
            case _WireThinking(thinking, signature):
                self._signature += signature
                if thinking:
                    self._pieces.append(thinking)
                    self.has_words = True
                    yield ThinkingPiece(thinking)
            case _WireSignature(signature):
                self._signature += signature
            case _WireJson(partial_json):
                self._pieces.append(partial_json)
            case _:
                pass  # a delta of a later API

    def _finished(self, block: _WireBlock) -> BlockDone:
        content = "".join(self._pieces)
        match block:
            case _WireText():
                return BlockDone(TextBlock(content))
            case _WireThinking():
                return BlockDone(ThinkingBlock(content, self._signature))
            case _WireRedacted(data):
                return BlockDone(RedactedThinkingBlock(data))
            case _WireToolUse(use_id, name):
                try:
                    return BlockDone(
                        ToolUse(use_id, name, _decode(_input_decoder, content or "{}"))
                    )
                except ProviderError:
                    return BlockDone(ToolUse(use_id, name, {}), _broken_input(content))

    def _report(self, usage: object) -> UsageReport:
        """Counts are cumulative, and a field that is left out, or is no count, keeps its value."""
        self._usage = Usage(
            *(
                count if _is_count(count := _field(usage, name)) else getattr(self._usage, name)
                for name in Usage.__struct_fields__
            )
        )
        return UsageReport(self._usage)


def _field(value: object, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT
