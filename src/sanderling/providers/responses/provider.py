"""The provider for the Responses API, OpenAI's own or another server's."""

import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock, Usage
from sanderling.providers import ModelRequest, StreamItem
from sanderling.providers.endpoint import Endpoint
from sanderling.providers.http.provider import HttpProvider
from sanderling.providers.responses.reply import ResponsesDecoder, decode_usage
from sanderling.providers.responses.request import ResponsesEncoder

# Words about reasoning that the API rejects: encrypted for another account, or by a server that can no longer decrypt it.
_UNSEALED = re.compile(r"encrypted (content|reasoning)|'rs_\w+'", re.IGNORECASE)

log = logging.getLogger(__name__)


class ResponsesProvider(HttpProvider):
    path = "/responses"

    def __init__(self, settings: Settings, endpoint: Endpoint, model: str) -> None:
        super().__init__(settings, endpoint, model)
        self._encoder = ResponsesEncoder(model, endpoint.quirks_of(model))
        self._is_searching = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """Call the model. Every later request would repeat reasoning that the API rejects, so the request is made again without it."""
        has_begun, self._is_searching = False, request.searches_web
        try:
            async with aclosing(super().stream(request)) as items:
                async for item in items:
                    has_begun = True
                    yield item
                return
        except ProviderError as error:
            is_about_thoughts = _UNSEALED.search(error.message) and not has_begun
            if not (is_about_thoughts and self._encoder.drop_thoughts(request.history)):
                raise
            log.warning("retried without earlier reasoning: %s", error)
        async with aclosing(super().stream(request)) as items:
            async for item in items:
                yield item

    def _encode(self, request: ModelRequest, model: str) -> bytes:
        quirks = self.quirks_of(model)
        if model != self._encoder.model or quirks is not self._encoder.quirks:
            self._encoder = ResponsesEncoder(model, quirks)
        # Unless the user sets a limit, the server decides, because reasoning counts as well.
        wanted = self._max_tokens() if self._settings.max_tokens else 0
        return self._encoder.encode(request, max_tokens=wanted, thinking=self._settings.thinking)

    def _encode_prewarm(self, request: ModelRequest, model: str) -> bytes:
        asked = replace(request, history=[Message("user", (TextBlock("."),))])
        return ResponsesEncoder(model, self.quirks_of(model)).encode_prewarm(asked)

    def _usage_of(self, answer: bytes) -> Usage:
        return decode_usage(answer)

    def _decoder(self, model: str) -> ResponsesDecoder:
        del model  # all models answer alike
        return ResponsesDecoder(
            self.without_key, self._key_remedy, keeps_searches=self._is_searching
        )
