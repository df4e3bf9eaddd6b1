"""`sanderling sessions`: a list of earlier sessions."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sanderling.config.layers import own_settings
from sanderling.errors import ConfigError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.protocol.requests import SessionInfo
from sanderling.session import store
from sanderling.text import visible

EXIT_USAGE = 2


def add(commands: Any) -> None:
    sessions = commands.add_parser("sessions")
    sessions.add_argument("list", nargs="?", choices=("list",), help=argparse.SUPPRESS)
    sessions.add_argument("--all", action="store_true", help="list the sessions of all projects")
    sessions.add_argument("--json", action="store_true", help="print one JSON object per line")
    sessions.set_defaults(run=list_sessions)


def list_sessions(arguments: argparse.Namespace) -> int:
    try:
        settings = own_settings()
        project = "" if arguments.all else project_root("")
    except (ConfigError, UsageError) as error:
        sys.stderr.write(f"sanderling: {error}\n")
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
