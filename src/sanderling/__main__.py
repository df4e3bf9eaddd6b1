"""
The command line.

`sanderling check [--api]` prints, as one JSON object, what `:checkhealth` and a bug report need: versions, whether a key was
found (never the key), and with `--api` whether the API answers. Exit code 1: the API was asked and did not answer.

`sanderling sandbox status|exec` is `sandbox/cli.py`.
"""

import argparse
import os
import platform
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from typing import Any

import anyio
import msgspec

from sanderling import __version__
from sanderling.config import DEFAULT_MODEL, Settings, has_api_key
from sanderling.errors import ProviderError
from sanderling.providers.anthropic import AnthropicProvider
from sanderling.sandbox.cli import add_sandbox_commands

PACKAGES = (
    *("pynvim", "anthropic", "msgspec", "anyio", "landlock", "httpx2", "greenlet", "msgpack"),
    *("h11", "httpcore2", "html-to-markdown", "tree-sitter", "tree-sitter-bash"),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="sanderling", description=sys.modules["sanderling"].__doc__
    )
    parser.add_argument("--version", action="version", version=f"sanderling {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check", help="print versions, the key's presence and, with --api, the API's answer as JSON"
    )
    check.add_argument(
        "--api", action="store_true", help="ask the API for the model (costs no tokens)"
    )
    check.add_argument("--model", default=DEFAULT_MODEL)
    check.add_argument("--base-url", default="")
    check.set_defaults(run=check_installation)
    add_sandbox_commands(commands)
    arguments = parser.parse_args()
    return arguments.run(arguments)


def check_installation(arguments: argparse.Namespace) -> int:
    report = describe_installation()
    if arguments.api:
        report["api"] = anyio.run(ask_api, arguments.model, arguments.base_url)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    sys.stdout.flush()
    return 0 if not arguments.api or report["api"]["is_reachable"] else 1


def describe_installation() -> dict[str, Any]:
    return {
        "sanderling": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "has_api_key": has_api_key(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


async def ask_api(model: str, base_url: str) -> dict[str, Any]:
    settings = Settings(
        state_dir=tempfile.gettempdir(), model=model, base_url=base_url, idle_timeout_s=20.0
    )
    try:
        limits = await AnthropicProvider(settings).fetch_limits()
    except ProviderError as error:
        return {"is_reachable": False, "message": error.message, "remedy": error.remedy}
    return {"is_reachable": True, "model": model, "limits": limits}


if __name__ == "__main__":
    exit_code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(
            AttributeError, OSError
        ):  # it was closed from the start, or its reader has gone
            stream.flush()
    os._exit(exit_code)  # the interpreter would take 0.3 s to take the SDK down
