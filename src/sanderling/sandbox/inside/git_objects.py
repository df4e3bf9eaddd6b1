"""
Git's objects, kept readable after a command removes them.

Undo makes no copies of files that git has. But a command may remove both the file and git's objects: `rm -rf .git`, `find . -delete`,
`git gc --prune=now` after `git reset --hard`. This is exactly the accident that undo is for, so the objects must outlive their names.
Considered and rejected:

* Copying every file. The cost then depends on the size of the project instead of the change: 40,000 files take seconds before the first
  command.
* Protecting `objects/` by a mount or by Landlock. Git itself removes files there: it links a new object to its name and unlinks the
  temporary name. Without the right to remove, `git add` fails.
* Hard links to packs and objects. They need a directory on the same file system that no command can write, and they stay behind when
  Sanderling is killed.
* Searching the command line for `rm` or `gc`. A makefile or a test may run them as well.

What remains is cheap. Packs are held open: the kernel keeps the bytes of an open file when its name is removed, and a repository has few
packs. Loose objects are kept in memory, compressed as git stores them: they are the objects added since the last `git gc`, which packs
them when there are more than 6,700. Only files that are in the index and unchanged in the working tree count, because their content is
stored nowhere else. On file systems with another side (FUSE, NFS) packs are not held open: there, a removed open file gets a new name
(`.nfs0123`, `.fuse_hidden0123`), and `rm -rf` fails.

A command that overwrites packs in place still destroys them. Git makes them read-only, so this does not happen by accident.

Packs are read here and not by git, which no longer has a repository. They may come from anyone, so all sizes are limited, and the users
of an object check its digest against its name.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from sanderling.paths import closed_after
from sanderling.sandbox.inside.reading import OPENED, take
from sanderling.sandbox.kernel.file_systems import is_local, is_overlay

MAX_PACKS = 64
MAX_LOOSE = 4096
"""The most that one look reads, in 50 ms. More are rare, because git packs loose objects at 6,700."""
MAX_LOOSE_BYTES = 32 << 20
MAX_LOOSE_FILE_BYTES = 1 << 20
MAX_OBJECT_BYTES = 64 << 20
"""The limit for a delta's base as well, which may be larger than any file that is restored."""
MAX_CACHED_BYTES = 32 << 20
MAX_DELTAS = 4096  # git writes no longer chains
_DIRECT = 200  # up to this many names are looked up one by one
_CHUNK_BYTES = 1 << 16
_NAME_BYTES = 20
_IDX_HEADER = b"\xfftOc\0\0\0\2"
_NAMES_AT = len(_IDX_HEADER) + 256 * 4
_BLOB, _OFS_DELTA, _REF_DELTA = 3, 6, 7
_LARGE = 0x8000_0000


class DamagedError(Exception):
    """The object is missing, invalid or too large."""


class _Piece(NamedTuple):
    """An entry of a pack: an object, or a delta. `base` is the offset or the name of the delta's base."""

    kind: int
    data: bytes
    base: int | bytes


