"""
APIs in this very process, behind every HTTP client of it: each endpoint that Sanderling knows, with its habits and its judge.

What a model thinks and signs is sealed with its name, so that a request shows whose secrets it holds.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.api_rules import Block, anthropic, chat, ollama, responses
from tests.cached_api import events_of
from tests.sent import Sent
from tests.wires import chat as chat_wire
from tests.wires import ollama as ollama_wire
from tests.wires import responses as responses_wire

SEAL = re.compile(rb"sealed-([a-z-]+)-(m\d)-")
MODELS = ("m1", "m2")
FIRST_PORT = 2001  # where nobody listens
WIRES = {
    "anthropic": "anthropic",
    "deepseek-anthropic": "anthropic",
    "openai": "responses",
    "ollama": "ollama",
    "deepseek": "chat",
    "doubao": "chat",
    "mistral": "chat",
    "gemini": "chat",
    "openrouter": "chat",
    "xai": "chat",
    "groq": "chat",
    "llamacpp": "chat",
    "vllm": "chat",
    "lmstudio": "chat",
}
PORTS = {name: FIRST_PORT + n for n, name in enumerate(WIRES)}
NDJSON = "application/x-ndjson"


Said = dict[str, dict[str, list[Any]]]
"""What models have said, by endpoint and model."""


@dataclass
class Answer:
    """What a model says next. Of the stream only the `share` arrives."""

    content: Sequence[Block]
    share: float = 1.0


@dataclass
class Endpoint:
    """One API. `said` has what each of its models has sent and must see again, as long as no other has spoken."""

    name: str
    said: dict[str, list[Any]] = field(default_factory=dict)
    before: dict[str, Sent] = field(default_factory=dict)

    @property
    def wire(self) -> str:
        return WIRES[self.name]

    def forget(self) -> None:
        """Another model goes on: what was bound to this one goes, and so does the prefix."""
        self.said.clear()
        self.before.clear()

    def problems(self, body: bytes) -> list[str]:
        """Why it would refuse the request, and why it should never have been sent."""
        model = json.loads(body)["model"]
        own = (self.name, model)
        foreign = {
            seal for name, by in SEAL.findall(body) if (seal := (name.decode(), by.decode())) != own
        }
        return [
            *self._refusals(body, self.said.get(model, [])),
            *(f"it holds what {name}:{by} has said to itself" for name, by in foreign),
        ]

    def change(self, body: bytes) -> str:
        """Where the prefix is not what it was in the request before."""
        sent = Sent(body)
        before = self.before.get(sent.model)
        self.before[sent.model] = sent
        return sent.difference(before) if before else ""

    def _refusals(self, body: bytes, said: list[Any]) -> list[str]:
        request = json.loads(body)
        match self.wire:
            case "anthropic":
                messages = request["messages"]
                endpoint = self.name.removesuffix("-anthropic")
                return [
                    *anthropic.request_refusals(body, endpoint),
                    *anthropic.changed_thoughts(messages, said),
                ]
            case "responses":
                return [
                    *responses.request_refusals(body),
                    *responses.changed_thoughts(request["input"], said),
                ]
            case "ollama":
                return ollama.request_refusals(body)
            case _:
                return [
                    *chat.request_refusals(body, self.name),
                    *chat.changed_extras(request["messages"], said, self.name),
                ]

    def stream(self, model: str, content: Sequence[Block], number: int) -> bytes:
        """The stream that says `content`, as this endpoint does."""
        sealed = [_sealed(block, f"sealed-{self.name}-{model}-{number}") for block in content]
        said = self.said.setdefault(model, [])
        match self.wire:
            case "anthropic":
                said.append(sealed)
                return events_of(sealed)
            case "responses":
                items = responses_wire.items_of(sealed, f"{number}_")
                said.append(items)
                return responses_wire.events_of(items)
            case "ollama":
                return ollama_wire.events_of(sealed)
            case _:
                message = chat_wire.message_of(sealed, self.name)
                if self.name == "gemini" and "tool_calls" in message:
                    signature = f"sealed-gemini-{model}-{number}-call"
                    google = {"thought_signature": signature}
                    message["tool_calls"][0]["extra_content"] = {"google": google}
                said.append(message)
                return chat_wire.events_of(message, self.name)


def _sealed(block: Block, seal: str) -> Block:
    if block["type"] != "thinking":
        return block
    return {**block, "thinking": f"{seal}- {block['thinking']}", "signature": f"{seal}-sig"}


class Apis:
    """All of them. `answers` come one after the other, whoever is asked; `problems` names what should not have happened."""

    def __init__(self) -> None:
        self.endpoints = {name: Endpoint(name) for name in WIRES}
        self.answers: list[Answer] = []
        self.problems: list[str] = []
        self.asked: list[tuple[str, bytes]] = []
        self._numbers = itertools.count()

    def forget(self) -> Said:
        """Expect nothing again of what was said; return that."""
        said = {name: dict(endpoint.said) for name, endpoint in self.endpoints.items()}
        for endpoint in self.endpoints.values():
            endpoint.forget()
        return said

    def remember(self, said: Said) -> None:
        """Expect it again, before what was said since."""
        for name, by_model in said.items():
            since = self.endpoints[name].said
            for model, before in by_model.items():
                since[model] = [*before, *since.get(model, [])]

    def forget_prefix(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.before.clear()

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        """In the place of `httpx2.AsyncHTTPTransport.handle_async_request`."""
        name = next(name for name, port in PORTS.items() if port == request.url.port)
        body = await request.aread()
        if request.method == "GET" or request.url.path in ("/api/show", "/api/version"):
            return httpx2.Response(200, json=_told_besides(request.url.path))
        return self._answer(self.endpoints[name], body)

    def _answer(self, endpoint: Endpoint, body: bytes) -> httpx2.Response:
        self.asked.append((endpoint.name, body))
        problems = endpoint.problems(body)
        if change := endpoint.change(body):
            problems.append(f"the prefix has changed: {change}")
        self.problems += [f"{endpoint.name}: {problem}" for problem in problems]
        answer = self.answers.pop(0)
        model = json.loads(body)["model"]
        data = endpoint.stream(model, answer.content, next(self._numbers))
        content_type = NDJSON if endpoint.wire == "ollama" else "text/event-stream"
        return httpx2.Response(
            200,
            headers={"content-type": content_type},
            stream=_Stream(data[: round(len(data) * answer.share)]),
        )


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> Any:
        yield self._data


def _told_besides(path: str) -> Mapping[str, Any]:
    if path == "/api/show":
        return {
            "model_info": {"general.architecture": "m", "m.context_length": 65536},
            "capabilities": ["completion", "tools", "thinking", "vision"],
        }
    return {"data": [{"id": model} for model in MODELS]}


def providers() -> dict[str, dict[str, Any]]:
    """The setting that leads each of them here."""
    bases = dict.fromkeys(("anthropic", "deepseek-anthropic", "deepseek", "ollama"), "")
    return {
        name: {"base_url": f"http://127.0.0.1:{port}{bases.get(name, '/v1')}"}
        for name, port in PORTS.items()
    }


def models() -> Iterator[str]:
    return (f"{name}:{model}" for name in WIRES for model in MODELS)
