"""Directories and MCP servers that a client adds to a session, as if they were in the user's settings."""

import os
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from sanderling.acp.wire.errors import invalid
from sanderling.acp.wire.sessions import McpServer, Pair
from sanderling.config import Layer, Table
from sanderling.config.layers import Layers
from sanderling.paths import is_within

ORIGIN = "the client"


def checked_directory(path: str, what: str) -> str:
    """
    Return the real path of a directory.

    Raises:
        RpcError: the path is not absolute, or not a directory.
    """
    if not os.path.isabs(path) or "\0" in path:
        raise invalid(f"`{what}` must be an absolute path, not {path!r}")
    if not os.path.isdir(path):
        raise invalid(f"there is no directory {path}")
    return os.path.realpath(path)


def clients_directory(path: str) -> str:
    """
    Return a path on the client's machine, normalized.

    Raises:
        RpcError: the path is not absolute.
    """
    if not path.startswith("/") or not path.isprintable():
        raise invalid(f"`cwd` must be an absolute path, not {path!r}")
    return os.path.normpath(path)


def with_clients(
    layers: Layers, servers: Sequence[McpServer] | None, directories: Sequence[str] | None
) -> Layers:
    """
    Return `layers` with the client's servers and directories.

    Raises:
        RpcError: one of them is invalid.
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
        raise invalid(
            f"`additionalDirectories` contains {found}, which includes all of HOME; choose a smaller directory"
        )
    return found


def _table(server: McpServer) -> dict[str, Any]:
    """Return the server as a table of the settings."""
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
    raise invalid(f"the MCP server {server.name!r} has neither a command nor an http url")


def _values(pairs: list[Pair]) -> dict[str, str]:
    """Return names and values, with `$` escaped: the settings would expand it."""
    return {pair.name: pair.value.replace("$", "$$") for pair in pairs}
