"""
Chat Completions, and Ollama's own API, with a prompt cache, on this machine: what a request would have read from it.

Two kinds of it there are. Most keep by themselves what they have read (https://api-docs.deepseek.com/guides/kv_cache), so that the
next request costs what is new in it: all that does not begin as an earlier one did, byte for byte. Claude, behind OpenRouter
(https://openrouter.ai/docs/features/prompt-caching), keeps what stands before a mark: that is `cached_api.PromptCache`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tests.api_rules import Block, chat
from tests.cached_api import CHARS_PER_TOKEN, Body, Content, PromptCache, signed
from tests.loopback import Answer, LoopbackServer, Reply, Request
from tests.sent import Changes
from tests.wires import chat as chat_wire
from tests.wires import ollama as ollama_wire
from tests.wires.servers import ChatServer, OllamaServer

WINDOW = 1 << 18  # of tokens: all of the day


class AutomaticCache:
    """Keeps the longest beginning that it has seen."""

    def __init__(self) -> None:
        self._before: list[str] = []

    def usage(self, request: Body) -> tuple[int, int]:
        """The tokens of the request that are read, and all of them."""
        blocks = [json.dumps(block) for block in (*request.get("tools", []), *request["messages"])]
        pairs = zip(self._before, blocks, strict=False)
        read = sum(len(now) for _, now in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._before = blocks
        return read // CHARS_PER_TOKEN, sum(map(len, blocks)) // CHARS_PER_TOKEN


class MarkedCache:
    """Claude's, behind a format that has other words for the same."""

    def __init__(self) -> None:
        self._cache = PromptCache()

    def usage(self, request: Body) -> tuple[int, int]:
        self._cache.now += 20.0
        told = self._cache.usage(
            {
                "tools": request.get("tools", []),
                "messages": [
                    {"role": message["role"], "content": list(_blocks(message))}
                    for message in request["messages"]
                ],
            }
        )
        return told["cache_read_input_tokens"], sum(told.values())


def _blocks(message: Block) -> Iterator[Block]:
    content = message.get("content") or []
    yield from [{"type": "text", "text": content}] if isinstance(content, str) else content
    yield from message.get("tool_calls", ())


@dataclass
class Day:
    """What a server has seen of a day; `counts` are read and all tokens of each request."""

    counts: list[tuple[int, int]]
    said: list[Any]
    refused: list[str]
    changes: Changes

    def read_share(self) -> float:
        return sum(read for read, _ in self.counts) / sum(size for _, size in self.counts)


class _Cached(LoopbackServer):
    """`answer` says what the model answers to a request, in the blocks of `cached_api`."""

    model: str
    cache: AutomaticCache | MarkedCache

    def begin(self, answer: Callable[[Body], Content]) -> None:
        self.day = Day([], [], [], Changes())
        self._says = answer

    def reply(self, content: Sequence[Block], read: int, size: int) -> Reply:
        raise NotImplementedError

    def answer_to(self, request: Request) -> Answer:
        if request.path != self.prompt_path:
            return super().answer_to(request)
        body = request.json()
        if broken := self.refusals(request):
            self.day.refused += broken
            return self.refusal("; ".join(broken))
        self.day.changes.note(request.body)
        self.day.counts.append(self.cache.usage(body))
        return self.reply(signed(self._says(body), body["model"]), *self.day.counts[-1])


class CachedChat(_Cached, ChatServer):
    def __init__(self, endpoint: str, model: str, answer: Callable[[Body], Content]) -> None:
        super().__init__(endpoint)
        self.model = f"{endpoint}:{model}"
        self.cache = MarkedCache() if model.startswith("anthropic/") else AutomaticCache()
        self.begin(answer)

    @property
    def options(self) -> dict[str, Any]:
        """The settings of whoever asks this one."""
        own = {self.endpoint: {"base_url": f"{self.url}/v1"}}
        return {"model": self.model, "providers": own}

    def refusals(self, request: Request) -> list[str]:
        messages = request.json()["messages"]
        extras = chat.changed_extras(messages, self.day.said, self.endpoint)
        return [*super().refusals(request), *extras]

    def reply(self, content: Sequence[Block], read: int, size: int) -> Reply:
        message = chat_wire.message_of(content, self.endpoint)
        self.day.said.append(message)
        counted = chat_wire.usage(size, 5, read)
        stream = chat_wire.events_of(message, self.endpoint)
        return Reply(stream.replace(chat_wire.usage(), counted))


class CachedOllama(_Cached, OllamaServer):
    model = "ollama:m"

    def __init__(self, answer: Callable[[Body], Content]) -> None:
        super().__init__()
        self.cache = AutomaticCache()
        self.shown["model_info"]["m.context_length"] = WINDOW
        self.begin(answer)

    @property
    def options(self) -> dict[str, Any]:
        """The settings of whoever asks this one."""
        body = {"options": {"num_ctx": WINDOW}}
        own = {"ollama": {"base_url": self.url, "quirks": {"body": body}}}
        return {"model": self.model, "providers": own}

    def reply(self, content: Sequence[Block], read: int, size: int) -> Reply:
        del read  # it does not say
        end = ollama_wire.done(prompt=size)
        stream = ollama_wire.events_of(content).removesuffix(ollama_wire.done())
        return Reply(stream, end, content_type="application/x-ndjson")
