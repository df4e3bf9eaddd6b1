"""The provider for Claude, and for other APIs of the same wire."""

import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec.structs import replace

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import ContentBlock, Message, TextBlock, ToolUse, Usage
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    ReplyPaused,
    StreamItem,
    UsageReport,
)
from sanderling.providers.anthropic.late_tools import BETAS, LateTools
from sanderling.providers.anthropic.profile import (
    LOG_IN,
    Profile,
    use_profile,
)
from sanderling.providers.anthropic.reply import (
    ReplyDecoder,
    decode_limits,
    decode_page,
    decode_usage,
)
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.endpoint import ANTHROPIC, Endpoint, Quirks
from sanderling.providers.http.bodies import Decoder
from sanderling.providers.http.errors import no_key
from sanderling.providers.http.models import decode_models, is_name
from sanderling.providers.http.provider import HttpProvider
from sanderling.providers.http.setup import check_address

if TYPE_CHECKING:
    import httpx2

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2026-10-21"  # the version that `reply` decodes
BEARER = "ANTHROPIC_AUTH_TOKEN"  # a token, not a key: never sent as x-api-key
AUTHORIZED_BY = ("authorization", "x-api-key")
MODELS_PER_PAGE = 1000  # the API's limit
MAX_PAGES = 100
MAX_PAUSES = 10  # of one reply

log = logging.getLogger(__name__)


