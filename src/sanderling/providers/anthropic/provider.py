"""
Claude, through the `anthropic` SDK.

The SDK knows keys, proxies, headers and connections. The request's bytes, what the answer means and how long to wait for it are
ours: `request`, `reply`, `idle`. Each failure becomes one sentence with a remedy (`errors`).
"""

import logging
import math
import os
import re
from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers import (
    ModelLimits,
    ModelRequest,
    ReplyDone,
    StreamItem,
)
from sanderling.providers.anthropic.client import ACCOUNT, make_client
from sanderling.providers.anthropic.errors import (
    LOG_IN_AGAIN,
    explain_status,
    login_page,
    malformed,
    no_key,
    retry_after_s,
)
from sanderling.providers.anthropic.reply import (
    ReplyDecoder,
    decode_limits,
    decode_page,
    decode_refusal,
)
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.anthropic.sdk import load_sdk
from sanderling.providers.anthropic.transport import (
    RefusalError,
    check_place,
    explain_transport,
    is_page,
    read_to_end,
    sdk_error,
    transport_errors,
    watched,
    words_of,
)
from sanderling.providers.credentials import Credentials, CredentialsError, is_mangled
from sanderling.providers.idle import IdleWatch

if TYPE_CHECKING:
    import anthropic
    import httpx2
    from anthropic._types import RequestOptions

T = TypeVar("T")

DEFAULT_MAX_TOKENS = 32_000  # every current model can; the model's own limit lowers it
MODELS_PER_PAGE = 1000  # the most that the API gives
MAX_PAGES = 100
FORBIDS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
MIN_KEY_CHARS = 8  # what is shorter is no key, and may be a part of any word
_KEY = re.compile(r"sk-ant-[A-Za-z0-9_-]{8,}")
UNSEEN_S = 0.008  # how long the next words may wait while more of them can be read
BEHIND_S = 0.01  # a prompt that goes at the same time goes first
NO_REDIRECTS: "RequestOptions" = {"follow_redirects": False}  # key and conversation would go along

log = logging.getLogger(__name__)


