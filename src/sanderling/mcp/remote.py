"""Tools as a server describes them, limited to what a model can be sent."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from sanderling.mcp.schemas import named
from sanderling.mcp.tolerance import PROBLEMS
from sanderling.text import printable

if TYPE_CHECKING:
    from mcp_types import Tool, ToolAnnotations

    from mcp import Client

LISTEN_AGAIN_S = 5.0
MAX_TOOLS = 512
MAX_PAGES = 50
MAX_DESCRIPTION_CHARS = 8_000
_CUT = "… [cut]"


class RemoteTool(msgspec.Struct, frozen=True):
    """
    A tool of a server, under the server's own name.

    `claims` is what the server says of its effect, unverified. `own_names` are the server's names of those properties that no API accepts
    under their own name.
    """

    name: str
    description: str
    schema: dict[str, Any]
    claims: tuple[str, ...] = ()
    own_names: dict[str, str] = {}

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self.own_names.get(name, name): value for name, value in values.items()}


async def remote_tools(client: "Client") -> tuple[tuple[RemoteTool, ...], tuple[str, ...]]:
    """Fetch all tools of the server; return them, and what was left out."""
    tools: dict[str, RemoteTool] = {}
    listing = await listed(client.list_tools, "tools", MAX_TOOLS)
    problems = listing.problems
    for tool in listing.found:
        problems += _problems_of(tool.meta)
        if tool.name in tools:
            problems.append(f"it has more than one tool '{tool.name}': the first is used")
        tools.setdefault(tool.name, _remote_tool(tool))
    if len(tools) > MAX_TOOLS or listing.has_more:
        problems.append(f"it has more than {MAX_TOOLS} tools: the first {MAX_TOOLS} are used")
    return tuple(tools.values())[:MAX_TOOLS], tuple(map(printable, problems))


class ServerListing(msgspec.Struct):
    """The entries that a server lists, the problems with them, and whether there are more."""

    found: list[Any] = []
    problems: list[str] = []
    has_more: bool = False


async def listed(ask: Callable[..., Awaitable[Any]], kind: str, enough: int) -> ServerListing:
    """Fetch page after page of the server's `kind`, to the last one or until there are `enough`."""
    listing, cursor = ServerListing(), None
    for _ in range(MAX_PAGES):
        page = await ask(cursor=cursor)
        listing.found += getattr(page, kind)
        listing.problems += _problems_of(getattr(page, "meta", None))
        cursor = page.next_cursor
        listing.has_more = bool(cursor)
        if not cursor or len(listing.found) >= enough:
            break
    return listing


def _problems_of(metadata: "Mapping[str, Any] | None") -> list[str]:
    return list((metadata or {}).get(PROBLEMS, ()))


async def listen(client: "Client", on_change: Callable[[], None]) -> None:
    """Watch for changes of the server's offers. In the newer protocol a client has to subscribe to them."""
    from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

    with suppress(ListenNotSupportedError):
        while True:
            with suppress(SubscriptionLost):
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as changes:
                    async for _ in changes:
                        on_change()
            await anyio.sleep(LISTEN_AGAIN_S)
            on_change()


def _remote_tool(tool: "Tool") -> RemoteTool:
    title = tool.title or (tool.annotations.title if tool.annotations else "") or ""
    description = "\n\n".join(filter(None, (title, tool.description or ""))) or tool.name
    if len(description) > MAX_DESCRIPTION_CHARS:
        description = description[:MAX_DESCRIPTION_CHARS] + _CUT
    schema, own_names = named(tool.input_schema)
    claims = _claims(tool.annotations)
    return RemoteTool(tool.name, printable(description), schema, claims, own_names)


def _claims(annotations: "ToolAnnotations | None") -> tuple[str, ...]:
    if annotations is None:
        return ()
    hints = {
        "only reads": annotations.read_only_hint,
        "destroys nothing": annotations.destructive_hint is False,
        "may destroy": annotations.destructive_hint,
        "can be repeated": annotations.idempotent_hint,
        "stays in its own world": annotations.open_world_hint is False,
        "reaches the outside world": annotations.open_world_hint,
    }
    return tuple(words for words, is_so in hints.items() if is_so)
