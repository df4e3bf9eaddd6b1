"""JSON that is always encodable, and lines of JSON from others: split, repaired and checked before they are decoded."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sanderling.text import CONTROL, printable

lenient = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
"""Reads what writers of JSON get nearly right: halves of surrogate pairs, control characters in a string, and NaN, which is null."""

_ID = rb'"id"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(-?\d+)(?:\.0+)?)\s*[,}]'


def repaired(line: bytes) -> bytes:
    """
    Return a line that is nearly JSON as JSON, without a BOM, and with U+FFFD for what no encoding can represent.

    RFC 8259 (8.2) allows halves of surrogate pairs in JSON, and a program that cuts a string in the middle of an emoji sends one. Our
    decoders reject them.

    Raises:
        ValueError, RecursionError: it cannot be repaired.
    """
    return encoded(lenient.decode(line.decode("utf-8-sig", "replace")))


def ids_in(line: bytes) -> set[str]:
    """Return the ids in an unreadable JSON-RPC message, including ids within its values."""
    return {(text or digits).decode(errors="replace") for text, digits in re.findall(_ID, line)}


def encoded(value: Any) -> bytes:
    """Encode `value` as JSON. Halves of surrogate pairs, which no encoding can represent, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return msgspec.json.encode(json.loads(printable(text)))


def for_terminal(value: Any, *, has_lines: bool = False) -> str:
    """
    Encode `value` as JSON without control characters that a terminal obeys: JSON itself allows U+007F to U+009F.

    The result is one line or, with `has_lines`, indented for people.
    """
    data = msgspec.json.format(encoded(value)) if has_lines else encoded(value)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode())


class LineTooLongError(ValueError):
    """A line is longer than the limit; the rest of it is skipped."""


class LineSplitter:
    """Splits a stream of bytes into lines of at most `max_bytes`. An unfinished line at the end is dropped."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._is_skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLongError]:
        """Yield the lines that end in `chunk`, and one error for each line that is too long."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield from self._add(end)
            if not self._is_skipping:
                yield b"".join(self._parts)
            self._parts, self._size, self._is_skipping = [], 0, False
        yield from self._add(rest)

    def _add(self, part: bytes) -> Iterator[LineTooLongError]:
        if self._is_skipping or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._max_bytes:
            self._parts, self._is_skipping = [], True
            yield LineTooLongError(f"a line of more than {self._max_bytes >> 20} MB")


def has_more_values(data: bytes, most: int) -> bool:
    """Return True if the JSON has more than `most` values, judged by its separators outside strings, without decoding it."""
    if len(data) <= most:
        return False
    bare = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * most:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > most