class AnthropicProvider:
    def __init__(self, settings: Settings) -> None:
        self.model = settings.model
        self.limits: ModelLimits | None = None
        self._settings = settings
        self._credentials = Credentials(settings.state_dir, ACCOUNT)
        self._encoder = RequestEncoder()
        self._watch = IdleWatch(settings.idle_timeout_s)
        self._client: anthropic.AsyncAnthropic | None = None
        self._loading = anyio.Lock()
        self._key_version: int | None = None
        self._has_kept_key = False

    @property
    def is_ready(self) -> bool:
        return self._client is not None and self._key_version == self._credentials.version()

    async def prepare(self) -> None:
        """A key in the keychain is read with the first request, not before: that may ask the person to unlock it."""
        async with self._loading:
            if ACCOUNT.is_set() or not self._credentials.is_known():
                await self._connect()
            else:
                await _in_thread(load_sdk)

    async def _connect(self) -> None:
        if not self.is_ready:
            await self.aclose()
            version = self._credentials.version()
            self._client = await _in_thread(self._make_client)
            self._key_version = version

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client:
            await client.close()

    def set_model(self, model: str) -> None:
        self.model, self.limits = model, None

    async def _ready_client(self) -> "anthropic.AsyncAnthropic":
        if not self.is_ready:
            async with self._loading:
                await self._connect()
        assert self._client is not None
        return self._client

    def _make_client(self) -> "anthropic.AsyncAnthropic":
        return make_client(self._settings, self._read_key())

    def _read_key(self) -> str:
        """The environment's key, else the one that the person keeps in the system's keychain; else empty."""
        self._has_kept_key = False
        for name in ACCOUNT.variables:
            if is_mangled(os.environ.get(name, "")):
                raise ProviderError(
                    "auth",
                    "The API key holds a blank, a line break or another character that no key has.",
                    f"Set {name} anew and {remedies().restart}.",
                )
        if ACCOUNT.is_set():
            return os.environ.get("ANTHROPIC_API_KEY", "")
        try:
            key = self._credentials.read()
        except CredentialsError as error:
            raise ProviderError("auth", error.message, error.remedy) from error
        self._has_kept_key = bool(key)
        return key

    async def learn_limits(self) -> None:
        await anyio.sleep(BEHIND_S)
        model = self.model
        try:
            limits = await self.fetch_limits()
        except ProviderError as error:
            log.info("the API does not tell the limits of %s: %s", model, error)
            limits = ModelLimits()
        if model == self.model:
            self.limits = limits

    async def fetch_limits(self) -> ModelLimits:
        return decode_limits(await self._get(f"/v1/models/{quote(self.model, safe='')}"))

    async def list_models(self) -> tuple[str, ...]:
        models: dict[str, None] = {}
        after: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = decode_page(await self._get("/v1/models", limit=MODELS_PER_PAGE, **after))
            models |= dict.fromkeys(model.id for model in page.data)
            if not page.has_more or not page.last_id or after == {"after_id": page.last_id}:
                break
            after = {"after_id": page.last_id}
        return tuple(models)

    async def _get(self, path: str, **query: object) -> bytes:
        client = await self._ready_client()
        import httpx2

        try:
            with self._watch.wait():
                answer = await client.get(
                    path, cast_to=httpx2.Response, options={"params": query, **NO_REDIRECTS}
                )
        except (sdk_error(), TypeError, *transport_errors()) as error:
            raise self._explain(error, is_streaming=False) from error
        check_place(answer)
        return answer.content

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        model = self.model  # the one whose thoughts the request holds, whoever is chosen meanwhile
        client = await self._ready_client()
        import anthropic

        reply = ReplyDecoder(self._without_key)
        unseen_until = -math.inf
        try:
            response = await self._send(client, request, model)
            try:
                events = anthropic.AsyncStream.raw_events(response)
                async for event in events:
                    for item in reply.feed(event.data, event.event or ""):
                        yield item
                    if reply.is_done:
                        await read_to_end(events)
                        yield ReplyDone(reply.stop_reason)
                        return
                    # As long as more is there to be read, reading it does not give way to whoever draws.
                    if reply.has_words and anyio.current_time() > unseen_until:
                        await checkpoint()
                        unseen_until = anyio.current_time() + UNSEEN_S
                if "content-length" in response.headers:  # no connection that broke: it said so
                    raise malformed("the answer stops before its end")
            finally:
                await response.aclose()
        except (sdk_error(), TypeError, *transport_errors()) as error:
            raise self._explain(error, is_streaming=reply.has_started) from error

    async def _send(
        self, client: "anthropic.AsyncAnthropic", request: ModelRequest, model: str
    ) -> "httpx2.Response":
        """The answer, once its head is there. Its body may be waited for no longer than any other."""
        import anthropic
        import httpx2

        body = self._encoder.encode(
            request,
            model=model,
            max_tokens=self._max_tokens(),
            thinking=self._settings.thinking,
        )
        # `messages.create` would copy and encode all of the history, in 15 ms after 200 rounds.
        post: Any = client.post
        with self._watch.wait():
            response: httpx2.Response = await post(
                "/v1/messages",
                cast_to=httpx2.Response,
                options=NO_REDIRECTS,
                content=body,
                stream=True,
                stream_cls=anthropic.AsyncStream[Any],
            )
        content_type = response.headers.get("content-type", "")
        if not content_type.lower().startswith("text/event-stream"):
            await response.aclose()
            check_place(response)
            told = self._without_key(content_type[:80]) or "nothing"
            raise malformed(f"{told} instead of a stream of events")
        response.stream = watched(response.stream, self._watch)
        return response

    def _max_tokens(self) -> int:
        wanted = self._settings.max_tokens or DEFAULT_MAX_TOKENS
        limit = self.limits.max_output_tokens if self.limits else 0
        return min(wanted, limit) if limit else wanted

    def _explain(self, error: Exception, *, is_streaming: bool) -> ProviderError:
        import anthropic

        if isinstance(error, (anthropic.CredentialsError, TypeError)):
            if ACCOUNT.is_set() or self._has_kept_key:
                raise error  # not about the key: a defect of ours
            return no_key()
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        if isinstance(cause, (RefusalError, anthropic.APIStatusError)):
            return self._explain_refusal(cause.response)
        host = self._client.base_url.netloc.decode() if self._client else "the API"
        words = self._without_key(words_of(cause or error))
        return explain_transport(cause or error, words, host, is_streaming=is_streaming)

    def _without_key(self, words: str) -> str:
        """`words` without the key, which a server may repeat that was sent it."""
        keys = (self._client.api_key, self._client.auth_token) if self._client else ()
        for key in keys:
            if key and len(key) >= MIN_KEY_CHARS:
                words = words.replace(key, "[the key]")
        return _KEY.sub("[a key]", words)

    def _explain_refusal(self, response: "httpx2.Response") -> ProviderError:
        """The error that `response` tells of: whatever a proxy has made of it, as text, and without the key."""
        error_type, words = decode_refusal(response.content)
        if response.status_code in FORBIDS and not error_type and is_page(response):
            return login_page(response.status_code, "a web page")
        return explain_status(
            error_type,
            response.status_code,
            self._without_key(words or response.reason_phrase),
            retry_after_s(response.headers),
            key_remedy=LOG_IN_AGAIN if self._has_kept_key else "",
        )


async def _in_thread(load: Callable[[], T]) -> T:
    """
    Return what `load` makes of modules that may not be there yet.

    Raises:
        ProviderError: they cannot be loaded: there is too little memory, or a part of them is missing.
    """
    try:
        return await to_thread.run_sync(load, abandon_on_cancel=True)
    except (ImportError, MemoryError) as error:
        raise ProviderError(
            "internal",
            f"The modules that talk to the API cannot be loaded ({words_of(error)}).",
            f"Give it more memory (ulimit -v), or build the environment again: {remedies().install}.",
            is_temporary=False,
        ) from error
