"""The offers of a server: tools, limited to what a model can be sent; prompts and resources, and their text in a prompt of the user."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from sanderling.errors import ConfigError
from sanderling.mcp.schemas import named
from sanderling.mcp.tolerance import PROBLEMS
from sanderling.project.slash_commands import words_of
from sanderling.protocol.events import SlashCommand
from sanderling.text import fence_around, printable, visible_prose

if TYPE_CHECKING:
    from mcp_types import ContentBlock, GetPromptResult, ReadResourceResult, Tool, ToolAnnotations

    from mcp import Client

LISTEN_AGAIN_S = 5.0
MAX_TOOLS = 512
MAX_PAGES = 50
MAX_DESCRIPTION_CHARS = 8_000
_CUT = "… [cut]"
MAX_OFFERED = 500  # of each kind
MAX_LINE_CHARS = 100
MAX_URI_CHARS = 1_000
MAX_SENT_BYTES = 64 << 10  # of one resource or prompt
_ARGUMENT = re.compile(r"(\w[\w.-]*)=(.*)", re.DOTALL)

log = logging.getLogger(__name__)


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


class RemoteArgument(msgspec.Struct, frozen=True):
    name: str
    is_required: bool


class RemotePrompt(msgspec.Struct, frozen=True):
    """A prompt of a server, under the server's own name; `command` is its slash command."""

    name: str
    command: str
    description: str
    arguments: tuple[RemoteArgument, ...] = ()

    @property
    def shown(self) -> SlashCommand:
        hints = (f"<{a.name}>" if a.is_required else f"[{a.name}]" for a in self.arguments)
        return SlashCommand(self.command, self.description, " ".join(hints), "mcp")

    def values(self, typed: str) -> dict[str, str]:
        """
        Parse typed arguments: words in the order of the arguments, or `name=word`. A single argument gets all of the text.

        Raises:
            ConfigError: there are too many, or one is missing.
        """
        names = [argument.name for argument in self.arguments]
        if len(names) == 1 and typed:
            found = _ARGUMENT.fullmatch(typed)
            return {names[0]: found[2] if found and found[1] == names[0] else typed}
        values = self._in_order(names, words_of(self.command, typed))
        missing = [a.name for a in self.arguments if a.is_required and a.name not in values]
        if missing:
            raise ConfigError(f"/{self.command} needs {' and '.join(missing)}")
        return values

    def _in_order(self, names: Sequence[str], words: Sequence[str]) -> dict[str, str]:
        values = dict[str, str]()
        for word in words:
            found = _ARGUMENT.fullmatch(word)
            left = [name for name in names if name not in values]
            if found and found[1] in names:
                values[found[1]] = found[2]
            elif left:
                values[left[0]] = word
            else:
                raise ConfigError(
                    f"/{self.command} takes {len(names)} arguments, not {len(words)}; quote what belongs together"
                )
        return values


async def remote_prompts(client: "Client", server: str) -> tuple[RemotePrompt, ...]:
    """Fetch all prompts of the server that the user calls `server`."""
    prompts: dict[str, RemotePrompt] = {}
    for each in (await listed(client.list_prompts, "prompts", MAX_OFFERED)).found:
        command = f"{_behind_slash(server)}:{_behind_slash(each.name)}"
        arguments = tuple(RemoteArgument(a.name, bool(a.required)) for a in each.arguments or ())
        about = _line(each.description or each.title or "")
        prompts.setdefault(command, RemotePrompt(each.name, command, about, arguments))
    return tuple(prompts.values())[:MAX_OFFERED]


async def remote_resources(client: "Client") -> tuple[str, ...]:
    """Fetch the URIs of all resources, and the templates of URIs."""
    resources = await listed(client.list_resources, "resources", MAX_OFFERED)
    uris = dict.fromkeys(str(each.uri) for each in resources.found)
    try:
        templates = await client.list_resource_templates()
        uris |= dict.fromkeys(each.uri_template for each in templates.resource_templates)
    except Exception as error:  # noqa: BLE001  servers with resources need not have templates
        log.debug("a tool server lists no templates of resources: %r", error)
    return tuple(filter(_can_be_mentioned, uris))[:MAX_OFFERED]


def _can_be_mentioned(uri: str) -> bool:
    return len(uri) <= MAX_URI_CHARS and uri.isprintable() and " " not in uri


def prompt_text(result: "GetPromptResult") -> str:
    """Return the prompt as one text of the user, in which the model's messages are marked."""
    parts = list[str]()
    for message in result.messages:
        text = _text_of(message.content)
        parts.append(text if message.role == "user" else f"[You said:]\n{text}")
    return _cut("\n\n".join(filter(None, parts)))


def resource_text(name: str, uri: str, result: "ReadResourceResult") -> str:
    text = _cut("\n".join(map(_contents, result.contents)))
    fence = fence_around(text)
    return f"@{name}:{uri}, from the MCP server {name}:\n{fence}\n{text}\n{fence}"


def _text_of(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "resource":
            return f"[{block.resource.uri}]\n{_contents(block.resource)}"
        case "resource_link":
            return f"[the resource {block.uri}]"
        case _:
            return f"[{block.type}, which cannot be shown]"


def _contents(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if text is not None:
        return str(text)
    return f"[{resource.mime_type or 'binary'}, {len(resource.blob) * 3 // 4:,} bytes, which cannot be shown]"


def _cut(text: str) -> str:
    data = printable(text).encode()
    if len(data) <= MAX_SENT_BYTES:
        return printable(text)
    kept = data[:MAX_SENT_BYTES].decode(errors="ignore")
    return f"{kept}\n[… cut: {MAX_SENT_BYTES:,} of {len(data):,} bytes are shown]"


def _behind_slash(name: str) -> str:
    fitted = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")
    return fitted if re.match("[a-z]", fitted) else f"x{fitted}"


def _line(text: str) -> str:
    line = " ".join(visible_prose(printable(text)).split())
    return line[:MAX_LINE_CHARS]
