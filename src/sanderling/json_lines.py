"""JSON: what is written of it, and lines that others have written, cut out of a stream and looked at before they become objects."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sanderling.text import CONTROL, printable

lenient = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
"""Reads what writers of JSON get nearly right: halves of surrogate pairs, control characters in a text, and NaN, which is null."""

_ID = rb'"id"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(-?\d+)(?:\.0+)?)\s*[,}]'


def repaired(line: bytes) -> bytes:
    """
    A line that is nearly JSON, as JSON. A BOM goes, and what is no text in any encoding becomes U+FFFD.

    RFC 8259 (8.2) lets halves of surrogate pairs stand in JSON, and whoever cuts a text in the middle of an emoji sends one; no reader
    of ours takes them.

    Raises:
        ValueError, RecursionError: it is something else.
    """
    return encoded(lenient.decode(line.decode("utf-8-sig", "replace")))


def ids_in(line: bytes) -> set[str]:
    """The ids in a message of JSON-RPC that cannot be read, those of what it holds among them."""
    return {(text or digits).decode(errors="replace") for text, digits in re.findall(_ID, line)}


def encoded(value: Any) -> bytes:
    """`value` as JSON. Halves of surrogate pairs, which are no text in any encoding, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return msgspec.json.encode(json.loads(printable(text)))


def for_terminal(value: Any, *, has_lines: bool = False) -> str:
    """
    `value` as JSON with nothing that a terminal takes for a command: JSON itself lets U+007F to U+009F stand.

    It is one line, or `has_lines`, to be read by people.
    """
    data = msgspec.json.format(encoded(value)) if has_lines else encoded(value)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode())


class LineTooLongError(ValueError):
    """A line is longer than is taken; what is still to come of it is passed over."""


class Lines:
    """Cuts a stream of bytes into lines, of at most `max_bytes` each. A half line at the end is none."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._is_passing_over = False

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLongError]:
        """Give the lines that end in `chunk`, and for each one that is too long an error, once."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield from self._add(end)
            if not self._is_passing_over:
                yield b"".join(self._parts)
            self._parts, self._size, self._is_passing_over = [], 0, False
        yield from self._add(rest)

    def _add(self, part: bytes) -> Iterator[LineTooLongError]:
        if self._is_passing_over or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._max_bytes:
            self._parts, self._is_passing_over = [], True
            yield LineTooLongError(f"a line of more than {self._max_bytes >> 20} MB")


def has_more_values(data: bytes, most: int) -> bool:
    """Say whether more values than `most` stand in the JSON; told by what divides them outside of strings, without an object for each."""
    if len(data) <= most:
        return False
    bare = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * most:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > most
