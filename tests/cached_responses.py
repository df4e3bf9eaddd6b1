"""
The Responses API with the prompt cache of GPT-5.6 and later, on this machine: what a request would have read from it and written to it.

The cache is the documented one (https://developers.openai.com/api/docs/guides/prompt-caching): a prefix (tools, then items) is kept
where a breakpoint stands. One stands at the end of the newest message, unless the request says otherwise, others where they are marked;
of these the latest three are written, at 1.25 times the price. Looked for are the breakpoints of the request, the first two and the
latest fifty, and, without marks, the end of the developer's messages and of up to twenty messages before. Nothing is rounded; what
nobody reads for 30 minutes is gone; less than 1,024 tokens are not kept; another `prompt_cache_key` is another cache. Four characters
count as a token.

`looks_back=False` is the API of summer 2026, which looked for nothing but breakpoints.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tests.api_rules import responses as rules
from tests.cached_api import Content, signed
from tests.loopback import Answer, Reply, Request
from tests.sent import Changes
from tests.wires import responses as wire
from tests.wires.servers import ResponsesServer

CHARS_PER_TOKEN = 4
MIN_TOKENS = 1024
TTL_S = 1800.0
MAX_WRITES = 4
FIRST, LATEST, ENDINGS = 2, 50, 20
MARK = "prompt_cache_breakpoint"
BEFORE_ALL = ("model", "reasoning", "parallel_tool_calls", "text")

Body = dict[str, Any]
Item = dict[str, Any]
Counts = dict[str, int]


@dataclass(frozen=True)
class Position:
    """The end of a block: the prefix that ends there, and how many tokens it has."""

    prefix: bytes
    tokens: int
    is_marked: bool
    is_ending: bool  # of a message at which the API itself would place a breakpoint


def positions(request: Body) -> list[Position]:
    """Of each block of the request, in the order in which the API puts them together."""
    found = list(_blocks(request))
    digest = json.dumps([request.get(name) for name in BEFORE_ALL]).encode()
    digests = accumulate((words for words, *_ in found), _grown, initial=digest)
    counts = accumulate(math.ceil(len(words) / CHARS_PER_TOKEN) for words, *_ in found)
    return [
        Position(prefix, size, is_marked, is_ending)
        for prefix, size, (_, is_marked, is_ending) in zip(
            list(digests)[1:], counts, found, strict=True
        )
    ]


def _blocks(request: Body) -> Iterator[tuple[bytes, bool, bool]]:
    for tool in request.get("tools", []):
        yield json.dumps(tool).encode(), False, False
    items = request["input"]
    for number, item in enumerate(items):
        blocks = _parts(item)
        bare = {name: value for name, value in item.items() if value is not blocks}
        is_ending = _is_ending(items, number)
        for n, block in enumerate(blocks or [{}]):
            words = {name: value for name, value in block.items() if name != MARK}
            is_last = n == len(blocks or [{}]) - 1
            yield json.dumps([bare, words]).encode(), MARK in block, is_ending and is_last


def _parts(item: Item) -> list[Item]:
    """The blocks of an item that is more than a string."""
    parts = item.get("content", item.get("output", []))
    return parts if isinstance(parts, list) else []


def _is_ending(items: Sequence[Item], number: int) -> bool:
    """
    Say whether a message ends there that is eligible.

    That is one of the user's, the last of several outputs in a row, or the last of the developer's messages that come first.
    """
    item, following = items[number], items[number + 1] if items[number + 1 :] else {}
    if item.get("type") == "function_call_output":
        return following.get("type") != "function_call_output"
    if item.get("role") == "developer":
        are_first = all(each.get("role") == "developer" for each in items[:number])
        return are_first and following.get("role") != "developer"
    return item.get("role") == "user"


def _grown(digest: bytes, more: bytes) -> bytes:
    return hashlib.blake2b(digest + more, digest_size=16).digest()


class PromptCache:
    """`now` is its clock, in seconds."""

    def __init__(self, *, looks_back: bool = True) -> None:
        self.now = 0.0
        self.looks_back = looks_back
        self._until: dict[tuple[str, bytes], float] = {}

    def counts(self, request: Body) -> Counts:
        """The tokens that the API would bill of the request; afterwards the cache holds what the request has left there."""
        key = request.get("prompt_cache_key", "")
        found = positions(request)
        is_implicit = request.get("prompt_cache_options", {}).get("mode") != "explicit"
        marked = [each for each in found if each.is_marked]
        endings = [each for each in found if each.is_ending] if is_implicit else []
        looked_for = [*marked[:FIRST], *marked[-LATEST:], *endings[-1:]]
        if self.looks_back:
            looked_for += [*endings[-1 - ENDINGS :], *endings[:1]]
        kept = [each for each in looked_for if self._until.get((key, each.prefix), 0) > self.now]
        best = max(kept, key=lambda each: each.tokens, default=None)
        read = best.tokens if best else 0
        places = MAX_WRITES - len(endings[-1:])
        written = [each for each in (*marked[-places:], *endings[-1:]) if each.tokens >= MIN_TOKENS]
        self._until |= {(key, each.prefix): self.now + TTL_S for each in (*kept, *written)}
        until = max((each.tokens for each in written), default=0)
        return {"input_tokens": found[-1].tokens, "cached": read, "written": max(0, until - read)}


# --- the server --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request that was answered: what it held, what it would have cost, what was said."""

    request: Body
    counts: Counts
    said: list[Item]

    @property
    def price(self) -> float:
        """The price of the input, in tokens that are neither read nor written."""
        counts = self.counts
        fresh = counts["input_tokens"] - counts["cached"] - counts["written"]
        return fresh + 1.25 * counts["written"] + 0.1 * counts["cached"]


class CachedResponses(ResponsesServer):
    """
    `answer` says what the model answers to a request, in the blocks of `cached_api`; `pause_s` goes by on the cache's clock.

    Thoughts are sealed by the model that has them.
    """

    def __init__(self, answer: Callable[[Body], Content], pause_s: float = 20.0) -> None:
        super().__init__()
        self.cache = PromptCache()
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self.changes = Changes()
        self._says = answer
        self._pause_s = pause_s

    @property
    def options(self) -> dict[str, Any]:
        """The settings of whoever asks this one."""
        own = {"openai": {"base_url": f"{self.url}/v1"}}
        return {"model": "openai:gpt-6.1-sol", "providers": own}

    def refusals(self, request: Request) -> list[str]:
        body = request.json()
        said = [each.said for each in self.asked if each.request["model"] == body["model"]]
        thoughts = rules.changed_thoughts(body["input"], said)
        broken = [*super().refusals(request), *thoughts]
        self.refused += broken
        return broken

    def answer_to(self, request: Request) -> Answer:
        if request.path != self.prompt_path or self.refusals(request):
            return super().answer_to(request)
        self.changes.note(request.body)
        body = request.json()
        self.cache.now += self._pause_s
        counts = self.cache.counts(body)
        said = wire.items_of(signed(self._says(body), body["model"]), f"{len(self.asked)}_")
        self.asked.append(Asked(body, counts, said))
        items = (wire.item(n, each) for n, each in enumerate(said))
        return Reply(wire.begin(), *items, wire.done(*said, **counts))

    def read_share(self, first: int = 0) -> float:
        """The part of all input tokens that was read from the cache, from the request numbered `first` on."""
        asked = [each.counts for each in self.asked[first:]]
        return sum(each["cached"] for each in asked) / sum(each["input_tokens"] for each in asked)
