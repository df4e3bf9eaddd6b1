"""
Ten reads of 270-line files, and what they cost at an API with a cache: the same work for Sanderling and for other clients.

A *cost unit* is the price of one input token: an input token that the cache does not have costs 1, one that is written to the cache
1.25, one that is read from it 0.1, and a token of the answer 5. Tokens are those of the tokenizer o200k_base, of what the model reads:
texts as they are, and tools and inputs as JSON.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import bpe_openai

from tests.api_rules import Block
from tests.cached_api import Asked, Body, CachedApi, Content, text, use

FILES, LINES = 10, 270
WROTE, READ, ANSWERED = 1.25, 0.1, 5
PROMPT = "Read the ten files of src, part_0.py to part_9.py, and say in one sentence what they do."
ANSWER = "Each of them sums up the rows of one table and leaves out those that are not valid."
FUNCTION = """\
def total_{n}(rows):
    total = 0
    for row in rows:
        if not row.amount:
            continue
        price = rate(row)
        total += price * {n}
    return round(total, 2)

"""


def write_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(FILES):
        lines = "".join(FUNCTION.format(n=part * 100 + n) for n in range(LINES // 9))
        (folder / f"part_{part}.py").write_text(lines)


# --- tokens ------------------------------------------------------------------------------------------------------------


@cache
def _count(words: str) -> int:
    return len(bpe_openai.get_encoding("o200k_base").encode_ordinary(words))


def tokens_of(block: Block) -> int:
    """The tokens of a block, or of the definition of a tool, as the model reads it."""
    match block.get("type"):
        case "text":
            return _count(block["text"])
        case "tool_use":
            return _count(block["name"]) + _count(json.dumps(block["input"]))
        case "tool_result":
            content = block.get("content", "")
            return _count(content) if isinstance(content, str) else sum(map(tokens_of, content))
        case _:
            return _count(json.dumps({k: v for k, v in block.items() if k != "cache_control"}))


# --- the work ----------------------------------------------------------------------------------------------------------


class ReadingApi(CachedApi):
    """Has a model that reads `at_once` files with each message, by the tool and the input that the client has for it."""

    def __init__(
        self, at_once: int = 1, name: str = "read", path: Callable[[int], Any] | None = None
    ) -> None:
        super().__init__(self._next)
        self.cache.count = tokens_of
        self.sizes: list[int] = []
        self._at_once, self._name = at_once, name
        self._input = path or (lambda part: {"path": f"src/part_{part}.py"})

    def _next(self, body: Body) -> Content:
        self.sizes.append(len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()))
        done = sum(
            block["type"] == "tool_result"
            for message in body["messages"]
            for block in (message["content"] if isinstance(message["content"], list) else ())
        )
        parts = range(done, min(done + self._at_once, FILES))
        if not parts:
            return [text(ANSWER)]
        return [use(f"toolu_{part}", self._name, **self._input(part)) for part in parts]


def units(asked: Iterable[Asked]) -> float:
    return sum(
        each.usage["input_tokens"]
        + WROTE * each.usage["cache_creation_input_tokens"]
        + READ * each.usage["cache_read_input_tokens"]
        + ANSWERED * sum(map(tokens_of, each.said))
        for each in asked
    )
