"""
The API's responses: events of a stream, and models.

The answer itself is decoded strictly. A stop reason ends it, because some gateways leave out `message_stop`. Counts and reasons that
cannot be read count as unknown: the answer has been paid for. Wire format: https://docs.anthropic.com/en/api/messages-streaming
"""

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Annotated, Any, get_args

import msgspec

from sanderling.protocol.messages import (
    RedactedThinkingBlock,
    ServerBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUse,
    Usage,
    WebSearch,
)
from sanderling.protocol.modes import Effort
from sanderling.providers import (
    BlockDone,
    CacheMissed,
    ModelLimits,
    StreamItem,
    TextGoesOn,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.http.bodies import (
    Decoder,
    count,
    decode,
    field,
    is_list,
    items,
    tool_input,
)
from sanderling.providers.http.errors import explain_status, malformed
from sanderling.text import counted, printable, shortened, visible

# The `type` of an object is decoded first, and only then the rest, so that an object of a later API is skipped whatever it contains.


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


class _WireServerUse(msgspec.Struct):
    id: str
    name: str


class _WireSearchResult(msgspec.Struct):
    tool_use_id: str
    content: Any = None


class _WireCitation(msgspec.Struct):
    citation: dict[str, Any]


class _WireSignature(msgspec.Struct):
    signature: str


class _WireJson(msgspec.Struct):
    partial_json: str


class _WireModel(msgspec.Struct):
    max_input_tokens: _Count = None
    max_tokens: _Count = None
    capabilities: Any = None

    @property
    def efforts(self) -> tuple[Effort, ...] | None:
        """The efforts that the model takes, in order; None if the API does not say."""
        match self.capabilities:
            case {"effort": {"supported": True, **levels}}:
                taken = {name for name, each in levels.items() if _is_supported(each)}
                return tuple(each for each in get_args(Effort) if each in taken)
            case {"effort": {"supported": False}}:
                return ()
            case _:
                return None


def _is_supported(capability: Any) -> bool:
    match capability:
        case {"supported": True}:
            return True
        case _:
            return False


class _WireModelName(msgspec.Struct):
    id: str


class ModelPage(msgspec.Struct):
    """A page of models, newest first; the next one begins after `last_id`."""

    data: tuple[_WireModelName, ...]
    has_more: bool = False
    last_id: str | None = None


_WireBlock = (
    _WireText | _WireThinking | _WireRedacted | _WireToolUse | _WireServerUse | _WireSearchResult
)

_kind_decoder = msgspec.json.Decoder(_Kind)
_model_decoder = msgspec.json.Decoder(_WireModel)
_raw_decoder = msgspec.json.Decoder(dict[str, Any])
_page_decoder = msgspec.json.Decoder(ModelPage)
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
    "server_tool_use": msgspec.json.Decoder(_WireServerUse),
    "web_search_tool_result": msgspec.json.Decoder(_WireSearchResult),
}
_delta_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "text_delta": msgspec.json.Decoder(_WireText),
    "thinking_delta": msgspec.json.Decoder(_WireThinking),
    "signature_delta": msgspec.json.Decoder(_WireSignature),
    "input_json_delta": msgspec.json.Decoder(_WireJson),
    "citations_delta": msgspec.json.Decoder(_WireCitation),
}

_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}

MAX_REASON_CHARS = 60  # of a cache miss, if the API has a new one

NAMELESS = ("", "message")  # the names of unnamed events


def _decode_if_known(
    decoders: Mapping[str, msgspec.json.Decoder[Any]], data: str | msgspec.Raw
) -> Any:
    decoder = decoders.get(decode(_kind_decoder, data).type)
    return decode(decoder, data) if decoder else None


def _decode_event(data: str, name: str) -> Any:
    """Decode an event; None if it is of a later API. An unnamed one is skipped as well if it is JSON of another form."""
    if name not in NAMELESS:
        return _decode_if_known(_event_decoders, data)
    try:
        kind = field(json.loads(data), "type")
    except (ValueError, RecursionError) as error:
        raise malformed(str(error)) from error
    return _decode_if_known(_event_decoders, data) if kind in _event_decoders else None


def decode_limits(data: bytes) -> ModelLimits:
    model = decode(_model_decoder, data)
    return ModelLimits(model.max_input_tokens or 0, model.max_tokens or 0, efforts=model.efforts)


def decode_page(data: bytes) -> ModelPage:
    return decode(_page_decoder, data)


def decode_usage(data: bytes) -> Usage:
    """Return the usage of an answer that was not streamed; unreadable counts are zero."""
    try:
        usage = field(json.loads(data), "usage")
    except (ValueError, RecursionError):
        return Usage()
    return Usage(*(count(field(usage, name)) or 0 for name in Usage.__struct_fields__))


