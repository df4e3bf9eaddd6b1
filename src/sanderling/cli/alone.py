"""Commands that list without an action: `sanderling skills` is `sanderling skills list`."""

import argparse
from collections.abc import Callable

from sanderling.errors import ConfigError


def list_alone(command: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Have `command` list when no action follows, with the options of its action `list`."""
    add_options(command)
    command.set_defaults(run=run, json=False, project="")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a list. They have no defaults: an action's defaults would replace the values that came before it."""
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON object per line",
    )
    add_project(parser)


def refuse_options(arguments: argparse.Namespace, *names: str) -> None:
    """
    Check that the options `names`, which came before an action that does not take them, are not given.

    Raises:
        ConfigError: one is.
    """
    for name in names:
        if getattr(arguments, name):
            raise ConfigError(f"--{name} has no effect here: leave it out")


def add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--project", default=argparse.SUPPRESS, metavar="DIR", help="project directory"
    )
