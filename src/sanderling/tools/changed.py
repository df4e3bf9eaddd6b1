"""Changes that were made, as the tools tell of them."""

from typing import NamedTuple


class Changed(NamedTuple):
    """
    The text before a change that was made (None for a new file) and after it.

    `is_written`: the file holds it; else only the buffer does. `byte_count` is that of the file.
    """

    old: str | None
    new: str
    notes: tuple[str, ...]
    is_written: bool = True
    byte_count: int = 0


class Written(NamedTuple):
    """A buffer's text as it was written; `is_known` if the notes tell the model all that it did not want itself."""

    text: str
    byte_count: int
    notes: tuple[str, ...]
    is_known: bool