class ReplyDecoder(Decoder):
    """
    Turns the events of one reply into stream items. Additions of later APIs are skipped; what breaks the format is an error.

    With `keeps_unsigned` this API accepts reasoning without a signature. `note_id` receives the answer's id; `queries` has the queries of
    the reply's earlier searches, by id.
    """

    def __init__(
        self,
        without_key: Callable[[str], str] = str,
        key_remedy: str = "",
        *,
        keeps_unsigned: bool = False,
        note_id: Callable[[str], None] = lambda _: None,
        queries: dict[str, str] | None = None,
    ) -> None:
        super().__init__(without_key, key_remedy)
        self._note_id = note_id
        self._keeps_unsigned = keeps_unsigned
        self._block: _WireBlock | None = None
        self._raw: dict[str, Any] = {}  # the block of one of the API's own tools
        self._pieces: list[str] = []
        self._citations: list[dict[str, Any]] = []
        self._held: BlockDone | None = None
        self._queries: dict[str, str] = {} if queries is None else queries
        self._signature = ""
        self._usage = Usage()

    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        if not data or (event not in _event_decoders and event not in NAMELESS):
            return
        match _decode_event(data, event):
            case _MessageStop():
                if self._held:
                    yield from self._finish_block()
                self.is_done = self.is_over = True
            case _MessageDelta(delta, usage):
                if usage is not None:
                    yield self._report(usage)
                if not self.is_done:
                    yield from self._stop(field(delta, "stop_reason"))
            case decoded if not self.is_done:
                yield from self._take(decoded)
            case _:
                pass  # part of another answer

    def _take(self, decoded: Any) -> Iterator[StreamItem]:
        match decoded:
            case _MessageStart(message):
                self.has_started = True
                yield self._report(field(message, "usage"))
                if isinstance(message_id := field(message, "id"), str):
                    self._note_id(message_id)
                missed = field(field(field(message, "diagnostics"), "cache_miss_reason"), "type")
                if isinstance(missed, str):
                    yield CacheMissed(shortened(visible(missed), MAX_REASON_CHARS))
            case _BlockStart(raw_block):
                yield from self._start_block(
                    _decode_if_known(_block_decoders, raw_block), raw_block
                )
            case _BlockDelta(raw_delta):
                if self._block:
                    yield from self._grow_block(_decode_if_known(_delta_decoders, raw_delta))
            case _BlockStop():
                yield from self._finish_block(holds=True)
            case _Error(error):
                words = self._without_key(error.message or error.type)
                status = HTTPStatus.OK
                raise explain_status(error.type, status, words, key_remedy=self._key_remedy)
            case _:
                pass  # a ping, or an event of a later API

    def _stop(self, reason: object) -> Iterator[StreamItem]:
        """Handle the stop reason, which is null at first."""
        if reason:
            yield from self._finish_block()
            self.stop_reason = _STOP_REASONS.get(str(reason), "end_turn")
            self.is_paused = reason == "pause_turn"
            self.is_done = True

    def _start_block(self, block: _WireBlock | None, raw: msgspec.Raw) -> Iterator[StreamItem]:
        if self._held:
            is_cut = isinstance(block, _WireText)
            yield TextGoesOn(self._held.block) if is_cut else self._held
        self._held, self._block = None, block
        self._pieces, self._citations, self._signature = [], [], ""
        if isinstance(block, _WireServerUse | _WireSearchResult):
            self._raw = decode(_raw_decoder, raw)
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
            case _WireCitation(citation) if self._queries:
                self._citations.append(citation)
            case _:
                pass  # a delta of a later API

    def _finish_block(self, *, holds: bool = False) -> Iterator[BlockDone]:
        """Finish the block. After a search the API cuts its text into blocks, so `holds` keeps a text until the next block begins."""
        if self._block:
            done, self._block = self._finished(self._block), None
            if holds and self._queries and isinstance(done.block, TextBlock):
                self._held = done
            else:
                yield done
        if self._held and not holds:
            yield self._held
            self._held = None

    def _finished(self, block: _WireBlock) -> BlockDone:
        content = "".join(self._pieces)
        match block:
            case _WireText():
                extra = {"citations": self._citations} if self._citations else {}
                return BlockDone(TextBlock(content, extra))
            case _WireServerUse(use_id):
                use_input, _ = tool_input(content)
                self._queries[use_id] = _shown(use_input.get("query", ""))
                return BlockDone(ServerBlock({**self._raw, "input": use_input}))
            case _WireSearchResult(use_id, found):
                search = _search(use_id, self._queries.get(use_id, ""), found)
                return BlockDone(ServerBlock(self._raw, search))
            case _WireThinking():
                is_unsigned = self._keeps_unsigned and not self._signature
                extra = {"unsigned": True} if is_unsigned else {}
                return BlockDone(ThinkingBlock(content, self._signature, extra))
            case _WireRedacted(data):
                return BlockDone(RedactedThinkingBlock(data))
            case _WireToolUse(use_id, name):
                use_input, problem = tool_input(content)
                return BlockDone(ToolUse(use_id, name, use_input), problem)

    def _report(self, usage: object) -> UsageReport:
        """Return the counts so far. They are cumulative; one that is missing or invalid keeps its value."""
        self._usage = Usage(
            *(
                getattr(self._usage, name) if value is None else value
                for name in Usage.__struct_fields__
                for value in [count(_counted(usage, name))]
            )
        )
        return UsageReport(self._usage)


def _counted(usage: object, name: str) -> object:
    if name == "web_searches":
        return field(field(usage, "server_tool_use"), "web_search_requests")
    return field(usage, name)


def _search(use_id: str, query: str, found: object) -> WebSearch:
    """Describe a search. `found` is a list of results, or an error as an object."""
    if not is_list(found):
        why = _shown(field(found, "error_code") or "unknown error").replace("_", " ")
        return WebSearch(use_id, query, why, is_error=True)
    results = items(found)
    lines = (f"{_shown(field(each, 'title'))}\n  {_shown(field(each, 'url'))}" for each in results)
    return WebSearch(use_id, query, counted(len(results), "result"), "\n".join(lines))


def _shown(value: object) -> str:
    return visible(" ".join(printable(str(value)).split()))
