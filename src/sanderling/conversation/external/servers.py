"""
The user's tool servers that an external agent gets: those named in its table, never a project's.

The agent starts the servers itself, in its own sandbox. So the hosts and paths that a server declares are added to the agent's. Write
paths outside the project are not, because no external agent may have them.
"""

import os
import shutil
from typing import NamedTuple

from msgspec.structs import replace

from sanderling.acp.wire import sessions
from sanderling.acp.wire.setup import AgentCapabilities
from sanderling.agents.declared import DeclaredAgent
from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.mcp.servers import McpServer, ServerAddress, filled_in, load_server
from sanderling.text import did_you_mean


class AgentServers(NamedTuple):
    """Servers in the form that is sent to an agent, and a sentence for each that it does not get."""

    servers: list[sessions.McpServer]
    problems: list[str]


def given_servers(declared: DeclaredAgent, settings: Settings) -> dict[str, McpServer]:
    """
    Return the servers named in the agent's table.

    Raises:
        ConfigError: a server does not exist, or its table is invalid.
    """
    known = settings.mcp_servers
    for name in declared.servers:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"[agents.{declared.name}] names the tool server '{name}', but there is no [mcp.servers.{name}]{hint}",
                ("agents", declared.name, "servers"),
            )
    return {name: load_server(name, known[name]) for name in declared.servers}


def with_servers(declared: DeclaredAgent, settings: Settings) -> DeclaredAgent:
    """
    Return the agent with the hosts and paths that its servers need in the sandbox.

    Raises:
        ConfigError: a server does not exist, or its table is invalid.
    """
    servers = [each for each in given_servers(declared, settings).values() if each.enabled]
    hosts = [host for server in servers for host in (*server.hosts, *_host(server))]
    paths = [path for server in servers for path in (*server.paths, *_program(server))]
    return replace(
        declared,
        hosts=tuple(dict.fromkeys((*declared.hosts, *hosts))),
        paths=tuple(dict.fromkeys((*declared.paths, *paths))),
    )


def sent(servers: dict[str, McpServer], capabilities: AgentCapabilities) -> AgentServers:
    """Return the servers in the form that is sent to the agent, and why others are left out."""
    can_http = bool(capabilities.mcp_capabilities and capabilities.mcp_capabilities.http)
    result = AgentServers([], [])
    for name, server in servers.items():
        try:
            result.servers.append(_sent(name, server, can_http=can_http))
        except ConfigError as error:
            result.problems.append(f"The agent does not get the tool server {name}: {error}.")
    return result


def _sent(name: str, server: McpServer, *, can_http: bool) -> sessions.McpServer:
    if not server.enabled:
        raise ConfigError("its table says `enabled = false`")
    if server.cwd:
        raise ConfigError("agents cannot start a server in a directory of its own, its `cwd`")
    if server.url:
        if not can_http:
            raise ConfigError("the agent only supports commands, and this server has a url")
        if server.oauth:
            raise ConfigError("logins are not shared with agents")
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
    return (ServerAddress(server.url).host,) if server.url else ()


def _program(server: McpServer) -> tuple[str, ...]:
    found = shutil.which(os.path.expanduser(server.command[0])) if server.command else None  # noqa: PTH111
    return (os.path.abspath(found),) if found else ()  # noqa: PTH100
