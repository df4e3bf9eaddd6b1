"""Login methods. API keys come from the environment or the keychain; a new one is typed in a terminal."""

from anyio import to_thread

from sanderling.acp.agent.client import Client
from sanderling.acp.wire.errors import AUTH_REQUIRED, RpcError, invalid
from sanderling.acp.wire.setup import AuthMethod
from sanderling.config import Settings

ENVIRONMENT, KEYCHAIN, TERMINAL = "environment", "keychain", "login"
ARGUMENT = "login"


def methods(client: Client) -> list[AuthMethod]:
    """Return the login methods that `client` supports."""
    found = [
        AuthMethod(
            id=ENVIRONMENT,
            name="API key from the environment",
            description="ANTHROPIC_API_KEY, or another provider's variable, in the environment of the editor",
        ),
        AuthMethod(
            id=KEYCHAIN,
            name="API key from the keychain",
            description="Run `sanderling login` in a terminal to store one",
        ),
    ]
    if client.logs_in_terminals:
        found.append(
            AuthMethod(
                id=TERMINAL,
                name="Log in",
                description="Enter an API key, to be stored in the system's keychain",
                type="terminal",
                args=[ARGUMENT],
            )
        )
    return found


async def authenticate(method: str, settings: Settings) -> None:
    """
    Check that `method` has a key.

    Raises:
        RpcError: unknown method, or it has no key.
    """
    if method not in (ENVIRONMENT, KEYCHAIN):
        raise invalid(f"unknown authentication method {method!r}")
    if not await to_thread.run_sync(_has_key, method, settings):
        where = (
            "the environment" if method == ENVIRONMENT else "the keychain: run `sanderling login`"
        )
        raise RpcError(AUTH_REQUIRED, f"No API key in {where}.")


async def log_out(settings: Settings) -> None:
    """Remove the key from the keychain, if there is one."""
    from sanderling.providers.choice import credentials

    await to_thread.run_sync(credentials(settings).remove)


def _has_key(method: str, settings: Settings) -> bool:
    from sanderling.providers.choice import at_hand, credentials

    if method == KEYCHAIN:
        return credentials(settings).is_known()
    return any(endpoint.account.is_set() for endpoint in at_hand(settings))
