"""Lines of JSON that others have written: cut out of a stream, and looked at before they become objects."""

from collections.abc import Iterator


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
