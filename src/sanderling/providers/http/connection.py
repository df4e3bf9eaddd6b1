"""
The connection to an endpoint: a client that is made in a thread when it is needed, with the key of the moment.

What fails becomes one sentence with a remedy, without the key.
"""

import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

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
from sanderling.providers.http.setup import in_thread
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

Client = TypeVar("Client")

FORBIDS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Connection(ABC, Generic[Client]):
    """
    The connection to `endpoint`.

    `Client` is what its wire sends requests with.
    """

    start_it: ClassVar[str] = "Start the server that answers there, or check base_url."
    """Sentence, of a server on this machine that cannot be reached."""

    def __init__(self, settings: Settings, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._key = Key(endpoint.account, settings.state_dir)
        self.way: Way | None = None
        """The way through somebody else who has the key, if there is one: then none is needed here."""
        self._is_loaded = False
        self._client: Client | None = None
        self._in_use: list[Client] = []  # once for each request
        self._loading = anyio.Lock(fast_acquire=True)
        self._key_version: int | None = None

    # --- what a wire says ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _load(self) -> None:
        """Import what a request needs. In a thread."""

    @abstractmethod
    def _make_client(self) -> Client:
        """
        Make the client, with the key of the moment (`_read_key`). In a thread.

        Raises:
            ProviderError: there is no key, or the settings or the environment make it impossible.
        """

    @abstractmethod
    async def _close_client(self, client: Client) -> None: ...

    @abstractmethod
    def _keys(self, client: Client) -> tuple[str | None, ...]:
        """The secrets that `client` sends."""

    @abstractmethod
    def _host(self, client: Client) -> str: ...

    def _explain_cause(self, error: Exception) -> ProviderError | BaseException:
        """`error` in words, or the one that the wire's own library has put it into."""
        return error

    def _errors(self) -> tuple[type[Exception], ...]:
        """The errors of the libraries that this wire uses, all of which `_explain` takes."""
        return (RefusalError, ssl.SSLError, *transport_errors())

    # --- the client ----------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        if self.way:
            return self._is_loaded
        return self._client is not None and self._key_version == self._key.version

    async def prepare(self) -> None:
        """A key in the keychain is read with the first request, not before: that may ask the person to unlock it."""
        async with self._loading:
            if self.way:
                await self._load_for_way()
            elif self._key.costs_nothing:
                await self._connect()
            else:
                await in_thread(self._load)

    async def _load_for_way(self) -> None:
        if not self._is_loaded:
            await in_thread(self._load)
            self._is_loaded = True

    async def _connect(self) -> None:
        """Make a client with the key of the moment; the one before is left to those who still use it."""
        if not self.is_ready:
            before, self._client = self._client, None
            if before and before not in self._in_use:
                await self._close_client(before)
            version = self._key.version
            self._client = await in_thread(self._make_client)
            self._key_version = version

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client:
            await self._close_client(client)

    async def _get_ready(self) -> None:
        if not self.is_ready:
            async with self._loading:
                await (self._load_for_way() if self.way else self._connect())

    @asynccontextmanager
    async def _using_client(self) -> AsyncGenerator[Client | None]:
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
                    await self._close_client(client)

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

    def _explain(self, error: Exception, *, is_streaming: bool) -> ProviderError:
        cause = self._explain_cause(error)
        if isinstance(cause, ProviderError):
            return cause
        if isinstance(cause, RefusalError):
            return self._explain_refusal(cause.response)
        import httpx2

        host = self._host(self._client) if self._client else "the API"
        words = self._without_key(words_of(cause))
        told = explain_transport(cause, words, host, is_streaming=is_streaming)
        is_absent = told.is_temporary and isinstance(cause, httpx2.ConnectError)
        if is_absent and is_local(self.endpoint.base_url):
            # Nobody listens there, and waiting starts no server.
            told.remedy, told.is_temporary = self.start_it, False
        return told

    def _without_key(self, words: str) -> str:
        clients = (*self._in_use, *filter(None, (self._client,)))
        return without_keys(words, chain.from_iterable(map(self._keys, clients)))

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
