"""
An item of an answer, as the server sends it and while it grows.

The complete text in a `done` event overrides the deltas, because some servers repeat deltas or leave some out.
"""

from typing import Any, Literal, get_args

import msgspec

from sanderling.protocol.messages import (
    ContentBlock,
    ServerBlock,
    TextBlock,
    ThinkingBlock,
    ToolUse,
    WebSearch,
)
from sanderling.providers import BlockDone
from sanderling.providers.http.bodies import field, tool_input
from sanderling.text import printable, visible

Kind = Literal["message", "reasoning", "function_call", "web_search_call"]
ITEM_KINDS: tuple[Kind, ...] = get_args(Kind)

OPEN_THOUGHT = "response.reasoning_text"  # in the open, as opposed to a summary
UNFINISHED = "The input was cut off before its end."
MAX_ID_CHARS = 64  # OpenAI's limit; some routers give ids of hundreds of characters


class WirePart(msgspec.Struct):
    """A part of a message or of reasoning."""

    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None


class WireItem(msgspec.Struct):
    """An item of the output, perhaps incomplete."""

    type: str
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[WirePart] | None = None
    summary: list[WirePart] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    action: Any = None

    @property
    def names(self) -> set[str]:
        return {name for name in (self.id, self.call_id) if name}

    @property
    def is_refusal(self) -> bool:
        return any(part.refusal for part in self.content or ())

    @property
    def parts(self) -> list[str]:
        parts = self.content or self.summary or ()
        texts = [part.text or part.refusal or "" for part in parts] or [self.arguments or ""]
        return [words for words in texts if words]


class ItemRef(msgspec.Struct, frozen=True):
    """The item that an event belongs to, if the event says so."""

    item_id: str | None = None
    output_index: int | None = None


class Item:
    """A message, reasoning or tool use while it grows. `unsent` is the text that has not been streamed yet."""

    def __init__(self, kind: Kind, ref: ItemRef) -> None:
        self.kind: Kind = kind
        self.is_begun = self.is_done = False
        self.unsent: list[str] = []
        self._index = ref.output_index
        self._wire = WireItem(kind, ref.item_id)
        self.data: dict[str, Any] = {}  # the whole item, for a tool of the API
        self._first: list[str] = []
        self._parts: dict[str, list[str]] = {}
        self._between = "\n\n" if kind == "reasoning" else ""

    @property
    def names(self) -> set[str]:
        return self._wire.names

    def likeness(self, ref: ItemRef) -> int:
        """Return how likely `ref` is this item's, without a unit; 0 if it is another's."""
        is_here = self._index is not None and self._index == ref.output_index
        is_named = bool(self._wire.id) and self._wire.id == ref.item_id
        is_unknown = ref == ItemRef() or (self._index is None and not self._wire.id)
        return 4 * is_here + 2 * is_named + is_unknown

    def is_at(self, ref: ItemRef) -> bool:
        return (self._wire.id, self._index) == (ref.item_id, ref.output_index)

    def begin(self, wire: WireItem) -> None:
        """Begin. Encrypted reasoning is not complete yet, and text in `wire` counts only if no other follows."""
        self._learn(msgspec.structs.replace(wire, encrypted_content=None))
        self._first = wire.parts

    def grow(self, part: str, piece: str) -> None:
        if part not in self._parts and any(self._parts.values()):
            self.unsent.append(self._between)
        self._parts.setdefault(part, []).append(piece)
        self.unsent.append(piece)

    def settle(self, part: str, whole: str) -> None:
        if whole and part not in self._parts:
            self.grow(part, whole)
        elif whole:
            self._parts[part] = [whole]

    def close(self, wire: WireItem) -> None:
        """Finish, with the complete item if the event has it."""
        self._learn(wire)
        self._settle_all(wire.parts)
        self.is_done = True

    def end(self, *, is_cut: bool) -> None:
        """Finish because the answer is over: complete, or cut off if it `is_cut`."""
        if not self.is_done and is_cut:
            self._wire.status = "incomplete"
        if not any(self._parts.values()):
            self._settle_all(self._first)
        self.is_done = True

    def _learn(self, wire: WireItem) -> None:
        """Copy the fields other than text."""
        for name in (
            "id",
            "status",
            "phase",
            "content",
            "encrypted_content",
            "call_id",
            "name",
            "action",
        ):
            if value := getattr(wire, name):
                setattr(self._wire, name, value)

    def _settle_all(self, whole: list[str]) -> None:
        if not whole:
            return
        parts = {f"{number}": [words] for number, words in enumerate(whole)}
        if not any(self._parts.values()):
            self.unsent.append(self._between.join(whole))
        self._parts = parts

    @property
    def goes_back(self) -> bool:
        """True if the API accepts this reasoning back: encrypted or in the open, but not a summary."""
        in_the_open = self._wire.content or any(map(_is_open, self._parts))
        return bool(self._wire.encrypted_content or in_the_open)

    def block(self, *, has_id: bool) -> BlockDone | None:
        """Return the finished block; None if it is empty."""
        wire, texts = self._wire, ["".join(pieces) for pieces in self._parts.values()]
        text = self._between.join(texts)
        extra: dict[str, Any] = {}
        if has_id and wire.id and len(wire.id) <= MAX_ID_CHARS:
            extra["id"] = wire.id
        match self.kind:
            case "message":
                extra |= {"phase": wire.phase} if wire.phase else {}
                extra |= self._annotations
                return BlockDone(TextBlock(text, extra)) if text else None
            case "reasoning":
                extra |= {"parts": texts} if len(texts) > 1 else {}
                seal = wire.encrypted_content or ""
                block = ThinkingBlock(text, seal, extra if self.goes_back else {})
                return BlockDone(block) if text or seal else None
            case "function_call":
                data, problem = tool_input(text)
                if wire.status == "incomplete" and not problem:
                    data, problem = {}, UNFINISHED
                use = ToolUse(wire.call_id or wire.id or "", wire.name or "", data, extra)
                return BlockDone(use, problem)
            case "web_search_call":
                if not self.data or wire.status == "incomplete":
                    return None
                return BlockDone(ServerBlock(self.data, _search(wire)))

    @property
    def _annotations(self) -> dict[str, Any]:
        """The citations of a text in one part: their places are counted from its start."""
        parts = self._wire.content or []
        found = parts[0].annotations if len(parts) == 1 else None
        return {"annotations": found} if found else {}


def _search(wire: WireItem) -> WebSearch:
    """Describe a search, or a page that the model opened after one. The API does not say what it found."""
    match wire.action:
        case {"type": "search", "queries": [_, *_] as queries}:
            what = ", ".join(map(str, queries))
        case {"type": "search"}:
            what = str(field(wire.action, "query") or "")
        case _:
            what = str(field(wire.action, "url") or field(wire.action, "type") or "")
    is_error = wire.status == "failed"
    return WebSearch(
        wire.id or "",
        visible(" ".join(printable(what).split())),
        "failed" if is_error else "",
        is_error=is_error,
    )


def is_search(block: ContentBlock) -> bool:
    """Return whether `block` is a search that is paid for; opening a page is not."""
    match block:
        case ServerBlock({"type": "web_search_call", "action": {"type": "search"}}):
            return True
        case _:
            return False


def _is_open(part: str) -> bool:
    return part.startswith(OPEN_THOUGHT)
