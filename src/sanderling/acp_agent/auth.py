"""Logging in: keys are the environment's or the keychain's, and a terminal is where one is typed."""

from anyio import to_thread

from sanderling.acp.errors import AUTH_REQUIRED, RpcError, invalid
from sanderling.acp.setup import AuthMethod
from sanderling.acp_agent.client import Client
from sanderling.config import Settings

ENVIRONMENT, KEYCHAIN, TERMINAL = "environment", "keychain", "login"
ARGUMENT = "login"


def methods(client: Client) -> list[AuthMethod]:
    """The ways to log in that `client` can go."""
    found = [
        AuthMethod(
            id=ENVIRONMENT,
            name="API key of the environment",
            description="ANTHROPIC_API_KEY, or the variable of another provider, where the editor is started",
        ),
        AuthMethod(
            id=KEYCHAIN,
            name="API key of the keychain",
            description="`sanderling login` in a terminal keeps one there",
        ),
    ]
    if client.logs_in_terminals:
        found.append(
            AuthMethod(
                id=TERMINAL,
                name="Log in",
                description="Type an API key, which is kept in the system's keychain",
                type="terminal",
                args=[ARGUMENT],
            )
        )
    return found


async def authenticate(method: str, settings: Settings) -> None:
    """
    Look whether there is a key where `method` has it.

    Raises:
        RpcError: there is none, or no such method.
    """
    if method not in (ENVIRONMENT, KEYCHAIN):
        raise invalid(f"there is no method {method!r} to authenticate with")
    if not await to_thread.run_sync(_has_key, method, settings):
        where = (
            "the environment" if method == ENVIRONMENT else "the keychain: run `sanderling login`"
        )
        raise RpcError(AUTH_REQUIRED, f"There is no API key in {where}.")


async def log_out(settings: Settings) -> None:
    """Remove the key of the keychain, if there is one."""
    from sanderling.providers.choice import credentials

    await to_thread.run_sync(credentials(settings).remove)


def _has_key(method: str, settings: Settings) -> bool:
    from sanderling.providers.choice import at_hand, credentials

    if method == KEYCHAIN:
        return credentials(settings).is_known()
    return any(endpoint.account.is_set() for endpoint in at_hand(settings))
