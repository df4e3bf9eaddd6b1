"""
Decompression of response bodies, a little at a time.

A library that decompresses everything that has arrived at once turns 300 kB into 300 MB before a limit can apply.
"""

import zlib
from collections.abc import Iterator

from sanderling.providers.http.errors import malformed

ACCEPTED = "gzip, deflate"
PIECE_BYTES = 1 << 18
_EITHER_HEADER = zlib.MAX_WBITS | 32


class Unpacker:
    """Decompresses a body with `encoding`, the value of its header."""

    def __init__(self, encoding: str) -> None:
        names = [name for each in encoding.lower().split(",") if (name := each.strip())]
        names = [name for name in names if name != "identity"]
        if names not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise malformed(f"it uses the encoding {encoding[:80]}, which was not requested")
        self._inflater = zlib.decompressobj(_EITHER_HEADER) if names else None
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """
        Decompress the next bytes of the body.

        Raises:
            ProviderError: they do not match the header.
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
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers omit the header
            return self._inflater.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            raise malformed(str(error)) from error
