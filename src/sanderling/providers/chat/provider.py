"""The provider for Chat Completions, of OpenAI and everyone else."""

from sanderling.config import Settings
from sanderling.providers import ModelRequest
from sanderling.providers.chat.reply import ChatDecoder
from sanderling.providers.chat.request import ChatEncoder
from sanderling.providers.endpoint import Endpoint
from sanderling.providers.http.bodies import Decoder
from sanderling.providers.http.provider import HttpProvider


class ChatProvider(HttpProvider):
    path = "/chat/completions"
    last_words_s = 2.0  # most servers send usage after the stop reason

    def __init__(self, settings: Settings, endpoint: Endpoint, model: str) -> None:
        super().__init__(settings, endpoint, model)
        self._encoder = ChatEncoder(endpoint.quirks_of(model))

    def _encode(self, request: ModelRequest, model: str) -> bytes:
        quirks = self.quirks_of(model)
        if quirks is not self._encoder.quirks:
            self._encoder = ChatEncoder(quirks)
        # Unless the user sets a limit, the server decides: it would reject one that is too large for a small model.
        wanted = self._max_tokens() if self._settings.max_tokens else 0
        return self._encoder.encode(
            request, model=model, max_tokens=wanted, thinking=self._settings.thinking
        )

    def _decoder(self, model: str) -> Decoder:
        return ChatDecoder(self.quirks_of(model), self.without_key, self._key_remedy)
