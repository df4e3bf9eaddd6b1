"""The judge of Chat Completions can say no, for each of its reasons, and takes what each endpoint takes."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api_rules.chat import ENDPOINTS, NO_SIGNATURE, changed_extras, request_refusals

PNG = "data:image/png;base64,iVBORw0KGgo="
USE_ID = "call01234"


def call(
    use_id: str = USE_ID, arguments: str = '{"path": "a.py"}', **fields: Any
) -> dict[str, Any]:
    function = {"name": "read", "arguments": arguments}
    return {"id": use_id, "type": "function", "function": function} | fields


def signed(signature: str) -> dict[str, Any]:
    return {"extra_content": {"google": {"thought_signature": signature}}}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["path"],
    "additionalProperties": False,
}
FUNCTION = {"name": "read", "description": "Reads.", "parameters": SCHEMA, "strict": True}
REQUEST: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "tools": [{"type": "function", "function": FUNCTION}],
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "What is in a.py?\u2028"}]},
        {"role": "assistant", "content": None, "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": USE_ID, "content": "1: a"},
        {"role": "assistant", "content": "An a."},
        {"role": "user", "content": "And here?"},
    ],
}
Change = Callable[[dict[str, Any]], object]


def request_for(endpoint: str) -> dict[str, Any]:
    request = copy.deepcopy(REQUEST)
    request[ENDPOINTS[endpoint].max_tokens[0]] = 100
    if endpoint == "deepseek":
        request["messages"][2]["reasoning_content"] = "First I look."
        request["messages"][4]["reasoning_content"] = "Now I know."
    return request


def refusals_after(change: Change, endpoint: str = "openai") -> list[str]:
    request = request_for(endpoint)
    change(request)
    return request_refusals(json.dumps(request).encode(), endpoint)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_request_that_keeps_the_rules_is_taken(endpoint):
    assert refusals_after(lambda _: None, endpoint) == []


def message(request: dict[str, Any], n: int, **fields: Any) -> None:
    request["messages"][n] |= fields


def image(request: dict[str, Any], n: int, url: str = PNG) -> None:
    message(request, n, content=[{"type": "image_url", "image_url": {"url": url}}])


def function(request: dict[str, Any], **fields: Any) -> None:
    request["tools"][0]["function"] |= fields


def made(request: dict[str, Any], **fields: Any) -> None:
    """Change the call of a tool."""
    request["messages"][2]["tool_calls"][0] |= fields


CHANGES: dict[str, Change] = {
    "could not parse": lambda r: message(r, 1, content="half: \ud83d"),
    ".max_tokens: Unknown parameter": lambda r: r.update(max_tokens=1),
    "max_completion_tokens: must be at least 1": lambda r: r.update(max_completion_tokens=0),
    "you must provide a model": lambda r: r.pop("model"),
    "stream_options: only": lambda r: r.update(stream=False, stream_options={}),
    "reasoning_effort: must be": lambda r: r.update(reasoning_effort="enormous"),
    "parallel_tool_calls: only": lambda r: [r.pop("tools"), r.update(parallel_tool_calls=True)],
    "prompt_cache_key: a string": lambda r: r.update(prompt_cache_key="k" * 65),
    "tools: must be given": lambda r: r.pop("tools"),
    "tools: an array of 1": lambda r: r.update(tools=[]),
    "names must be unique": lambda r: r["tools"].append(r["tools"][0]),
    "tools[0].cache_control: Unknown": lambda r: r["tools"][0].update(cache_control={}),
    "tools[0].type: must be": lambda r: r["tools"][0].update(type="custom"),
    "tools[0].function.input_schema: Unknown": lambda r: function(r, input_schema=SCHEMA),
    "tools[0].function.name": lambda r: function(r, name="x" * 65),
    "must be a JSON Schema of": lambda r: function(r, parameters={"$ref": "#/$defs/A"}),
    "at the top level": lambda r: function(r, parameters=SCHEMA | {"anyOf": []}),
    "parameters.properties.a: 'additionalProperties'": lambda r: function(
        r, parameters=SCHEMA | {"properties": {"a": {"type": "object"}}, "required": ["a"]}
    ),
    "'required' is required": lambda r: function(r, parameters=SCHEMA | {"required": []}),
    "'default' is not permitted": lambda r: function(
        r, parameters=SCHEMA | {"properties": {"path": {"type": "string", "default": "."}}}
    ),
    "$ref cannot have keywords": lambda r: function(
        r, parameters=SCHEMA | {"properties": {"path": {"$ref": "#/$defs/P", "description": "A."}}}
    ),
    "unknown role 'model'": lambda r: message(r, 4, role="model"),
    "messages[5].id: Unknown parameter": lambda r: message(r, 5, id="u1"),
    "messages[2].reasoning_content: Unknown": lambda r: message(r, 2, reasoning_content="Hm."),
    "messages[2].extra_content: Unknown": lambda r: message(r, 2, **signed("s")),
    "tool_calls: [] is too short": lambda r: message(r, 4, tool_calls=[]),
    "messages[4].content: must be a string": lambda r: message(r, 4, content=None),
    "messages[5].content: must be a string": lambda r: message(r, 5, content=" \n"),
    "messages[3].content: must be a string": lambda r: message(r, 3, content=""),
    "messages[1].content: [] is too short": lambda r: message(r, 1, content=[]),
    "content[0].text: must have words": lambda r: message(
        r, 1, content=[{"type": "text", "text": ""}]
    ),
    "unknown variant 'tool_result'": lambda r: message(r, 1, content=[{"type": "tool_result"}]),
    "content[0].cache_control: Unknown": lambda r: r["messages"][1]["content"][0].update(
        cache_control={}
    ),
    "not allowed for messages with role 'tool'": lambda r: image(r, 3),
    "not a data URL": lambda r: image(r, 5, "file:///a.png"),
    "not valid base64": lambda r: image(r, 5, "data:image/png;base64,?"),
    "unsupported image type": lambda r: image(r, 5, PNG.replace("png", "bmp")),
    "an image has 1 to": lambda r: image(r, 5, "data:image/png;base64,"),
    "tool_calls[0].index: Unknown": lambda r: made(r, index=0),
    "tool_calls[0].id: must match": lambda r: made(r, id="x" * 65),
    "tool_calls[0].type: must be": lambda r: made(r, type=""),
    "function.name: must match": lambda r: made(r, function={"name": "a b", "arguments": "{}"}),
    "arguments: must be": lambda r: made(r, function={"name": "read", "arguments": "[1]"}),
    "the user's": lambda r: r["messages"].pop(1),
    "one system message": lambda r: r["messages"].insert(3, r["messages"][0]),
    "Expected last role": lambda r: r["messages"].pop(),
    "must be a response to": lambda r: r["messages"].pop(2),
    "must be followed by tool messages": lambda r: r["messages"].pop(3),
    "messages[3]: An assistant message with": lambda r: r["messages"].__delitem__(slice(3, None)),
    "ids must be unique": lambda r: r["messages"].extend(r["messages"][2:4]),
    "messages[4]: messages with role 'tool'": lambda r: r["messages"].insert(4, r["messages"][3]),
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_a_broken_rule_is_named(sentence):
    assert sentence in "; ".join(refusals_after(CHANGES[sentence]))


OF_ENDPOINTS: dict[str, tuple[str, Change]] = {
    "max_completion_tokens: Unknown": ("mistral", lambda r: r.update(max_completion_tokens=1)),
    "stream_options: Unknown": ("mistral", lambda r: r.update(stream_options={})),
    "only one of them": ("groq", lambda r: r.update(max_completion_tokens=1)),
    "id: must match '^[A-Za-z0-9]{9}$'": ("mistral", lambda r: made(r, id="toolu_1")),
    "Unexpected role 'user' after role 'tool'": ("mistral", lambda r: r["messages"].pop(4)),
    "Unexpected role 'assistant' after": (
        "mistral",
        lambda r: r["messages"].insert(4, r["messages"][4]),
    ),
    "reasoning_content: Unknown": ("groq", lambda r: message(r, 2, reasoning_content="Hm.")),
    "unknown role 'developer'": ("deepseek", lambda r: message(r, 0, role="developer")),
    "images are not allowed": ("deepseek", lambda r: image(r, 5)),
    "missing field `content`": ("deepseek", lambda r: r["messages"][2].pop("content")),
    "messages[2]: The `reasoning_content`": (
        "deepseek",
        lambda r: r["messages"][2].pop("reasoning_content"),
    ),
    "messages[4]: The `reasoning_content`": (
        "deepseek",
        lambda r: message(r, 4, reasoning_content=""),
    ),
    "valid list of texts": (
        "mistral",
        lambda r: message(r, 4, content=[{"type": "thinking", "thinking": "Hm."}]),
    ),
    "unknown variant 'thinking'": (
        "openai",
        lambda r: message(r, 4, content=[{"type": "thinking", "thinking": []}]),
    ),
    "missing a thought_signature": ("gemini", lambda r: r["messages"].__delitem__(slice(4, None))),
    "reasoning_content: must be a string": ("xai", lambda r: message(r, 2, reasoning_content=None)),
    "must be an array": ("openrouter", lambda r: message(r, 2, reasoning_details="Hm.")),
}


@pytest.mark.parametrize("sentence", OF_ENDPOINTS)
def test_a_broken_rule_of_an_endpoint_is_named(sentence):
    endpoint, change = OF_ENDPOINTS[sentence]
    assert sentence in "; ".join(refusals_after(change, endpoint))


def test_thoughts_of_a_turn_without_tools_may_stay_away_from_deepseek():
    talk = [{"role": "assistant", "content": "Hm."}, {"role": "user", "content": "Go on."}]
    assert refusals_after(lambda r: r["messages"].extend(talk), "deepseek") == []


def test_a_call_of_the_turn_that_goes_on_may_have_the_signature_that_stands_for_none():
    def change(request: dict[str, Any]) -> None:
        made(request, **signed(NO_SIGNATURE[0]))
        del request["messages"][4:]

    assert refusals_after(change, "gemini") == []


DETAILS = [{"type": "reasoning.text", "index": 0, "text": "First ", "signature": None}]
SIGNED_DETAILS = [
    *DETAILS,
    {"type": "reasoning.text", "index": 0, "text": "I look.", "signature": "s"},
]
MERGED_DETAILS = [DETAILS[0] | {"text": "First I look.", "signature": "s"}]


@pytest.mark.parametrize(
    "endpoint, said, sent, is_taken",
    [
        ("deepseek", {"reasoning_content": "Hm."}, {"reasoning_content": "Hm."}, True),
        ("deepseek", {"reasoning_content": "Hm."}, {"reasoning_content": "Hm"}, False),
        ("deepseek", {"reasoning_content": "Hm."}, {}, False),
        ("deepseek", {"reasoning_content": ""}, {"reasoning_content": " "}, True),
        ("xai", {"reasoning_content": "Hm."}, {}, True),
        (
            "openrouter",
            {"reasoning_details": SIGNED_DETAILS},
            {"reasoning_details": MERGED_DETAILS},
            True,
        ),
        (
            "openrouter",
            {"reasoning_details": SIGNED_DETAILS},
            {"reasoning_details": SIGNED_DETAILS},
            True,
        ),
        (
            "openrouter",
            {"reasoning_details": SIGNED_DETAILS},
            {"reasoning_details": DETAILS},
            False,
        ),
        (
            "openrouter",
            {"reasoning_details": SIGNED_DETAILS},
            {"reasoning": "First I look."},
            False,
        ),
    ],
)
def test_thoughts_come_back_with_the_calls_of_tools_as_they_were(endpoint, said, sent, is_taken):
    told = {"role": "assistant", "tool_calls": [call("another")]} | said
    messages = [{"role": "assistant", "tool_calls": [call()]} | sent]
    assert (changed_extras(messages, [told], endpoint) == []) is is_taken


@pytest.mark.parametrize(
    "said, sent, is_taken",
    [
        (signed("s"), signed("s"), True),
        (signed("s"), signed("t"), False),
        (signed("s"), signed(NO_SIGNATURE[0]), False),
        (signed("s"), {}, False),
        ({}, {}, True),
        ({}, signed(NO_SIGNATURE[0]), True),
        ({}, signed("of another model"), False),
    ],
)
def test_a_signature_comes_back_with_its_call(said, sent, is_taken):
    told = {"role": "assistant", "tool_calls": [call(**said)]}
    messages = [{"role": "assistant", "tool_calls": [call(**sent)]}]
    assert (changed_extras(messages, [told], "gemini") == []) is is_taken
