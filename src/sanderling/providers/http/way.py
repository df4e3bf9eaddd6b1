"""
Ways to an API that lead through somebody else, who has its key and its address.

Who asks says which provider it means, and either the body of a request for an answer or the path at which it tells of its models: no
address, no header and no key is on the way.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from httpx2 import Response

MAX_QUERY_VALUES = 20
OWN_NAMES = frozenset(("self", "client", "path"))
_PATH = re.compile(r"(/v1)?/models(/(?!\.{1,2}$)[A-Za-z0-9._~%:@+-]+)?|/api/(tags|show)")
"""Paths by which APIs tell of their models. Below the same address lie files, answers to others, and what makes and removes them."""
HEADERS = ("content-type", "content-length", "retry-after", "retry-after-ms", "x-should-retry")


class Asked(msgspec.Struct, frozen=True):
    """A request to the API of `provider`: with a `body` for an answer, else for what is at `path`."""

    provider: str
    path: str = ""
    query: dict[str, str | int | float | bool] = {}
    body: str = ""

    @property
    def is_allowed(self) -> bool:
        """Say whether it asks a model, or about models, at the provider's own address, whoever has asked it."""
        is_path = _PATH.fullmatch(self.path) is not None and "%2" not in self.path.lower()
        are_values = len(self.query) <= MAX_QUERY_VALUES and not self.query.keys() & OWN_NAMES
        return are_values and is_path != bool(self.body)


class Way(Protocol):
    async def ask(self, asked: Asked) -> "Response":
        """
        Ask, and return the answer once its head is there; what refuses is an answer, too.

        Raises:
            ProviderError: it cannot be asked.
        """
        ...


def response_of(
    status: int, headers: Mapping[str, str], pieces: AsyncGenerator[bytes]
) -> "Response":
    """The answer that has come on such a way. Whoever closes it ends the `pieces`."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return pieces

        async def aclose(self) -> None:
            await pieces.aclose()

    request = httpx2.Request("POST", "http://elsewhere.invalid/")
    return httpx2.Response(status, headers=dict(headers), stream=Body(), request=request)


def told_headers(response: Any) -> dict[str, str]:
    """The headers of an answer that say something to who has asked. It was unpacked on the way."""
    return {name: response.headers[name] for name in HEADERS if name in response.headers}
