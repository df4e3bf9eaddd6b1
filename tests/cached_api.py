"""
The Messages API with its prompt cache, on this machine: what a request would have read from the cache and written to it.

The cache is the documented one (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching): a prefix (tools, then system,
then messages) is kept where a breakpoint stands; from each breakpoint at most 20 blocks are looked at, backwards, for the longest
prefix that is kept; what nobody reads for 5 minutes is gone; less than 1,024 tokens are not kept. Four characters count as a token.

The server judges each request by `api_rules/anthropic.py`, answers 400 with what is wrong, and notes where the prefix is not, byte by byte, what
it was in the request before.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tests import loopback
from tests.api_rules import Block
from tests.api_rules.anthropic import THOUGHTS, changed_thoughts, request_refusals
from tests.loopback import Answer, LoopbackServer, Reply, Request, Status, Step, Wait
from tests.sent import Changes

CHARS_PER_TOKEN = 4
LOOK_BACK = 20
MIN_TOKENS = 1024
TTL_S = 300.0
PIECE_CHARS = 40

Content = Sequence[Block]
Body = dict[str, Any]


# --- what the model says -----------------------------------------------------------------------------------------------


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def thought(words: str) -> Block:
    """It is signed when it is sent: by the model that has it."""
    return {"type": "thinking", "thinking": words}


def use(use_id: str, name: str, **data: Any) -> Block:
    return {"type": "tool_use", "id": use_id, "name": name, "input": data}


def signature(model: str, words: str) -> str:
    return hashlib.blake2b(f"{model}\0{words}".encode(), digest_size=12).hexdigest()


def signed(content: Content, model: str) -> list[Block]:
    return [
        {**block, "signature": signature(model, block["thinking"])}
        if block["type"] == "thinking"
        else block
        for block in content
    ]


def events_of(content: Content, *, stop_reason: str = "", **usage: int) -> bytes:
    """The stream in which the API sends `content`; the reason to stop is what its blocks make likely."""
    uses = any(block["type"] == "tool_use" for block in content)
    return b"".join(
        (
            loopback.message_start(**usage),
            *(_block_events(index, block) for index, block in enumerate(content)),
            loopback.done(stop_reason or ("tool_use" if uses else "end_turn")),
        )
    )


def _block_events(index: int, block: Block) -> bytes:
    match block["type"]:
        case "text":
            return loopback.text(*_pieces(block["text"]), index=index)
        case "thinking":
            pieces = _pieces(block["thinking"])
            return loopback.thinking(*pieces, signature=block["signature"], index=index)
        case "tool_use":
            data = json.dumps(block["input"], ensure_ascii=False)
            return loopback.tool_use(block["id"], block["name"], *_pieces(data), index=index)
        case _:
            return loopback.block_start(index, **block) + loopback.block_stop(index)


def _pieces(words: str) -> list[str]:
    return [words[start : start + PIECE_CHARS] for start in range(0, len(words), PIECE_CHARS)]


# --- the cache ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Position:
    """The end of a block: the prefix that ends there, and how many tokens it has."""

    prefix: bytes
    tokens: int
    is_marked: bool
    is_cacheable: bool


def quarter_of_chars(block: Block) -> float:
    return len(_rendered("", block)) / CHARS_PER_TOKEN


def positions(request: Body, count: Callable[[Block], float] = quarter_of_chars) -> list[Position]:
    """Of each block of the request, in the order in which the API puts them together; `count` counts its tokens."""
    found = list(_blocks(request))
    digests = accumulate(
        (_rendered(where, block) for where, block in found), _grown, initial=b"the beginning"
    )
    tokens = accumulate(math.ceil(count(block)) for _, block in found)
    return [
        Position(digest, count, "cache_control" in block, block.get("type") not in THOUGHTS)
        for digest, count, (_, block) in zip(list(digests)[1:], tokens, found, strict=True)
    ]


def _blocks(request: Body) -> Iterator[tuple[str, Block]]:
    """Each with what its place is; what changes how messages are read belongs to their places."""
    yield from (("tool", tool) for tool in request.get("tools", []))
    system = request.get("system", [])
    yield from (
        ("system", block) for block in ([text(system)] if isinstance(system, str) else system)
    )
    reading = json.dumps([request.get(name) for name in ("model", "thinking", "tool_choice")])
    for number, message in enumerate(request["messages"]):
        place = f"{reading} {number} {message['role']}"
        yield from ((place, block) for block in message["content"])


def _rendered(where: str, block: Block) -> bytes:
    bare = {name: value for name, value in block.items() if name != "cache_control"}
    return f"{where}{json.dumps(bare, ensure_ascii=False)}".encode()


def _grown(digest: bytes, more: bytes) -> bytes:
    return hashlib.blake2b(digest + more, digest_size=16).digest()


class PromptCache:
    """`now` is its clock, in seconds."""

    count: Callable[[Block], float] = staticmethod(quarter_of_chars)

    def __init__(self) -> None:
        self.now = 0.0
        self._until: dict[bytes, float] = {}

    def usage(self, request: Body) -> dict[str, int]:
        """What the API would bill of the request; afterwards the cache holds what the request has left there."""
        found = positions(request, self.count)
        breakpoints = [n for n, position in enumerate(found) if position.is_marked]
        if request.get("cache_control"):
            breakpoints.append(max(n for n, each in enumerate(found) if each.is_cacheable))
        read = max((self._kept_before(found, n) for n in breakpoints), default=0)
        kept = [found[n] for n in breakpoints if found[n].tokens >= MIN_TOKENS]
        self._until |= {each.prefix: self.now + TTL_S for each in kept}
        written = max((each.tokens for each in kept), default=read)
        return {
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written - read,
            "input_tokens": found[-1].tokens - written,
        }

    def _kept_before(self, found: Sequence[Position], breakpoint_at: int) -> int:
        """The tokens of the longest kept prefix that ends at the breakpoint or in one of the blocks before it; reading it keeps it."""
        for position in reversed(found[: breakpoint_at + 1][-LOOK_BACK:]):
            if self._until.get(position.prefix, -math.inf) > self.now:
                self._until[position.prefix] = self.now + TTL_S
                return position.tokens
        return 0


# --- the server --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request that was answered: what it held, what it would have cost, what was said."""

    request: Body
    usage: dict[str, int]
    said: list[Block]

    @property
    def input_tokens(self) -> int:
        return sum(self.usage.values())


