"""
Reasoning within the text, between `<think>` and `</think>`, from servers that leave its parsing to the client.

Tags count only at the start of an answer. Later they are words or code of the answer.
"""

from collections.abc import Iterator
from typing import Literal

BEGIN, END = "<think>", "</think>"

Part = tuple[Literal["text", "thinking"], str]

Habit = Literal["none", "tagged", "begun"]
_BEGINNINGS: dict[Habit, Literal["start", "thought", "answer"]] = {
    "none": "answer",
    "tagged": "start",
    "begun": "thought",
}


class TaggedThoughts:
    """Splits the text of one answer as it streams."""

    def __init__(self, habit: Habit) -> None:
        self._place = _BEGINNINGS[habit]
        self._is_after_tag = False
        self._held = ""

    def feed(self, words: str) -> Iterator[Part]:
        """Yield text by its kind, holding back an end that may begin a tag."""
        text, self._held = self._held + words, ""
        if self._place == "start":
            bare = text.lstrip()
            if bare != BEGIN and BEGIN.startswith(bare):
                self._held = text
                return
            is_thought = bare.startswith(BEGIN)
            self._place, self._is_after_tag = "thought" if is_thought else "answer", is_thought
            text = bare.removeprefix(BEGIN) if is_thought else text
        if self._place == "thought":
            thought, end, text = text.partition(END)
            kept = 0 if end else _begun_tag(thought)
            thought, self._held = thought[: len(thought) - kept], thought[len(thought) - kept :]
            yield "thinking", self._trimmed(thought)
            if end:
                self._place, self._is_after_tag = "answer", True
        yield "text", self._trimmed(text)

    def end(self) -> Iterator[Part]:
        """Yield the text held back, once the answer is over or the server reports reasoning in a field."""
        held, self._held = self._held, ""
        yield ("thinking" if self._place == "thought" else "text"), held
        self._place = "answer"

    def _trimmed(self, words: str) -> str:
        """Strip whitespace after a tag."""
        words = words.lstrip() if self._is_after_tag else words
        self._is_after_tag = self._is_after_tag and not words
        return words


def _begun_tag(text: str) -> int:
    """Return how many characters at the end of `text` may begin a closing tag."""
    return next((size for size in range(len(END) - 1, 0, -1) if text.endswith(END[:size])), 0)
