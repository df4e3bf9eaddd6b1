"""The judge of requests can say no, for each of its reasons."""

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api_rules import MAX_IMAGE_BYTES
from tests.api_rules.anthropic import MAX_BODY_BYTES, changed_thoughts, request_refusals

PNG = base64.b64encode(b"\x89PNG").decode()
EPHEMERAL = {"type": "ephemeral"}
THOUGHT = {"type": "thinking", "thinking": "First I look.", "signature": "c2lnbmVk"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1: a", "is_error": False}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | fields


REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "stream": True,
    "system": [text("You help.", cache_control=EPHEMERAL)],
    "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}],
    "cache_control": EPHEMERAL,
    "messages": [
        {"role": "user", "content": [text("What is in a.py?")]},
        {"role": "assistant", "content": [THOUGHT, text("I look."), USE]},
        {"role": "user", "content": [RESULT, text("[a note]")]},
        {"role": "assistant", "content": [THOUGHT, text("An a.")]},
        {"role": "user", "content": [IMAGE, text("And here?\u2028")]},
    ],
}
Change = Callable[[dict[str, Any]], object]


def refusals_after(change: Change) -> list[str]:
    request = copy.deepcopy(REQUEST)
    change(request)
    return request_refusals(json.dumps(request).encode())


def content(request: dict[str, Any], n: int) -> list[dict[str, Any]]:
    return request["messages"][n]["content"]


def test_a_request_that_keeps_the_rules_is_taken():
    assert refusals_after(lambda _: None) == []


