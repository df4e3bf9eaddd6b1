"""
The transport to a server over HTTP.

This process makes the connection, with the user's secrets in its headers. So each request is checked against the current network rules. A
name is resolved once, here; each address is checked, and only these are connected to. The headers go to the server's own origin only (the
SDK follows redirects only within it). Responses are limited and never decompressed; messages are checked like those from pipes. What the
SDK fetches for a login must be a small document that arrives soon.

Any failure ends the connection: its owner makes a new one, not the SDK.
"""

import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpcore2
import httpx2
import msgspec
from mcp.client import streamable_http

from sanderling import __version__
from sanderling.hosts import authority_of, canonical_host, is_loopback
from sanderling.mcp.messages import (
    INTERNAL_ERROR,
    MAX_MESSAGE_BYTES,
    NOT_READABLE,
    Envelope,
    message_of,
    messages_in,
)
from sanderling.mcp.problems import PermanentError, ServerError, why
from sanderling.mcp.servers import ServerAddress
from sanderling.protocol.remedies import remedies
from sanderling.providers.http.transport import causes_of, words_of
from sanderling.providers.http.trust import read_certificates
from sanderling.text import shortened

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage

    from sanderling.mcp.oauth import ServerAuth

MAX_DOCUMENT_BYTES = 256 << 10
CONNECT_S = DOCUMENT_S = 10.0
MAX_WORDS_CHARS = 200  # of a page that explains an error
METHOD_NOT_FOUND = -32601
SILENCE_S = 300.0  # the SDK's limit: a server may hold a stream open
EVENTS = "text/event-stream"

Network = Callable[[str], bool]
"""Returns True if the current network rules allow `host:port`."""


