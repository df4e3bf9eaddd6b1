"""Directories and tool servers that a client wants a session to have: they are started as those of the person's settings."""

import os
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from sanderling.acp.errors import invalid
from sanderling.acp.sessions import McpServer, Pair
from sanderling.config import Layer, Table
from sanderling.config.layers import Layers
from sanderling.paths import is_within

ORIGIN = "the client"


def checked_directory(path: str, what: str) -> str:
    """
    Return the real path of a directory.

    Raises:
        RpcError: it is not absolute, or there is none.
    """
    if not os.path.isabs(path) or "\0" in path:
        raise invalid(f"`{what}` must be an absolute path, and {path!r} is none")
    if not os.path.isdir(path):
        raise invalid(f"there is no directory {path}")
    return os.path.realpath(path)


def clients_directory(path: str) -> str:
    """
    Return a directory of the client's as it names it.

    Raises:
        RpcError: it is not absolute.
    """
    if not path.startswith("/") or not path.isprintable():
        raise invalid(f"`cwd` must be an absolute path, and {path!r} is none")
    return os.path.normpath(path)


def with_clients(
    layers: Layers, servers: Sequence[McpServer] | None, directories: Sequence[str] | None
) -> Layers:
    """
    `layers` with what the client gives to a session.

    Raises:
        RpcError: it cannot be had.
    """
    options: Table = {}
    if directories:
        found = [_added_directory(each) for each in directories]
        options["sandbox"] = {"write": [*layers.settings().sandbox_write, *found]}
    if servers:
        options["mcp"] = {"servers": {each.name: _table(each) for each in servers}}
    return replace(layers, setup=Layer(ORIGIN, options)) if options else layers


def _added_directory(path: str) -> str:
    found = checked_directory(path, "additionalDirectories")
    home = os.path.realpath(os.path.expanduser("~"))
    if is_within(home, found):
        raise invalid(f"`additionalDirectories` has {found}, which holds all of HOME: name less")
    return found


def _table(server: McpServer) -> dict[str, Any]:
    """The server as a table of the settings."""
    if server.type in (None, "stdio") and server.command:
        table: dict[str, Any] = {"command": [server.command, *(server.args or ())]}
        if server.env:
            table["env"] = _values(server.env)
        if os.path.isabs(server.command) and os.path.isfile(server.command):
            table["paths"] = [server.command]
        return table
    if server.type == "http" and server.url:
        table = {"url": server.url}
        return table | {"headers": _values(server.headers)} if server.headers else table
    raise invalid(f"the tool server {server.name!r} has neither a command nor the url of type http")


def _values(pairs: list[Pair]) -> dict[str, str]:
    """Values as they are: a dollar in them is one."""
    return {pair.name: pair.value.replace("$", "$$") for pair in pairs}
