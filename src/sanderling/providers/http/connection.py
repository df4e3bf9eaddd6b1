"""
The connection to an endpoint: a client that is made in a thread when it is needed, with the key of the moment.

What fails becomes one sentence with a remedy, without the key.
"""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import anyio

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.providers.endpoint import Endpoint, is_local
from sanderling.providers.http.bodies import decode_refusal
from sanderling.providers.http.errors import (
    explain_status,
    login_page,
    no_key,
    refused_key,
    retry_after_s,
)
from sanderling.providers.http.keys import Key, without_keys
from sanderling.providers.http.setup import (
    header_secrets,
    header_values,
    in_thread,
    make_client,
    url_secrets,
)
from sanderling.providers.http.transport import (
    RefusalError,
    explain_transport,
    is_page,
    transport_errors,
    words_of,
)

if TYPE_CHECKING:
    import httpx2

    from sanderling.providers.http.way import Way

FORBIDS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Connection:
    """The connection to `endpoint`."""

    content_type: ClassVar[str] = "text/event-stream"
    """The type of an answer's body."""
    is_strict: ClassVar[bool] = False
    """Certificates that the environment names must be some also where none are needed."""
    start_it: ClassVar[str] = "Start the server that answers there, or check base_url."
    """Sentence, of a server on this machine that cannot be reached."""

    def __init__(self, settings: Settings, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._key = Key(endpoint.account, settings.state_dir)
        self.way: Way | None = None
        """The way through somebody else who has the key, if there is one: then none is needed here."""
        self._is_loaded = False
        self._client: httpx2.AsyncClient | None = None
        self._in_use: list[httpx2.AsyncClient] = []  # once for each request
        self._secrets: set[str] = set()  # that were sent, by whichever client
        self._loading = anyio.Lock(fast_acquire=True)
        self._key_version: int | None = None

    # --- the client ----------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        if self.way:
            return self._is_loaded
        return self._client is not None and self._key_version == self._key.version

    async def prepare(self) -> None:
        """A key in the keychain is read with the first request, not before: that may ask the person to unlock it."""
        async with self._loading:
            if self.way or not self._key.costs_nothing:
                await self._load()
            else:
                await self._connect()

    async def _load(self) -> None:
        """Import what a request needs."""
        if not self._is_loaded:
            await in_thread(partial(import_module, "httpx2"))
            self._is_loaded = True

    async def _connect(self) -> None:
        """Make a client with the key of the moment; the one before is left to those who still use it."""
        if not self.is_ready:
            before, self._client = self._client, None
            if before and before not in self._in_use:
                await before.aclose()
            version = self._key.version
            self._client = await in_thread(self._make_client)
            self._secrets.update(url_secrets(self._client.base_url))
            self._key_version = version

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client:
            await client.aclose()

    async def _get_ready(self) -> None:
        if not self.is_ready:
            async with self._loading:
                await (self._load() if self.way else self._connect())

    @asynccontextmanager
    async def _using_client(self) -> AsyncGenerator["httpx2.AsyncClient | None"]:
        """
        Use the client of the moment in this context: it is not closed before, whoever logs in meanwhile.

        Errors that leave the context have no keys in them, wherever in the answer their words stood. Where there is a `way`, there is
        none.
        """
        await self._get_ready()
        if self.way:
            yield None
            return
        client = self._client
        assert client is not None
        self._in_use.append(client)
        try:
            yield client
        except ProviderError as error:
            error.message = self._without_key(error.message)
            error.args = (error.message,)
            raise
        finally:
            self._in_use.remove(client)
            if client is not self._client and client not in self._in_use:
                with anyio.CancelScope(shield=True):
                    await client.aclose()

    def _make_client(self) -> "httpx2.AsyncClient":
        """
        Make the client, with the key of the moment. In a thread.

        Raises:
            ProviderError: there is no key, or the settings or the environment make it impossible.
        """
        key = self._read_key()
        self._secrets.update((key, *header_secrets(self.endpoint)))
        headers = self._headers(key) | header_values(self.endpoint)
        return make_client(self._base_url, headers, is_strict=self.is_strict)

    @property
    def _base_url(self) -> str:
        return self.endpoint.base_url

    def _headers(self, key: str) -> dict[str, str]:
        """The headers of each request, by name in lower case; those of the endpoint's table go before them."""
        headers = {"content-type": "application/json", "accept": self.content_type}
        return headers | {"authorization": f"Bearer {key}"} if key else headers

    def _read_key(self) -> str:
        """
        Read the key; empty if there is none and none is needed. In a thread.

        Raises:
            ProviderError: there is none, or it cannot be read.
        """
        key = self._key.read()
        if not key and self.endpoint.is_keyed:
            raise no_key(self.endpoint.account)
        return key

    # --- failures ------------------------------------------------------------------------------------------------------

    def _errors(self) -> tuple[type[Exception], ...]:
        """The errors of a request, all of which `_explain` takes."""
        return (RefusalError, ssl.SSLError, *transport_errors())

    def _explain(self, error: Exception, *, is_streaming: bool) -> ProviderError:
        if isinstance(error, RefusalError):
            return self._explain_refusal(error.response)
        import httpx2

        host = self._client.base_url.netloc.decode() if self._client else "the API"
        words = self._without_key(words_of(error))
        told = explain_transport(error, words, host, is_streaming=is_streaming)
        is_absent = told.is_temporary and isinstance(error, httpx2.ConnectError)
        if is_absent and is_local(self.endpoint.base_url):
            # Nobody listens there, and waiting starts no server.
            told.remedy, told.is_temporary = self.start_it, False
        return told

    def _without_key(self, words: str) -> str:
        return without_keys(words, sorted(self._secrets, key=len, reverse=True))

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
            key_remedy=self._key_remedy,
        )

    @property
    def _key_remedy(self) -> str:
        return refused_key(self.endpoint.account, is_kept=self._key.is_kept)
