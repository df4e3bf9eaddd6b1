"""Types shared by `web_fetch` and its program `fetcher.py`: parsed URLs, requests and replies."""

import os
import re
from contextlib import suppress
from typing import Literal, NamedTuple
from urllib.parse import quote

import msgspec

from sanderling.errors import ToolError
from sanderling.hosts import is_address, is_loopback, is_public, split_authority

MAX_URL_CHARS = 4000
MAX_HOST_CHARS = 260  # with its port

Route = Literal["internet", "session", "proxy"]
"""To public addresses; to the loopback of the session's own network; through the session's proxy."""


class Fetch(msgspec.Struct, frozen=True):
    """A request. `outside` is the host's network namespace, from which two of the routes must not start."""

    url: str
    route: Route
    offset: int = 0
    outside: str = ""


class WebPage(msgspec.Struct, frozen=True, tag="page"):
    """Characters `offset` to `end` of a page with `total`, as Markdown, or unchanged if it is not HTML."""

    url: str
    status: int
    media_type: str
    title: str
    text: str
    offset: int
    end: int
    total: int
    notes: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """`url` redirects to a URL that was not requested."""

    url: str
    location: str


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """The proxy blocks `host`."""

    host: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    reason: str


Reply = WebPage | Moved | Denied | Failed


# --- requests ----------------------------------------------------------------------------------------------------------

_URL = r"(?i:(https?)://)([^/?]*)(.*)"
_FORBIDDEN = r"[\x00-\x1f\x7f-\x9f\\]"  # programs disagree on how to read these
_KEPT_IN_PATH = "/?:@!$&'()*+,;=%-._~"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Target(NamedTuple):
    """A parsed URL. `host` is a name, or an address in canonical form."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)


def parse_url(url: str) -> Target:
    """
    Parse `url`, strictly.

    Raises:
        ToolError: it may not be fetched in any network, because of its scheme, spelling, a password, or a private address.
    """
    text = url.strip(" ")
    if len(text) > MAX_URL_CHARS:
        raise ToolError(f"The URL is longer than {MAX_URL_CHARS:,} characters.")
    if re.search(_FORBIDDEN, text):
        raise ToolError("The URL contains control characters or backslashes: percent-encode them.")
    match = re.fullmatch(_URL, text.partition("#")[0])
    if not match:
        raise ToolError(f"The URL must begin with http:// or https://, not with {text[:20]!r}.")
    scheme, authority, path = match.groups()
    scheme = scheme.lower()
    if "@" in authority:
        raise ToolError("The URL contains a user name or password: remove it.")
    host, port = _split(authority, _DEFAULT_PORTS[scheme])
    if is_address(host) and not (is_public(host) or is_loopback(host)):
        raise ToolError(f"{host} is not a public address: it cannot be fetched.")
    path = path if path.startswith("/") else "/" + path
    return Target(scheme, host, port, quote(path, safe=_KEPT_IN_PATH, errors="replace"))


def _split(authority: str, default_port: int) -> tuple[str, int]:
    with suppress(ValueError):
        if len(authority) <= MAX_HOST_CHARS:
            host, port = split_authority(authority)
            return host, port or default_port
    raise ToolError(
        f"'{authority[:MAX_HOST_CHARS]}' is not a valid host: write a name (xn--… if not ASCII) or an address in its usual notation,"
        " with or without :port."
    )


def network_namespace() -> str:
    """Return this process's network namespace as named by the kernel; "" if the system has none."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
