"""
The update history of a session's life: recent updates verbatim and numbered from 1, older ones condensed.

A client that attaches later gets both. Condensing joins the chunks of a message, applies a tool call's updates to the call, and keeps only
the last value of a state. The condensed updates have a limit, too: beyond it, old tool calls lose their output first, then the oldest
items are dropped. Everything remains in the session's log.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from sanderling.acp.wire.content import text_block
from sanderling.acp.wire.updates import (
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
MAX_CONDENSED_BYTES = 8 << 20
KEPT_PARTS = 0.75  # of a limit: a full buffer shrinks to this part, so it rarely has to
LEFT_OUT = "Earlier parts of this session are not shown; they are in its log."

CALL = "call "

Chunk = UserMessageChunk | AgentMessageChunk | AgentThoughtChunk
# JSON takes a third of the memory of objects. Only an update that quotes invalid UTF-8 is kept as an object.
Kept = bytes | SessionUpdate

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[SessionUpdate] = msgspec.json.Decoder(SessionUpdate)


class ReplayBuffer:
    """The updates of one life. `last` is the number of the newest, 0 without one."""

    def __init__(
        self,
        max_updates: int = MAX_UPDATES,
        max_bytes: int = MAX_BYTES,
        max_condensed_bytes: int = MAX_CONDENSED_BYTES,
    ) -> None:
        self.last = 0
        self._max_updates, self._max_bytes = max_updates, max_bytes
        self._kept: deque[Kept] = deque()
        self._bytes = 0
        self._condensed = Condensed(max_condensed_bytes)

    @property
    def first(self) -> int:
        """The number of the oldest verbatim update."""
        return self.last - len(self._kept) + 1

    def add(self, update: SessionUpdate) -> None:
        self.last += 1
        kept = _kept(update)
        self._kept.append(kept)
        self._bytes += _size_of(kept)
        if len(self._kept) > self._max_updates or self._bytes > self._max_bytes:
            self._fold()

    def get(self, seq: int) -> SessionUpdate | None:
        """Return the update with that number, or None if it is condensed."""
        at = seq - self.first
        return _update(self._kept[at]) if 0 <= at < len(self._kept) else None

    def all(self) -> tuple[list[SessionUpdate], Iterator[tuple[int, SessionUpdate]]]:
        """Return the condensed updates, and the verbatim ones with their numbers."""
        return list(self._condensed.updates()), zip(
            count(self.first), map(_update, tuple(self._kept))
        )

    def _fold(self) -> None:
        """Condense the oldest updates."""
        most, size = self._max_updates * KEPT_PARTS, self._max_bytes * KEPT_PARTS
        while len(self._kept) > most or self._bytes > size:
            folded = self._kept.popleft()
            self._bytes -= _size_of(folded)
            self._condensed.add(_update(folded))


def _kept(update: SessionUpdate) -> Kept:
    try:
        return _encoder.encode(update)
    except UnicodeEncodeError:  # invalid UTF-8; the sender replaces it
        return update


def _update(kept: Kept) -> SessionUpdate:
    return _decoder.decode(kept) if isinstance(kept, bytes) else kept


def _size_of(kept: Kept) -> int:
    return len(kept if isinstance(kept, bytes) else repr(kept))


class _ChunkedMessage:
    """A message that is assembled from chunks."""

    def __init__(self, first: Chunk) -> None:
        self.first = first
        self._texts = [first.content.text or ""]

    def takes(self, chunk: Chunk) -> bool:
        is_same = type(chunk) is type(self.first) and chunk.message_id == self.first.message_id
        return is_same and chunk.content.type == self.first.content.type == "text"

    def add(self, chunk: Chunk) -> None:
        self._texts.append(chunk.content.text or "")

    def joined(self) -> Chunk:
        if self.first.content.type != "text":
            return self.first
        return replace(self.first, content=text_block("".join(self._texts)))


class Condensed:
    """Condensed updates: items by first appearance, states by last change. Together they take at most `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_CONDENSED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._items: dict[str, Kept] = {}
        self._bytes = 0
        self._count = 0
        self._open: tuple[str, _ChunkedMessage] | None = None  # the newest item, if it is a message
        self._has_left_out = False

    def updates(self) -> Iterator[SessionUpdate]:
        if self._has_left_out:
            yield Notice(severity="info", title=LEFT_OUT)
        yield from map(_update, self._items.values())
        if self._open:
            yield self._open[1].joined()

    def add(self, update: SessionUpdate) -> None:
        match update:
            case UserMessageChunk() | AgentMessageChunk() | AgentThoughtChunk():
                self._add_chunk(update)
            case ToolCall(tool_call_id=call_id):
                self._put(f"{CALL}{call_id}", update)
            case ToolCallUpdate():
                self._change_call(update)
            case SessionInfoUpdate():
                self._change_info(update)
            case Notice():
                self._put(self._new_key(), update)
            case _:
                self._put_last(f"state {type(update).__name__}", update)

    def _add_chunk(self, chunk: Chunk) -> None:
        if self._open and self._open[1].takes(chunk):
            self._open[1].add(chunk)
        else:
            self._close_message()
            self._open = self._new_key(), _ChunkedMessage(chunk)

    def _change_call(self, update: ToolCallUpdate) -> None:
        key = f"{CALL}{update.tool_call_id}"
        call = self._get(key)
        if isinstance(call, ToolCall | ToolCallUpdate):
            news = {
                name: value
                for name in ToolCallUpdate.__struct_fields__
                if (value := getattr(update, name)) is not None
            }
            self._put(key, replace(call, **news))
        else:
            self._put(key, update)

    def _change_info(self, update: SessionInfoUpdate) -> None:
        key = "state SessionInfoUpdate"
        before = self._get(key)
        if isinstance(before, SessionInfoUpdate):
            title = before.title if update.title is UNSET else update.title
            at = before.updated_at if update.updated_at is UNSET else update.updated_at
            update = replace(update, title=title, updated_at=at)
        self._put_last(key, update)

    def _get(self, key: str) -> SessionUpdate | None:
        kept = self._items.get(key)
        return None if kept is None else _update(kept)

    def _put_last(self, key: str, item: SessionUpdate) -> None:
        self._remove(key)
        self._put(key, item)

    def _put(self, key: str, item: SessionUpdate) -> None:
        self._close_message()
        self._store(key, item)
        if self._bytes > self._max_bytes:
            self._shrink()

    def _close_message(self) -> None:
        if self._open:
            (key, message), self._open = self._open, None
            self._store(key, message.joined())

    def _store(self, key: str, item: SessionUpdate) -> None:
        kept = _kept(item)
        self._bytes += _size_of(kept) - (_size_of(self._items[key]) if key in self._items else 0)
        self._items[key] = kept

    def _remove(self, key: str) -> None:
        if key in self._items:
            self._bytes -= _size_of(self._items.pop(key))

    def _shrink(self) -> None:
        """Drop the output of old tool calls, then the oldest items, but no states."""
        most = self._max_bytes * KEPT_PARTS
        for key in tuple(self._items):
            if self._bytes <= most:
                return
            call = self._get(key) if key.startswith(CALL) else None
            if isinstance(call, ToolCall | ToolCallUpdate):
                self._store(key, replace(call, content=None, raw_input=None, raw_output=None))
        for key in tuple(self._items):
            if self._bytes <= most:
                return
            if not key.startswith("state "):
                self._remove(key)
                self._has_left_out = True

    def _new_key(self) -> str:
        self._count += 1
        return f"{self._count}"
