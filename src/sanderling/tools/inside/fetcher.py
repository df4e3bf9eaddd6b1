"""
Fetches a web page: the program that `web_fetch` runs inside the sandbox.

The model can be tricked into requesting anything, and any server may be hostile. So a URL is parsed once, strictly, into host, port and
path. The name is resolved once, here; every address is checked; and the connection goes to one of exactly these: nothing is resolved
again between check and use. Redirects are handled the same way, but not followed to another host, which needs the user's permission.
Behind the sandbox's proxy (`sandbox/network/proxy.py`), the proxy resolves, checks and connects.

Bytes (received and unpacked), time and memory are limited. The conversion to Markdown happens here, too, so that untrusted pages are
never parsed outside the sandbox. The process has no cookies, no keys, and only the sandbox's proxy.
"""

import os
import re
import socket
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urljoin, urlsplit

from sanderling import __version__
from sanderling.errors import ToolError
from sanderling.hosts import is_address, is_loopback, is_public
from sanderling.sandbox.environment import PASSWORD
from sanderling.sandbox.network.denied import DENIED_REASON
from sanderling.sandbox.policy import PROXY_PORT
from sanderling.tools.inside.page import (
    HTML,
    LOOKS_LIKE_HTML,
    cleaned,
    decoded,
    one_line,
    page_at,
    read_html,
)
from sanderling.tools.inside.program import serve
from sanderling.tools.inside.web import (
    Denied,
    Failed,
    Fetch,
    Moved,
    Reply,
    Route,
    Target,
    WebPage,
    network_namespace,
    parse_url,
)

if TYPE_CHECKING:  # importing it takes 100 ms, which the host need not spend
    import httpcore2

MAX_REDIRECTS = 5
MAX_ADDRESSES = 4
MAX_BODY_BYTES = 5_000_000
MAX_ERROR_BYTES = 64 << 10
MAX_ERROR_CHARS = 1000

CONNECT_S = 5.0  # per address
SILENCE_S = 10.0
BODY_S = 20.0  # a body cut off by then is shown


# --- networks ----------------------------------------------------------------------------------------------------------


class Network(NamedTuple):
    """
    A way to reach hosts: `resolve` returns a name's addresses, `permits` checks each address.

    With a `proxy` (a URL), the proxy handles names.
    """

    permits: Callable[[str], bool]
    resolve: Callable[[str], list[str]]
    proxy: str = ""


def resolve(name: str) -> list[str]:
    """
    Return the name's addresses, in the order to try them.

    Raises:
        OSError: it cannot be resolved.
    """
    found = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def own_loopback(name: str) -> list[str]:
    """Return the addresses that RFC 6761 defines for local names, without a lookup. Servers may listen on either."""
    return ["127.0.0.1", "::1"] if is_loopback(name) else []


NETWORKS: dict[Route, Network] = {
    "internet": Network(is_public, resolve),
    "session": Network(is_loopback, own_loopback),
    "proxy": Network(is_public, resolve, f"http://127.0.0.1:{PROXY_PORT}"),
}


def _places(target: Target, network: Network) -> list[str]:
    """Return the hosts to try in order: checked addresses, or the name for the proxy."""
    if is_address(target.host):
        found = [target.host]
    elif network.proxy:
        return [target.host]
    else:
        try:
            found = network.resolve(target.host)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ToolError(f"{target.host} cannot be resolved: {reason}.") from error
    for address in found:
        if not network.permits(address):
            raise ToolError(f"{target.host} resolves to {address}, which may not be fetched.")
    if not found:
        raise ToolError(f"{target.host} has no address.")
    return list(dict.fromkeys(found))[:MAX_ADDRESSES]


# --- the exchange ------------------------------------------------------------------------------------------------------


class _DeniedByProxyError(Exception):
    pass


def _credentials() -> tuple[str, str] | None:
    """Return this process's mark for the proxy, which reports refusals with it."""
    mark = urlsplit(os.environ.get("http_proxy", "")).username
    return (mark, PASSWORD) if mark else None


