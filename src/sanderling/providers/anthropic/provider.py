"""
Claude, through the `anthropic` SDK.

The SDK knows keys, proxies, headers and connections. The request's bytes, what the answer means and how long to wait for it are
ours: `request`, `reply`, `idle`. Each failure becomes one sentence with a remedy (`errors`).
"""

import codecs
import logging
import math
import os
import re
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from sanderling.config import Settings, has_api_key
from sanderling.errors import ProviderError
from sanderling.providers import (
    ModelLimits,
    ModelRequest,
    ReplyDone,
    StreamItem,
)
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
from sanderling.providers.credentials import Credentials, CredentialsError, is_mangled
from sanderling.providers.idle import IdleWatch, keeps_what_came
from sanderling.providers.unpacking import ACCEPTED, Unpacker
from sanderling.remedies import remedies

if TYPE_CHECKING:
    import anthropic
    import httpx2
    from anthropic._types import RequestOptions

T = TypeVar("T")

DEFAULT_MAX_TOKENS = 32_000  # every current model can; the model's own limit lowers it
CONNECT_TIMEOUT_S = 10.0
MODELS_PER_PAGE = 1000  # the most that the API gives
MAX_PAGES = 100
# 128,000 tokens, each in an event of its own of 100 bytes, are a tenth of that.
MAX_REPLY_BYTES = 128 << 20
MAX_LINE_BYTES = 32 << 20
MAX_REFUSAL_BYTES = 1 << 20
FORBIDS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
MIN_KEY_CHARS = 8  # what is shorter is no key, and may be a part of any word
_KEY = re.compile(r"sk-ant-[A-Za-z0-9_-]{8,}")
# The words of h11 for what has been read, and is no HTTP.
_NO_HTTP = re.compile(r"illegal (status|request) line")
_BROKEN_HTTP = re.compile(r"illegal |Receive buffer too long")
DRAIN_S = 0.5
UNSEEN_S = 0.008  # how long the next words may wait while more of them can be read
BEHIND_S = 0.01  # a prompt that goes at the same time goes first
NO_REDIRECTS: "RequestOptions" = {"follow_redirects": False}  # key and conversation would go along

log = logging.getLogger(__name__)


