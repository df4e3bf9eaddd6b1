"""Tools as a server tells of them, as data of ours: no more of it than a model can be told."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from sanderling.mcp.schemas import fitted
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
    """A tool of a server, by the server's own name for it. `claims` is what the server says of its effect: nobody has checked that."""

    name: str
    description: str
    schema: dict[str, Any]
    claims: tuple[str, ...] = ()


async def remote_tools(client: "Client") -> tuple[RemoteTool, ...]:
    """Ask for all of the server's tools."""
    tools: dict[str, RemoteTool] = {}
    for tool in await listed(client.list_tools, "tools", MAX_TOOLS):
        tools.setdefault(tool.name, _as_told(tool))
    return tuple(tools.values())[:MAX_TOOLS]


async def listed(ask: Callable[..., Awaitable[Any]], kind: str, enough: int) -> list[Any]:
    """Ask for page after page of what the server lists as `kind`, until there is no other, or there are `enough`."""
    found, cursor = list[Any](), None
    for _ in range(MAX_PAGES):
        page = await ask(cursor=cursor)
        found += getattr(page, kind)
        cursor = page.next_cursor
        if not cursor or len(found) >= enough:
            break
    return found


async def listen(client: "Client", on_change: Callable[[], None]) -> None:
    """Hear of changes of what the server offers in the newer era, in which who wants to hear of them has to ask."""
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


def _as_told(tool: "Tool") -> RemoteTool:
    title = tool.title or (tool.annotations.title if tool.annotations else "") or ""
    description = "\n\n".join(filter(None, (title, tool.description or ""))) or tool.name
    if len(description) > MAX_DESCRIPTION_CHARS:
        description = description[:MAX_DESCRIPTION_CHARS] + _CUT
    return RemoteTool(
        tool.name, printable(description), fitted(tool.input_schema), _claims(tool.annotations)
    )


def _claims(annotations: "ToolAnnotations | None") -> tuple[str, ...]:
    if annotations is None:
        return ()
    told = {
        "only reads": annotations.read_only_hint,
        "destroys nothing": annotations.destructive_hint is False,
        "may destroy": annotations.destructive_hint,
        "can be repeated": annotations.idempotent_hint,
        "stays in its own world": annotations.open_world_hint is False,
        "reaches the outside world": annotations.open_world_hint,
    }
    return tuple(words for words, is_so in told.items() if is_so)
