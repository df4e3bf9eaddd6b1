"""Counts the tokens of an answer that is passed on to another process, which is not trusted to report them."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Usage
from sanderling.providers import ReplyDone, TextPiece, ThinkingPiece, UsageReport
from sanderling.providers.http.model_proxy import response_of

if TYPE_CHECKING:
    from sanderling.providers.http.provider import HttpProvider

MAX_KEPT_BYTES = 16 << 20
BYTES_PER_TOKEN = (
    4  # where the answer reports no usage: a request for an answer need not ask for it
)
EVENT_BYTES_PER_TOKEN = 16  # of a stream that was cut, most of which is not text

log = logging.getLogger(__name__)


class Meter:
    """The usage of one request, with the bytes `body`, to `provider`."""

    def __init__(self, provider: "HttpProvider", body: str) -> None:
        self._provider = provider
        self._sent_bytes = len(body)
        self._pieces: list[bytes] = []
        self._received_bytes = 0

    def add(self, piece: bytes) -> None:
        if self._received_bytes <= MAX_KEPT_BYTES:
            self._pieces.append(piece)
        self._received_bytes += len(piece)

    async def usage(self) -> Usage:
        """
        Return the usage that the answer reports, or an estimate from the number of bytes.

        Of an answer that was not received to its end, the API has reported only what it had generated when it began.
        """
        reported, text_chars, is_whole = Usage(), 0, False
        if self._received_bytes <= MAX_KEPT_BYTES:
            reported, text_chars, is_whole = await self._reported()
        if is_whole and reported != Usage():
            return reported
        if reported == Usage():
            return Usage(
                input_tokens=self._sent_bytes // BYTES_PER_TOKEN,
                output_tokens=self._received_bytes // BYTES_PER_TOKEN,
            )
        least = max(text_chars // BYTES_PER_TOKEN, self._received_bytes // EVENT_BYTES_PER_TOKEN)
        return msgspec.structs.replace(reported, output_tokens=max(reported.output_tokens, least))

    async def _reported(self) -> tuple[Usage, int, bool]:
        """Return the usage that was reported, the length of the text, and whether the answer is whole."""
        response = response_of(200, {"content-type": self._provider.content_type}, self._stream())
        usage, text_chars, is_whole = Usage(), 0, False
        try:
            async with aclosing(self._provider.items_of(response)) as items:
                async for item in items:
                    match item:
                        case UsageReport(usage):
                            pass
                        case TextPiece(text) | ThinkingPiece(text):
                            text_chars += len(text)
                        case ReplyDone():
                            is_whole = True
                        case _:
                            pass
        except (ProviderError, ValueError) as error:  # what was reported before it counts
            log.info("a lent answer cannot be read to its end: %s", error)
        return usage, text_chars, is_whole

    async def _stream(self) -> AsyncGenerator[bytes]:
        for piece in self._pieces:
            yield piece
