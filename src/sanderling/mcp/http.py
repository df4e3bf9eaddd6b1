"""
The transport to a server over HTTP.

This process makes the connection, with the person's secrets in its headers. So each request is held against the network of now; a name
is looked up once, here, each address that is found is judged, and one of exactly those is connected to; the headers go to the server's
own origin and nowhere else (the SDK follows redirects within that alone). What arrives is counted, and never unpacked; messages are
looked at as those of pipes are. What the SDK asks for on the way to a login is a document: small, and there soon.

Whatever goes wrong ends the connection: the SDK does not make another one, its owner does.
"""

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
    MAX_MESSAGE_BYTES,
    NOT_READABLE,
    Envelope,
    message_of,
    messages_in,
)
from sanderling.mcp.place import Place
from sanderling.mcp.problems import LastingError, ServerError, why
from sanderling.protocol.remedies import remedies
from sanderling.providers.http.transport import causes_of, words_of
from sanderling.providers.http.trust import read_certificates

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage

    from sanderling.mcp.oauth import Auth

MAX_DOCUMENT_BYTES = 256 << 10
CONNECT_S = DOCUMENT_S = 10.0
SILENCE_S = 300.0  # as the SDK has it: a server may hold a stream open
EVENTS = "text/event-stream"

Network = Callable[[str], bool]
"""Says of `host:port` whether the network of now leads there."""


@asynccontextmanager
async def over_http(
    place: Place, headers: Mapping[str, str], leads_to: Network, auth: "Auth | None" = None
) -> AsyncGenerator["TransportStreams"]:
    """
    The streams of messages from and to the server at `place`, which alone is sent `headers`; `auth` signs the requests.

    Raises:
        ServerError: in a group, when it cannot be reached, or not any more.
    """
    timeout = httpx2.Timeout(CONNECT_S, read=SILENCE_S)
    transport = _Transport(place, headers, leads_to, auth)
    async with (
        httpx2.AsyncClient(auth=auth, transport=transport, timeout=timeout) as client,
        streamable_http.streamable_http_client(
            place.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


class _Transport(httpx2.AsyncBaseTransport):
    """Sends what may be sent, and bounds what comes back."""

    def __init__(
        self, place: Place, headers: Mapping[str, str], leads_to: Network, auth: "Auth | None"
    ) -> None:
        self._place = place
        self._headers = headers
        self._leads_to = leads_to
        self._auth = auth
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        # The transport has no parameter for it.
        self._inner._pool = httpcore2.AsyncConnectionPool(  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            ssl_context=read_certificates(), network_backend=_Judged(place)
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
        if not _is_message(request):
            response.stream = _Bounded(response.stream, MAX_DOCUMENT_BYTES, DOCUMENT_S)
        elif not response.headers.get("Content-Type", "").lower().startswith(EVENTS):
            response.stream = _Bounded(response.stream, MAX_MESSAGE_BYTES)
        return response  # a stream of events may be endless: the SDK bounds each of them

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _prepare(self, request: httpx2.Request) -> None:
        """Hold `request` against the network, and give it what is for the server alone."""
        host, port = canonical_host(request.url.host), port_of(request.url)
        target = authority_of(host, port)
        is_renewal = self._auth is not None and self._auth.renews_at(request.url)
        if not (is_renewal or self._place.declares(host, port) or self._leads_to(target)):
            raise LastingError(
                f"the network does not lead to {target}: `{remedies().network} on` opens it, or let the server's `hosts` name it"
            )
        if not self._place.may_lead_to(host):
            raise LastingError(f"it leads to {target}, which is this machine")
        is_secret = "Authorization" in request.headers or not _is_message(request)
        if is_secret and request.url.scheme != "https" and not is_loopback(host):
            raise LastingError(f"everybody on the way to {target} could read its login: use https")
        request.headers["Accept-Encoding"] = "identity"
        request.headers["User-Agent"] = f"sanderling/{__version__}"
        if self._place.is_own(request.url.scheme, host, port):
            request.headers.update(self._headers)

    def _check(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Refuse an answer after which the connection is of no use."""
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ServerError("it answers packed, though it was asked not to")
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers:
            raise ServerError("it has forgotten the session")
        if self._auth and (refusal := self._auth.refusal(response)):
            raise refusal
        if response.status_code == HTTPStatus.UNAUTHORIZED and not self._auth:
            raise LastingError("it refuses the headers that it was sent")


class _Judged(httpcore2.AsyncNetworkBackend):
    """Looks a name up, judges the addresses, connects to one of them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the interface has it
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Any = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._addresses(canonical_host(host), port)
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await self._network.connect_tcp(address, port, timeout)
        return await self._network.connect_tcp(last, port, timeout)

    async def _addresses(self, host: str, port: int) -> list[str]:
        """The addresses of `host` that may be connected to, of which there is one at least."""
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ServerError(f"{host} cannot be resolved ({error.strerror or error})") from error
        addresses = [str(address[0]) for *_, address in found]
        allowed = [each for each in addresses if self._place.may_be_at(host, each, port)]
        if not allowed:
            raise LastingError(
                f"{host} leads to {addresses[0]}, which is not on the internet: let its `hosts` name that address"
            )
        return allowed


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends, within `limit_s`."""

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
                    raise ServerError("a document on the way to its login does not come") from error
                if piece is None:
                    return
                left -= len(piece)
                if left < 0:
                    raise ServerError(f"it answers with more than {self._max_bytes:,} bytes")
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


_asked: ContextVar[int | str | None] = ContextVar("_asked", default=None)
"""The id of the request whose answer is read in this task."""


class _Messages:
    """Stands where the SDK's transport parses messages."""

    def validate_json(self, data: bytes | str, **_: object) -> "JSONRPCMessage":
        """
        The message; of several the first answer, for here is room for one.

        Raises:
            httpx2.StreamError: it is none; the SDK gives that to the call.
        """
        is_body = isinstance(data, bytes)
        data = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
        try:
            messages = sorted(messages_in(data), key=lambda each: bool(each[0].method))
            envelope, message = messages[0]
            # The SDK ends the call by the id alone, so an answer with another one would be waited for until the time is over.
            # In a stream of events it puts the right id in itself.
            if is_body and not envelope.method and envelope.id != _asked.get():
                raise ValueError("it answers another request")
            return message_of(message, envelope)
        except NOT_READABLE as error:
            raise httpx2.StreamError(f"its answer cannot be read ({why(error)})") from error


setattr(streamable_http, "jsonrpc_message_adapter", _Messages())  # noqa: B010 - it has no parameter for it


def _is_message(request: httpx2.Request) -> bool:
    return EVENTS in request.headers.get("Accept", "")


def port_of(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _explained(request: httpx2.Request, error: httpx2.TransportError) -> ServerError:
    host = authority_of(request.url.host, port_of(request.url))
    said = words_of(error)
    if any(isinstance(cause, ssl.SSLError) for cause in causes_of(error)):
        return ServerError(f"there is no safe connection to {host} ({said})")
    if isinstance(error, httpx2.TimeoutException):
        return ServerError(f"{host} does not answer")
    return ServerError(f"{host} cannot be reached ({said})")
