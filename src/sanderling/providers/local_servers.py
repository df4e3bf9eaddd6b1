"""
Looks for a model server that runs on this machine: Ollama, llama.cpp, LM Studio or vLLM.

Each is asked once for its models, at the address of its preset, or of the user's table of that name if that is a loopback address. The
requests are written by hand, because loading an HTTP client takes longer than the whole search may.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.endpoint import Endpoint, is_local, load_endpoint

DEADLINE_S = 0.05
MAX_BYTES = 1 << 20
_BROKEN = (anyio.EndOfStream, anyio.BrokenResourceError)  # by a server that resets the connection
_NAME = r"[\w./:@+-]+"  # the offer is a sentence, and any program can listen on these ports


class _Server(NamedTuple):
    title: str
    path: str
    owner: str = ""
    """The `owned_by` of its models: other programs use the same port."""


_SERVERS = {
    "ollama": _Server("Ollama", "/api/tags"),
    "llamacpp": _Server("llama.cpp", "/models", "llamacpp"),
    "lmstudio": _Server("LM Studio", "/models"),
    "vllm": _Server("vLLM", "/models", "vllm"),
}


class LocalModel(NamedTuple):
    """A model of a server on this machine; `name` selects it."""

    server: str
    name: str

    @property
    def offer(self) -> str:
        """The sentence that offers it to the user."""
        _, _, model = self.name.partition(":")
        return f"{self.server} has {model}. Use it? {remedies().use_model.format(name=self.name)}"


async def find_local(
    providers: Mapping[str, Mapping[str, Any]], deadline_s: float = DEADLINE_S
) -> list[LocalModel]:
    """Return the first model of each server that answers in time. `providers` are the user's tables."""
    await to_thread.run_sync(_load)  # before the clock runs
    found: dict[str, LocalModel] = {}

    async def look(name: str, server: _Server) -> None:
        with suppress(ConfigError, ProviderError, OSError, ValueError, *_BROKEN):
            endpoint = load_endpoint(name, providers)
            if is_local(endpoint.base_url) and (model := await _first_model(endpoint, server)):
                found[name] = LocalModel(server.title, f"{name}:{model}")

    with anyio.move_on_after(deadline_s):
        async with anyio.create_task_group() as tasks:
            for name, server in _SERVERS.items():
                tasks.start_soon(look, name, server)
    return [found[name] for name in _SERVERS if name in found]


async def offer_of_local(
    providers: Mapping[str, Mapping[str, Any]], deadline_s: float = DEADLINE_S
) -> str:
    """Return the offer of a model on this machine, or ""."""
    found = await find_local(providers, deadline_s)
    return found[0].offer if found else ""


def _load() -> None:
    """Import what decodes the answers; only needed without a key."""
    for name in ("http.models", "ollama.reply"):
        import_module(f"sanderling.providers.{name}")


async def _first_model(endpoint: Endpoint, server: _Server) -> str:
    from sanderling.providers.http.models import decode_models
    from sanderling.providers.ollama.reply import decode_tags

    body = await _fetch(endpoint.base_url + server.path)
    if server.owner and f'"{server.owner}"'.encode() not in body:
        return ""
    names = decode_tags(body) if endpoint.name == "ollama" else tuple(decode_models(body))
    usable = (name for name in names if re.fullmatch(_NAME, name) and "embed" not in name.lower())
    return next(usable, "")


async def _fetch(url: str) -> bytes:
    """Return the body of a successful answer, else nothing."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    async with await anyio.connect_tcp(host, port) as stream:
        request = (
            f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n\r\n"
        )
        await stream.send(request.encode())
        data = b""
        with suppress(anyio.EndOfStream):
            while len(data) < MAX_BYTES and not _is_whole(data):
                data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    return body if b" 200 " in head.partition(b"\r\n")[0] else b""


def _is_whole(data: bytes) -> bool:
    """Return True if `data` has all of the body: some servers keep the connection open."""
    head, end, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if end and name == b"content-length":
            return len(body) >= int(value)
    return False
