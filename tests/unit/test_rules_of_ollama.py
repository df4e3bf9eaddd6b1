"""The judge of requests to Ollama can say no, for each of its reasons."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api_rules.ollama import request_refusals

PNG = "iVBORw0KGgo="
FUNCTION = {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}
CALL = {"function": {"name": "read", "arguments": {"path": "a.py"}}}
REQUEST: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "think": True,
    "options": {"num_ctx": 32768, "num_predict": 100},
    "tools": [{"type": "function", "function": FUNCTION}],
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "What is in a.py?"},
        {"role": "assistant", "content": "", "thinking": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_name": "read", "content": "1: a"},
        {"role": "assistant", "content": "An a."},
        {"role": "user", "content": "And here?\u2028", "images": [PNG]},
    ],
}
Change = Callable[[dict[str, Any]], object]


def refusals_after(change: Change) -> list[str]:
    request = copy.deepcopy(REQUEST)
    change(request)
    return request_refusals(json.dumps(request).encode())


def message(request: dict[str, Any], n: int, **fields: Any) -> None:
    request["messages"][n] |= fields


def call(request: dict[str, Any], **fields: Any) -> None:
    request["messages"][2]["tool_calls"][0]["function"] |= fields


def test_a_request_that_keeps_the_rules_is_taken():
    assert refusals_after(lambda _: None) == []


CHANGES: dict[str, Change] = {
    "invalid JSON": lambda r: message(r, 1, content="half: \ud83d"),
    ".max_tokens: Unknown": lambda r: r.update(max_tokens=1),
    "model is required": lambda r: r.pop("model"),
    "think: invalid value": lambda r: r.update(think="hard"),
    "options.max_tokens: Unknown": lambda r: r["options"].update(max_tokens=1),
    "options.num_ctx: without it": lambda r: r["options"].pop("num_ctx"),
    "options.num_predict: must": lambda r: r["options"].update(num_predict=0),
    "tools[0].function.strict: Unknown": lambda r: r["tools"][0]["function"].update(strict=True),
    "tools[0].function.name: must": lambda r: r["tools"][0]["function"].update(name="a b"),
    "tools[0].cache_control: Unknown": lambda r: r["tools"][0].update(cache_control={}),
    "invalid role": lambda r: message(r, 0, role="developer"),
    "messages[4].reasoning_content: Unknown": lambda r: message(r, 4, reasoning_content="Hm."),
    "cannot unmarshal into a string": lambda r: message(r, 1, content=[{"text": "Hi."}]),
    "thinking: cannot": lambda r: message(r, 2, thinking=None),
    "content: must have words": lambda r: message(r, 4, content=" "),
    "not valid base64": lambda r: message(r, 5, images=["data:image/png;base64,"]),
    "tool_calls[0].signature: Unknown": lambda r: r["messages"][2]["tool_calls"][0].update(
        signature="s"
    ),
    "tool_calls[0].function.extra: Unknown": lambda r: call(r, extra={}),
    "function.name: must match": lambda r: call(r, name=""),
    "arguments: cannot": lambda r: call(r, arguments="{}"),
    "at the beginning": lambda r: r["messages"].insert(3, r["messages"][0]),
    "not to be answered": lambda r: r["messages"].pop(),
    "no tool has answered the calls of read": lambda r: r["messages"].pop(3),
    "messages[3].tool_name": lambda r: message(r, 3, tool_name="write"),
    "messages[2].tool_name": lambda r: r["messages"].pop(2),
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_a_broken_rule_is_named(sentence):
    assert sentence in "; ".join(refusals_after(CHANGES[sentence]))
