"""The input of `sanderling -p`: flags, the file of settings and the environment become settings, a session and a prompt."""

import argparse
import secrets

from msgspec.structs import replace

from sanderling.config import Layer, Table
from sanderling.config.layers import Layers
from sanderling.errors import UsageError
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.protocol.messages import Prompt, Selection
from sanderling.terminal.streams import read_stdin
from sanderling.text import printable

ACTIONS = ("allow", "ask", "deny")


def with_flags(layers: Layers, arguments: argparse.Namespace) -> Layers:
    """`layers` with what the command line says."""
    options: Table = {}
    if arguments.model:
        options["model"] = printable(arguments.model)
    if arguments.no_thinking:
        options["thinking"] = False
    if arguments.max_turns is not None:
        options["max_calls"] = arguments.max_turns
    return replace(layers, command_line=Layer("the command line", options))


def rules_of(texts: list[str]) -> tuple[Rule, ...]:
    """
    The rules of `--allow`: `bash git status`, or with an action before it.

    Raises:
        ConfigError: naming the one that is no rule.
    """
    return tuple(
        rule_from_text(
            text if text.split(maxsplit=1)[:1] and text.split()[0] in ACTIONS else f"allow {text}"
        )
        for text in texts
    )


def read_prompt(words: str | None) -> Prompt:
    """
    The prompt: the words of the command line, with what is piped in as lines that go along; without words that is the prompt.

    Raises:
        UsageError: there is none.
        InputError: standard input cannot be used.
    """
    piped = read_stdin(is_extra=bool(words))
    text = printable(words or piped)  # what is no UTF-8 in an argument is half a surrogate pair
    if not text.strip():
        raise UsageError(
            "there is no prompt: sanderling -p 'PROMPT', or write it to standard input"
        )
    selections = ()
    if words and piped.strip():
        lines = piped.removesuffix("\n")
        selections = (Selection("stdin", 1, lines.count("\n") + 1, lines, is_piped=True),)
    return Prompt(secrets.token_hex(8), text, selections)
