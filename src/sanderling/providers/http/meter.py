"""Counts the tokens of an answer that is passed on to another process, which is not trusted to report them."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Usage
from sanderling.providers import UsageReport
from sanderling.providers.http.way import response_of

if TYPE_CHECKING:
    from sanderling.providers.http.provider import HttpProvider

MAX_KEPT_BYTES = 16 << 20
BYTES_PER_TOKEN = (
    4  # where the answer reports no usage: a request for an answer need not ask for it
)

log = logging.getLogger(__name__)


class Meter:
    """The usage of one request, with the bytes `body`, to `provider`."""

    def __init__(self, provider: "HttpProvider", body: str) -> None:
        self._provider = provider
        self._sent_bytes = len(body)
        self._pieces: list[bytes] = []
        self._received_bytes = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece of the answer."""
        if self._received_bytes <= MAX_KEPT_BYTES:
            self._pieces.append(piece)
        self._received_bytes += len(piece)

    async def usage(self) -> Usage:
        """Return the usage that the answer reports, or an estimate from the number of bytes."""
        if self._received_bytes <= MAX_KEPT_BYTES and (reported := await self._reported()):
            return reported
        return Usage(
            input_tokens=self._sent_bytes // BYTES_PER_TOKEN,
            output_tokens=self._received_bytes // BYTES_PER_TOKEN,
        )

    async def _reported(self) -> Usage | None:
        response = response_of(200, {"content-type": self._provider.content_type}, self._stream())
        usage = None
        try:
            async with aclosing(self._provider.items_of(response)) as items:
                async for item in items:
                    if isinstance(item, UsageReport):
                        usage = item.usage
        except (ProviderError, ValueError) as error:  # what was reported before it counts
            log.info("a lent answer cannot be read to its end: %s", error)
        return usage

    async def _stream(self) -> AsyncGenerator[bytes]:
        for piece in self._pieces:
            yield piece