class CachedApi(LoopbackServer):
    """
    `answer` says what the model answers to a request; `pause_s` goes by on the cache's clock before each one.

    With an `event_pause_s` the events of an answer leave one by one.
    """

    def __init__(
        self,
        answer: Callable[[Body], Content],
        pause_s: float = 20.0,
        *,
        event_pause_s: float = 0.0,
    ) -> None:
        super().__init__()
        self.cache = PromptCache()
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self.changes = Changes()
        self._answer = answer
        self._pause_s = pause_s
        self._event_pause_s = event_pause_s

    @property
    def options(self) -> dict[str, Any]:
        """The settings of whoever asks this one."""
        return {"provider": "anthropic", "base_url": self.url}

    def answer_to(self, request: Request) -> Answer:
        if request.path != "/v1/messages":
            return super().answer_to(request)
        body = request.json()
        if broken := [*request_refusals(request.body), *self._of_thoughts(body)]:
            self.refused += broken
            return Status(400, message="; ".join(broken))
        self.changes.note(request.body)
        self.cache.now += self._pause_s
        usage = self.cache.usage(body)
        said = signed(self._answer(body), body["model"])
        self.asked.append(Asked(body, usage, said))
        events = events_of(said, **usage)
        return Reply(*(self._one_by_one(events) if self._event_pause_s else [events]))

    def _one_by_one(self, events: bytes) -> Iterator[Step]:
        for event in events.split(b"\n\n")[:-1]:
            yield event + b"\n\n"
            yield Wait(self._event_pause_s)

    def read_share(self, first: int = 0) -> float:
        """The part of all input tokens that was read from the cache, from the request numbered `first` on."""
        asked = self.asked[first:]
        read = sum(each.usage["cache_read_input_tokens"] for each in asked)
        return read / sum(each.input_tokens for each in asked)

    def _of_thoughts(self, body: Body) -> list[str]:
        model, messages = body["model"], body["messages"]
        said = [each.said for each in self.asked if each.request["model"] == model]
        return [
            *changed_thoughts(messages, said),
            *(
                f"messages.{n}: Invalid `signature` in `thinking` block"
                for n, message in enumerate(messages)
                for block in message["content"]
                if block["type"] == "thinking"
                and block["signature"] != signature(model, block["thinking"])
            ),
        ]
