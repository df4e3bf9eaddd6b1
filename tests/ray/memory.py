"""The memory of other processes: also what they have freed, and what Ray's object store shares with them."""

import os
from collections.abc import Iterator
from pathlib import Path

PIECE_BYTES = 16 << 20
SHARED = "/dev/shm/"
"""Where the object store has its files, which it unlinks."""


def has_in_memory(pid: int, secret: bytes) -> bool:
    """Return whether the secret is in the memory of the process. One that has ended has none."""
    try:
        return any(secret in piece for piece in _pieces(Path(f"/proc/{pid}")))
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pieces(process: Path) -> Iterator[bytes]:
    with (process / "mem").open("rb", buffering=0) as memory:
        for line in (process / "maps").read_text().splitlines():
            span, access, _, _, _, *names = line.split(maxsplit=5)
            name = names[0] if names else ""
            if access.startswith("r") and not name.startswith((SHARED, "[v")):
                begin, end = (int(each, 16) for each in span.split("-"))
                yield from _read(memory.fileno(), begin, end)
    for path in (process / "fd").iterdir():
        if str(path.readlink()).startswith(SHARED):
            yield from _stored(path)


def _stored(path: Path) -> Iterator[bytes]:
    """Yield what is in a file of the object store, which is mostly a hole."""
    with path.open("rb", buffering=0) as file:
        end = 0
        while True:
            try:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # no more data
                return
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            yield from _read(file.fileno(), begin, end)


def _read(file: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        try:
            piece = os.pread(file, min(PIECE_BYTES, end - begin), begin)
        except OSError:  # the region is gone, or has no pages
            return
        if not piece:
            return
        yield piece
        begin += len(piece)
