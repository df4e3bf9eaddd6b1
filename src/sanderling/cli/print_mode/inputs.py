"""The input of `sanderling -p`: settings from flags, rules, and the prompt."""

import argparse
import secrets
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sanderling.cli.streams import read_stdin
from sanderling.config import Layer, Table
from sanderling.config.layers import Layers, upon
from sanderling.errors import UsageError
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.protocol.messages import Prompt, Selection
from sanderling.text import printable

ACTIONS = ("allow", "ask", "deny")


class GivenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The file of `--settings`: settings that override the user's, tool servers in addition to the user's, and variables for commands.

    Unless it `has_credentials`, commands cannot use the user's secrets.
    """

    settings: Table = {}
    servers: dict[str, Table] = {}
    variables: dict[str, str] = {}
    has_credentials: bool = True


NOTHING_GIVEN = GivenSettings()


def read_given_settings(path: Path | None) -> GivenSettings:
    """
    Read the file of `--settings`, if one is named.

    Raises:
        UsageError: it cannot be read.
    """
    if path is None:
        return NOTHING_GIVEN
    try:
        return msgspec.json.decode(path.read_bytes(), type=GivenSettings)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"--settings {path}: {error}") from error


def with_flags(
    layers: Layers, arguments: argparse.Namespace, given: GivenSettings = NOTHING_GIVEN
) -> Layers:
    """Return `layers` with the settings from the command line. They override the user's."""
    options: Table = {**given.settings}
    if arguments.model:
        options["model"] = printable(arguments.model)
    if arguments.no_thinking:
        options["thinking"] = False
    if arguments.effort:
        options["effort"] = arguments.effort
    if arguments.max_turns is not None:
        options["max_calls"] = arguments.max_turns
    servers = upon(layers.servers.options, {"mcp": {"servers": given.servers}})
    return replace(
        layers,
        servers=replace(layers.servers, options=servers) if given.servers else layers.servers,
        command_line=Layer("the command line", options),
    )


def rules_of(texts: list[str]) -> tuple[Rule, ...]:
    """
    Return the rules of `--allow`: `bash git status`, or with an action before it.

    Raises:
        ConfigError: names the invalid rule.
    """
    return tuple(
        rule_from_text(
            text if text.split(maxsplit=1)[:1] and text.split()[0] in ACTIONS else f"allow {text}"
        )
        for text in texts
    )


def read_prompt(words: str | None) -> Prompt:
    """
    Return the prompt of the command line, with piped input attached. Without one, the piped input is the prompt.

    Raises:
        UsageError: there is no prompt.
        InputError: standard input cannot be used.
    """
    piped = read_stdin(is_extra=bool(words))
    text = printable(words or piped)  # an argument that is not UTF-8 contains lone surrogates
    if not text.strip():
        raise UsageError("there is no prompt: use sanderling -p 'PROMPT', or pipe it in")
    selections = ()
    if words and piped.strip():
        lines = piped.removesuffix("\n")
        selections = (Selection("stdin", 1, lines.count("\n") + 1, lines, is_piped=True),)
    return Prompt(secrets.token_hex(8), text, selections)