class AnthropicProvider(HttpProvider):
    path = "/v1/messages"
    _always_limits = True
    is_strict = True

    def __init__(self, settings: Settings, endpoint: Endpoint = ANTHROPIC, model: str = "") -> None:
        super().__init__(settings, endpoint, model or settings.model)
        self._encoder = RequestEncoder(endpoint.quirks_of(self.model))
        self._profile: Profile | None = None
        # A proxy for Claude's API may not know them.
        self._takes_late_tools = not (self._is_claude and self._user_url)
        self._answered = ("", "")  # the last session, and the id of the answer to it
        self._queries: dict[str, str] = {}  # of an answer's searches, by id

    @property
    def _is_claude(self) -> bool:
        """Claude's environment variables must not reach other APIs of this wire."""
        return self.endpoint.name == ANTHROPIC.name

    @property
    def _user_url(self) -> str:
        """The address that the user has set, or ""."""
        named = self.endpoint.base_url or (self._settings.base_url if self._is_claude else "")
        return named or os.environ.get("ANTHROPIC_BASE_URL", "")

    @property
    def _base_url(self) -> str:
        return self._user_url or BASE_URL

    def _make_client(self) -> "httpx2.AsyncClient":
        if self._is_claude:
            is_set = bool(self.endpoint.base_url or self._settings.base_url)
            name = "base_url" if is_set else "ANTHROPIC_BASE_URL"
            check_address(name, self._base_url, example=BASE_URL)
        client, self._profile = super()._make_client(), None
        if self._is_claude and not any(map(client.headers.get, AUTHORIZED_BY)):
            self._profile = use_profile(client, self._user_url, self._secrets)
            if not self._profile:
                raise no_key(self.endpoint.account)
        return client

    @property
    def is_ready(self) -> bool:
        return super().is_ready and not (self._profile and self._profile.is_refused)

    def _read_key(self) -> str:
        """Return the key. For Claude it may be missing, because a profile can replace it."""
        return self._key.read() if self._is_claude else super()._read_key()

    def _headers(self, key: str) -> dict[str, str]:
        headers = super()._headers(key)
        headers |= {"accept": "application/json", "anthropic-version": API_VERSION}
        is_bearer = self._is_claude and self._key.variable == BEARER
        if key and self._user_url and not is_bearer:
            headers["x-api-key"] = key  # for proxies that were made for earlier versions of the API
        if self._is_claude:
            custom = custom_headers()
            self._secrets.update(" ".join(custom.values()).split())
            headers |= custom
        return headers

    @property
    def _key_remedy(self) -> str:
        return LOG_IN if self._profile else super()._key_remedy

    def _encode(self, request: ModelRequest, model: str) -> bytes:
        quirks = self.quirks_of(model)
        if quirks is not self._encoder.quirks:
            self._encoder = RequestEncoder(quirks)
        if not (quirks.late_tools and self._takes_late_tools) or self.model_proxy:
            self._encoder.late_tools = None
        elif not self._encoder.late_tools:
            self._encoder.late_tools = LateTools()
        return self._encoder.encode(
            request,
            model=model,
            max_tokens=self._max_tokens(),
            thinking=self._settings.thinking,
            diagnosed=self._diagnosed(request.session_id, quirks),
        )

    async def _stream_part(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """Stream an answer up to its end or pause. An API that rejects a request with tools that came late gets all tools at its beginning, from then on."""
        has_begun = False
        try:
            async with aclosing(super().stream(request)) as items:
                async for item in items:
                    has_begun = True
                    yield item
                return
        except ProviderError as error:
            late = self._encoder.late_tools
            is_about_it = error.kind == "invalid_request" and late and late.has_any
            if has_begun or not is_about_it:
                raise
            log.warning("tools that come late begin the request again: %s", error)
            self._takes_late_tools = False
        async with aclosing(super().stream(request)) as items:
            async for item in items:
                yield item

    async def _posted(self, client: "httpx2.AsyncClient | None", body: bytes) -> "httpx2.Response":
        late = self._encoder.late_tools
        if client is None or not (late and late.has_any):
            return await super()._posted(client, body)
        betas = ",".join(filter(None, (client.headers.get("anthropic-beta"), *BETAS)))
        headers = {"anthropic-beta": betas}
        asked = client.build_request("POST", self.path, content=body, headers=headers)
        return await client.send(asked, stream=True)

    def _encode_prewarm(self, request: ModelRequest, model: str) -> bytes:
        return RequestEncoder(self.quirks_of(model)).encode_prewarm(request, model)

    def _usage_of(self, answer: bytes) -> Usage:
        return decode_usage(answer)

    def _diagnosed(self, session_id: str, quirks: Quirks) -> str | None:
        """Return the id of the session's last answer, or None if the API may not know the field."""
        is_at_home = self._is_claude and not self._user_url
        if not session_id or not (is_at_home or quirks.cache_diagnosis):
            return None
        if session_id != self._answered[0]:
            self._answered = (session_id, "")
        return self._answered[1]

    def _note_id(self, message_id: str) -> None:
        self._answered = (self._answered[0], message_id)

    def _decoder(self, model: str) -> Decoder:
        keeps_unsigned = self.quirks_of(model).replay_reasoning != "never"
        return ReplyDecoder(
            self.without_key,
            self._key_remedy,
            keeps_unsigned=keeps_unsigned,
            note_id=self._note_id,
            queries=self._queries,
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """
        Call the model. Where the API pauses a long search, send what came back, so that it continues.

        Source: https://docs.anthropic.com/en/api/handling-stop-reasons#pause-turn
        """
        blocks: list[ContentBlock] = []
        before, self._queries = Usage(), {}
        for pauses_left in range(MAX_PAUSES, -1, -1):
            usage, is_paused = Usage(), False
            async with aclosing(self._stream_part(_with_reply(request, blocks))) as items:
                async for item in items:
                    match item:
                        case UsageReport(usage):
                            yield UsageReport(before + usage)
                            continue
                        case BlockDone(block):
                            if not isinstance(block, TextBlock) or block.text.strip():
                                blocks.append(block)
                        case ReplyPaused():
                            is_paused = bool(pauses_left and blocks and not _has_call(blocks))
                            if is_paused:
                                continue
                        case _:
                            pass
                    yield item
            if not is_paused:
                return
            before += usage

    async def fetch_limits(self) -> ModelLimits:
        model, limits = self.quirks_of(self.model).sent_name(self.model), ModelLimits()
        try:
            limits = decode_limits(await self._get(f"/v1/models/{quote(model, safe='')}"))
        except ProviderError as error:
            if self._is_claude or error.kind not in ("invalid_request", "malformed"):
                raise
        if self._is_claude or limits.context_window_tokens:
            return limits
        # Other servers of this wire, such as llama.cpp, have only a list, in their own format.
        return decode_models(await self._get("/v1/models")).get(model, limits)

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


def _with_reply(request: ModelRequest, blocks: Sequence[ContentBlock]) -> ModelRequest:
    """Return `request` with the part of the reply that came before a pause."""
    if not blocks:
        return request
    return replace(request, history=[*request.history, Message("assistant", tuple(blocks))])


def _has_call(blocks: Sequence[ContentBlock]) -> bool:
    return any(isinstance(block, ToolUse) for block in blocks)


def custom_headers() -> dict[str, str]:
    """Return the headers in `ANTHROPIC_CUSTOM_HEADERS`, one per line, by name in lower case."""
    lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    parts = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in parts}
