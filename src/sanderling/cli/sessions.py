"""`sanderling sessions`: a list of earlier sessions, and their export."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sanderling.cli.alone import refuse_options
from sanderling.cli.streams import say
from sanderling.config.layers import own_settings
from sanderling.errors import ConfigError, SessionError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.protocol.requests import SessionInfo
from sanderling.providers.models.known import load_models
from sanderling.session import store
from sanderling.session.ledger import Prices
from sanderling.session.store.atif import export_trajectory
from sanderling.text import visible

EXIT_ERROR, EXIT_USAGE = 1, 2


def add(commands: Any) -> None:
    sessions = commands.add_parser(
        "sessions",
        description="List earlier sessions, or export one. Without an action, list this project's sessions, newest first.",
    )
    _add_options(sessions)
    sessions.set_defaults(run=list_sessions, all=False, json=False)
    actions = sessions.add_subparsers(metavar="{list,export}")
    listing = actions.add_parser("list", help="list the sessions of this project, newest first")
    _add_options(listing)
    listing.set_defaults(run=list_sessions)
    exporting = actions.add_parser(
        "export", help="write a session as Markdown, or as a trajectory that Harbor reads"
    )
    exporting.add_argument(
        "id", metavar="ID", help="the session, as `sanderling sessions` shows it"
    )
    exporting.add_argument(
        "--format",
        choices=("markdown", "atif"),
        default="markdown",
        help="markdown: to read; atif: a trajectory (ATIF 1.8), with tokens and cost (default: markdown)",
    )
    exporting.add_argument(
        "-o", "--output", default="", metavar="FILE", help="write a new file, not standard output"
    )
    exporting.set_defaults(run=export_session)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    absent = argparse.SUPPRESS  # an action's defaults would replace the values that came before it
    add("--all", action="store_true", default=absent, help="list the sessions of all projects")
    add("--json", action="store_true", default=absent, help="print one JSON object per line")


def list_sessions(arguments: argparse.Namespace) -> int:
    try:
        settings = own_settings()
        project = "" if arguments.all else project_root("")
    except (ConfigError, UsageError) as error:
        say(str(error))
        return EXIT_USAGE
    for info in _children_below(store.list_sessions(settings.session_dir, project, "")):
        if arguments.json:
            line = for_terminal(info)
        else:
            at = datetime.fromtimestamp(info.changed_at)  # noqa: DTZ006 - the user's local time
            where = f"  {info.project}" if arguments.all else ""
            of_parent = f"  (child of {info.parent})" if info.parent else ""
            line = f"{info.id}  {at:%Y-%m-%d %H:%M}{where}  {info.title}{of_parent}"
            line = visible(line).replace("\n", " ")
        print(line)  # noqa: T201 - the output of the command
    return 0


def _children_below(infos: Sequence[SessionInfo]) -> Iterator[SessionInfo]:
    """Yield the sessions in their order, each child below its parent if that is listed, too."""
    ids = {info.id for info in infos}
    children = dict[str, list[SessionInfo]]()
    for info in infos:
        if info.parent in ids:
            children.setdefault(info.parent, []).append(info)
    for info in infos:
        if info.parent not in ids:
            yield info
            yield from children.get(info.id, ())


def export_session(arguments: argparse.Namespace) -> int:
    try:
        refuse_options(arguments, "all", "json")
        text = _exported(arguments.id, arguments.format)
        if arguments.output:
            store.write_export(arguments.output, text)
        else:
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    except ConfigError as error:
        say(str(error))
        return EXIT_USAGE
    except SessionError as error:
        say(str(error))
        return EXIT_ERROR
    return 0


def _exported(session_id: str, form: str) -> str:
    settings = own_settings()
    if form == "markdown":
        return store.export_markdown(settings.session_dir, session_id)
    prices = Prices(load_models(settings))
    found = export_trajectory(settings.session_dir, session_id, prices)
    return f"{for_terminal(found, has_lines=True)}\n"
