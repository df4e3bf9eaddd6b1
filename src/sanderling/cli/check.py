"""
`sanderling check [--api]`: diagnostics for `:checkhealth` and bug reports, as one JSON object.

It contains versions, whether a key was found (never the key), and with `--api` whether the API answers. Exit status 1: it does not.

`sanderling check PROVIDER` tests whether a provider can do what a conversation needs. Exit status 1: it cannot.
"""

import argparse
import platform
import shutil
import sys
from importlib import metadata
from typing import Any

import anyio

import sanderling
from sanderling.config import DEFAULT_MODEL, Settings, state_dir
from sanderling.config.layers import own_settings
from sanderling.errors import ConfigError, ProviderError
from sanderling.json_lines import for_terminal
from sanderling.providers.choice import (
    DEFAULT,
    credentials,
    make_provider,
    names_profile,
    search_warning,
)
from sanderling.providers.local_servers import find_local

EXIT_USAGE = 2
WIDE = 1_000  # columns if the output is not a terminal
PACKAGES = (
    *("pynvim", "anthropic", "msgspec", "anyio", "landlock", "httpx2", "greenlet", "msgpack"),
    *("h11", "httpcore2", "html-to-markdown", "mcp", "tree-sitter", "tree-sitter-bash", "keyring"),
    "websockets",
)


def add(commands: Any) -> None:
    check = commands.add_parser("check")
    check.add_argument(
        "providers",
        nargs="*",
        metavar="PROVIDER[:MODEL]",
        help="providers to test (costs some tokens)",
    )
    check.add_argument("--json", action="store_true", help="print the result as JSON")
    check.add_argument(
        "--api", action="store_true", help="test whether the API knows the model (costs no tokens)"
    )
    check.add_argument("--model", default="")
    check.add_argument("--base-url", default="")
    check.set_defaults(run=check_installation)


def check_installation(arguments: argparse.Namespace) -> int:
    if arguments.providers:
        if arguments.api or arguments.base_url:
            sys.stderr.write(
                "sanderling: --api and --base-url do not go with a PROVIDER: its table in the settings has the URL\n"
            )
            return EXIT_USAGE
        return check_providers(arguments)
    report = describe_installation()
    if arguments.api:
        report["api"] = anyio.run(ask_api, arguments.model, arguments.base_url)
    sys.stdout.write(for_terminal(report, has_lines=True) + "\n")
    return 0 if not arguments.api or report["api"]["is_reachable"] else 1


def check_providers(arguments: argparse.Namespace) -> int:
    from sanderling.conversation.checks.trial import shown, try_all  # slow to import

    try:
        trials = anyio.run(try_all, arguments.providers, arguments.model, own_settings())
    except ConfigError as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE
    if arguments.json:
        sys.stdout.write(for_terminal(trials, has_lines=True) + "\n")
    else:
        sys.stdout.write(shown(trials, shutil.get_terminal_size((WIDE, 0)).columns))
    return 0 if all(trial.is_passed for trial in trials) else 1


def describe_installation() -> dict[str, Any]:
    kept, settings = credentials(Settings(str(state_dir()))), _own_settings()
    return {
        "sanderling": sanderling.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "has_api_key": kept.account.is_set(),
        "has_login": kept.is_known(),
        "has_profile": names_profile(),
        "warnings": _warnings(settings),
        "local_models": [each.name for each in anyio.run(find_local, settings.providers)],
    }


def _own_settings() -> Settings:
    """Return the user's settings, or the defaults if something in them is wrong, which `sanderling config check` reports."""
    try:
        return own_settings()
    except ConfigError:
        return Settings(str(state_dir()))


def _warnings(settings: Settings) -> list[str]:
    try:
        return list(filter(None, [search_warning(settings)]))
    except ConfigError:  # as above
        return []


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


async def ask_api(model: str, base_url: str) -> dict[str, Any]:
    settings = Settings(
        state_dir=str(state_dir()),
        provider=DEFAULT,
        model=model or DEFAULT_MODEL,
        base_url=base_url,
        idle_timeout_s=20.0,
    )
    try:
        limits = await make_provider(settings).fetch_limits()
    except ProviderError as error:
        return {"is_reachable": False, "message": error.message, "remedy": error.remedy}
    known = {
        "context_window_tokens": limits.context_window_tokens,
        "max_output_tokens": limits.max_output_tokens,
    }
    return {"is_reachable": True, "model": settings.model, "limits": known}
