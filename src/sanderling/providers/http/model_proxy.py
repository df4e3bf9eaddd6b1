"""
The model proxy: access to an API through a peer that holds its key and its address.

A request names the provider, and has either the body of a request for an answer or a path about its models: no address, no header and no
key travels.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sanderling.providers.http.transport import body_of

if TYPE_CHECKING:
    from httpx2 import Response

MAX_QUERY_VALUES = 20
OWN_NAMES = frozenset(("self", "client", "path"))
_PATH = re.compile(r"(/v1)?/models(/(?!\.{1,2}$)[A-Za-z0-9._~%:@+-]+)?|/api/(tags|show)")
"""Paths about models. The same address also has files, answers to others, and paths that create and delete them."""
HEADERS = ("content-type", "content-length", "retry-after", "retry-after-ms", "x-should-retry")


class ProxyRequest(msgspec.Struct, frozen=True):
    """A request to the API of `provider`: for an answer if it has a `body`, else for the models at `path`."""

    provider: str
    path: str = ""
    query: dict[str, str | int | float | bool] = {}
    body: str = ""

    @property
    def is_allowed(self) -> bool:
        """Limit what a peer can request to answers and facts about models, at the provider's own address."""
        is_path = _PATH.fullmatch(self.path) is not None and "%2" not in self.path.lower()
        are_values = len(self.query) <= MAX_QUERY_VALUES and not self.query.keys() & OWN_NAMES
        return are_values and is_path != bool(self.body)


class ModelProxy(Protocol):
    async def ask(self, proxied: ProxyRequest) -> "Response":
        """
        Send the request; return the response once its headers are there, even if it is an error.

        Raises:
            ProviderError: it could not be sent.
        """
        ...


def response_of(
    status: int, headers: Mapping[str, str], pieces: AsyncGenerator[bytes]
) -> "Response":
    """Return a response that came through a peer. Closing it ends the `pieces`."""
    import httpx2

    request = httpx2.Request("POST", "http://elsewhere.invalid/")
    body = body_of(pieces)
    return httpx2.Response(status, headers=dict(headers), stream=body, request=request)


def forwarded_headers(response: Any) -> dict[str, str]:
    """Return the headers that the requester needs. The body has been decompressed on the way."""
    return {name: response.headers[name] for name in HEADERS if name in response.headers}