def fetch(wanted: Fetch, network: Network) -> Reply:
    """
    Fetch the page, following redirects on the same host.

    Raises:
        ToolError: the page could not be fetched, with the reason.
    """
    target = parse_url(wanted.url)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            with _answer(target, network) as response:
                location = _header(response, b"location")
                if not (response.status in (301, 302, 303, 307, 308) and location):
                    return _page(target, response, wanted.offset)
        except _DeniedByProxyError:
            return Denied(target.authority)
        there = _redirected(target, location)
        if not _is_same_place(target, there):
            return Moved(target.url, there.url)
        target = there
    raise ToolError(
        f"{wanted.url} redirects more than {MAX_REDIRECTS} times, last to {target.url}."
    )


def _redirected(target: Target, location: str) -> Target:
    try:
        return parse_url(urljoin(target.url, location))
    except (ToolError, ValueError) as error:
        raise ToolError(
            f"{target.url} redirects to '{one_line(location)}', which is not followed. {error}"
        ) from error


def _is_same_place(here: Target, there: Target) -> bool:
    """True if permission for `here` covers `there`: the same host or its `www` name, and never from https back to http."""
    hosts = {target.host.removeprefix("www.") for target in (here, there)}
    ways = ((here.scheme, here.port), (there.scheme, there.port))
    return len(hosts) == 1 and (ways[0] == ways[1] or ways == (("http", 80), ("https", 443)))


@contextmanager
def _answer(target: Target, network: Network) -> "Generator[httpcore2.Response]":
    """Send a GET; yield the response with its body unread."""
    import httpcore2

    proxy = httpcore2.Proxy(network.proxy, _credentials()) if network.proxy else None
    context = httpcore2.default_ssl_context() if target.scheme == "https" else None
    with (
        _explained_errors(target),
        httpcore2.ConnectionPool(ssl_context=context, proxy=proxy) as pool,
    ):
        *others, last = _places(target, network)
        for place in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                response = pool.handle_request(_request(target, place, network))
                break
        else:
            response = pool.handle_request(_request(target, last, network))
        try:
            if network.proxy and _reason_phrase(response) == DENIED_REASON.encode():
                raise _DeniedByProxyError
            yield response
        finally:
            response.close()


def _request(target: Target, place: str, network: Network) -> "httpcore2.Request":
    import httpcore2

    host = f"[{place}]" if network.proxy and ":" in place else place
    return httpcore2.Request(
        "GET",
        httpcore2.URL(
            scheme=target.scheme, host=host, port=target.port, target=target.path.encode()
        ),
        headers=[
            ("Host", target.authority),
            ("User-Agent", f"Sanderling/{__version__}"),
            ("Accept", "text/markdown, text/html;q=0.9, text/*;q=0.8, */*;q=0.5"),
            ("Accept-Encoding", "gzip"),
            ("Connection", "close"),
        ],
        extensions={
            "sni_hostname": target.host,  # the certificate must match the host, not the address
            "timeout": {"connect": CONNECT_S, "read": SILENCE_S, "write": SILENCE_S},
        },
    )


@contextmanager
def _explained_errors(target: Target) -> Generator[None]:
    import httpcore2

    try:
        yield
    except httpcore2.ProxyError as error:
        if DENIED_REASON in str(error):
            raise _DeniedByProxyError from error
        reason = f"the sandbox's proxy reports {error}"
    except httpcore2.TimeoutException:
        reason = "it timed out"
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
        reason = str(error) or type(error).__name__
    else:
        return
    raise ToolError(f"{target.url} cannot be fetched: {one_line(reason)}.")


def _reason_phrase(response: "httpcore2.Response") -> bytes:
    extensions = cast("Mapping[str, Any]", response.extensions)  # pyright: ignore[reportUnknownMemberType]
    return extensions.get("reason_phrase", b"")


def _header(response: "httpcore2.Response", name: bytes) -> str:
    values = (value for key, value in response.headers if key.lower() == name)
    return next(values, b"").decode("utf-8", "replace").strip()


# --- the body ----------------------------------------------------------------------------------------------------------

