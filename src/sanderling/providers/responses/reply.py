"""
The responses of the Responses API: the events of a stream.

An answer is a list of items: messages, reasoning, tool uses. Each grows by deltas between its `added` and its `done` event. OpenAI sends
all of that. Others send only deltas, or everything at the end, or ids that change from event to event, or several items in parallel. So
an item accepts whatever comes. The first unfinished item streams as it grows, later ones wait for it, and the end of the answer finishes
all. The complete text in a `done` event overrides the deltas.

The answer itself is decoded strictly; additions of later APIs are skipped. Without its last event, or the `[DONE]` that some gateways
send instead, a stream was cut off. Wire format: https://developers.openai.com/api/reference/resources/responses/streaming-events
"""

import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Usage
from sanderling.providers import StreamItem, TextPiece, ThinkingPiece, ToolUseBegun, UsageReport
from sanderling.providers.http.bodies import Decoder, count, decode, field, read_refusal
from sanderling.providers.http.errors import explain_status
from sanderling.providers.responses.items import (
    ITEM_KINDS,
    Item,
    ItemRef,
    Kind,
    WireItem,
    is_search,
)

END_MARK = "[DONE]"  # from gateways, as in Chat Completions

# The `type` of an event is decoded first, and only then the rest, so that an event of a later API is skipped whatever it contains.


class _Head(msgspec.Struct):
    type: str = ""
    sequence_number: Any = None
    error: Any = None


class _At(msgspec.Struct, kw_only=True):
    """The item of an event, and the part of it."""

    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None

    @property
    def ref(self) -> ItemRef:
        return ItemRef(self.item_id, self.output_index)

    @property
    def part(self) -> str:
        return f"{self.content_index or 0}.{self.summary_index or 0}"


class _Delta(_At):
    delta: str


class _Whole(_At):
    """The complete text of a part."""

    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None

    @property
    def words(self) -> str:
        return self.text or self.refusal or self.arguments or ""


class _OfItem(msgspec.Struct):
    item: msgspec.Raw
    output_index: int | None = None


class _Response(msgspec.Struct):
    """The response in the last event."""

    status: Any = None
    usage: Any = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw(b"null")


class _End(msgspec.Struct):
    response: _Response | None = None


# The kinds of items that grow, by the names of their events.
_KINDS: dict[str, Kind] = {
    "response.output_text": "message",
    "response.refusal": "message",
    "response.reasoning_text": "reasoning",
    "response.reasoning_summary_text": "reasoning",
    "response.function_call_arguments": "function_call",
}
_ENDS = frozenset(("response.completed", "response.incomplete", "response.done"))
_FAILURES = frozenset(("error", "response.failed", "response.cancelled"))
_WAIT = re.compile(r"try again in (?:(\d{1,4})m)?(\d{1,6}(?:\.\d{1,6})?)(ms|s)\b")
_UNANSWERED = frozenset(("failed", "cancelled"))

_head_decoder = msgspec.json.Decoder(_Head)
_item_decoder = msgspec.json.Decoder(WireItem)
_of_item_decoder = msgspec.json.Decoder(_OfItem)
_delta_decoder = msgspec.json.Decoder(_Delta)
_whole_decoder = msgspec.json.Decoder(_Whole)
_end_decoder = msgspec.json.Decoder(_End)
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw] | None)
_object_decoder = msgspec.json.Decoder(dict[str, Any])
_any_decoder = msgspec.json.Decoder(Any)


