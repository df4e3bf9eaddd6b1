"""Completed changes, as the tools report them."""

from typing import NamedTuple


class CompletedChange(NamedTuple):
    """
    The text before a completed change (None for a new file) and after it.

    `is_written`: it is in the file, not only in the buffer. `byte_count` is the file's size.
    """

    old: str | None
    new: str
    notes: tuple[str, ...]
    is_written: bool = True
    byte_count: int = 0


class WrittenBuffer(NamedTuple):
    """A buffer's text as written; `is_known` if the notes report everything that the model did not ask for."""

    text: str
    byte_count: int
    notes: tuple[str, ...]
    is_known: bool
