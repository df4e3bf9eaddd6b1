"""Streamed text that collects until it is drawn or shown again."""

from collections import deque

import msgspec

from sanderling.protocol.events import (
    CommandOutput,
    JobOutput,
    TextDelta,
    ThinkingDelta,
    ToolOutput,
)

Piece = TextDelta | ThinkingDelta | CommandOutput | ToolOutput | JobOutput


class Pieces:
    """Pieces of one block's text, joined when they are taken."""

    def __init__(self, first: Piece) -> None:
        self.first = first
        self.pieces = deque([first.text])

    def is_continued_by(self, piece: Piece) -> bool:
        return msgspec.structs.replace(piece, text=self.first.text) == self.first

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece.text)

    def take(self, max_chars: int) -> Piece:
        taken: list[str] = []
        while self.pieces and max_chars:
            piece = self.pieces.popleft()
            if len(piece) > max_chars:
                self.pieces.appendleft(piece[max_chars:])
                piece = piece[:max_chars]
            taken.append(piece)
            max_chars -= len(piece)
        return msgspec.structs.replace(self.first, text="".join(taken))

    def joined(self) -> Piece:
        """Return all of the text, which stays."""
        self.pieces = deque(["".join(self.pieces)])
        return msgspec.structs.replace(self.first, text=self.pieces[0])
