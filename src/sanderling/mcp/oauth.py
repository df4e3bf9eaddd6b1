"""OAuth for servers over HTTP, through the SDK: requests are signed, tokens renewed, and a login starts when the user asks for one."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from anyio import to_thread
from mcp.client.auth import OAuthClientProvider, OAuthTokenError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from sanderling.hosts import canonical_host, is_loopback
from sanderling.mcp.callback import Callback
from sanderling.mcp.logins import ServerLogin, StoredLogin
from sanderling.mcp.problems import LoginNeededError, PermanentError, ServerError
from sanderling.mcp.servers import ServerAddress
from sanderling.providers.credentials import CredentialsError

EARLY_S = 30.0  # a token is renewed that long before its end, because clocks differ
NO_PAGE = "http://127.0.0.1/callback"  # if no login is possible

T = TypeVar("T")
Show = Callable[[str], Awaitable[None]]
"""Shows a URL to the user, in their browser if there is one."""


class ServerAuth(OAuthClientProvider):
    """
    Signs the requests to one server, and is the SDK's storage of the login.

    With a `callback` a 401 starts a login; without one, it ends the connection. `client` is our registration at a server that does not
    let us register.
    """

    def __init__(
        self,
        login: ServerLogin,
        client: OAuthClientInformationFull | None = None,
        *,
        callback: Callback | None = None,
        show: Show | None = None,
    ) -> None:
        self._login = login
        self._client = client
        self._callback = callback
        self._show = show
        self._kept: StoredLogin | None = None
        self.has_shown = False
        self._version: int | None = None
        page = callback.redirect_uri if callback else NO_PAGE
        metadata = OAuthClientMetadata.model_validate(
            {"client_name": "Sanderling", "redirect_uris": [page]}
        )
        super().__init__(login.url, metadata, self, self._show_page, self._wait)

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign the request. The SDK's own flow holds a lock until the answer begins; here, calls do not wait for each other."""
        if self._callback:
            async with aclosing(super()._auth_flow(request)) as flow:
                outgoing = await anext(flow)
                with suppress(StopAsyncIteration):
                    while True:
                        outgoing = await flow.asend((yield outgoing))
            return
        context = self.context
        async with context.lock:
            if not self._initialized:
                await self._initialize()
            if not context.is_token_valid() and context.can_refresh_token():
                renewed = yield await self._refresh_token()
                await self._handle_refresh_response(renewed)
        if context.is_token_valid():
            self._add_auth_header(request)
        yield request

    def renews_at(self, url: httpx2.URL) -> bool:
        """True for the token's endpoint, which the user accepted by logging in."""
        metadata = self.context.oauth_metadata
        return metadata is not None and str(url) == str(metadata.token_endpoint)

    def refusal(self, response: httpx2.Response) -> ServerError | None:
        """Return the error that ends the connection after this answer to a signed request; None if it continues."""
        asks = response.headers.get("WWW-Authenticate", "")
        wants_more = response.status_code == HTTPStatus.FORBIDDEN and "insufficient_scope" in asks
        if self._callback or not (wants_more or response.status_code == HTTPStatus.UNAUTHORIZED):
            return None
        tokens = self.context.current_tokens
        if self._login.version() != self._version:
            return ServerError("its login has changed")
        is_news = tokens and not wants_more and tokens.access_token != self._login.refused
        if tokens and is_news and self.context.can_refresh_token():
            self._login.refused = tokens.access_token
            return ServerError("its token must be renewed")
        return LoginNeededError(self._login.name)

    async def get_tokens(self) -> OAuthToken | None:
        if self._callback:
            return None
        self._version = self._login.version()
        kept = self._kept = await in_keychain(self._login.read)
        if kept is None:
            return None
        tokens, context = OAuthToken.model_validate(kept.tokens), self.context
        context.token_expiry_time = (
            1.0 if tokens.access_token == self._login.refused else kept.ends_at
        )
        if kept.metadata:
            context.oauth_metadata = OAuthMetadata.model_validate(kept.metadata)
        if kept.resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                kept.resource
            )
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        ends_at = time.time() + tokens.expires_in - EARLY_S if tokens.expires_in else None
        context.token_expiry_time = ends_at
        kept = StoredLogin(
            _plain(tokens) or {},
            _plain(context.client_info) or {},
            ends_at,
            _plain(context.oauth_metadata),
            _plain(context.protected_resource_metadata),
        )
        await in_keychain(self._login.store, kept)
        self._version = self._login.version()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return (
            OAuthClientInformationFull.model_validate(self._kept.client)
            if self._kept
            else self._client
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing: it is stored with the first token."""

    async def _show_page(self, url: str) -> None:
        assert self._callback
        assert self._show
        self._judge(url)
        self._callback.expect(url)
        self.has_shown = True
        await self._show(url)

    def _judge(self, page: str) -> None:
        """
        Check the server's login page against what an attacker's server would name.

        Raises:
            ServerError: the page is not one of a login, or its result would go to another host.
        """
        host, known = _host(page), self.context.oauth_metadata
        is_local = is_loopback(host)
        if not (page.startswith("https:") or is_local) or not ServerAddress(
            self._login.url
        ).may_lead_to(host):
            raise PermanentError(
                f"its login page on {host} is not allowed: it is on this machine, or not https"
            )
        if known and host not in (_host(str(known.issuer)), _host(str(known.token_endpoint))):
            raise PermanentError(
                f"its login page is on {host}, but the result would go to {_host(str(known.token_endpoint))}"
            )
        methods = known.code_challenge_methods_supported if known else None
        if methods is not None and "S256" not in methods:
            raise PermanentError("its login is not safe: it has no PKCE with S256")

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        """Handle the token. The SDK's error would quote the response, which may contain one."""
        try:
            await super()._handle_token_response(response)
        except OAuthTokenError:
            raise ServerError(f"it gave no token (HTTP {response.status_code})") from None

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._callback
        came_back = await self._callback.wait()
        return AuthorizationCodeResult(
            code=came_back.code, state=came_back.state, iss=came_back.issuer
        )


async def in_keychain(ask: Callable[..., T], *arguments: Any) -> T:
    """
    Call `ask` in a thread.

    Raises:
        PermanentError: with the message of the keychain's error.
    """
    try:
        return await to_thread.run_sync(ask, *arguments, abandon_on_cancel=True)
    except CredentialsError as error:
        raise PermanentError(str(error)) from error


def _host(url: str) -> str:
    return canonical_host(urlsplit(url).hostname or "")


def _plain(model: Any) -> dict[str, Any] | None:
    return model.model_dump(mode="json", exclude_none=True) if model else None
