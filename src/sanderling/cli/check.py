"""
`sanderling check [--api]`: the report of `cli/health.py` on a terminal, or as JSON for `:checkhealth`. Exit status 1: it has an error.

`sanderling check PROVIDER` tests whether a provider can do what a conversation needs. Exit status 1: it cannot.
"""

import argparse
import shutil
import sys
from typing import TYPE_CHECKING, Any

import anyio

from sanderling.config.layers import own_settings
from sanderling.errors import ConfigError
from sanderling.json_lines import for_terminal
from sanderling.protocol.remedies import NEOVIM, use
from sanderling.text import visible

if TYPE_CHECKING:
    from sanderling.cli.health import Line, Report

EXIT_WRONG, EXIT_USAGE = 1, 2
WIDE = 1_000  # columns if the output is not a terminal
INDENT = " " * 9


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
        "--api",
        action="store_true",
        help="also ask the API for the model (costs no tokens), and the keychain",
    )
    check.add_argument("--model", default="", help="the model of a PROVIDER without one")
    check.add_argument("--project", default="", metavar="DIR", help="project directory")
    check.add_argument("--setup", action="store_true", help=argparse.SUPPRESS)
    check.set_defaults(run=check_installation)


def check_installation(arguments: argparse.Namespace) -> int:
    if arguments.providers and arguments.api:
        sys.stderr.write("sanderling: --api does not go with a PROVIDER, which is asked anyway\n")
        return EXIT_USAGE
    if not arguments.providers and arguments.model:
        sys.stderr.write("sanderling: --model goes with a PROVIDER\n")
        return EXIT_USAGE
    return check_providers(arguments) if arguments.providers else check_all(arguments)


def check_all(arguments: argparse.Namespace) -> int:
    from sanderling.cli.health import examine  # loads what it examines

    if arguments.setup:
        use(NEOVIM)
    try:
        report = anyio.run(examine, arguments)
    except ConfigError as error:
        sys.stderr.write(visible(f"sanderling: {error}\n"))
        return EXIT_USAGE
    shown_report = for_terminal(report, has_lines=True) + "\n" if arguments.json else shown(report)
    sys.stdout.write(shown_report)
    return 0 if report.is_well else EXIT_WRONG


def shown(report: "Report") -> str:
    sections = (
        "\n".join((section.title, *map(shown_line, section.lines))) for section in report.sections
    )
    return visible("\n\n".join(sections)) + "\n"


def shown_line(line: "Line") -> str:
    text = line.text.replace("\n", f"\n{INDENT}")
    advice = (f"\n{INDENT}- {each}" for each in line.advice)
    return f"  {line.level:5}  {text}{''.join(advice)}"


def check_providers(arguments: argparse.Namespace) -> int:
    from sanderling.conversation.checks.trial import shown as shown_trials  # slow to import
    from sanderling.conversation.checks.trial import try_all

    try:
        trials = anyio.run(try_all, arguments.providers, arguments.model, own_settings())
    except ConfigError as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE
    if arguments.json:
        sys.stdout.write(for_terminal(trials, has_lines=True) + "\n")
    else:
        sys.stdout.write(shown_trials(trials, shutil.get_terminal_size((WIDE, 0)).columns))
    return 0 if all(trial.is_passed for trial in trials) else 1
