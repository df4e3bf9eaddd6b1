"""
The connection to an endpoint: an HTTP client, made in a thread when needed, with the current key.

Failures become one sentence and a remedy, without the key.
"""

import os
import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import anyio

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.credentials import Account, Credentials, CredentialsError, is_mangled
from sanderling.providers.endpoint import Endpoint, is_local
from sanderling.providers.http.bodies import decode_refusal
from sanderling.providers.http.errors import (
    explain_status,
    login_page,
    no_key,
    refused_key,
    retry_after_s,
)
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

    from sanderling.providers.http.model_proxy import ModelProxy

MIN_KEY_CHARS = 8  # shorter values are not keys, and may be part of any word
_KEY = re.compile(r"\b(?:sk-(?:ant-|proj-|or-v1-)?|gsk_|xai-|AIza)[A-Za-z0-9_-]{8,}")
FORBIDS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Key:
    """The key of `account`. The last one read came from `variable`, or from the keychain if it `is_kept`."""

    def __init__(self, account: Account, state_dir: str | Path) -> None:
        self.account = account
        self.variable = ""
        self.is_kept = False
        self._credentials = Credentials(state_dir, account)

    @property
    def version(self) -> int | None:
        """Changes whenever a key is stored."""
        return self._credentials.version()

    @property
    def costs_nothing(self) -> bool:
        """True if reading it does not use the keychain, which might ask the user."""
        return self.account.is_set() or not self._credentials.is_known()

    def read(self) -> str:
        """
        Return the key, or "" if there is no key. Blocks.

        Raises:
            ProviderError: the key is invalid, or the keychain failed.
        """
        self.variable, self.is_kept = "", False
        set_keys = [(name, os.environ.get(name, "")) for name in self.account.variables]
        for name, key in set_keys:
            if is_mangled(key):
                raise ProviderError(
                    "auth",
                    "The API key contains a space, a line break or another invalid character.",
                    f"Set {name} again and {remedies().restart}.",
                )
        if found := next((each for each in set_keys if each[1]), None):
            self.variable, key = found
            return key
        try:
            key = self._credentials.read()
        except CredentialsError as error:
            raise ProviderError("auth", error.message, error.remedy) from error
        self.is_kept = bool(key)
        return key


class ApiConnection:
    content_type: ClassVar[str] = "text/event-stream"
    """The media type of a response."""
    is_strict: ClassVar[bool] = False
    """Read the certificates that the environment names even where TLS is not used."""
    start_it: ClassVar[str] = "Start the server, or check base_url."
    """The remedy if a server on this machine cannot be reached."""

    def __init__(self, settings: Settings, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._key = Key(endpoint.account, settings.state_dir)
        self.model_proxy: ModelProxy | None = None
        """The model proxy, which holds the key; with it no key is needed here."""
        self._is_loaded = False
        self._client: httpx2.AsyncClient | None = None
        self._in_use: list[httpx2.AsyncClient] = []  # once per request
        self._secrets: set[str] = set()  # sent by any client so far
        self._loading = anyio.Lock(fast_acquire=True)
        self._key_version: int | None = None

    @property
    def is_local(self) -> bool:
        return is_local(self.endpoint.base_url)

    @property
    def is_ready(self) -> bool:
        if self.model_proxy:
            return self._is_loaded
        return self._client is not None and self._key_version == self._key.version

    async def prepare(self) -> None:
        """Prepare, except for a key in the keychain: the first request reads it, because that may ask the user to unlock the keychain."""
        async with self._loading:
            if self.model_proxy or not self._key.costs_nothing:
                await self._load()
            else:
                await self._connect()

    async def _load(self) -> None:
        if not self._is_loaded:
            await in_thread(partial(import_module, "httpx2"))
            self._is_loaded = True

    async def _connect(self) -> None:
        """Make a client with the current key. Requests in progress keep the client before it."""
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
                await (self._load() if self.model_proxy else self._connect())

    @asynccontextmanager
    async def _using_client(self) -> AsyncGenerator["httpx2.AsyncClient | None"]:
        """
        Yield the current client, or None if there is a `model_proxy`.

        The client stays open in this context, even if the key changes meanwhile. Errors that leave the context contain no key.
        """
        await self._get_ready()
        if self.model_proxy:
            yield None
            return
        client = self._client
        assert client is not None
        self._in_use.append(client)
        try:
            yield client
        except ProviderError as error:
            error.message = self.without_key(error.message)
            error.args = (error.message,)
            raise
        finally:
            self._in_use.remove(client)
            if client is not self._client and client not in self._in_use:
                with anyio.CancelScope(shield=True):
                    await client.aclose()

    def _make_client(self) -> "httpx2.AsyncClient":
        """Make the client, with the current key. Runs in a thread."""
        key = self._read_key()
        self._secrets.update((key, *header_secrets(self.endpoint)))
        headers = self._headers(key) | header_values(self.endpoint)
        return make_client(self._base_url, headers, is_strict=self.is_strict)

    @property
    def _base_url(self) -> str:
        return self.endpoint.base_url

    def _headers(self, key: str) -> dict[str, str]:
        """Return the headers of every request, by name in lower case. The endpoint's table overrides them."""
        headers = {"content-type": "application/json", "accept": self.content_type}
        return headers | {"authorization": f"Bearer {key}"} if key else headers

    def _read_key(self) -> str:
        """Return the key, or "" if it is missing and not needed. Runs in a thread."""
        key = self._key.read()
        if not key and self.endpoint.is_keyed:
            raise no_key(self.endpoint.account)
        return key

    def _errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of a request, all of which `_explain` handles."""
        return (RefusalError, ssl.SSLError, *transport_errors())

    def _explain(self, error: Exception, *, is_streaming: bool) -> ProviderError:
        if isinstance(error, RefusalError):
            return self._explain_refusal(error.response)
        import httpx2

        host = self._client.base_url.netloc.decode() if self._client else "the API"
        words = self.without_key(words_of(error))
        explained = explain_transport(error, words, host, is_streaming=is_streaming)
        is_absent = explained.is_temporary and isinstance(error, httpx2.ConnectError)
        if is_absent and is_local(self.endpoint.base_url):
            # The server is not running, and waiting does not start it.
            explained.remedy, explained.is_temporary = self.start_it, False
        return explained

    def without_key(self, words: str) -> str:
        """Remove our keys, and anything else that looks like one, from `words`: a server may quote the key that it was sent."""
        for key in sorted(self._secrets, key=len, reverse=True):
            if len(key) >= MIN_KEY_CHARS:
                words = words.replace(key, "[the key]")
        return _KEY.sub("[a key]", words)

    def _explain_refusal(self, response: "httpx2.Response") -> ProviderError:
        """Return the error for an error response, readable even if a proxy has changed the body, and without the key."""
        error_type, words = decode_refusal(response.content)
        if response.status_code in FORBIDS and not error_type and is_page(response):
            return login_page(response.status_code, "a web page")
        return explain_status(
            error_type,
            response.status_code,
            self.without_key(words or response.reason_phrase),
            retry_after_s(response.headers),
            key_remedy=self._key_remedy,
        )

    @property
    def _key_remedy(self) -> str:
        return refused_key(self.endpoint.account, is_kept=self._key.is_kept)
