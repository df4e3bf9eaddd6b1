"""
Tool servers of the person's that a guest is given: those that its entry names, and no project's.

The guest starts them itself, and they stand where it stands: in its sandbox, with what that has. So the hosts and the paths that a
server declares are the guest's, too; what it would write outside of the project, no guest may.
"""

import os
import shutil
from typing import NamedTuple

from msgspec.structs import replace

from sanderling.acp import sessions
from sanderling.acp.setup import AgentCapabilities
from sanderling.agents.declared import DeclaredAgent
from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.mcp.place import Place
from sanderling.mcp.servers import McpServer, filled_in, load_server
from sanderling.text import did_you_mean


class Sent(NamedTuple):
    """Servers as a guest is told of them, and a sentence for each that it is not given."""

    servers: list[sessions.McpServer]
    problems: list[str]


def given_servers(declared: DeclaredAgent, settings: Settings) -> dict[str, McpServer]:
    """
    The servers that the entry of a guest names.

    Raises:
        ConfigError: there is none of such a name, or its table is wrong.
    """
    known = settings.mcp_servers
    for name in declared.servers:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"[agents.{declared.name}] names the tool server '{name}', of which there is no [mcp.servers.{name}]{hint}",
                ("agents", declared.name, "servers"),
            )
    return {name: load_server(name, known[name]) for name in declared.servers}


def with_servers(declared: DeclaredAgent, settings: Settings) -> DeclaredAgent:
    """
    The guest with what its servers need of the sandbox.

    Raises:
        ConfigError: likewise.
    """
    servers = [each for each in given_servers(declared, settings).values() if each.enabled]
    hosts = [host for server in servers for host in (*server.hosts, *_host(server))]
    paths = [path for server in servers for path in (*server.paths, *_program(server))]
    return replace(
        declared,
        hosts=tuple(dict.fromkeys((*declared.hosts, *hosts))),
        paths=tuple(dict.fromkeys((*declared.paths, *paths))),
    )


def sent(servers: dict[str, McpServer], capabilities: AgentCapabilities) -> Sent:
    """The servers as the guest is told of them, as far as it can be."""
    can_http = bool(capabilities.mcp_capabilities and capabilities.mcp_capabilities.http)
    result = Sent([], [])
    for name, server in servers.items():
        try:
            result.servers.append(_sent(name, server, can_http=can_http))
        except ConfigError as error:
            result.problems.append(f"The tool server {name} is not given to it: {error}.")
    return result


def _sent(name: str, server: McpServer, *, can_http: bool) -> sessions.McpServer:
    if not server.enabled:
        raise ConfigError("its table says `enabled = false`")
    if server.url:
        if not can_http:
            raise ConfigError("it starts programs alone, and this one has a url")
        if server.oauth:
            raise ConfigError("a login stays with Sanderling")
        headers = _pairs(server.headers)
        return sessions.McpServer(name=name, type="http", url=server.url, headers=headers)
    if not (program := _program(server)):
        raise ConfigError(f"there is no program '{server.command[0]}'")
    args = list(server.command[1:])
    return sessions.McpServer(name=name, command=program[0], args=args, env=_pairs(server.env))


def _pairs(values: dict[str, str]) -> list[sessions.Pair]:
    filled = filled_in(values).values
    return [sessions.Pair(name=name, value=value) for name, value in filled.items()]


def _host(server: McpServer) -> tuple[str, ...]:
    return (Place(server.url).host,) if server.url else ()


def _program(server: McpServer) -> tuple[str, ...]:
    found = shutil.which(os.path.expanduser(server.command[0])) if server.command else None  # noqa: PTH111
    return (os.path.abspath(found),) if found else ()  # noqa: PTH100
