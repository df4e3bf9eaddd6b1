"""
`sanderling login|logout [PROVIDER]`: store an API key in the system's keychain, or remove it.

The key is typed or piped in: others on the machine could see it as an argument.
"""

import argparse
import sys
from collections.abc import Callable
from getpass import getpass
from typing import Any

from sanderling.acp.remote.address import is_address, parse_address
from sanderling.config.layers import own_settings
from sanderling.errors import ConfigError
from sanderling.providers.choice import credentials
from sanderling.providers.credentials import Credentials, CredentialsError

EXIT_USAGE = 2


def add(commands: Any) -> None:
    for name, run in (("login", log_in), ("logout", log_out)):
        command = commands.add_parser(name)
        command.add_argument(
            "provider",
            nargs="?",
            default="",
            help="the provider (default: the one in the settings)",
        )
        command.set_defaults(run=run)


def log_in(arguments: argparse.Namespace) -> int:
    def keep(kept: Credentials) -> str:
        backend, name = kept.backend(), kept.account.name
        what = _kept_as(arguments.provider)
        kept.store(_read_key(f"{what[0].upper()}{what[1:]} for {name}, to store in {backend}: "))
        return f"Stored the {what} for {name} in {backend}; `sanderling logout {arguments.provider or name}` removes it."

    return _with_credentials(arguments.provider, keep)


def log_out(arguments: argparse.Namespace) -> int:
    def forget(kept: Credentials) -> str:
        what = _kept_as(arguments.provider)
        if kept.remove():
            return f"Removed the {what} for {kept.account.name} from the keychain."
        return f"No {what} for {kept.account.name} is stored."

    return _with_credentials(arguments.provider, forget)


def _kept_as(provider: str) -> str:
    return "token" if is_address(provider) else "API key"


def _read_key(question: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return getpass(question).strip()


def _credentials(name: str) -> Credentials:
    """Return the keychain entry for a provider's key, or for the token of a server."""
    if not is_address(name):
        return credentials(own_settings(), name)
    from sanderling.acp.remote.socket import account_of

    return Credentials(own_settings().state_dir, account_of(parse_address(name)))


def _with_credentials(provider: str, do: Callable[[Credentials], str]) -> int:
    try:
        result = do(_credentials(provider))
    except (ConfigError, CredentialsError) as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE if isinstance(error, ConfigError) else 1
    except EOFError:
        sys.stderr.write("sanderling: no key was given, so nothing changed\n")
        return 1
    sys.stdout.write(f"{result}\n")
    return 0