class _Pack:
    """A pack and its index, held open."""

    def __init__(self, path: str) -> None:
        self._pack = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | OPENED)
        try:
            self._idx = os.open(f"{path[:-5]}.idx", os.O_RDONLY | os.O_NOFOLLOW | OPENED)
        except OSError:
            os.close(self._pack)
            raise
        self._cache: dict[int, bytes] = {}
        self._cached_bytes = 0

    def close(self) -> None:
        os.close(self._pack)
        os.close(self._idx)

    def find(self, name: bytes) -> int | None:
        """Return the offset of the object in the pack."""
        header = os.pread(self._idx, _NAMES_AT, 0)
        if len(header) < _NAMES_AT or not header.startswith(_IDX_HEADER):
            return None
        counts = struct.unpack(">256I", header[len(_IDX_HEADER) :])
        low, high = counts[name[0] - 1] if name[0] else 0, counts[name[0]]
        if not low <= high <= counts[255] <= os.fstat(self._idx).st_size // _NAME_BYTES:
            return None
        names = os.pread(self._idx, (high - low) * _NAME_BYTES, _NAMES_AT + low * _NAME_BYTES)
        at = names.find(name)
        while at >= 0 and at % _NAME_BYTES:  # a match across two names
            at = names.find(name, at + 1)
        if at < 0:
            return None
        total = counts[255]
        offsets = _NAMES_AT + total * (_NAME_BYTES + 4)
        offset = self._number(">I", offsets + 4 * (low + at // _NAME_BYTES))
        if offset & _LARGE:
            offset = self._number(">Q", offsets + 4 * total + 8 * (offset & ~_LARGE))
        return offset

    def _number(self, kind: str, at: int) -> int:
        data = os.pread(self._idx, struct.calcsize(kind), at)
        try:
            return struct.unpack(kind, data)[0]
        except struct.error as error:
            raise DamagedError from error

    def read(self, offset: int) -> bytes:
        """Return the content of the blob at `offset`."""
        deltas: list[bytes] = []
        places: list[int] = []
        while (data := self._cache.get(offset)) is None:
            piece = self._piece(offset)
            places.append(offset)
            if piece.kind == _BLOB:
                data = piece.data
                break
            deltas.append(piece.data)
            base = self.find(piece.base) if isinstance(piece.base, bytes) else piece.base
            if piece.kind not in (_OFS_DELTA, _REF_DELTA) or base is None or base <= 0:
                raise DamagedError
            if len(deltas) > MAX_DELTAS:
                raise DamagedError
            offset = base
        if len(places) > len(deltas):
            self._remember(places.pop(), data)
        while deltas:
            data = _applied(data, deltas.pop())
            self._remember(places.pop(), data)
        return data

    def _remember(self, offset: int, data: bytes) -> None:
        """Cache it: the next object is probably a delta of it."""
        self._cached_bytes += len(data)
        if self._cached_bytes > MAX_CACHED_BYTES:
            self._cache, self._cached_bytes = {}, len(data)
        self._cache[offset] = data

    def forget(self) -> None:
        self._cache, self._cached_bytes = {}, 0

    def _piece(self, offset: int) -> _Piece:
        if offset >= os.fstat(self._pack).st_size:
            raise DamagedError
        head = os.pread(self._pack, _CHUNK_BYTES, offset)
        try:
            byte = head[0]
            kind, size, shift, at = byte >> 4 & 7, byte & 15, 4, 1
            while byte & 128:
                byte = head[at]
                size |= (byte & 127) << shift
                shift, at = shift + 7, at + 1
            base: int | bytes = 0
            if kind == _OFS_DELTA:
                byte = head[at]
                back, at = byte & 127, at + 1
                while byte & 128:
                    byte = head[at]
                    back, at = (back + 1 << 7) | byte & 127, at + 1
                base = offset - back
            elif kind == _REF_DELTA:
                base, at = head[at : at + _NAME_BYTES], at + _NAME_BYTES
        except IndexError as error:
            raise DamagedError from error
        if size > MAX_OBJECT_BYTES:
            raise DamagedError
        return _Piece(kind, self._inflated(head[at:], offset + len(head), size), base)

    def _inflated(self, data: bytes, end: int, size: int) -> bytes:
        """Inflate `size` bytes. Their compressed form begins with `data` and continues at `end`."""
        inflate = zlib.decompressobj()
        pieces: list[bytes] = []
        left = size
        try:
            while left > 0 and data:
                pieces.append(inflate.decompress(data, left))
                left -= len(pieces[-1])
                data = inflate.unconsumed_tail
                if not data and left:
                    data = os.pread(self._pack, _CHUNK_BYTES, end)
                    end += len(data)
        except zlib.error as error:
            raise DamagedError from error
        if left:
            raise DamagedError
        return b"".join(pieces)


def _applied(base: bytes, delta: bytes) -> bytes:
    """Apply `delta` to `base`. A delta copies parts of its base and inserts new bytes."""
    try:
        base_size, at = _varint(delta, 0)
        size, at = _varint(delta, at)
        left = size
        if base_size != len(base) or size > MAX_OBJECT_BYTES:
            raise DamagedError
        pieces: list[bytes] = []
        while at < len(delta):
            code = delta[at]
            at += 1
            if code & 128:
                start = length = 0
                for bit in range(7):  # four bytes of offset, three of length, zeros omitted
                    if code & 1 << bit:
                        if bit < 4:  # noqa: PLR2004
                            start |= delta[at] << 8 * bit
                        else:
                            length |= delta[at] << 8 * (bit - 4)
                        at += 1
                pieces.append(base[start : start + (length or 1 << 16)])
            else:
                pieces.append(delta[at : at + code])
                at += code
            left -= len(pieces[-1])
            if left < 0:  # larger than announced
                raise DamagedError
    except IndexError as error:
        raise DamagedError from error
    data = b"".join(pieces)
    if len(data) != size:
        raise DamagedError
    return data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if not byte & 128:
            return value, at


class Held:
    """The objects of one repository that stay readable after their removal. `objects` is the repository's object directory."""

    def __init__(self, objects: str) -> None:
        self._objects = objects
        self._loose: dict[bytes, bytes] = {}
        self._loose_bytes = 0
        self._packs: dict[str, _Pack] = {}
        self._packs_ns = -1
        self._holds_packs = is_local(objects) or is_overlay(objects)

    def hold(self, names: Iterable[bytes]) -> None:
        """Hold the objects with these names, within the limits."""
        for name, data in self._loose_of([name for name in names if name not in self._loose]):
            self._loose[name] = data
            self._loose_bytes += len(data)
            if len(self._loose) > 2 * MAX_LOOSE or self._loose_bytes > MAX_LOOSE_BYTES:
                self._loose_bytes -= len(self._loose.pop(next(iter(self._loose))))
        if self._holds_packs:
            self._hold_packs()

    def _loose_of(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the loose objects among `names`: name, and content of the object's file."""
        found: Iterable[bytes] = names
        if len(names) > _DIRECT:
            wanted = set(names)
            found = (name for name in self._all_loose() if name in wanted)
        for name in islice(found, MAX_LOOSE):
            text = name.hex()
            if data := _small_file(f"{self._objects}/{text[:2]}/{text[2:]}"):
                yield name, data

    def _all_loose(self) -> Iterator[bytes]:
        """Yield the names of all loose objects. A fresh clone has none, so this is faster than looking for each name."""
        with suppress(OSError):
            for directory in os.listdir(self._objects):
                if len(directory) == 2:  # noqa: PLR2004 - the first byte of the names in it
                    with suppress(OSError, ValueError):
                        for file in os.listdir(f"{self._objects}/{directory}"):
                            yield bytes.fromhex(directory + file)

    def _hold_packs(self) -> None:
        directory = f"{self._objects}/pack"
        try:
            if (changed_ns := os.stat(directory).st_mtime_ns) == self._packs_ns:
                return
            packs = [name for name in os.listdir(directory) if name.endswith(".pack")]
        except OSError:
            return
        self._packs_ns = changed_ns
        for name in sorted(packs):
            if name not in self._packs:
                with suppress(OSError):  # removed meanwhile, or still without an index
                    self._packs[name] = _Pack(f"{directory}/{name}")
        while len(self._packs) > MAX_PACKS:
            self._packs.pop(next(iter(self._packs))).close()

    def read(self, name: bytes, limit: int) -> bytes | None:
        """Return the content of a blob, or None if it is not held or larger than `limit`."""
        if loose := self._loose.get(name):
            return _loose_blob(loose, limit)
        for pack in reversed(self._packs.values()):
            with suppress(DamagedError, OSError):
                offset = pack.find(name)
                if offset is not None:
                    data = pack.read(offset)
                    return data if len(data) <= limit else None
        return None

    def forget(self) -> None:
        for pack in self._packs.values():
            pack.forget()

    def close(self) -> None:
        for pack in self._packs.values():
            pack.close()
        self._packs = {}


def _small_file(path: str) -> bytes:
    """Return the bytes of a small file, or b""."""
    try:
        with closed_after(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | OPENED)) as file:
            data = os.read(file, _CHUNK_BYTES)
            if len(data) == _CHUNK_BYTES:
                data += take(file, MAX_LOOSE_FILE_BYTES)
    except OSError:
        return b""
    return data if len(data) <= MAX_LOOSE_FILE_BYTES else b""


def _loose_blob(data: bytes, limit: int) -> bytes | None:
    inflate = zlib.decompressobj()
    try:
        whole = inflate.decompress(data, limit + 100)
    except zlib.error:
        return None
    header, _, content = whole.partition(b"\0")
    is_blob = header == b"blob %d" % len(content)
    return content if is_blob and len(content) <= limit else None
