"""
The updates of one life of a session, numbered from 1: the last ones as they were told, those before them in short.

In short they say the same: the pieces of a message are one, the news of a tool call are the call as it is now, and of a state that is told
anew each time only the last telling is left. That is what somebody is told who comes later, and was not there before.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from sanderling.acp.content import text_block
from sanderling.acp.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    Notice,
    SessionInfoUpdate,
    SessionUpdate,
    ToolCall,
    ToolCallUpdate,
    UserMessageChunk,
)

MAX_UPDATES, MAX_BYTES = 20_000, 8 << 20
KEPT_PARTS = 0.75  # of what can be kept, when the rest is put into short

Chunk = UserMessageChunk | AgentMessageChunk | AgentThoughtChunk
# JSON, for objects take three times as much; but for an update that quotes a file that is no UTF-8.
Kept = bytes | SessionUpdate

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[SessionUpdate] = msgspec.json.Decoder(SessionUpdate)


class Ring:
    """The updates of one life. `last` is the number of the newest, 0 while there is none; so many are kept as they were told."""

    def __init__(self, max_updates: int = MAX_UPDATES, max_bytes: int = MAX_BYTES) -> None:
        self.last = 0
        self._max_updates, self._max_bytes = max_updates, max_bytes
        self._kept: deque[Kept] = deque()
        self._bytes = 0
        self._short = Short()

    @property
    def first(self) -> int:
        """The number of the oldest update that is still as it was told."""
        return self.last - len(self._kept) + 1

    def add(self, update: SessionUpdate) -> None:
        self.last += 1
        kept = _kept(update)
        self._kept.append(kept)
        self._bytes += _size_of(kept)
        if len(self._kept) > self._max_updates or self._bytes > self._max_bytes:
            self._fold()

    def get(self, seq: int) -> SessionUpdate | None:
        """The update of that number; None if it is told only in short."""
        at = seq - self.first
        return _update(self._kept[at]) if 0 <= at < len(self._kept) else None

    def all(self) -> tuple[list[SessionUpdate], Iterator[tuple[int, SessionUpdate]]]:
        """All of them until now: in short, and as they were told, with their numbers."""
        return list(self._short.updates()), zip(count(self.first), map(_update, tuple(self._kept)))

    def _fold(self) -> None:
        """Put the oldest of them into short: more than must be, so that this is seldom."""
        most, size = self._max_updates * KEPT_PARTS, self._max_bytes * KEPT_PARTS
        while len(self._kept) > most or self._bytes > size:
            folded = self._kept.popleft()
            self._bytes -= _size_of(folded)
            self._short.add(_update(folded))


def _kept(update: SessionUpdate) -> Kept:
    try:
        return _encoder.encode(update)
    except UnicodeEncodeError:  # whoever sends it sees to that
        return update


def _update(kept: Kept) -> SessionUpdate:
    return _decoder.decode(kept) if isinstance(kept, bytes) else kept


def _size_of(kept: Kept) -> int:
    return len(kept if isinstance(kept, bytes) else repr(kept))


class _Message:
    """A message, piece by piece."""

    def __init__(self, first: Chunk) -> None:
        self.first = first
        self._texts = [first.content.text or ""]

    def takes(self, chunk: Chunk) -> bool:
        is_same = type(chunk) is type(self.first) and chunk.message_id == self.first.message_id
        return is_same and chunk.content.type == self.first.content.type == "text"

    def add(self, chunk: Chunk) -> None:
        self._texts.append(chunk.content.text or "")

    def told(self) -> Chunk:
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        if self.first.content.type != "text":
            return self.first
        return replace(self.first, content=text_block(self._texts[0]))


class Short:
    """Updates in short, in the order in which each of them was told first, states in that in which they were told last."""

    def __init__(self) -> None:
        self._items: dict[str, _Message | SessionUpdate] = {}
        self._count = 0
        self._newest: _Message | None = None

    def updates(self) -> Iterator[SessionUpdate]:
        for item in self._items.values():
            yield item.told() if isinstance(item, _Message) else item

    def add(self, update: SessionUpdate) -> None:
        match update:
            case UserMessageChunk() | AgentMessageChunk() | AgentThoughtChunk():
                self._add_chunk(update)
            case ToolCall(tool_call_id=call_id):
                self._put(f"call {call_id}", update)
            case ToolCallUpdate():
                self._change_call(update)
            case SessionInfoUpdate():
                self._change_info(update)
            case Notice():
                self._put(self._new_key(), update)
            case _:
                key = f"state {type(update).__name__}"
                self._items.pop(key, None)
                self._put(key, update)

    def _add_chunk(self, chunk: Chunk) -> None:
        if self._newest and self._newest.takes(chunk):
            self._newest.add(chunk)
        else:
            message = _Message(chunk)
            self._put(self._new_key(), message)
            self._newest = message

    def _change_call(self, update: ToolCallUpdate) -> None:
        key = f"call {update.tool_call_id}"
        call = self._items.get(key)
        if isinstance(call, ToolCall | ToolCallUpdate):
            said = {
                name: value
                for name in ToolCallUpdate.__struct_fields__
                if (value := getattr(update, name)) is not None
            }
            self._items[key] = replace(call, **said)
        else:
            self._put(key, update)

    def _change_info(self, update: SessionInfoUpdate) -> None:
        key = "state SessionInfoUpdate"
        before = self._items.pop(key, None)
        if isinstance(before, SessionInfoUpdate):
            title = before.title if update.title is UNSET else update.title
            at = before.updated_at if update.updated_at is UNSET else update.updated_at
            update = replace(update, title=title, updated_at=at)
        self._put(key, update)

    def _put(self, key: str, item: _Message | SessionUpdate) -> None:
        self._items[key] = item
        self._newest = None

    def _new_key(self) -> str:
        self._count += 1
        return f"{self._count}"
