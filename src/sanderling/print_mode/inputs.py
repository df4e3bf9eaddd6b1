"""The input of `sanderling -p`: flags, the file of settings and the environment become settings, a session and a prompt."""

import argparse
import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from sanderling.config import Layer, Settings, Table
from sanderling.config.file import read_user_file
from sanderling.config.layers import Layers
from sanderling.errors import ConfigError, SanderlingError
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.print_mode.streams import read_stdin
from sanderling.protocol.messages import Prompt, Selection
from sanderling.text import printable

ACTIONS = ("allow", "ask", "deny")


class UsageError(SanderlingError):
    """The command line asks for something that cannot be."""


def own_layers(environment: Mapping[str, str] = os.environ) -> Layers:
    """
    The settings of the person's own file; where it says nothing, the editor's defaults.

    Raises:
        ConfigError: naming what is wrong, with file and line.
    """
    return Layers(state_dir=str(state_dir(environment)), file=read_user_file(environment))


def own_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """
    The settings of the person's own file, for what is about no project.

    Raises:
        ConfigError: as `own_layers`.
    """
    return own_layers(environment).settings()


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


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Neovim's directory for it: sessions, rules and trust are the same in both faces."""
    try:
        state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError("there is no home directory: set HOME") from error
    return Path(state, environment.get("NVIM_APPNAME") or "nvim", "sanderling")


def project_root(directory: str) -> str:
    """
    The nearest directory upwards that holds `.git`, as in the editor; where there is none, the one of now.

    Raises:
        UsageError: there is no such directory, or it is none to work in.
    """
    try:
        root = str(_root_named(directory) if directory else _root_around(Path.cwd()))
    except FileNotFoundError as error:
        raise UsageError("the current directory does not exist any more") from error
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be looked at: {error.strerror}") from error
    if printable(root) != root:  # in no log, and in no request to a model
        raise UsageError(f"the name of '{root}' is no UTF-8: give the directory another one")
    return root


def _root_named(directory: str) -> Path:
    if not Path(directory).is_dir():
        raise UsageError(f"there is no directory '{directory}'")
    return Path(directory).resolve()


def _root_around(here: Path) -> Path:
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)


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


def new_session_id() -> str:
    """The moment, and what tells apart those of the same second, of which a script may start many."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"  # noqa: DTZ005 - the person's own time


def newest_session(session_dir: Path, project: str) -> str:
    """
    The id of the project's session that was changed last.

    Raises:
        UsageError: it has none.
    """
    from sanderling.session.store import list_sessions

    if sessions := list_sessions(session_dir, project, ""):
        return sessions[0].id
    raise UsageError(f"there is no session of {project} to continue")
