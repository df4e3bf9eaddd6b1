"""Login methods. API keys come from the environment or the keychain; a new one is typed in a terminal."""

import os
from collections.abc import Callable

from anyio import to_thread

from sanderling.acp.agent.clients import Client
from sanderling.acp.wire.errors import AUTH_REQUIRED, RpcError, invalid
from sanderling.acp.wire.setup import AuthMethod, AuthVariable
from sanderling.config import Settings
from sanderling.config.layers import Layers
from sanderling.errors import ConfigError
from sanderling.providers.endpoint import ANTHROPIC

ENVIRONMENT, KEYCHAIN, TERMINAL = "environment", "keychain", "login"
ARGUMENT = "login"


def methods(client: Client, layers: Callable[[], Layers]) -> list[AuthMethod]:
    """
    Return the methods for `client`.

    The variable is named only to a client without terminals, such as a benchmark: an editor that asks for its value would store the key in
    its settings, and not in the keychain.
    """
    variable = (
        None
        if client.logs_in_terminals
        else AuthVariable(name=_variable(lambda: layers().settings()))
    )
    found = [
        AuthMethod(
            id=ENVIRONMENT,
            name="API key from the environment",
            description="ANTHROPIC_API_KEY, or another provider's variable, in the environment of the editor",
            type=variable and "env_var",
            vars=[variable] if variable else None,
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


def _variable(read: Callable[[], Settings]) -> str:
    """Return the environment variable with the key of the configured provider: one that is set, or the first."""
    from sanderling.providers.choice import chosen_model, credentials  # as late as in a session

    try:
        settings = read()
        chosen = chosen_model(settings)
        variables = credentials(
            settings, chosen.provider if chosen.variable else ""
        ).account.variables
    except ConfigError:  # session/new reports it
        variables = ANTHROPIC.account.variables
    return next(filter(os.environ.get, variables), variables[0])


async def authenticate(method: str, settings: Settings) -> None:
    """
    Check that `method` has a key.

    Raises:
        RpcError: unknown method, or it has no key.
    """
    if method not in (ENVIRONMENT, KEYCHAIN):
        raise invalid(
            f"unknown authentication method {method!r}: the methods are {ENVIRONMENT!r} and {KEYCHAIN!r}"
        )
    if not await to_thread.run_sync(_has_key, method, settings):
        where = (
            f"the environment: set {_variable(lambda: settings)} where this agent is started"
            if method == ENVIRONMENT
            else "the keychain: run `sanderling login`"
        )
        raise RpcError(AUTH_REQUIRED, f"No API key in {where}.")


async def log_out(settings: Settings) -> None:
    from sanderling.providers.choice import credentials

    await to_thread.run_sync(credentials(settings).remove)


def _has_key(method: str, settings: Settings) -> bool:
    from sanderling.providers.choice import at_hand, credentials

    if method == KEYCHAIN:
        return credentials(settings).is_known()
    return any(endpoint.account.is_set() for endpoint in at_hand(settings))
