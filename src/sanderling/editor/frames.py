"""
From events to frames: a frame is what Neovim draws in one go.

Pure bookkeeping, with the clock passed in. The first text after a pause is sent at once; then at most one frame per `FRAME_S`, with at
most `MAX_FRAME_CHARS` of streamed text, and never more than `MAX_UNDRAWN` that Neovim has not acknowledged: while it waits in a prompt,
text collects here in one piece. The start of a turn waits for its request, which goes first.
"""

from collections import deque

import msgspec

from sanderling.editor.long_lines import LongLines
from sanderling.protocol.events import Event, TurnStarted
from sanderling.protocol.pieces import Piece, Pieces

FRAME_S = 1 / 60  # Neovim draws the screen for each frame
BEHIND_REQUEST_S = 0.005
MAX_FRAME_CHARS = 32_768
MAX_UNDRAWN = 16


class Frame(msgspec.Struct, frozen=True):
    """A frame. `seq` counts the frames of a session from 1; Neovim acknowledges the newest that it has drawn."""

    session_id: str
    seq: int
    events: tuple[Event, ...]


class FrameQueue:
    """The events of one session on their way to the screen."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._waiting: deque[Event | Pieces] = deque()
        self._lines = LongLines()
        self._sent = 0
        self._drawn = 0
        self._last_text_at = float("-inf")
        self._turn_began_at = float("inf")

    def push(self, event: Event) -> None:
        for drawable in self._lines.cut(event):
            self._push(drawable)

    def _push(self, event: Event) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(event, Piece):
            if isinstance(last, Pieces) and last.is_continued_by(event):
                last.add(event)
            else:
                self._waiting.append(Pieces(event))
        else:
            self._waiting.append(event)

    def acknowledge(self, seq: int) -> None:
        self._drawn = max(self._drawn, seq)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def waits_for_request(self) -> bool:
        """True if only the start of a turn is waiting: its request goes first."""
        return len(self._waiting) == 1 and isinstance(self._waiting[0], TurnStarted)

    def delay_s(self, now: float) -> float | None:
        """Return the time until the next frame may be sent; None if there is nothing to send, or Neovim has too much undrawn."""
        if not self._waiting or self._sent - self._drawn >= MAX_UNDRAWN:
            return None
        due = self._last_text_at + FRAME_S
        if self.waits_for_request:
            self._turn_began_at = min(self._turn_began_at, now)
            due = max(due, self._turn_began_at + BEHIND_REQUEST_S)
        return max(0.0, due - now)

    def take(self, now: float) -> Frame:
        events: list[Event] = []
        room = MAX_FRAME_CHARS
        while self._waiting and room > 0:
            head = self._waiting[0]
            if isinstance(head, Pieces):
                delta = head.take(room)
                room -= len(delta.text)
                events.append(delta)
                if head.pieces:
                    break
            else:
                events.append(head)
            self._waiting.popleft()
        self._sent += 1
        self._turn_began_at = float("inf")
        # Only text comes in floods; the first words must not wait for their turn's header.
        if room < MAX_FRAME_CHARS:
            self._last_text_at = now
        return Frame(self.session_id, self._sent, tuple(events))
