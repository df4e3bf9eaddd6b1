"""Response bodies, limited, decompressed and watched; and transport errors as messages."""

import codecs
import re
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from functools import wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.http.errors import login_page, malformed
from sanderling.providers.idle import IdleWatch, keeps_what_came

if TYPE_CHECKING:
    import httpx2

ACCEPTED = "gzip, deflate"
PIECE_BYTES = 1 << 18
_EITHER_HEADER = zlib.MAX_WBITS | 32
# 128,000 tokens, each in an event of 100 bytes, are a tenth of this.
MAX_REPLY_BYTES = 128 << 20
MAX_LINE_BYTES = 32 << 20
MAX_REFUSAL_BYTES = 1 << 20
# h11's messages for received data that is not HTTP.
_NO_HTTP = re.compile(r"illegal (status|request) line")
_BROKEN_HTTP = re.compile(r"illegal |Receive buffer too long")

_ERROR_LINE, _ERROR_EVENT = b"error:", b"event: error\ndata:"
_ERROR_LINES = re.compile(b"^" + _ERROR_LINE, re.MULTILINE)


P = ParamSpec("P")


class Unpacker:
    """
    Decompresses a body, a little at a time; `encoding` is the value of its header.

    A library that decompresses everything that has arrived at once turns 300 kB into 300 MB before a limit can apply.
    """

    def __init__(self, encoding: str) -> None:
        names = [name for each in encoding.lower().split(",") if (name := each.strip())]
        names = [name for name in names if name != "identity"]
        if names not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise malformed(f"it uses the encoding {encoding[:80]}, which was not requested")
        self._inflater = zlib.decompressobj(_EITHER_HEADER) if names else None
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """
        Decompress the next bytes of the body.

        Raises:
            ProviderError: they do not match the header.
        """
        if self._inflater is None:
            yield data
            return
        while data:
            yield self._inflate(data)
            if self._inflater.eof:
                data = self._inflater.unused_data
                self._inflater = zlib.decompressobj(_EITHER_HEADER)
            else:
                data = self._inflater.unconsumed_tail

    def _inflate(self, data: bytes) -> bytes:
        assert self._inflater
        is_begun, self._is_begun = self._is_begun, True
        try:
            return self._inflater.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            if is_begun:
                raise malformed(str(error)) from error
        try:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers omit the header
            return self._inflater.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            raise malformed(str(error)) from error


def body_of(pieces: AsyncGenerator[bytes], source: Any = None) -> "httpx2.AsyncByteStream":
    """Return a body that yields `pieces`. Closing it closes their `source`, or else ends them."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return pieces

        async def aclose(self) -> None:
            await (source or pieces).aclose()

    return Body()


def _as_body(
    read: Callable[Concatenate[Any, P], AsyncGenerator[bytes]],
) -> Callable[Concatenate[Any, P], "httpx2.AsyncByteStream"]:
    """Turn a generator that reads a body into a function from that body to another one."""

    @wraps(read)
    def body(stream: Any, *args: P.args, **named: P.kwargs) -> "httpx2.AsyncByteStream":
        return body_of(read(stream, *args, **named), stream)

    return body


class RefusalError(Exception):
    """A response with an error status. Its body has been read."""

    def __init__(self, response: "httpx2.Response") -> None:
        super().__init__(response.status_code)
        self.response = response


async def receive_head(response: "httpx2.Response") -> None:
    """Decompress and limit the body of a response whose headers have arrived. An error's body is read at once."""
    is_refusal = not response.is_success
    encoding = response.headers.pop("content-encoding", "")
    limit = MAX_REFUSAL_BYTES if is_refusal else MAX_REPLY_BYTES
    response.stream = _bounded(response.stream, encoding, limit, is_cut=is_refusal)
    if is_refusal:
        with suppress(ProviderError):  # wrongly compressed: the status is enough
            await response.aread()
        raise RefusalError(response)


def check_place(response: "httpx2.Response") -> None:
    """
    Reject a response that a network's login page sent instead of the API: a web page, or one without content.

    Raises:
        ProviderError: with words about the login.
    """
    is_empty = response.status_code in (HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT)
    if is_page(response) or is_empty:
        what = "a web page" if is_page(response) else "an empty answer"
        raise login_page(response.status_code, what)


def is_page(response: "httpx2.Response") -> bool:
    return "html" in response.headers.get("content-type", "").lower().partition(";")[0]


@_as_body
async def _bounded(
    stream: Any, encoding: str, limit: int, *, is_cut: bool
) -> AsyncGenerator[bytes]:
    """Yield `stream` decompressed. More than `limit` bytes are an error, or left out if it `is_cut`."""
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