class AnthropicProvider:
    name = "anthropic"

    def __init__(self, settings: Settings) -> None:
        self.model = settings.model
        self.limits: ModelLimits | None = None
        self._settings = settings
        self._credentials = Credentials(settings.state_dir)
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
            if has_api_key() or not self._credentials.is_known():
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
        key = self._read_key()
        for name, url in (
            ("base_url", self._settings.base_url),
            ("ANTHROPIC_BASE_URL", os.environ.get("ANTHROPIC_BASE_URL", "")),
        ):
            if url:
                _check_address(name, url)
                break
        import httpx2

        # To read the system's certificates takes a tenth of a start, and needs no interpreter.
        with ThreadPoolExecutor(1) as beside:
            trust = beside.submit(httpx2.create_ssl_context)
            load_sdk()
        import anthropic

        timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)  # silence is IdleWatch's
        try:
            _check_proxies()
            return anthropic.AsyncAnthropic(
                api_key=key or None,  # None: whatever else the SDK finds, a profile for instance
                base_url=self._settings.base_url or None,
                timeout=timeout,
                # A refusal is read here: the SDK's errors would load its types.
                http_client=anthropic.DefaultAsyncHttpxClient(
                    timeout=timeout,
                    verify=trust.result(),
                    event_hooks={"response": [_receive_head]},
                ),
                default_headers={"accept-encoding": ACCEPTED} | self._proxy_headers(key),
                max_retries=0,  # the SDK's retries are silent, and wait as long as the server says
            )
        except ImportError as error:
            raise ProviderError(
                "network",
                "The environment names a SOCKS proxy, for which a Python package is missing.",
                f"Name an HTTP proxy, or add the package: {sys.executable} -m pip install socksio",
                is_temporary=False,
            ) from error
        except OSError as error:
            raise ProviderError(
                "network",
                f"The certificates cannot be read ({_certificate_variables()}{error.strerror or error}).",
                f"Set SSL_CERT_FILE to a file of certificates, or unset what is wrong, then {remedies().restart}.",
                is_temporary=False,
            ) from error
        except (anthropic.AnthropicError, httpx2.InvalidURL, ValueError) as error:
            raise ProviderError(
                "network",
                f"The way to the API cannot be set up ({_words(error)}).",
                f"Check base_url and the environment's proxy variables, then {remedies().restart}.",
                is_temporary=False,
            ) from error

    def _read_key(self) -> str:
        """The environment's key, else the one that the person keeps in the system's keychain; else empty."""
        self._has_kept_key = False
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            if is_mangled(os.environ.get(name, "")):
                raise ProviderError(
                    "auth",
                    "The API key holds a blank, a line break or another character that no key has.",
                    f"Set {name} anew and {remedies().restart}.",
                )
        if has_api_key():
            return os.environ.get("ANTHROPIC_API_KEY", "")
        try:
            key = self._credentials.read()
        except CredentialsError as error:
            raise ProviderError("auth", error.message, error.remedy) from error
        self._has_kept_key = bool(key)
        return key

    def _proxy_headers(self, key: str) -> dict[str, str]:
        """The SDK sends the key as a bearer token; proxies made for earlier versions of the API read `x-api-key`."""
        is_proxied = bool(self._settings.base_url or os.environ.get("ANTHROPIC_BASE_URL"))
        return {"x-api-key": key} if is_proxied and key else {}

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
        """
        Ask the API what the model takes and gives, without using a token.

        Raises:
            ProviderError: the API cannot be reached, refuses the key, or does not know the model.
        """
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
        except (_sdk_error(), TypeError, *_transport_errors()) as error:
            raise self._explain(error, is_streaming=False) from error
        _check_place(answer)
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
                        await _read_to_end(events)
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
        except (_sdk_error(), TypeError, *_transport_errors()) as error:
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
            _check_place(response)
            told = self._without_key(content_type[:80]) or "nothing"
            raise malformed(f"{told} instead of a stream of events")
        response.stream = _watched(response.stream, self._watch)
        return response

    def _max_tokens(self) -> int:
        wanted = self._settings.max_tokens or DEFAULT_MAX_TOKENS
        limit = self.limits.max_output_tokens if self.limits else 0
        return min(wanted, limit) if limit else wanted

    def _explain(self, error: Exception, *, is_streaming: bool) -> ProviderError:
        import anthropic

        if isinstance(error, (anthropic.CredentialsError, TypeError)):
            if has_api_key() or self._has_kept_key:
                raise error  # not about the key: a defect of ours
            return no_key()
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        if isinstance(cause, (_RefusedError, anthropic.APIStatusError)):
            return self._explain_refusal(cause.response)
        host = self._client.base_url.netloc.decode() if self._client else "the API"
        words = self._without_key(_words(cause or error))
        return _explain_transport(cause or error, words, host, is_streaming=is_streaming)

    def _without_key(self, words: str) -> str:
        """What somebody says to whom it was sent."""
        keys = (self._client.api_key, self._client.auth_token) if self._client else ()
        for key in keys:
            if key and len(key) >= MIN_KEY_CHARS:
                words = words.replace(key, "[the key]")
        return _KEY.sub("[a key]", words)

    def _explain_refusal(self, response: "httpx2.Response") -> ProviderError:
        """What the API says of the error: whatever a proxy has made of it, as text, and without the key."""
        error_type, words = decode_refusal(response.content)
        if response.status_code in FORBIDS and not error_type and _is_page(response):
            return login_page(response.status_code, "a web page")
        return explain_status(
            error_type,
            response.status_code,
            self._without_key(words or response.reason_phrase),
            retry_after_s(response.headers),
            key_remedy=LOG_IN_AGAIN if self._has_kept_key else "",
        )


