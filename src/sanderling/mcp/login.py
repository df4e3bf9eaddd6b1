"""Login at a server over HTTP, in the user's browser."""

from mcp.shared.auth import OAuthClientInformationFull

from mcp import Client
from sanderling.mcp.callback import waiting_for_browser
from sanderling.mcp.http import over_http
from sanderling.mcp.logins import ServerLogin
from sanderling.mcp.oauth import ServerAuth, Show, in_keychain
from sanderling.mcp.problems import ServerError, why
from sanderling.mcp.servers import McpServer, OAuthClient, ServerAddress, filled_in


async def log_in(name: str, declared: McpServer, state_dir: str, show: Show) -> None:
    """
    Log in at the server `name`; `show` receives the page for the browser.

    The user has asked for the login, so it works even if the network of commands is off.

    Raises:
        ServerError: it requires no login, refuses it, or the user has not logged in.
    """
    login = ServerLogin(state_dir, name, declared.url)
    own = declared.oauth
    try:
        await in_keychain(login.backend)
        async with waiting_for_browser(own.port if own else 0) as callback:
            client = _known_as(own, callback.redirect_uri) if own else None
            auth = ServerAuth(login, client, callback=callback, show=show)
            place = ServerAddress(declared.url, declared.hosts)
            async with Client(over_http(place, {}, _anywhere, auth), cache=None):
                pass
    # Anything that a server makes the SDK raise.
    except Exception as error:
        raise ServerError(why(error)) from error
    if not auth.has_shown:
        raise ServerError("it requires no login")


def _known_as(client: OAuthClient, redirect_uri: str) -> OAuthClientInformationFull:
    secret = filled_in({"secret": client.client_secret}).values["secret"]
    method = "client_secret_post" if secret else "none"
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": client.client_id,
            "client_secret": secret or None,
            "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": method,
        }
    )


def _anywhere(_: str) -> bool:
    return True
