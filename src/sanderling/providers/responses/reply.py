"""
The Responses API's answers: the events of a stream.

An answer is a list of items: messages, thoughts, uses of tools. Each grows by deltas between its `added` and its `done`. OpenAI sends
all of that, others a part: deltas alone, or everything at the end, under ids that change from event to event, items side by side. So
an item takes whatever comes. The first that is not done is told as it grows, those behind it wait for their turn, and the end of the
answer is the end of all. What is said at once, where an item or a part of it is done, holds against the pieces of it.

What the answer is made of is decoded strictly; what a later API adds is passed over. Without its last event, or `[DONE]`, which some
gateways send instead, a stream was cut.
Wire format: https://developers.openai.com/api/reference/resources/responses/streaming-events
"""

import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.messages import StopReason, Usage
from sanderling.providers import StreamItem, TextPiece, ThinkingPiece, ToolUseBegun, UsageReport
from sanderling.providers.http.bodies import count, decode, field, read_refusal
from sanderling.providers.http.errors import explain_status
from sanderling.providers.responses.items import ITEM_KINDS, Item, Kind, Place, WireItem

END_MARK = "[DONE]"  # of those who know it from Chat Completions

# The `type` of an event is read first, and only then the rest, so that one of a later API is passed over whatever it holds.


class _Head(msgspec.Struct):
    type: str = ""
    sequence_number: Any = None
    error: Any = None


class _At(msgspec.Struct, kw_only=True):
    """The item that an event is of, and the part of it."""

    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None

    @property
    def place(self) -> Place:
        return Place(self.item_id, self.output_index)

    @property
    def part(self) -> str:
        return f"{self.content_index or 0}.{self.summary_index or 0}"


class _Delta(_At):
    delta: str


class _Whole(_At):
    """All that the deltas of a part come to."""

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
    """The answer, at its end."""

    status: Any = None
    usage: Any = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw(b"null")


class _End(msgspec.Struct):
    response: _Response | None = None


# The kinds of items that grow, by the names of the events that tell of it.
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
_any_decoder = msgspec.json.Decoder(Any)


class ResponsesDecoder:
    """Turns the events of one reply into stream items. `key_remedy` is what to do about a key that is refused."""

    def __init__(self, without_key: Callable[[str], str] = str, key_remedy: str = "") -> None:
        self._without_key = without_key
        self._key_remedy = key_remedy
        self.has_started = self.has_words = False
        self.is_done = self.is_over = False
        self.stop_reason: StopReason = "end_turn"
        self._items: list[Item] = []  # those that are not told to their end
        self._told: set[str] = set()  # the names of the others
        self._has_items = self._is_refusal = self._has_lost_thought = False
        self._last = ""

    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        """`event` is its name."""
        if not data or not _is_ours(event):
            return
        if data.strip() == END_MARK:
            if self._has_items:
                yield from self._end(_Response(), "", data)
            return
        head = decode(_head_decoder, data)
        kind = head.type or ("error" if head.error else event)
        if data == self._last and (count(head.sequence_number) or 0) > 0:
            return  # a relay that says it twice; without numbers it may be said twice
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
        yield from self._tell()

    def end(self) -> Iterator[StreamItem]:
        """Nothing: what was cut off is no block."""
        yield from ()

    # --- items ---------------------------------------------------------------------------------------------------------

    def _take(self, event: _OfItem, *, is_done: bool) -> None:
        self._has_items = True
        kind = decode(_head_decoder, event.item).type
        if kind not in ITEM_KINDS:
            return  # a tool of the API's own, or an item of a later one
        wire = decode(_item_decoder, event.item)
        place = Place(wire.id, event.output_index)
        self._is_refusal |= wire.is_refusal
        item = self._open_item(kind, place)
        if not is_done:
            if item is None or not item.is_at(place):
                item = self._begin(kind, place)
            item.begin(wire)
        elif item or not wire.names & self._told:
            (item or self._begin(kind, place)).close(wire)

    def _item_at(self, kind: Kind, at: _At) -> Item | None:
        """The item that grows there, perhaps a new one; None: it is over, and this comes late."""
        item = self._open_item(kind, at.place)
        if item is None and at.item_id in self._told:
            return None
        return item or self._begin(kind, at.place)

    def _open_item(self, kind: Kind, place: Place) -> Item | None:
        items = [item for item in reversed(self._items) if item.kind == kind and not item.is_done]
        best = max(items, key=lambda item: item.likeness(place), default=None)
        return best if best and best.likeness(place) else None

    def _begin(self, kind: Kind, place: Place) -> Item:
        self._has_items = True
        self._items.append(Item(kind, place))
        return self._items[-1]

    # --- what is told --------------------------------------------------------------------------------------------------

    def _tell(self) -> Iterator[StreamItem]:
        """Tell of the first item what is new, and of the next ones if it is done."""
        while self._items:
            item = self._items[0]
            if item.kind == "function_call" and not item.is_begun:
                yield ToolUseBegun()
            item.is_begun = True
            piece = "".join(item.untold)
            item.untold.clear()
            if piece and item.kind != "function_call":
                self.has_words = True
                yield TextPiece(piece) if item.kind == "message" else ThinkingPiece(piece)
            if not item.is_done:
                return
            del self._items[0]
            self._told |= item.names
            block = item.block(has_id=not self._has_lost_thought)
            self._has_lost_thought |= item.kind == "reasoning" and not item.goes_back
            if block:
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
        yield from self._tell()
        if usage := _usage(response.usage):
            yield UsageReport(usage)
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
    """The time that `words` ask to wait: in the middle of a stream there is no header for it."""
    asked = _WAIT.search(words)
    if not asked:
        return None
    minutes, number, unit = asked.groups()
    return 60 * int(minutes or 0) + float(number) / (1000 if unit == "ms" else 1)


def _is_ours(event: str) -> bool:
    """Say whether an event of this name can be of the answer; some have none."""
    return event in ("", "message", "error") or event.startswith("response.")


def _usage(told: object) -> Usage | None:
    """The usage in our terms, in which input is neither read from nor written to the cache; None where it is not told."""
    taken, given = count(field(told, "input_tokens")), count(field(told, "output_tokens"))
    if taken is None and given is None:
        return None
    details = field(told, "input_tokens_details")
    read = count(field(details, "cached_tokens")) or 0
    written = count(field(details, "cache_write_tokens")) or 0
    return Usage(max(0, (taken or 0) - read - written), given or 0, written, read)