@asynccontextmanager
async def over_http(
    address: ServerAddress,
    headers: Mapping[str, str],
    leads_to: Network,
    auth: "ServerAuth | None" = None,
) -> AsyncGenerator["TransportStreams"]:
    """
    Open the streams of messages from and to the server at `address`, which alone receives `headers`; `auth` signs the requests.

    Raises:
        ServerError: in a group: the server cannot be reached, or no longer.
    """
    timeout = httpx2.Timeout(CONNECT_S, read=SILENCE_S)
    transport = _Transport(address, headers, leads_to, auth)
    async with (
        httpx2.AsyncClient(auth=auth, transport=transport, timeout=timeout) as client,
        streamable_http.streamable_http_client(
            address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


class _Transport(httpx2.AsyncBaseTransport):
    """Checks requests, and limits responses."""

    def __init__(
        self,
        address: ServerAddress,
        headers: Mapping[str, str],
        leads_to: Network,
        auth: "ServerAuth | None",
    ) -> None:
        self._address = address
        self._headers = headers
        self._leads_to = leads_to
        self._auth = auth
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        # The transport has no parameter for the network backend.
        self._inner._pool = httpcore2.AsyncConnectionPool(  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            ssl_context=read_certificates(), network_backend=_Judged(address)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._prepare(request)
        if _is_message(request) and request.method == "POST":
            _asked.set(msgspec.json.decode(request.content, type=Envelope).id)
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            raise _explained(request, error) from error
        try:
            self._check(request, response)
        except ServerError:
            await response.aclose()
            raise
        is_for_login = (
            "WWW-Authenticate" in response.headers
            or response.status_code == HTTPStatus.UNAUTHORIZED
        )
        if response.is_error and _is_call(request) and not is_for_login:
            return await _explained_response(request, response)
        if not _is_message(request):
            response.stream = _Bounded(response.stream, MAX_DOCUMENT_BYTES, DOCUMENT_S)
        elif not response.headers.get("Content-Type", "").lower().startswith(EVENTS):
            response.stream = _Bounded(response.stream, MAX_MESSAGE_BYTES)
        return response  # a stream of events may be endless: the SDK limits each event

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _prepare(self, request: httpx2.Request) -> None:
        """Check `request` against the network, and add the headers for the server alone."""
        host, port = canonical_host(request.url.host), port_of(request.url)
        target = authority_of(host, port)
        is_renewal = self._auth is not None and self._auth.renews_at(request.url)
        if not (is_renewal or self._address.declares(host, port) or self._leads_to(target)):
            raise PermanentError(
                f"{target} is blocked: `{remedies().network} on` opens the network, or add it to the server's `hosts`"
            )
        if not self._address.may_lead_to(host):
            raise PermanentError(f"it leads to {target}, which is this machine")
        is_secret = "Authorization" in request.headers or not _is_message(request)
        if is_secret and request.url.scheme != "https" and not is_loopback(host):
            raise PermanentError(f"its login would be sent to {target} unencrypted: use https")
        request.headers["Accept-Encoding"] = "identity"
        request.headers["User-Agent"] = f"sanderling/{__version__}"
        if self._address.is_own(request.url.scheme, host, port):
            ours = {*request.headers} - {"user-agent"}
            configured = self._headers.items()
            request.headers.update(
                {name: value for name, value in configured if name.lower() not in ours}
            )

    def _check(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Reject a response after which the connection is useless."""
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ServerError("it compresses its answers, although it was asked not to")
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers:
            raise ServerError("it no longer knows the session")
        if self._auth and (refusal := self._auth.refusal(response)):
            raise refusal
        if response.status_code == HTTPStatus.UNAUTHORIZED and not self._auth:
            raise PermanentError("it rejects its configured headers")


async def _explained_response(
    request: httpx2.Request, response: httpx2.Response
) -> httpx2.Response:
    """Return an error response with its status and first words as a message, in whose place the SDK has only "error response"."""
    response.stream = _Bounded(response.stream, MAX_DOCUMENT_BYTES, DOCUMENT_S)
    body = b""
    with suppress(httpx2.TransportError, ServerError):
        body = await response.aread()
    await response.aclose()
    number, error = _asked.get(), dict[str, Any]()
    with suppress(*NOT_READABLE):
        envelope = msgspec.json.decode(body, type=Envelope)
        error = _error_in(envelope.error)
    if not error:
        is_missing = response.status_code == HTTPStatus.NOT_FOUND  # the method, says the protocol
        said = _first_words(body.decode(errors="replace"), response.headers.get("Content-Type", ""))
        phrases = {each.value: each.phrase for each in HTTPStatus}
        status = f"{response.status_code} {phrases.get(response.status_code, '')}".strip()
        words = f"it answered {status}{said and ': '}{said}"
        error = {"code": METHOD_NOT_FOUND if is_missing else INTERNAL_ERROR, "message": words}
    message = {"jsonrpc": "2.0", "id": number, "error": error}
    headers = {"Content-Type": "application/json"}
    return httpx2.Response(response.status_code, headers=headers, json=message, request=request)


def _error_in(error: object) -> dict[str, Any]:
    """Return the error of a message if it is one of the protocol's."""
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    is_error = type(fields.get("code")) is int and isinstance(fields.get("message"), str)
    return fields if is_error else {}


def _first_words(body: str, kind: str) -> str:
    if "html" in kind or body.lstrip()[:1] == "<":
        title = re.search(r"(?is)<title[^>]*>(.*?)</title>", body)
        body = title[1] if title else re.sub(r"(?s)<[^>]*>", " ", body)
    return shortened(" ".join(body.split()), MAX_WORDS_CHARS)


class _Judged(httpcore2.AsyncNetworkBackend):
    """Resolves a name, checks the addresses, connects to one of them."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - required by the interface
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Any = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._addresses(canonical_host(host), port)
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await self._network.connect_tcp(address, port, timeout)
        return await self._network.connect_tcp(last, port, timeout)

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Return the allowed addresses of `host`, at least one."""
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ServerError(f"{host} cannot be resolved ({error.strerror or error})") from error
        addresses = [str(address[0]) for *_, address in found]
        allowed = [each for each in addresses if self._address.may_be_at(host, each, port)]
        if not allowed:
            raise PermanentError(
                f"{host} leads to {addresses[0]}, which is not on the internet: add that address to its `hosts`"
            )
        return allowed


class _Bounded(httpx2.AsyncByteStream):
    """A body with a limited size that ends within `limit_s`."""

    def __init__(self, stream: Any, max_bytes: int, limit_s: float = float("inf")) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._deadline = anyio.current_time() + limit_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        async with aclosing(aiter(self._stream)) as pieces:
            while True:
                try:
                    with anyio.fail_after(self._deadline - anyio.current_time()):
                        piece = await anext(pieces, None)
                except TimeoutError as error:
                    raise ServerError("a document for its login did not arrive") from error
                if piece is None:
                    return
                left -= len(piece)
                if left < 0:
                    raise ServerError(f"it answers with more than {self._max_bytes:,} bytes")
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


_asked: ContextVar[int | str | None] = ContextVar("_asked", default=None)
"""The id of the request whose response this task reads."""


class _Messages:
    """Replaces the parser of messages in the SDK's transport."""

    def validate_json(self, data: bytes | str, **_: object) -> "JSONRPCMessage":
        """
        Return the message; of several the first answer, because there is room for one.

        Raises:
            httpx2.StreamError: it cannot be read; the SDK reports that to the call.
        """
        is_body = isinstance(data, bytes)
        data = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
        try:
            messages = sorted(messages_in(data), key=lambda each: bool(each[0].method))
            envelope, message = messages[0]
            # The SDK ends a call by its id alone, so the call would wait for an answer with another id until its timeout. In a stream of
            # events the SDK sets the right id itself.
            if is_body and not envelope.method and envelope.id != _asked.get():
                raise ValueError("it answered another request")
            return message_of(message, envelope)
        except NOT_READABLE as error:
            raise httpx2.StreamError(f"its answer cannot be read ({why(error)})") from error


setattr(streamable_http, "jsonrpc_message_adapter", _Messages())  # noqa: B010 - it has no parameter for it


def _is_call(request: httpx2.Request) -> bool:
    return _is_message(request) and request.method == "POST" and _asked.get() is not None


def _is_message(request: httpx2.Request) -> bool:
    return EVENTS in request.headers.get("Accept", "")


def port_of(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _explained(request: httpx2.Request, error: httpx2.TransportError) -> ServerError:
    host = authority_of(request.url.host, port_of(request.url))
    said = words_of(error)
    if any(isinstance(cause, ssl.SSLError) for cause in causes_of(error)):
        return ServerError(f"no safe connection to {host} ({said})")
    if isinstance(error, httpx2.TimeoutException):
        return ServerError(f"{host} does not answer")
    return ServerError(f"{host} cannot be reached ({said})")