_TEXT = (
    r"text/.*|application/(?:json|xml|yaml|x-yaml|toml|javascript|ecmascript|x-javascript|x-ndjson|x-sh|sql|graphql)"
    r"|[^+]*\+(?:json|xml|yaml)"
)


def _page(target: Target, response: "httpcore2.Response", offset: int) -> WebPage:
    is_error = response.status >= HTTPStatus.BAD_REQUEST
    content_type = _header(response, b"content-type")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type and not re.fullmatch(_TEXT, media_type) and not is_error:
        raise ToolError(f"{target.url} is {_described(media_type, response)}, not text.")
    body, notes = _read(target, response, MAX_ERROR_BYTES if is_error else MAX_BODY_BYTES)
    text = decoded(body, content_type)
    if text is None and not is_error:
        raise ToolError(f"{target.url} is binary ({_described(media_type, response)}), not text.")
    text, title = text or "", ""
    if media_type in HTML or (not media_type and re.match(LOOKS_LIKE_HTML, body)):
        text, title = read_html(text, target.url)
    text = cleaned(text)
    if is_error:
        text, offset = text[:MAX_ERROR_CHARS], 0
    if offset and offset >= len(text):
        raise ToolError(
            f"{target.url} has {len(text):,} characters: offset {offset:,} is past the end."
        )
    page = page_at(text, offset)
    return WebPage(
        target.url,
        response.status,
        one_line(media_type),
        title,
        page,
        offset,
        offset + len(page),
        len(text),
        notes,
    )


def _described(media_type: str, response: "httpcore2.Response") -> str:
    length = _header(response, b"content-length")
    size = f", {int(length):,} bytes" if re.fullmatch(r"[0-9]{1,15}", length) else ""
    return f"{one_line(media_type) or 'of unknown type'}{size}"


def _read(
    target: Target, response: "httpcore2.Response", max_bytes: int
) -> tuple[bytes, tuple[str, ...]]:
    """Return the unpacked body up to `max_bytes`, and notes on missing parts."""
    import httpcore2

    deadline = time.monotonic() + BODY_S
    unpack = _unpacker(target, _header(response, b"content-encoding").lower())
    body, received = bytearray(), 0
    try:
        for chunk in response.iter_stream():
            received += len(chunk)
            body += unpack(chunk, max_bytes + 1 - len(body))
            if max(received, len(body)) > max_bytes:
                return bytes(body[:max_bytes]), (f"Only the first {max_bytes:,} bytes were read.",)
            if time.monotonic() > deadline:
                return bytes(body), (f"Only the part received within {BODY_S:.0f} s was read.",)
    except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        if not body:
            raise
        return bytes(body), (f"Incomplete, the connection broke off: {one_line(str(error))}.",)
    except zlib.error as error:
        if not body:
            raise ToolError(f"{target.url} claims gzip encoding, but is not gzip.") from error
        return bytes(body), ("Incomplete, the rest could not be unpacked.",)
    return bytes(body), ()


def _unpacker(target: Target, encoding: str) -> Callable[[bytes, int], bytes]:
    """Return a function that unpacks received bytes, up to a given number of bytes."""
    if encoding in ("", "identity"):
        return lambda chunk, room: chunk[:room]
    if encoding not in ("gzip", "x-gzip"):
        raise ToolError(f"{target.url} uses an unsupported encoding: '{encoding}'.")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    # Excess output stays in the decompressor; without room there is no further call.
    return unpacking.decompress


# --- the program -------------------------------------------------------------------------------------------------------


def main(argument: str) -> None:
    """Fetch the page of the JSON `argument`; print the reply as the last line."""
    serve(argument, Fetch, reply_to)


def reply_to(wanted: Fetch) -> Reply:
    if wanted.route != "internet" and network_namespace() in ("", wanted.outside):
        return Failed(
            "The sandbox has no network of its own now, so localhost is the user's machine, which may not be fetched."
        )
    try:
        return fetch(wanted, NETWORKS[wanted.route])
    except ToolError as error:
        return Failed(str(error))
    except MemoryError:
        return Failed(f"{one_line(wanted.url)} needs too much memory.")
