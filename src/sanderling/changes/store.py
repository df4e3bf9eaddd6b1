"""
The store: file contents by digest, compressed, in append-only packs.

A pack is a sequence of records: a header (digest, bytes before and after compression) and the compressed bytes. A killed process leaves
at most one torn record at the end of a pack, which is cut off. When a session, or all sessions together, exceed their limit, whole packs
are dropped, oldest first.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from sanderling.changes.descriptor import Descriptor
from sanderling.paths import write_all

HEADER = struct.Struct(">32sII")
DIGEST_BYTES = 32
MAX_PACK_BYTES = 32 << 20
MAX_FILE_BYTES = 5 << 20
MAX_SESSION_BYTES = 512 << 20
MAX_BYTES = 2 << 30
PACKS = "*.pack"


class Packed(NamedTuple):
    """The compressed bytes of a file."""

    digest: bytes
    size: int
    data: bytes


def packed(data: bytes) -> Packed:
    return Packed(digest_of(data), len(data), zlib.compress(data, 1))


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def name_of(data: bytes) -> str:
    return digest_of(data).hex()


class _StoredPlace(NamedTuple):
    pack: Path
    offset: int
    length: int


class Store(Descriptor):
    """
    The store of one session, in `directory`; `root` has all sessions' stores. Only one process writes it, from any thread.

    Every method blocks, and may raise `OSError`: call it from a thread.
    """

    def __init__(self, directory: Path, root: Path) -> None:
        super().__init__()
        self._directory = directory
        self._root = root
        self._places: dict[bytes, _StoredPlace] | None = None
        self._pack: Path | None = None
        self._end = 0

    def put(self, content: Packed) -> str:
        """Keep `content`; return its name. It is on disk after `sync`."""
        with self._using():
            return self._put(content)

    def _put(self, content: Packed) -> str:
        places = self._known()
        name = content.digest.hex()
        known = places.get(content.digest)
        if known and known.pack.exists():  # another process may have dropped it
            return name
        fd, pack = self._opened(HEADER.size + len(content.data))
        header = HEADER.pack(content.digest, content.size, len(content.data))
        try:
            write_all(fd, header + content.data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, self._end)
            raise
        start = self._end + HEADER.size
        places[content.digest] = _StoredPlace(pack, start, len(content.data))
        self._end = start + len(content.data)
        return name

    def get(self, name: str, *, is_checked: bool = True) -> bytes | None:
        """Return the bytes named `name`; None if they are no longer kept. Without `is_checked`, only zlib's checksum protects them."""
        with self._using():
            place = self._known().get(bytes.fromhex(name))
        if place is None:
            return None
        try:
            with place.pack.open("rb") as file:
                file.seek(place.offset)
                data = zlib.decompress(file.read(place.length))
        except (FileNotFoundError, zlib.error):
            return None
        return data if not is_checked or digest_of(data).hex() == name else None

    def _known(self) -> dict[bytes, _StoredPlace]:
        if self._places is None:
            self._places = {}
            for pack in sorted(self._directory.glob(PACKS)):
                self._places |= dict(_records(pack))
        return self._places

    def _opened(self, room: int) -> tuple[int, Path]:
        """Return the current pack, starting a new one if `room` bytes do not fit."""
        if self._fd is None or self._is_gone() or self._end + room > MAX_PACK_BYTES:
            if self._fd is not None:
                os.fsync(self._fd)  # `sync` only covers the current pack
            self._close_fd()
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(room)
            numbers = [int(pack.stem) for pack in self._directory.glob(PACKS)]
            self._pack = self._directory / f"{max(numbers, default=0) + 1:06}.pack"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._pack, flags, 0o600)
            self._end = 0
        assert self._pack
        return self._fd, self._pack

    def _is_gone(self) -> bool:
        """True if another process dropped the current pack. A fork may still link to it, so the link count does not tell."""
        assert self._fd is not None
        assert self._pack
        try:
            return not os.path.samestat(os.fstat(self._fd), self._pack.stat())
        except FileNotFoundError:
            return True

    def _make_room(self, room: int) -> None:
        """Drop the oldest packs of this session and of all sessions to make room for a new one."""
        room = max(room, MAX_PACK_BYTES)
        _drop(self._directory.glob(PACKS), MAX_SESSION_BYTES - room)
        _drop(self._root.glob(f"*/{PACKS}"), MAX_BYTES - room)


def _records(pack: Path) -> Iterator[tuple[bytes, _StoredPlace]]:
    """Yield the position of each complete record in a pack."""
    try:
        with pack.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            end = 0
            while len(header := file.read(HEADER.size)) == HEADER.size:
                digest, _, length = HEADER.unpack(header)
                start = end + HEADER.size
                end = start + length
                if end > size:
                    return
                yield digest, _StoredPlace(pack, start, length)
                file.seek(end)
    except OSError:
        return


def _drop(packs: Iterable[Path], limit: int) -> None:
    """Remove the least recently written packs until the rest has at most `limit` bytes."""
    found: list[tuple[int, Path, int]] = []
    for pack in packs:
        with suppress(OSError):
            status = pack.stat()
            found.append((status.st_mtime_ns, pack, status.st_size))
    total = sum(size for *_, size in found)
    for _, pack, size in sorted(found):
        if total <= limit:
            break
        with suppress(OSError):
            pack.unlink()
        total -= size