class _RefusedError(Exception):
    """An answer whose status says that there is none; its body is read."""

    def __init__(self, response: "httpx2.Response") -> None:
        super().__init__(response.status_code)
        self.response = response


async def _receive_head(response: "httpx2.Response") -> None:
    """An answer's head is there: what of its body is read from now on is unpacked, and has a limit."""
    is_refusal = not response.is_success
    encoding = response.headers.pop("content-encoding", "")
    limit = MAX_REFUSAL_BYTES if is_refusal else MAX_REPLY_BYTES
    response.stream = _bounded(response.stream, encoding, limit, is_cut=is_refusal)
    if is_refusal:
        with suppress(ProviderError):  # not packed as it says: the status says enough
            await response.aread()
        raise _RefusedError(response)


def _check_place(response: "httpx2.Response") -> None:
    """Who answers is the API: what has no content, or is a page for people, comes from a network that wants a login."""
    is_page = _is_page(response)
    if is_page or response.status_code in (HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT):
        raise login_page(response.status_code, "a web page" if is_page else "an empty answer")


def _is_page(response: "httpx2.Response") -> bool:
    return "html" in response.headers.get("content-type", "").lower().partition(";")[0]


def _check_address(name: str, url: str) -> None:
    with suppress(ValueError):  # which the client tells
        parts = urlsplit(url)
        if problem := _wrong_in(parts):
            shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            raise ProviderError(
                "network",
                f"{name} is no address of an API: {problem} ('{shown[:200]}').",
                "An address is 'https://api.anthropic.com', for instance; without one, that is asked.",
                is_temporary=False,
            )


def _wrong_in(parts: SplitResult) -> str:
    if parts.scheme not in ("http", "https"):
        return "it does not begin with https:// or http://"
    if not parts.hostname:
        return "it names no host"
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    return "" if has_port else "a port is a number from 1 to 65535"


def _check_proxies() -> None:
    """
    The client would find it out at each request, in words about a task group.

    Raises:
        ValueError: a proxy's port is none.
    """
    from urllib.request import getproxies  # the client has loaded it

    for scheme, url in getproxies().items():
        if scheme in ("http", "https", "all") and urlsplit(url).port == 0:
            raise ValueError("Port out of range 1-65535")


def _certificate_variables() -> str:
    told = [
        f"{name}={os.environ[name]}"
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
        if os.environ.get(name)
    ]
    return ", ".join([*told, ""]) if len(told) > 1 else f"{told[0]}: " if told else ""


def _explain_transport(
    error: BaseException, words: str, host: str, *, is_streaming: bool
) -> ProviderError:
    import httpx2

    if is_streaming and isinstance(error, httpx2.TransportError):
        return ProviderError(
            "cut",
            f"The connection broke in the middle of the answer ({words}).",
            keeps_what_came(),
        )
    if otherwise := _speaks_otherwise(error, words, host):
        return otherwise
    if isinstance(error, httpx2.DecodingError) or _BROKEN_HTTP.match(words):
        return malformed(words)
    if any(map(_is_refusal_of_tls, _causes(error))):
        return ProviderError(
            "network",
            f"No safe connection to {host} ({words}).",
            "If a proxy stands in between, name its certificates in SSL_CERT_FILE; else check base_url and this machine's clock.",
            is_temporary=False,
        )
    if isinstance(error, httpx2.ProxyError):
        return ProviderError(
            "network",
            f"The proxy does not let through to {host} ({words}).",
            f"Check the environment's proxy variables and NO_PROXY, then {remedies().restart}.",
            is_temporary=words.startswith("5"),  # its own trouble, by the HTTP status
        )
    return ProviderError(
        "network",
        f"Cannot reach {host} ({words}).",
        f"Check the network, the proxy and base_url. {remedies().go_on}",
        is_temporary=not isinstance(
            error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects)
        ),
    )


