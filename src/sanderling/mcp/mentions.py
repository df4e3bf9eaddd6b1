"""Resources and prompts of servers in a person's prompt: `@server:uri` below its words, `/server:prompt` in their place."""

import re
from collections.abc import Mapping

import msgspec

from sanderling.errors import ConfigError
from sanderling.mcp.offers import RemotePrompt, told_prompt, told_resource
from sanderling.mcp.problems import ServerError
from sanderling.mcp.server import Server
from sanderling.protocol.messages import Prompt

MAX_MENTIONS = 10
_MENTION = re.compile(r"(?<![\w@])@([\w.-]+):(\S+)")
_TYPED = re.compile(r"/([a-z][a-z0-9_:-]*)(?:\s+|$)")
_AFTER = ".,;:!?)]}'\""  # a sentence goes on with it, no URI ends so


def has_any(text: str, servers: Mapping[str, Server]) -> bool:
    """Say whether `text` has something of a server's in it."""
    return bool(_mentions(text, servers)) or begins_with_prompt(text, servers)


def begins_with_prompt(text: str, servers: Mapping[str, Server]) -> bool:
    return _prompt_of(text, servers) is not None


async def put_in(prompt: Prompt, servers: Mapping[str, Server]) -> Prompt:
    """
    The prompt with what the resources hold that it mentions, and what the prompt of a server is that it begins with.

    Raises:
        ConfigError: one cannot be had, with the reason.
    """
    text = prompt.sent or prompt.text
    if not prompt.sent and (found := _prompt_of(text, servers)):
        server, remote, typed = found
        values = remote.values(typed)
        try:
            result = await server.request(lambda client: client.get_prompt(remote.name, values))
            text = told_prompt(result)
        except ServerError as error:
            raise ConfigError(f"/{remote.command} cannot be had: {error}.") from error
        if not text.strip():
            raise ConfigError(f"/{remote.command} is empty: nothing was sent.")
    told = [await _told(servers[name], uri) for name, uri in _mentions(prompt.text, servers)]
    sent = "\n\n".join((text, *told))
    return prompt if sent == prompt.text else msgspec.structs.replace(prompt, sent=sent)


async def _told(server: Server, uri: str) -> str:
    try:
        result = await server.request(lambda client: client.read_resource(uri))
        return told_resource(server.name, uri, result)
    except ServerError as error:
        raise ConfigError(f"@{server.name}:{uri} cannot be read: {error}.") from error


def _mentions(text: str, servers: Mapping[str, Server]) -> list[tuple[str, str]]:
    """The names and URIs that `text` mentions, each once."""
    found = dict[tuple[str, str], None]()
    for name, uri in _MENTION.findall(text):
        if server := servers.get(name):
            is_known = uri in server.offers.resources
            found[name, uri if is_known else uri.rstrip(_AFTER)] = None
    return list(found)[:MAX_MENTIONS]


def _prompt_of(text: str, servers: Mapping[str, Server]) -> tuple[Server, RemotePrompt, str] | None:
    if not (typed := _TYPED.match(text)):
        return None
    for server in servers.values():
        for prompt in server.offers.prompts:
            if prompt.command == typed[1]:
                return server, prompt, text[typed.end() :].strip()
    return None
