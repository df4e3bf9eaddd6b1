"""
Extracts the text of a PDF: the program that `read` runs inside the sandbox.

A PDF can contain anything: compressed bombs, loops, fonts that take minutes. So it is never parsed outside the sandbox, and memory, time and
text are limited. What could be read until then is shown.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sanderling.text import counted
from sanderling.tools.inside.page import cleaned, one_line
from sanderling.tools.inside.program import serve

if TYPE_CHECKING:
    import pypdf

MAX_BYTES = 64 << 20
READ_S = 15.0  # then no other page is begun
MAX_REASON_CHARS = 200


class PdfRequest(msgspec.Struct, frozen=True):
    """Up to `limit` pages from page `first` on, in at most `max_bytes` of text."""

    path: str
    first: int
    limit: int
    max_bytes: int


class PdfText(msgspec.Struct, tag="text", frozen=True):
    """The text of pages from `first` on; there are `count` in all. `is_cut`: the last one has more text."""

    first: int
    count: int
    pages: tuple[str, ...]
    is_cut: bool = False
    is_encrypted: bool = False


class PdfFailed(msgspec.Struct, tag="failed", frozen=True):
    reason: str


PdfReply = PdfText | PdfFailed


class _UnreadableError(Exception):
    """The PDF cannot be read; the message says why."""


class _Budget(NamedTuple):
    until: float
    max_bytes: int


def main(argument: str) -> None:
    """Extract what the JSON `argument` asks for; print the reply as the last line."""
    serve(argument, PdfRequest, reply_to)


def reply_to(asked: PdfRequest) -> PdfReply:
    try:
        return _text(asked)
    except _UnreadableError as failure:
        return PdfFailed(str(failure))
    except MemoryError:
        return PdfFailed("it needs too much memory")
    except RecursionError:
        return PdfFailed("it is nested too deeply")
    except Exception as error:  # noqa: BLE001  pypdf raises what a damaged file happens to cause
        return PdfFailed(f"it is damaged ({_words(error)})")


def _text(asked: PdfRequest) -> PdfText:
    import logging

    import pypdf

    logging.disable()  # of oddities, which are common
    path = Path(asked.path)
    if (size := path.stat().st_size) > MAX_BYTES:
        raise _UnreadableError(f"it has {size:,} bytes, and at most {MAX_BYTES:,} can be read")
    with path.open("rb") as file:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted:
            _open(reader)
        count = len(reader.pages)
        if asked.first > count:
            raise _UnreadableError(
                f"it has {counted(count, 'page')}: there is no page {asked.first}"
            )
        budget = _Budget(time.monotonic() + READ_S, asked.max_bytes)
        last = min(count, asked.first - 1 + asked.limit)
        return _fitting(reader, asked.first, last, budget)


def _open(reader: "pypdf.PdfReader") -> None:
    """Open a PDF that is encrypted with an empty password, as many are that only forbid printing."""
    from pypdf.errors import DependencyError

    try:
        is_open = bool(reader.decrypt(""))
    except DependencyError as error:
        raise _UnreadableError(
            "it is encrypted; decrypt it first, for example with qpdf"
        ) from error
    if not is_open:
        raise _UnreadableError("it is encrypted and needs a password; decrypt it first")


def _fitting(reader: "pypdf.PdfReader", first: int, last: int, budget: _Budget) -> PdfText:
    pages: list[str] = []
    left, count = budget.max_bytes, len(reader.pages)
    for text in _pages(reader, first, last, budget.until):
        data = text.encode(errors="replace")
        if len(data) > left and pages:
            break
        pages.append(data[:left].decode(errors="ignore"))
        left -= len(data)
        if left < 0:
            return PdfText(first, count, tuple(pages), True, reader.is_encrypted)
    return PdfText(first, count, tuple(pages), is_encrypted=reader.is_encrypted)


def _pages(reader: "pypdf.PdfReader", first: int, last: int, until: float) -> Iterator[str]:
    for number in range(first, last + 1):
        if number > first and time.monotonic() > until:
            return
        try:
            yield cleaned(reader.pages[number - 1].extract_text()).strip()
        except MemoryError:
            yield "[this page needs too much memory]"
        except Exception as error:  # noqa: BLE001  one damaged page leaves the others
            yield f"[this page cannot be read: {_words(error)}]"


def _words(error: Exception) -> str:
    return one_line(str(error) or type(error).__name__)[:MAX_REASON_CHARS]
