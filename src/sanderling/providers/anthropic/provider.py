"""
Claude, and whoever speaks the same wire, through the `anthropic` SDK.

The SDK knows keys, headers and connections. The request's bytes and what the answer means are ours: `request`, `reply`.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.providers import ModelLimits, ModelRequest
from sanderling.providers.anthropic.client import (
    NO_REDIRECTS,
    Asking,
    custom_secrets,
    make_client,
    sdk_error,
)
from sanderling.providers.anthropic.reply import ReplyDecoder, decode_limits, decode_page
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.anthropic.sdk import load_sdk
from sanderling.providers.endpoint import ANTHROPIC, Endpoint
from sanderling.providers.http.errors import no_key
from sanderling.providers.http.models import is_name
from sanderling.providers.http.provider import Decoder, Event, HttpProvider
from sanderling.providers.http.setup import header_secrets, header_values, url_secrets
from sanderling.providers.http.transport import RefusalError

if TYPE_CHECKING:
    import anthropic
    import httpx2

MODELS_PER_PAGE = 1000  # the most that the API gives
MAX_PAGES = 100
NO_KEY = "none"  # for a server that wants none: without one the SDK would send Claude's


class AnthropicProvider(HttpProvider["anthropic.AsyncAnthropic"]):
    def __init__(self, settings: Settings, endpoint: Endpoint = ANTHROPIC, model: str = "") -> None:
        super().__init__(settings, endpoint, model or settings.model)
        self._encoder = RequestEncoder(endpoint.quirks_of(self.model))
        self._asking: Asking | None = None

    @property
    def _is_claude(self) -> bool:
        return self.endpoint.name == ANTHROPIC.name

    def _load(self) -> None:
        load_sdk()

    def _make_client(self) -> "anthropic.AsyncAnthropic":
        endpoint = self.endpoint
        key = self._read_key()
        if self._is_claude and self._key.variable == "ANTHROPIC_AUTH_TOKEN":
            key = ""  # the SDK reads it, as what it is
        base_url = endpoint.base_url or (self._settings.base_url if self._is_claude else "")
        return make_client(
            base_url,
            key if self._is_claude else key or NO_KEY,
            header_values(endpoint),
            is_claude=self._is_claude,
        )

    def _read_key(self) -> str:
        """For Claude the SDK may find something else in the place of a key: a profile."""
        return self._key.read() if self._is_claude else super()._read_key()

    async def _close_client(self, client: "anthropic.AsyncAnthropic") -> None:
        await client.close()

    def _keys(self, client: "anthropic.AsyncAnthropic") -> tuple[str | None, ...]:
        told = (*header_secrets(self.endpoint), *url_secrets(client.base_url), *custom_secrets())
        return client.api_key, client.auth_token, *told

    def _host(self, client: "anthropic.AsyncAnthropic") -> str:
        return client.base_url.netloc.decode()

    def _encode(self, request: ModelRequest, model: str) -> bytes:
        quirks = self.endpoint.quirks_of(model)
        if quirks is not self._encoder.quirks:
            self._encoder = RequestEncoder(quirks)
        return self._encoder.encode(
            request,
            model=model,
            max_tokens=self._max_tokens(),
            thinking=self._settings.thinking,
        )

    def _decoder(self, model: str) -> Decoder:
        keeps_unsigned = self.endpoint.quirks_of(model).replay_reasoning != "never"
        return ReplyDecoder(self._without_key, self._key_remedy, keeps_unsigned=keeps_unsigned)

    async def _post(self, client: "anthropic.AsyncAnthropic", body: bytes) -> "httpx2.Response":
        if not self._asking or self._asking.client is not client:
            self._asking = Asking(client)
        return await self._asking.post(body)

    async def _fetch(
        self, client: "anthropic.AsyncAnthropic", path: str, **query: object
    ) -> "httpx2.Response":
        import httpx2

        return await client.get(
            path, cast_to=httpx2.Response, options={"params": query, **NO_REDIRECTS}
        )

    def _events(self, response: "httpx2.Response") -> AsyncIterator[Event]:
        import anthropic

        events: Any = anthropic.AsyncStream.raw_events(response)
        return events

    async def fetch_limits(self) -> ModelLimits:
        return decode_limits(await self._get(f"/v1/models/{quote(self.model, safe='')}"))

    async def list_models(self) -> tuple[str, ...]:
        models: dict[str, None] = {}
        after: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = decode_page(await self._get("/v1/models", limit=MODELS_PER_PAGE, **after))
            models |= dict.fromkeys(model.id for model in page.data if is_name(model.id))
            if not page.has_more or not page.last_id or after == {"after_id": page.last_id}:
                break
            after = {"after_id": page.last_id}
        return tuple(models)

    def _errors(self) -> tuple[type[Exception], ...]:
        return (sdk_error(), TypeError, UnicodeError, *super()._errors())

    def _explain_cause(self, error: Exception) -> ProviderError | BaseException:
        import anthropic

        if isinstance(error, (anthropic.CredentialsError, TypeError)):
            if self._key.is_found:
                raise error  # not about the key: a defect of ours
            return no_key(self.endpoint.account)
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        if isinstance(cause, anthropic.APIStatusError):
            return RefusalError(cause.response)
        return cause or error
