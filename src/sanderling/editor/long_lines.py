"""
Long lines, shortened on their way to the screen.

Neovim processes a line from its beginning whenever it draws a part of it: next to one of 10 MB, each key takes a second. So the screen
gets the beginning of such a line, and how much more there is. The log and the model have all of it.
"""

import msgspec

from sanderling.protocol.events import (
    AnswerRestarted,
    BlockEnded,
    CommandStarted,
    Compacted,
    ErrorOccurred,
    Event,
    HistoryShown,
    PromptSteered,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt

# 28,000 would delay a key by 160 ms, because Markdown is parsed while it grows.
MAX_LINE_CHARS = 10_000
WHERE = ": :Agent export writes all of it"  # for answers, and the user's prompts

_replace = msgspec.structs.replace


class LongLines:
    """Shortens the long lines in the events of one session."""

    def __init__(self) -> None:
        self._open: dict[int, _Block] = {}

    def cut(self, event: Event) -> tuple[Event, ...]:
        match event:
            case TextDelta() | ThinkingDelta():
                return self._open.setdefault(event.block_id, _Block(event)).grown(event)
            case BlockEnded(block_id):
                return (*self._finished([block_id]), event)
            case ErrorOccurred() | TurnEnded():  # drawn below earlier text
                return (*self._finished([*self._open]), event)
            case AnswerRestarted(block_id):
                self._open = {each: kept for each, kept in self._open.items() if each < block_id}
                return (event,)
            case HistoryShown(events):
                page = LongLines()
                shown = [each for said in events for each in page.cut(said)]
                return (_replace(event, events=tuple(shown)),)
            case _:
                return (_drawable(event),)

    def _finished(self, block_ids: list[int]) -> list[Event]:
        blocks = [self._open.pop(each) for each in block_ids if each in self._open]
        return [event for block in blocks for event in block.ended()]


class _CutText:
    """A growing text, of whose lines `MAX_LINE_CHARS` are shown."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._chars = 0  # of the last line
        self._hidden_bytes = 0

    def feed(self, piece: str) -> str:
        first, *others = piece.split("\n")
        shown = [self._continued(first)]
        for line in others:
            shown += (self.finish(), "\n", self._continued(line))
        return "".join(shown)

    def finish(self) -> str:
        """Return the end of the last line: how much of it is not shown."""
        hidden, self._hidden_bytes, self._chars = self._hidden_bytes, 0, 0
        return f"[{_size(hidden)} more{self._where}]" if hidden else ""

    def _continued(self, piece: str) -> str:
        room = MAX_LINE_CHARS - self._chars
        self._chars = min(self._chars + len(piece), MAX_LINE_CHARS)
        if len(piece) <= room:
            return piece
        sign = "" if self._hidden_bytes else "… "
        self._hidden_bytes += len(piece[room:].encode(errors="replace"))
        return piece[:room] + sign


class _Block:
    """A growing block of the model's answer."""

    def __init__(self, first: TextDelta | ThinkingDelta) -> None:
        self._first = first
        self._text = _CutText(WHERE if isinstance(first, TextDelta) else "")

    def grown(self, delta: TextDelta | ThinkingDelta) -> tuple[Event, ...]:
        text = self._text.feed(delta.text)
        if text == delta.text:
            return (delta,)
        return (_replace(delta, text=text),) if text else ()

    def ended(self) -> tuple[Event, ...]:
        text = self._text.finish()
        return (_replace(self._first, text=text),) if text else ()


def _drawable(event: Event) -> Event:
    """Return `event`, which is complete, with lines that can be drawn."""
    match event:
        case TurnStarted(prompt) | PromptSteered(prompt):
            return _replace(event, prompt=_prompt(prompt))
        case CommandStarted(command=command):
            return _replace(event, command=_whole(command))
        case ToolEnded(detail=detail):
            return _replace(event, detail=_whole(detail))
        case Compacted(summary=summary):
            return _replace(event, summary=_whole(summary))
        case _:
            return event


def _prompt(prompt: Prompt) -> Prompt:
    selections = (
        _replace(each, text="" if each.media_type else _whole(each.text))
        for each in prompt.selections
    )
    return _replace(
        prompt,
        text=_whole(prompt.text, WHERE),
        sent=_whole(prompt.sent),
        selections=tuple(selections),
    )


def _whole(text: str, where: str = "") -> str:
    if len(text) <= MAX_LINE_CHARS:
        return text
    cutter = _CutText(where)
    return cutter.feed(text) + cutter.finish()


def _size(count: int) -> str:
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
