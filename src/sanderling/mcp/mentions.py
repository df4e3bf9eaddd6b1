"""Servers' resources and prompts in the user's prompt: `@server:uri` is added below it, `/server:prompt` replaces it."""

import re
from collections.abc import Mapping

import msgspec

from sanderling.errors import ConfigError
from sanderling.mcp.offers import RemotePrompt, prompt_text, resource_text
from sanderling.mcp.problems import ServerError
from sanderling.mcp.server import Server
from sanderling.protocol.messages import Prompt

MAX_MENTIONS = 10
_MENTION = re.compile(r"(?<![\w@])@([\w.-]+):(\S+)")
_TYPED = re.compile(r"/([a-z][a-z0-9_:-]*)(?:\s+|$)")
_AFTER = ".,;:!?)]}'\""  # punctuation after a URI, which is never its end


def has_any(text: str, servers: Mapping[str, Server]) -> bool:
    return bool(_mentions(text, servers)) or begins_with_prompt(text, servers)


def begins_with_prompt(text: str, servers: Mapping[str, Server]) -> bool:
    return _prompt_of(text, servers) is not None


async def put_in(prompt: Prompt, servers: Mapping[str, Server]) -> Prompt:
    """
    Return the prompt with the content of resources that it mentions, and with a server's prompt that it begins with.

    Raises:
        ConfigError: one is not available, with the reason.
    """
    text = prompt.sent or prompt.text
    if not prompt.sent and (found := _prompt_of(text, servers)):
        server, remote, typed = found
        values = remote.values(typed)
        try:
            result = await server.request(lambda client: client.get_prompt(remote.name, values))
            text = prompt_text(result)
        except ServerError as error:
            raise ConfigError(f"/{remote.command} is not available: {error}.") from error
        if not text.strip():
            raise ConfigError(f"/{remote.command} is empty: nothing was sent.")
    resources = [
        await _resource(servers[name], uri) for name, uri in _mentions(prompt.text, servers)
    ]
    sent = "\n\n".join((text, *resources))
    return prompt if sent == prompt.text else msgspec.structs.replace(prompt, sent=sent)


async def _resource(server: Server, uri: str) -> str:
    try:
        result = await server.request(lambda client: client.read_resource(uri))
        return resource_text(server.name, uri, result)
    except ServerError as error:
        raise ConfigError(f"@{server.name}:{uri} cannot be read: {error}.") from error


def _mentions(text: str, servers: Mapping[str, Server]) -> list[tuple[str, str]]:
    """Return the names and URIs that `text` mentions, each once."""
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