class ResponsesDecoder(Decoder):
    """Turns the events of one reply into stream items."""

    def __init__(
        self,
        without_key: Callable[[str], str] = str,
        key_remedy: str = "",
        *,
        keeps_searches: bool = False,
    ) -> None:
        """`keeps_searches`: searches were asked for. Routers make others of their own accord, which do not go back."""
        super().__init__(without_key, key_remedy)
        self._keeps_searches = keeps_searches
        self._items: list[Item] = []  # not streamed to their end
        self._finished: set[str] = set()  # the names of finished items
        self._has_items = self._is_refusal = self._has_lost_thought = False
        self._last = ""
        self._searches = 0

    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        if not data or not _is_response_event(event):
            return
        if data.strip() == END_MARK:
            if self._has_items:
                yield from self._end(_Response(), "", data)
            return
        head = decode(_head_decoder, data)
        kind = head.type or ("error" if head.error else event)
        if data == self._last and (count(head.sequence_number) or 0) > 0:
            return  # repeated by a relay; without numbers two events may be equal
        self._last = data
        self.has_started = True
        growing, _, what = kind.rpartition(".")
        if kind in _FAILURES:
            raise self._failure(data)
        if kind in _ENDS:
            yield from self._end(decode(_end_decoder, data).response or _Response(), kind, data)
        elif growing == "response.output_item":
            self._take(decode(_of_item_decoder, data), is_done=what == "done")
        elif growing in _KINDS and what == "delta":
            delta = decode(_delta_decoder, data)
            if item := self._item_at(_KINDS[growing], delta):
                item.grow(f"{growing} {delta.part}", delta.delta)
        elif growing in _KINDS and what == "done":
            whole = decode(_whole_decoder, data)
            if item := self._item_at(_KINDS[growing], whole):
                item.settle(f"{growing} {whole.part}", whole.words)
        self._is_refusal |= growing == "response.refusal"
        yield from self._flush()

    def _take(self, event: _OfItem, *, is_done: bool) -> None:
        self._has_items = True
        kind = decode(_head_decoder, event.item).type
        if kind not in ITEM_KINDS or (kind == "web_search_call" and not self._keeps_searches):
            return  # a built-in tool of the API, or an item of a later one
        wire = decode(_item_decoder, event.item)
        ref = ItemRef(wire.id, event.output_index)
        self._is_refusal |= wire.is_refusal
        item = self._open_item(kind, ref)
        if not is_done:
            if item is None or not item.is_at(ref):
                item = self._begin(kind, ref)
            item.begin(wire)
        elif item or not wire.names & self._finished:
            item = item or self._begin(kind, ref)
            if kind == "web_search_call":
                item.data = decode(_object_decoder, event.item)
            item.close(wire)

    def _item_at(self, kind: Kind, at: _At) -> Item | None:
        """Return the item that an event belongs to, perhaps a new one; None if the item is finished and the event late."""
        item = self._open_item(kind, at.ref)
        if item is None and at.item_id in self._finished:
            return None
        return item or self._begin(kind, at.ref)

    def _open_item(self, kind: Kind, ref: ItemRef) -> Item | None:
        items = [item for item in reversed(self._items) if item.kind == kind and not item.is_done]
        best = max(items, key=lambda item: item.likeness(ref), default=None)
        return best if best and best.likeness(ref) else None

    def _begin(self, kind: Kind, ref: ItemRef) -> Item:
        self._has_items = True
        self._items.append(Item(kind, ref))
        return self._items[-1]

    def _flush(self) -> Iterator[StreamItem]:
        """Yield the new text of the first item, and of the next ones once it is finished."""
        while self._items:
            item = self._items[0]
            if item.kind == "function_call" and not item.is_begun:
                yield ToolUseBegun()
            item.is_begun = True
            piece = "".join(item.unsent)
            item.unsent.clear()
            if piece and item.kind in ("message", "reasoning"):
                self.has_words = True
                yield TextPiece(piece) if item.kind == "message" else ThinkingPiece(piece)
            if not item.is_done:
                return
            del self._items[0]
            self._finished |= item.names
            block = item.block(has_id=not self._has_lost_thought)
            self._has_lost_thought |= item.kind == "reasoning" and not item.goes_back
            if block:
                self._searches += is_search(block.block)
                yield block

    def _end(self, response: _Response, kind: str, data: str) -> Iterator[StreamItem]:
        if response.status in _UNANSWERED:
            raise self._failure(data)
        is_cut = "incomplete" in (response.status, kind.rpartition(".")[2])
        if not self._has_items:
            for number, raw in enumerate(decode(_list_decoder, response.output) or ()):
                self._take(_OfItem(raw, number), is_done=True)
        for item in self._items:
            item.end(is_cut=is_cut)
        yield from self._flush()
        if usage := _usage(response.usage):
            yield UsageReport(msgspec.structs.replace(usage, web_searches=self._searches))
        self.is_done = self.is_over = True
        reason = field(response.incomplete_details, "reason")
        if self._is_refusal or (is_cut and reason == "content_filter"):
            self.stop_reason = "refusal"
        elif is_cut:
            self.stop_reason = "max_tokens"

    def _failure(self, data: str) -> ProviderError:
        body = decode(_any_decoder, data)
        kind, words = read_refusal(field(body, "response") or body)
        words = self._without_key(words.rstrip(".") or "it does not say why")
        wait_s = _asked_wait_s(words)
        return explain_status(kind, HTTPStatus.OK, words, wait_s, key_remedy=self._key_remedy)


def _asked_wait_s(words: str) -> float | None:
    """Return the delay that `words` ask for: within a stream there is no header for it."""
    asked = _WAIT.search(words)
    if not asked:
        return None
    minutes, number, unit = asked.groups()
    return 60 * int(minutes or 0) + float(number) / (1000 if unit == "ms" else 1)


def _is_response_event(event: str) -> bool:
    """Recognize events of the response; some servers leave out the names."""
    return event in ("", "message", "error") or event.startswith("response.")


def decode_usage(data: bytes) -> Usage:
    """Return the usage of an answer that was not streamed; nothing if it cannot be read."""
    try:
        return _usage(field(msgspec.json.decode(data), "usage")) or Usage()
    except (msgspec.DecodeError, RecursionError):
        return Usage()


def _usage(wire: object) -> Usage | None:
    """Return the usage, with input that was neither read from nor written to the cache; None if it is missing."""
    taken, given = count(field(wire, "input_tokens")), count(field(wire, "output_tokens"))
    if taken is None and given is None:
        return None
    details = field(wire, "input_tokens_details")
    read = count(field(details, "cached_tokens")) or 0
    written = count(field(details, "cache_write_tokens")) or 0
    return Usage(max(0, (taken or 0) - read - written), given or 0, written, read)
