"""
`sanderling mcp add|remove|list|check|login|logout`: the tool servers declared here, and whether they work.

`check` starts each server as a session would, and stops it again. A server of the project starts only if the user has allowed that
permanently, because this command asks nothing.
"""

import argparse
import os
import sys
import time
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio import to_thread

from sanderling.cli import mcp_files
from sanderling.cli.streams import say, say_untrusted
from sanderling.config import Settings
from sanderling.config.layers import own_layers
from sanderling.config.project import PROJECT_FILE
from sanderling.errors import ConfigError, SanderlingError
from sanderling.json_lines import for_terminal
from sanderling.mcp.allowed import AllowedServers
from sanderling.mcp.logins import ServerLogin
from sanderling.mcp.project_file import ProposedServer, proposals
from sanderling.mcp.server import Server
from sanderling.mcp.servers import McpServer, load_servers
from sanderling.mcp.source import McpSource
from sanderling.mcp.tool_servers import log_in_at, place_of
from sanderling.project.project import own_files_in_project, with_project
from sanderling.project.root import project_root
from sanderling.project.trust.trust import MCP_FILE, Trust
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.confinement import SessionSandbox, policy_for
from sanderling.text import counted, visible

EXIT_FAILED, EXIT_USAGE = 1, 2
NONE = "No tool servers: `:help sanderling-mcp` says how to add one."
NOT_ALLOWED = "not allowed permanently: answer `A` when Neovim asks"


class ServerRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server as it is printed. `ms` is the time until it was ready, `problems` is what it offers that cannot be used."""

    name: str
    place: str
    is_projects: bool = False
    state: str = ""
    era: str = ""
    tools: int = 0
    ms: int = 0
    error: str = ""
    problems: tuple[str, ...] = ()


class _DeclaredServers(NamedTuple):
    """The servers declared here: the user's own and the project's proposals."""

    settings: Settings
    project: str
    own: dict[str, McpServer]
    proposed: dict[str, ProposedServer]


def add(commands: Any) -> None:
    mcp = commands.add_parser(
        "mcp",
        description="List, add, check and remove tool servers, or log in to one. Without an action, list them.",
    )
    mcp.set_defaults(run=print_list, json=False, project="", names=[])
    actions = mcp.add_subparsers()
    mcp_files.add(actions)
    for name, run, what in (
        ("list", print_list, "list the tool servers declared here"),
        (
            "check",
            print_check,
            "start each server and report the result; exit status 1 if one fails",
        ),
    ):
        action = actions.add_parser(name, help=what)
        action.add_argument("--json", action="store_true", help="print one JSON object per line")
        action.add_argument("--project", default="", metavar="DIR", help="project directory")
        action.set_defaults(run=run, names=[])
        if name == "check":
            action.add_argument("names", nargs="*", metavar="NAME", help="only these")
            action.add_argument(
                "--net",
                choices=("off", "proxy", "on"),
                default="off",
                help="network access (default: off)",
            )
    for name, run, what in (
        ("login", log_in, "log in to an HTTP server, in the browser"),
        ("logout", log_out, "remove a login from the keychain"),
    ):
        action = actions.add_parser(name, help=what)
        action.add_argument("name", metavar="NAME")
        action.add_argument("--project", default="", metavar="DIR", help="project directory")
        action.set_defaults(run=run)


def print_list(arguments: argparse.Namespace) -> int:
    try:
        rows = _rows(_declared(arguments))
    except SanderlingError as error:
        return _say(error)
    if not rows and not arguments.json:
        sys.stdout.write(f"{NONE}\n")
    _print(rows, is_json=arguments.json)
    return 0


def print_check(arguments: argparse.Namespace) -> int:
    try:
        declared = _declared(arguments)
        known = [row.name for row in _rows(declared)]
        if unknown := [name for name in arguments.names if name not in known]:
            raise ConfigError(_unknown(unknown[0], known))
        rows = anyio.run(_checked, declared, arguments.names or known, arguments.net)
    except SanderlingError as error:
        return _say(error)
    _print(rows, is_json=arguments.json)
    return EXIT_FAILED if any(row.error for row in rows) else 0


def log_in(arguments: argparse.Namespace) -> int:
    async def show(url: str) -> None:
        sys.stderr.write(f"Log in to {arguments.name} in your browser:\n{url}\n")
        await to_thread.run_sync(_open_browser, url, abandon_on_cancel=True)

    try:
        declared = _declared(arguments)
        server = _over_http(declared, arguments.name)
        anyio.run(log_in_at, arguments.name, server, declared.settings.state_dir, show)
    except SanderlingError as error:
        return _say(error, EXIT_FAILED)
    sys.stderr.write(f"Logged in to {arguments.name}.\n")
    return 0


def log_out(arguments: argparse.Namespace) -> int:
    try:
        declared = _declared(arguments)
        server = _over_http(declared, arguments.name)
        ServerLogin(declared.settings.state_dir, arguments.name, server.url).remove()
    except SanderlingError as error:
        return _say(error, EXIT_FAILED)
    sys.stderr.write(f"Logged out of {arguments.name}.\n")
    return 0


# --- declared servers -------------------------------------------------------------------------------------------------


def _declared(arguments: argparse.Namespace) -> _DeclaredServers:
    layers = own_layers()
    trust = Trust(layers.state_dir, project_root(arguments.project))
    if untrusted := trust.untrusted((MCP_FILE, PROJECT_FILE, *own_files_in_project(trust))):
        say_untrusted(untrusted)
    return _declared_in(with_project(layers, trust).settings(), trust)


def _declared_in(settings: Settings, trust: Trust) -> _DeclaredServers:
    own = _own_servers(settings, trust.project)
    proposed, problem = proposals(trust, settings)
    if problem:
        raise problem
    others = {name: each for name, each in proposed.items() if name not in own}
    return _DeclaredServers(settings, trust.project, own, others)


def listed_servers(settings: Settings, trust: Trust) -> list[ServerRow]:
    """
    Return the declared tool servers, without starting any.

    Raises:
        ConfigError: one of them is declared wrongly.
    """
    return _rows(_declared_in(settings, trust))


def _own_servers(settings: Settings, project: str) -> dict[str, McpServer]:
    """
    Return the user's own servers.

    Raises:
        ConfigError: names each mistake in a server with file and line.
    """
    try:
        return load_servers(settings.mcp_servers)
    except ConfigError as error:
        from sanderling.conversation.checks.configuration import explained

        raise explained(error, settings, project) from error


def _rows(declared: _DeclaredServers) -> list[ServerRow]:
    own = [
        ServerRow(name, place_of(each), state="" if each.enabled else "stopped")
        for name, each in declared.own.items()
    ]
    proposed = (
        ServerRow(name, each.shown.partition("\n")[0], is_projects=True, error=each.problem)
        for name, each in declared.proposed.items()
    )
    return [*own, *proposed]


def _over_http(declared: _DeclaredServers, name: str) -> McpServer:
    proposed = {name: each.server for name, each in declared.proposed.items() if each.server}
    servers = {**proposed, **declared.own}
    if name not in servers:
        raise ConfigError(_unknown(name, list(servers)))
    if not servers[name].url:
        raise ConfigError(f"'{name}' is a local program and has no login")
    return servers[name]


def _unknown(name: str, known: Sequence[str]) -> str:
    return f"there is no tool server '{name}'; known: {', '.join(known) or 'none'}"


# --- checks ------------------------------------------------------------------------------------------------------------


async def _checked(
    declared: _DeclaredServers, names: Sequence[str], network: NetworkMode
) -> list[ServerRow]:
    async def deny(question: ApprovalRequested) -> AnswerApproval:
        return AnswerApproval(question.id, "deny")

    settings, project, own, proposed = declared
    allowed = AllowedServers(settings.state_dir, project, deny)
    servers = {name: each for name, each in own.items() if name in names and each.enabled}
    servers |= {
        name: each.server
        for name, each in proposed.items()
        if name in names and each.server and allowed.is_allowed(name, each)
    }
    policy = policy_for(settings, project)._replace(network=network)
    sandbox = SessionSandbox(policy, lambda _: None, lambda: None)
    source = McpSource(servers, sandbox, project, state_dir=settings.state_dir, projects=proposed)
    took, rows = dict[str, int](), list[ServerRow]()
    began = time.monotonic()

    async def wait_for(server: Server) -> None:
        await server.begun()
        took[server.name] = round((time.monotonic() - began) * 1000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.manager.serve)
        source.begin()
        tasks.start_soon(source.run)
        async with anyio.create_task_group() as waiting:
            for server in source.servers.values():
                waiting.start_soon(wait_for, server)
        rows += (
            _result(row, source.servers.get(row.name), took)
            for row in _rows(declared)
            if row.name in names
        )
        tasks.cancel_scope.cancel()
    return rows


def _result(row: ServerRow, server: Server | None, took: dict[str, int]) -> ServerRow:
    if server is None:
        is_wrong = row.is_projects and not row.error
        return msgspec.structs.replace(
            row, state=row.state or "stopped", error=NOT_ALLOWED if is_wrong else row.error
        )
    return msgspec.structs.replace(
        row,
        state="ready" if server.connection else "failed",
        era=server.connection.era if server.connection else "",
        tools=len(server.tools) if server.connection else 0,
        ms=took[server.name],
        error="" if server.connection else server.status.why,
        problems=server.offers.problems if server.connection else (),
    )


# --- output ------------------------------------------------------------------------------------------------------------


def _print(rows: Sequence[ServerRow], *, is_json: bool) -> None:
    if is_json:
        sys.stdout.writelines(f"{for_terminal(row)}\n" for row in rows)
        return
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        tools = counted(row.tools, "tool") if row.state == "ready" else ""
        took = f"{row.ms} ms" if row.ms else ""
        whose = "the project's" if row.is_projects else ""
        parts = (row.state, row.era, tools, took, row.error, whose, row.place)
        line = f"{row.name:{width}}  {'  '.join(filter(None, parts))}"
        for each in (line, *(f"{'':{width}}  {problem}" for problem in row.problems)):
            sys.stdout.write(visible(each).replace("\n", " ") + "\n")


def _open_browser(url: str) -> None:
    """Open the page if there is a graphical screen: a text browser would take over this terminal."""
    has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_screen or sys.platform == "darwin":
        with suppress(webbrowser.Error):
            webbrowser.open(url)


def _say(error: SanderlingError, status: int = EXIT_USAGE) -> int:
    say(str(error))
    return status
