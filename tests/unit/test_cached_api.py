"""The model of the API's cache behaves as the documentation says."""

import copy
from typing import Any

import pytest
from tests.cached_api import LOOK_BACK, TTL_S, PromptCache, text
from tests.sent import Sent

EPHEMERAL = {"type": "ephemeral"}
SYSTEM_TOKENS = 3000


def request(turns: int = 1, *, blocks: int = 1, is_automatic: bool = True) -> dict[str, Any]:
    """A conversation of so many turns whose last prompt has so many blocks."""
    system = [text("x" * SYSTEM_TOKENS * 4) | {"cache_control": EPHEMERAL}]
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": [text(f"prompt {turn}")]})
        messages.append({"role": "assistant", "content": [text(f"answer {turn}")]})
    messages[-2]["content"] *= blocks
    body: dict[str, Any] = {"model": "m", "system": system, "messages": messages[:-1]}
    return body | ({"cache_control": EPHEMERAL} if is_automatic else {})


def read(cache: PromptCache, body: dict[str, Any]) -> int:
    return cache.usage(body)["cache_read_input_tokens"]


def test_a_request_reads_what_the_one_before_has_written():
    cache = PromptCache()
    first, second = cache.usage(request(1)), cache.usage(request(2))
    assert first["cache_read_input_tokens"] == first["input_tokens"] == 0
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert second["input_tokens"] == 0


def test_what_no_breakpoint_follows_is_neither_read_nor_written():
    cache = PromptCache()
    cache.usage(request(1, is_automatic=False))
    second = cache.usage(request(2, is_automatic=False))
    assert second["cache_read_input_tokens"] >= SYSTEM_TOKENS
    assert second["cache_creation_input_tokens"] == 0
    assert second["input_tokens"] > 0


@pytest.mark.parametrize(
    "blocks, reads_all", [(LOOK_BACK - 2, True), (LOOK_BACK - 1, False)], ids=str
)
def test_the_look_back_ends_after_twenty_blocks(blocks, reads_all):
    cache = PromptCache()
    written = cache.usage(request(1))["cache_creation_input_tokens"]
    assert (read(cache, request(2, blocks=blocks)) == written) is reads_all


def test_a_kept_prefix_is_gone_after_its_time_unless_it_is_read():
    cache = PromptCache()
    cache.usage(request(1))
    for _ in range(3):
        cache.now += TTL_S - 1
        assert read(cache, request(1)) > 0
    cache.now += TTL_S
    assert read(cache, request(1)) == 0


def test_a_short_prefix_is_not_kept():
    cache = PromptCache()
    body = request(1) | {"system": [text("x")]}
    assert cache.usage(body)["cache_creation_input_tokens"] == 0
    assert read(cache, body) == 0


@pytest.mark.parametrize("part", ["tools", "system", "thinking", "messages"])
def test_what_changes_ends_the_prefix_there(part):
    cache = PromptCache()
    before = request(2) | {"tools": [{"name": "a"}], "thinking": {"type": "adaptive"}}
    cache.usage(before)
    after = copy.deepcopy(before)
    if part == "messages":
        after["messages"][0]["content"][0]["text"] += "!"
    elif part == "thinking":
        after["thinking"] = {"type": "disabled"}
    else:
        after[part].insert(0, {"name": "b"} | text("!"))
    kept = read(cache, after)
    assert (kept >= SYSTEM_TOKENS) is (part in ("thinking", "messages"))
    assert kept < cache.usage(before)["cache_read_input_tokens"]


def test_marks_may_move_and_nothing_else():
    def sent(*messages: bytes) -> Sent:
        return Sent(b'{"model":"m","messages":[%b]}' % b",".join(messages))

    before = sent(b'{"a":1,"cache_control":{"type":"ephemeral"}}')
    assert sent(b'{"a":1}', b'{"b":1}').difference(before) == ""
    assert sent(b'{"a":2}').difference(before).startswith("messages.0, byte 5: ")
    assert sent(b'{"a": 1}').difference(before).startswith("messages.0, byte 5: ")
    assert sent().difference(before).startswith("messages.0, byte 0: ")
