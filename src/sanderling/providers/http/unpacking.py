"""
Bodies of answers without their content encoding, a little at a time.

A library that unpacks what has arrived in one go makes 300 MB of 300 kB before anybody can count them.
"""

import zlib
from collections.abc import Iterator

from sanderling.providers.http.errors import malformed

ACCEPTED = "gzip, deflate"
PIECE_BYTES = 1 << 18
_EITHER_HEADER = zlib.MAX_WBITS | 32


class Unpacker:
    """Takes a body packed with `encoding`, the value of its header."""

    def __init__(self, encoding: str) -> None:
        names = [name for each in encoding.lower().split(",") if (name := each.strip())]
        names = [name for name in names if name != "identity"]
        if names not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise malformed(f"it is packed with {encoding[:80]}, which was not asked for")
        self._inflater = zlib.decompressobj(_EITHER_HEADER) if names else None
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """
        Unpack the next bytes of the body.

        Raises:
            ProviderError: they are not packed as the header says.
        """
        if self._inflater is None:
            yield data
            return
        while data:
            yield self._inflate(data)
            if self._inflater.eof:
                data = self._inflater.unused_data
                self._inflater = zlib.decompressobj(_EITHER_HEADER)
            else:
                data = self._inflater.unconsumed_tail

    def _inflate(self, data: bytes) -> bytes:
        assert self._inflater
        is_begun, self._is_begun = self._is_begun, True
        try:
            return self._inflater.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            if is_begun:
                raise malformed(str(error)) from error
        try:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # some leave the header out
            return self._inflater.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            raise malformed(str(error)) from error