@_as_body
async def watched(stream: Any, watch: IdleWatch) -> AsyncGenerator[bytes]:
    """
    Return `stream` with an idle timeout for each piece. Any data resets the timeout, pings too.

    Invalid UTF-8 becomes U+FFFD: a broken character must not cost an answer.
    """
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


@_as_body
async def with_error_events(stream: Any) -> AsyncGenerator[bytes]:
    """Return `stream` with an `error` event for each line `error: …`, which is not a field of events (llama.cpp, and gateways)."""
    held, begins_line = b"", True
    async with aclosing(aiter(stream)) as pieces:
        async for piece in pieces:
            data = held + piece
            start = 0 if begins_line else data.find(b"\n") + 1 or len(data)
            last = data[data.rfind(b"\n") + 1 :]
            is_line = begins_line or b"\n" in data
            held = last if is_line and _ERROR_LINE.startswith(last) else b""
            begins_line = is_line and (bool(held) or not last)
            end = len(data) - len(held)
            yield data[:start] + _ERROR_LINES.sub(_ERROR_EVENT, data[start:end])
    yield held


@_as_body
async def with_last_event(stream: Any) -> AsyncGenerator[bytes]:
    """Return `stream` with the blank line that ends its last event, which some servers leave out. An event that was cut stays incomplete."""
    line = bytearray()
    async with aclosing(aiter(stream)) as pieces:
        async for piece in pieces:
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
            if end:
                line.clear()
            line += piece[end:]
            yield piece
    if not line or _is_whole(line.removeprefix(b"data:").strip()):
        yield b"\n\n"  # two: a CR before may take the first


def _is_whole(data: bytes | bytearray) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data == b"[DONE]"
    return True


def _endless(limit: int) -> ProviderError:
    return ProviderError(
        "malformed",
        f"The answer does not end: it has more than {limit:,} bytes.",
        "If base_url names a proxy, it may be at fault.",
        is_temporary=False,
    )


def transport_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError)


def explain_transport(
    error: BaseException, words: str, host: str, *, is_streaming: bool
) -> ProviderError:
    import httpx2

    if is_streaming and isinstance(error, (httpx2.TransportError, ssl.SSLError)):
        return ProviderError(
            "cut",
            f"The connection broke in the middle of the answer ({words}).",
            keeps_what_came(),
        )
    if otherwise := _speaks_otherwise(error, words, host):
        return otherwise
    if isinstance(error, httpx2.DecodingError) or _BROKEN_HTTP.match(words):
        return malformed(words)
    if any(map(_is_refusal_of_tls, causes_of(error))):
        return ProviderError(
            "network",
            f"No safe connection to {host} ({words}).",
            "Behind a proxy, set SSL_CERT_FILE to its certificates; otherwise check base_url and this machine's clock.",
            is_temporary=False,
        )
    if isinstance(error, httpx2.ProxyError):
        return ProviderError(
            "network",
            f"The proxy refused the connection to {host} ({words}).",
            f"Check the environment's proxy variables and NO_PROXY, then {remedies().restart}.",
            is_temporary=words.startswith("5"),  # a 5xx status: the proxy itself failed
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
    """Return the error if one side uses TLS and the other does not, else None."""
    if any(map(_is_without_tls, causes_of(error))):
        what, scheme = "does not speak TLS", "If that is intended, use http:// in base_url"
    elif _NO_HTTP.match(words):
        what, scheme = "does not answer in HTTP", "If it uses TLS, use https:// in base_url"
    else:
        return None
    remedy = f"{scheme}; otherwise check its port, and the proxy if there is one."
    return ProviderError("network", f"{host} {what} ({words}).", remedy, is_temporary=False)


def words_of(error: BaseException) -> str:
    """Return the error's message, or that of the first cause that has one."""
    causes = (cause for cause in causes_of(error) if isinstance(cause, Exception))
    messages = [words for cause in causes if (words := str(cause))]
    return messages[0] if messages else type(error).__name__


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _is_without_tls(error: BaseException) -> bool:
    """Recognize an answer without TLS, such as an HTTP server's "400 Bad Request", by OpenSSL's reason."""
    return isinstance(error, ssl.SSLError) and error.reason in {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "UNKNOWN_PROTOCOL",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    }


def _is_refusal_of_tls(error: BaseException) -> bool:
    """Recognize a failed handshake, for example because of a certificate, but not a broken or slow connection."""
    is_break = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
    is_late = isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError))
    return isinstance(error, ssl.SSLError) and not (is_break or is_late)
