"""
The provider for Ollama, through its own API.

Ollama's compatible API has no parameter for the context window, and gives every model one of a few thousand tokens. Here each request
sets it: to the model's own, but no larger than memory is likely to hold, unless the user sets it.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers import ModelLimits, ModelRequest
from sanderling.providers.endpoint import Endpoint
from sanderling.providers.http.bodies import decode_refusal
from sanderling.providers.http.errors import retry_after_s
from sanderling.providers.http.provider import HttpProvider, ServerSentEvent
from sanderling.providers.models.known import FILE
from sanderling.providers.ollama.errors import MissingModelError, explain
from sanderling.providers.ollama.reply import (
    LineDecoder,
    OllamaDecoder,
    ShownModel,
    decode_show,
    decode_tags,
)
from sanderling.providers.ollama.request import Ask, OllamaEncoder

if TYPE_CHECKING:
    import httpx2

LEAST_WINDOW = 16_384  # in tokens: the tools and a file or two fill half of it
UNKNOWN_WINDOW = 32_768
USUAL_WINDOW = 65_536  # Ollama's advice for agents; each token costs memory


class _StreamLine:
    event = ""  # lines have no name

    def __init__(self, data: str) -> None:
        self.data = data


class OllamaProvider(HttpProvider):
    path = "/api/chat"
    _always_limits = True
    content_type = "application/x-ndjson"
    start_it = "Start it with `ollama serve`, or check base_url."

    def __init__(self, settings: Settings, endpoint: Endpoint, model: str) -> None:
        super().__init__(settings, endpoint, model)
        self._encoder = OllamaEncoder(endpoint.quirks_of(model))
        self._shown: dict[str, ShownModel] = {}

    async def list_models(self) -> tuple[str, ...]:
        return decode_tags(await self._get("/api/tags"))

    async def fetch_limits(self) -> ModelLimits:
        model = self.model
        return ModelLimits(self._window(model, await self._show(model)))

    async def _show(self, model: str) -> ShownModel:
        """Return the model as Ollama shows it; an unknown one if Ollama does not show it, but may have it."""
        if model not in self._shown:
            try:
                self._shown[model] = decode_show(await self._get("/api/show", model=model))
            except MissingModelError:
                raise
            except ProviderError as error:
                if error.kind not in ("invalid_request", "malformed"):
                    raise
                self._shown[model] = ShownModel()
        return self._shown[model]

    def _window(self, model: str, shown: ShownModel) -> int:
        """Return the context window to request. One that is too small to work in is an error."""
        own = self._own_window(model)
        wanted = own or max(shown.num_ctx, LEAST_WINDOW if shown.num_ctx else 0)
        if not wanted:
            wanted = shown.window_tokens if shown.is_remote else USUAL_WINDOW
        window = min(wanted, shown.window_tokens or own or UNKNOWN_WINDOW)
        if window < LEAST_WINDOW:
            raise ProviderError(
                "invalid_request",
                f"The window of '{model}' has {window:,} tokens, and work with tools needs at least {LEAST_WINDOW:,}.",
                f"Choose another model: {remedies().model}."
                if own != window
                else f"Increase num_ctx, or window_tokens in {FILE}.",
            )
        return window

    def _own_window(self, model: str) -> int:
        """Return the window that the user has set, in the endpoint's table or the file of models; 0 if unset."""
        options = self.quirks_of(model).body.get("options", {})
        return options.get("num_ctx") or self._known(model).window_tokens

    async def _look_at(self, model: str) -> None:
        await self._show(model)

    def _encode(self, request: ModelRequest, model: str) -> bytes:
        quirks = self.quirks_of(model)
        if quirks is not self._encoder.quirks:
            self._encoder = OllamaEncoder(quirks)
        return self._encoder.encode(request, self._ask(model))

    def _decoder(self, model: str) -> OllamaDecoder:
        return OllamaDecoder(model, self._ask(model).max_tokens)

    def _ask(self, model: str) -> Ask:
        shown = self._shown[model]
        abilities = shown.abilities or frozenset()
        return Ask(
            model,
            self._window(model, shown),
            self._max_tokens(),
            self._settings.thinking if "thinking" in abilities else None,
            has_images=not abilities or "vision" in abilities,
        )

    async def _fetch(
        self, client: "httpx2.AsyncClient", path: str, **query: object
    ) -> "httpx2.Response":
        """Fetch `path`; a `query` is sent as the body of a POST."""
        return await (client.post(path, json=query) if query else client.get(path))

    async def _events(self, response: "httpx2.Response") -> AsyncIterator[ServerSentEvent]:
        lines = LineDecoder()
        async for piece in response.aiter_bytes():
            for line in lines.feed(piece):
                yield _StreamLine(line)
        for line in lines.end():
            yield _StreamLine(line)

    def _explain_refusal(self, response: "httpx2.Response") -> ProviderError:
        _, words = decode_refusal(response.content)
        if not words:
            return super()._explain_refusal(response)
        after_s = retry_after_s(response.headers)
        return explain(response.status_code, self.without_key(words), self.model, after_s)
