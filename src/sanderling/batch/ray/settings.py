"""The settings of agents on other machines: the user's, with the gateway's address in place of the APIs', and no key."""

from collections.abc import Mapping
from typing import Any

from sanderling.batch.ray.gateway import Opening
from sanderling.config import DEFAULT_MODEL, Settings
from sanderling.errors import ConfigError, UsageError
from sanderling.providers.choice import SCRIPT_PREFIX, SCRIPTED, at_hand, choose
from sanderling.providers.credentials import Credentials, CredentialsError
from sanderling.providers.endpoint import (
    Endpoint,
    is_endpoint,
    keys_of_providers,
    load_endpoint,
)

SENT = (
    *("provider", "model", "small_model", "max_tokens", "thinking", "effort", "idle_timeout_s"),
    *("max_calls", "budget_usd", "auto_compact", "prices", "permissions", "tools", "delegate"),
    *("roles", "skills", "network", "sandbox"),
)
"""The tables and keys that apply on other machines. Tool servers, hooks and external agents name programs of this one."""
HOW_CALLED = ("wire", "preset", "api_key", "model", "quirks", "models")
"""The keys of a provider's table without its address and headers, which may have secrets. `api_key` is the name of a variable."""
AROUND = ("ANTHROPIC_", "SSL_CERT_", "REQUESTS_CA_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""The beginnings of variables that requests depend on, apart from keys."""
MAX_OPENING_BYTES = 64 << 10  # less than what Ray keeps in the object store


def offered(own: Settings, model: str) -> tuple[str, ...]:
    """
    Return the providers that agents can call: those with a key here, and that of `model`.

    Raises:
        UsageError: the model's provider does not use HTTP.
    """
    if model.startswith(SCRIPT_PREFIX):
        return ()
    names = dict.fromkeys(endpoint.name for endpoint in at_hand(own))
    prefix = model.partition(":")[0]
    chosen = prefix if is_endpoint(prefix, own.providers) else choose(own, fallback="anthropic")
    if chosen not in SCRIPTED:
        names[chosen] = None
    return tuple(names)


def opening_of(
    own: Settings, names: tuple[str, ...], token: str, environ: Mapping[str, str]
) -> Opening:
    """
    Return what the gateway needs. Reads keys from the keychain, so it may block.

    Raises:
        UsageError: it is too much to be sent without the object store.
        ConfigError: the keychain failed.
    """
    wanted = key_variables(own)
    environment = {
        name: value
        for name, value in environ.items()
        if name in wanted or name.upper().startswith((*AROUND, "NO_PROXY"))
    }
    for name in names:
        endpoint = load_endpoint(name, own.providers)
        if not endpoint.account.is_set(environment) and (key := _kept_key(own, endpoint)):
            environment[endpoint.account.variables[0]] = key
    opening = Opening(
        token=token,
        environment=environment,
        names=names,
        providers=own.providers,
        base_url=own.base_url,
        idle_timeout_s=own.idle_timeout_s,
    )
    if sum(map(len, environment.values())) + len(str(own.providers)) > MAX_OPENING_BYTES:
        raise UsageError(
            f"keys and tables of providers have more than {MAX_OPENING_BYTES >> 10} KB, too much for the engine ray"
        )
    return opening


def _kept_key(own: Settings, endpoint: Endpoint) -> str:
    try:
        return Credentials(own.state_dir, endpoint.account).read()
    except CredentialsError as error:
        raise ConfigError(str(error)) from error


def key_variables(own: Settings) -> frozenset[str]:
    """Return the variables that may have an API key, or another secret for an API."""
    search = own.web_search_api_key.removeprefix("$")
    return keys_of_providers(own.providers) | {"ANTHROPIC_CUSTOM_HEADERS", search} - {""}


def options_for(
    own: Settings, options: Mapping[str, Any], names: tuple[str, ...], address: str
) -> dict[str, Any]:
    """Return settings for an agent that reaches the providers `names` at the gateway's `address`. `options` are the user's."""
    sent = {key: options[key] for key in SENT if key in options}
    sent.setdefault("model", DEFAULT_MODEL)
    providers: dict[str, Any] = {}
    for name in names:
        table = own.providers.get(name, {})
        kept = {key: table[key] for key in HOW_CALLED if key in table}
        providers[name] = kept | {"base_url": f"{address}/{name}", "headers": {}}
    return sent | {"providers": providers}


def placeholders(own: Settings, names: tuple[str, ...], token: str) -> dict[str, str]:
    """Return the variables with which an agent sends the token in place of keys."""
    return {load_endpoint(name, own.providers).variables[0]: token for name in names}
