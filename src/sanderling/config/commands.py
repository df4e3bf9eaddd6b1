"""The command of an MCP server, which READMEs write as a program and `args`, and settings as one list."""

from collections.abc import Callable
from typing import Any, cast

from sanderling.config import KeyPath, Table, dotted
from sanderling.errors import ConfigError

OnError = Callable[[ConfigError], None]


def with_joined_commands(options: Table, on_error: OnError) -> Table:
    """Return settings in which each server has its program and arguments in one `command`."""
    mcp = options.get("mcp")
    servers = cast("Table", mcp).get("servers") if isinstance(mcp, dict) else None
    if not isinstance(servers, dict):
        return options
    joined = {
        name: join_command(cast("Table", each), ("mcp", "servers", name), on_error)
        if isinstance(each, dict)
        else each
        for name, each in cast("Table", servers).items()
    }
    return {**options, "mcp": {**cast("Table", mcp), "servers": joined}}


def join_command(table: Table, path: KeyPath, on_error: OnError) -> Table:
    """Return the table of the server at `path` with `command = "npx"` and `args = […]` as one command."""
    command, args = table.get("command"), table.get("args", [])
    rest = {key: value for key, value in table.items() if key != "args"}
    if not isinstance(args, list):
        place = (*path, "args")
        on_error(ConfigError(f"'{dotted(place)}': must be a list of strings", place))
        return rest
    if isinstance(command, str):
        return {**rest, "command": [command, *cast("list[Any]", args)]}
    if isinstance(command, list) and "args" in table:
        return {**rest, "command": [*cast("list[Any]", command), *cast("list[Any]", args)]}
    return rest