def _speaks_otherwise(error: BaseException, words: str, host: str) -> ProviderError | None:
    """What to say where one end speaks TLS and the other does not."""
    if any(map(_is_without_tls, _causes(error))):
        what, scheme = "does not speak TLS", "If it is meant to be so, base_url begins with http://"
    elif _NO_HTTP.match(words):
        what, scheme = "does not answer in HTTP", "If it speaks TLS, base_url begins with https://"
    else:
        return None
    remedy = f"{scheme}; else check its port, and the proxy if one stands in between."
    return ProviderError("network", f"{host} {what} ({words}).", remedy, is_temporary=False)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _is_without_tls(error: BaseException) -> bool:
    """What came is none, by OpenSSL's words for that: an HTTP server's "400 Bad Request", for instance."""
    return isinstance(error, ssl.SSLError) and error.reason in {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "UNKNOWN_PROTOCOL",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    }


def _is_refusal_of_tls(error: BaseException) -> bool:
    """A certificate, for instance; not a connection that broke meanwhile, or came to no end in time."""
    is_break = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
    is_late = isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError))
    return isinstance(error, ssl.SSLError) and not (is_break or is_late)


def _bounded(stream: Any, encoding: str, limit: int, *, is_cut: bool) -> "httpx2.AsyncByteStream":
    """`stream` unpacked, of which no more than `limit` bytes are read: what is longer is an error, unless it `is_cut`."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left, unpacker = limit, Unpacker(encoding)
            async with aclosing(aiter(stream)) as packed:
                async for data in packed:
                    for piece in unpacker.feed(data):
                        left -= len(piece)
                        if left >= 0:
                            yield piece
                        elif is_cut:
                            return
                        else:
                            raise _endless(limit)

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def _watched(stream: Any, watch: IdleWatch) -> "httpx2.AsyncByteStream":
    """
    `stream`, each of whose pieces may be waited for only so long: pings count, and whatever else arrives.

    What is no UTF-8 becomes U+FFFD: one broken character is not worth an answer.
    """
    import httpx2

    class Watched(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            decode = codecs.getincrementaldecoder("utf-8")("replace").decode
            line_bytes = 0
            async with aclosing(aiter(stream)) as pieces:
                while True:
                    with watch.wait():
                        piece = await anext(pieces, None)
                    if piece is None:
                        return
                    line_end = piece.rfind(b"\n") + 1
                    line_bytes = len(piece) - line_end + (0 if line_end else line_bytes)
                    if line_bytes > MAX_LINE_BYTES:
                        raise _endless(MAX_LINE_BYTES)
                    yield decode(piece).encode()

        async def aclose(self) -> None:
            await stream.aclose()

    return Watched()


def _endless(limit: int) -> ProviderError:
    return ProviderError(
        "malformed",
        f"The answer does not end: it has more than {limit:,} bytes.",
        "If base_url names a proxy, it may be at fault.",
        is_temporary=False,
    )


async def _in_thread(load: Callable[[], T]) -> T:
    """
    What `load` makes of modules that may not be there yet.

    Raises:
        ProviderError: they cannot be loaded: there is too little memory, or a part of them is missing.
    """
    try:
        return await to_thread.run_sync(load, abandon_on_cancel=True)
    except (ImportError, MemoryError) as error:
        raise ProviderError(
            "internal",
            f"The modules that talk to the API cannot be loaded ({_words(error)}).",
            f"Give it more memory (ulimit -v), or build the environment again: {remedies().install}.",
            is_temporary=False,
        ) from error


def _words(error: BaseException) -> str:
    """Its own, else those of what it comes from."""
    told = [words for cause in _causes(error) if (words := str(cause))]
    return told[0] if told else type(error).__name__


async def _read_to_end(events: AsyncIterator[object]) -> None:
    """Read what follows the last event: a response that was not read to its end takes its connection with it."""
    ignored = (ProviderError, *_transport_errors())
    with anyio.move_on_after(DRAIN_S), suppress(*ignored):
        async for _ in events:
            pass


def _sdk_error() -> type[Exception]:
    import anthropic

    return anthropic.AnthropicError


def _transport_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError)