CHANGES: dict[str, Change] = {
    "temperature: Extra inputs": lambda r: r.update(temperature=1),
    "model: Field required": lambda r: r.pop("model"),
    "max_tokens: must be greater": lambda r: r.update(max_tokens=0),
    "forced tool use": lambda r: r.update(tool_choice={"type": "any"}),
    "must define tools": lambda r: r.pop("tools"),
    "Tool names must be unique": lambda r: r["tools"].append(r["tools"][0]),
    "tools.0.custom.name": lambda r: r["tools"][0].update(name="read it"),
    "Input should be 'object'": lambda r: r["tools"][0].update(input_schema={"$ref": "#/$defs/A"}),
    "no oneOf": lambda r: r["tools"][0]["input_schema"].update(oneOf=[]),
    "system: text content": lambda r: r["system"].append(text(" ")),
    "A maximum of 4 blocks": lambda r: [
        block.update(cache_control=EPHEMERAL)
        for block in (*content(r, 0), content(r, 2)[0], content(r, 4)[1])
    ],
    "cache_control cannot be set for empty": lambda r: r["system"].append(
        text("", cache_control=EPHEMERAL)
    ),
    "first message must use the user role": lambda r: r["messages"].pop(0),
    "Input should be 'user' or 'assistant'": lambda r: r["messages"][0].update(role="tool"),
    "messages.0: must have non-empty content": lambda r: content(r, 0).clear(),
    "`thinking` blocks are not permitted in user": lambda r: content(r, 0).append(THOUGHT),
    "`image` blocks are not permitted in assistant": lambda r: content(r, 3).append(IMAGE),
    "`tool_result` blocks are not permitted in assistant": lambda r: content(r, 3).append(RESULT),
    "cannot be `thinking`": lambda r: content(r, 3).append(THOUGHT),
    "thinking.cache_control: Extra inputs": lambda r: content(r, 3)[0].update(
        cache_control=EPHEMERAL
    ),
    "messages.0.content.0: text content blocks must contain": lambda r: content(r, 0)[0].update(
        text=" \n"
    ),
    "thinking.signature: Field required": lambda r: content(r, 1)[0].update(signature=""),
    "tool_use.id: String should match": lambda r: content(r, 1)[2].update(id="a.b"),
    "tool_use.name: String should match": lambda r: content(r, 1)[2].update(name="x" * 201),
    "Input should be a valid dictionary": lambda r: content(r, 1)[2].update(input="{}"),
    "tool_result.content.0: `thinking`": lambda r: content(r, 2)[0].update(content=[THOUGHT]),
    "tool_result.content.0: text content": lambda r: content(r, 2)[0].update(content=[text("")]),
    'all content must be type "text"': lambda r: content(r, 2)[0].update(
        content=[IMAGE], is_error=True
    ),
    "image.source.media_type": lambda r: content(r, 4)[0]["source"].update(media_type="image/bmp"),
    "not valid base64": lambda r: content(r, 4)[0]["source"].update(data="?"),
    "image exceeds 5 MB": lambda r: content(r, 4)[0]["source"].update(
        data=base64.b64encode(bytes(MAX_IMAGE_BYTES + 1)).decode()
    ),
    "without `tool_result` blocks immediately after: toolu_1": lambda r: content(r, 2).pop(0),
    "unexpected `tool_use_id`": lambda r: content(r, 1).pop(2),
    "a single result": lambda r: content(r, 2).insert(0, RESULT),
    "must come first": lambda r: content(r, 2).reverse(),
    "ids must be unique": lambda r: r["messages"].extend(r["messages"][1:3]),
    "at the end": lambda r: r["messages"].append(r["messages"][1]),
    "too many images": lambda r: content(r, 4).extend([IMAGE] * 100),
    "must end with a user message": lambda r: r["messages"].pop(),
    "not valid JSON": lambda r: content(r, 0)[0].update(text="half: \ud83d"),
    "maximum size": lambda r: content(r, 0)[0].update(text="x" * MAX_BODY_BYTES),
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_a_broken_rule_is_named(sentence):
    assert sentence in "; ".join(refusals_after(CHANGES[sentence]))


BARE = {"type": "thinking", "thinking": "First I look."}


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda _: None, ""),
        (lambda r: content(r, 1).__setitem__(0, BARE), ""),
        (lambda r: content(r, 1).pop(0), "messages.1: The `content[].thinking`"),
        (lambda r: content(r, 1).__setitem__(0, BARE | {"thinking": ""}), "messages.1: The"),
        (lambda r: content(r, 3).pop(0), "messages.3: The `content[].thinking`"),
        (lambda r: content(r, 4).append(IMAGE), "unknown variant `image`"),
    ],
)
def test_deepseek_wants_its_thoughts_which_nobody_has_signed(change, told):
    request = copy.deepcopy(REQUEST)
    content(request, 4).pop(0)
    change(request)
    found = request_refusals(json.dumps(request).encode(), "deepseek")
    assert found == [] if not told else told in "; ".join(found)


def test_thoughts_of_a_turn_without_tools_may_stay_away_from_deepseek():
    request = copy.deepcopy(REQUEST)
    request["messages"] = [*request["messages"][:1], {"role": "assistant", "content": [text("A.")]}]
    request["messages"] += REQUEST["messages"][:1]
    assert request_refusals(json.dumps(request).encode(), "deepseek") == []


SAID = [[THOUGHT, text("I look."), USE, THOUGHT | {"thinking": "Cut."}]]
LOOP = REQUEST["messages"][:3]


@pytest.mark.parametrize(
    "kept, is_taken",
    [
        ([THOUGHT, text("I look."), USE], True),
        ([THOUGHT, USE], True),
        ([text("I look."), USE], False),
        ([THOUGHT | {"signature": "another"}, USE], False),
        ([THOUGHT | {"thinking": "First I looked."}, USE], False),
    ],
)
def test_thoughts_must_come_back_as_they_were_while_tools_answer(kept, is_taken):
    messages = [LOOP[0], {"role": "assistant", "content": kept}, LOOP[2]]
    assert (changed_thoughts(messages, SAID) == []) is is_taken


def test_thoughts_may_go_when_the_person_has_spoken_since():
    messages = [LOOP[0], {"role": "assistant", "content": [USE]}, LOOP[2], LOOP[0]]
    assert changed_thoughts(messages, SAID) == []
