"""
`sanderling config show|check|schema`: the settings in effect, mistakes in their files, and what these may contain.

With `--setup`, Neovim's own options come from standard input, as `lua/sanderling/config` passes them to the host.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from sanderling.config import Layer, Settings, Table, config_dir, state_dir
from sanderling.config.file import (
    Mistake,
    file_type,
    json_schema,
    mistakes_of,
    parse_setup,
    parse_user_file,
    read_user_file,
    shown_path,
    sound,
    user_file,
    user_servers_file,
    without,
)
from sanderling.config.layers import Layers
from sanderling.config.project import PROJECT_FILE, parse_project_file, project_file_type
from sanderling.config.servers_file import parse_user_servers, read_user_servers
from sanderling.config.show import as_toml, places, shown_tables
from sanderling.conversation.checks.configuration import KINDS, mistakes_in
from sanderling.errors import SanderlingError
from sanderling.json_lines import for_terminal
from sanderling.project.project import with_project
from sanderling.project.root import project_root
from sanderling.project.trust.trust import Trust
from sanderling.protocol.requests import TrustFile
from sanderling.providers.choice import ChosenModel, chosen_model
from sanderling.providers.models.known import FILE as MODELS_FILE
from sanderling.providers.redaction import hide_secrets
from sanderling.text import visible

EXIT_WRONG = 2
_STATES = {
    "trusted": "trusted",
    "new": "not trusted, so ignored: run `sanderling trust`, or :Agent trust in Neovim",
    "changed": "changed since you trusted it, so ignored: run `sanderling trust`, or :Agent trust in Neovim",
}


def add(commands: Any) -> None:
    config = commands.add_parser("config")
    actions = config.add_subparsers(required=True)
    show = actions.add_parser(
        "show", help="show the settings in effect here, as TOML, without secrets"
    )
    show.add_argument("--origin", action="store_true", help="with the origin of each")
    show.set_defaults(run=print_settings)
    check = actions.add_parser(
        "check", help="report every mistake in the files; exit status 2 if there is one"
    )
    check.set_defaults(run=print_mistakes)
    for each in (show, check):
        each.add_argument("--json", action="store_true", help="print one JSON object")
        each.add_argument("--project", default="", metavar="DIR", help="project directory")
        each.add_argument("--setup", action="store_true", help=argparse.SUPPRESS)
    schema = actions.add_parser("schema", help="print the JSON Schema of config.toml")
    schema.add_argument("--project", action="store_true", help="of a project's file instead")
    schema.set_defaults(run=print_schema)


def print_settings(arguments: argparse.Namespace) -> int:
    try:
        project = project_root(arguments.project)
        layers, mistakes = _own_layers(arguments, read_user_file())
        layers = replace(layers, servers=read_user_servers())
        sound(layers.setup, mistakes)
        settings = with_project(layers, Trust(layers.state_dir, project)).settings()
    except SanderlingError as error:
        return _say(error)
    tables = shown_tables(settings, hide_secrets)
    origins = places(settings, tables) if arguments.origin else {}
    if arguments.json:
        _print_json({"settings": tables} | ({"origins": origins} if origins else {}))
    else:
        sys.stdout.write(visible(as_toml(tables, origins)))
    return 0


def print_mistakes(arguments: argparse.Namespace) -> int:
    try:
        report = check_settings(arguments, project_root(arguments.project)).report
    except SanderlingError as error:
        return _say(error)
    if arguments.json:
        _print_json(msgspec.to_builtins(report))
    else:
        lines = [f"{name}: {state}" for name, state in report.files.items()]
        lines += [mistake.text for mistake in report.mistakes]
        sys.stdout.write(visible("\n".join(lines)) + "\n")
    return EXIT_WRONG if report.mistakes else 0


def print_schema(arguments: argparse.Namespace) -> int:
    kind = project_file_type(KINDS) if arguments.project else file_type(KINDS)
    title = PROJECT_FILE if arguments.project else "config.toml of Sanderling"
    _print_json(json_schema(kind, title, whole=("Rule",)))
    return 0


class ShownMistake(msgspec.Struct, frozen=True):
    """A mistake as it is printed. `text` is the sentence with its place; `line` is 0 if unknown."""

    file: str
    line: int
    message: str
    text: str


class CheckReport(msgspec.Struct, frozen=True):
    """The files that were checked, with the state of each; the settings and the model in effect if nothing is wrong."""

    files: dict[str, str]
    mistakes: list[ShownMistake]
    settings: Table
    model: ChosenModel | None


class Checked(NamedTuple):
    """The report, and the settings that apply: the defaults if something is wrong."""

    report: CheckReport
    settings: Settings


def check_settings(arguments: argparse.Namespace, project: str) -> Checked:
    """
    Check the files in effect in `project`, and Neovim's options if `arguments.setup` says that they are on standard input.

    Raises:
        ConfigError: the files cannot be found.
    """
    file, wrong_in_file = parse_user_file()
    servers, wrong_in_servers = parse_user_servers()
    layers, wrong_in_setup = _own_layers(arguments, file)
    layers = replace(layers, servers=servers)
    wrong_in_file += mistakes_of(file, KINDS)
    wrong_in_servers += mistakes_of(servers, KINDS)
    wrong_in_setup += mistakes_of(layers.setup, KINDS)
    trust = Trust(layers.state_dir, project)
    project_file = trust.look(PROJECT_FILE)
    text = project_file.text if project_file and project_file.sha256 else ""
    project_layer, wrong_in_project = parse_project_file(text, KINDS)
    sound_layers = replace(
        layers,
        servers=without(servers, wrong_in_servers),
        file=without(file, wrong_in_file),
        setup=without(layers.setup, wrong_in_setup),
        project=without(project_layer, wrong_in_project),
    )
    known = [*wrong_in_file, *wrong_in_servers, *wrong_in_setup, *wrong_in_project]
    mistakes = mistakes_in(sound_layers.merged(), project, known)
    tables, model, settings = Table(), None, Settings(layers.state_dir)
    if not mistakes:
        settings = with_project(layers, trust).settings()
        tables, model = shown_tables(settings, hide_secrets), chosen_model(settings)
    models = Path(config_dir(), MODELS_FILE)
    files = {
        file.origin: "read" if user_file().exists() else "not there",
        **({servers.origin: "read"} if user_servers_file().exists() else {}),
        **({shown_path(models): "read"} if models.exists() else {}),
        PROJECT_FILE: _said(project_file) if project_file else "not there",
    }
    shown = [ShownMistake(*each.location, each.message, str(each)) for each in mistakes]
    return Checked(CheckReport(files, shown, tables, model), settings)


def _said(file: TrustFile) -> str:
    return _STATES[file.state] if file.sha256 else file.text.strip("[]")


def _own_layers(arguments: argparse.Namespace, file: Layer) -> tuple[Layers, list[Mistake]]:
    """Return the user's layers, with Neovim's options if it sends them, and which of these cannot be expanded."""
    if not arguments.setup:
        return Layers(state_dir=str(state_dir()), file=file), []
    given = msgspec.msgpack.decode(sys.stdin.buffer.read())
    setup, mistakes = parse_setup(given["options"])
    return Layers(state_dir=given["state_dir"], file=file, setup=setup), mistakes


def _say(error: SanderlingError) -> int:
    sys.stderr.write(visible(f"sanderling: {error}\n"))
    return EXIT_WRONG


def _print_json(value: Table) -> None:
    sys.stdout.write(for_terminal(value, has_lines=True) + "\n")
