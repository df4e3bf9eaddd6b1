"""Tools of servers for the model: the server's description, and a call for each use."""

import json
from functools import partial
from typing import Any

import anyio
import msgspec

from sanderling.errors import ToolError
from sanderling.mcp.problems import ServerError
from sanderling.mcp.remote import RemoteTool
from sanderling.mcp.results import outcome_of
from sanderling.mcp.server import Server
from sanderling.text import printable
from sanderling.tools.base import Arguments, Context, OutsideTool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.workspace import Workspace

PROGRESS_S = 0.1
MAX_PROGRESS_CHARS = 500


def tool_of(server: Server, remote: RemoteTool, name: str) -> OutsideTool:
    """Return the tool `remote` of `server` under the `name` that the model uses."""
    return OutsideTool(
        name,
        Arguments,
        partial(_run, server, remote),
        lambda _args, _workspace: Effect(name, "call", server=server.declared.mark),
        partial(_title, remote),
        partial(_look, server, remote),
        remote_description=remote.description,
        input_schema=remote.schema,
    )


def _title(remote: RemoteTool, args: Arguments, _: Workspace) -> str:
    values = remote.arguments(args.values)
    return ", ".join(f"{name}: {_inline(value)}" for name, value in values.items())


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def _look(server: Server, remote: RemoteTool, args: Arguments, _: Context) -> Preview:
    claims = f"{server.name} says of it: {', '.join(remote.claims)}. This is not verified."
    values = msgspec.json.format(msgspec.json.encode(remote.arguments(args.values))).decode()
    return Preview(values, "json", claims if remote.claims else "")


async def _run(server: Server, remote: RemoteTool, args: Arguments, context: Context) -> Outcome:
    progress = _Progress(context)
    try:
        result = await server.call(remote.name, remote.arguments(args.values), progress.show)
    except ServerError as error:
        raise ToolError(f"MCP server {server.name}: {error}.") from error
    finally:
        context.workspace.sandbox.look_after("", has_failed=False)
    return await outcome_of(result, context)


class _Progress:
    """Shows the progress of a call, not more often than one can read it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next_at = 0.0

    async def show(self, progress: float, total: float | None, message: str | None) -> None:
        if anyio.current_time() < self._next_at:
            return
        self._next_at = anyio.current_time() + PROGRESS_S
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        line = " ".join(printable(f"{message or ''} ({share})").split())
        self._context.show(f"{line[:MAX_PROGRESS_CHARS]}\n")
