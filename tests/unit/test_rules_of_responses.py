"""The judge of Responses requests can say no, for each of its reasons."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.api_rules.responses import changed_thoughts, request_refusals

PNG = "data:image/png;base64,iVBORw0KGgo="
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First I look."}],
    "encrypted_content": "gAAAA1",
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "read",
    "arguments": '{"path": "a.py"}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "1: a"}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
REQUEST: dict[str, Any] = {
    "model": "m",
    "instructions": "You help.",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "medium", "summary": "auto"},
    "max_output_tokens": 100,
    "tools": [
        {
            "type": "function",
            "name": "read",
            "description": "Reads.",
            "parameters": SCHEMA,
            "strict": True,
        }
    ],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "What is in a.py?\u2028"}]},
        THOUGHT,
        CALL,
        OUTPUT,
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "An a.", "annotations": []}],
        },
        {"role": "user", "content": "And here?"},
    ],
}
Change = Callable[[dict[str, Any]], object]


def refusals_after(change: Change) -> list[str]:
    request = copy.deepcopy(REQUEST)
    change(request)
    return request_refusals(json.dumps(request).encode())


def item(request: dict[str, Any], n: int, **fields: Any) -> None:
    request["input"][n] |= fields


def tool(request: dict[str, Any], **fields: Any) -> None:
    request["tools"][0] |= fields


def part(request: dict[str, Any], n: int, **fields: Any) -> None:
    item(request, n, content=[fields])


def test_a_request_that_keeps_the_rules_is_taken():
    assert refusals_after(lambda _: None) == []


CHANGES: dict[str, Change] = {
    "could not parse": lambda r: item(r, 5, content="half: \ud83d"),
    ".max_tokens: Unknown": lambda r: r.update(max_tokens=1),
    ".previous_response_id: Unknown": lambda r: r.update(previous_response_id="resp_1"),
    "model: Missing": lambda r: r.pop("model"),
    "input: Missing": lambda r: r.pop("input"),
    "instructions: must": lambda r: r.update(instructions=""),
    "max_output_tokens: Expected": lambda r: r.update(max_output_tokens=1),
    "store: what people say": lambda r: r.pop("store"),
    "include: Invalid": lambda r: r["include"].append("everything"),
    "include: thoughts": lambda r: r.pop("include"),
    "stream_options: Unknown": lambda r: r.update(stream_options={"include_usage": True}),
    "reasoning.max_tokens: Unknown": lambda r: r["reasoning"].update(max_tokens=1),
    "reasoning.effort: must": lambda r: r["reasoning"].update(effort="enormous"),
    "reasoning.summary: Invalid": lambda r: r["reasoning"].update(summary="long"),
    "prompt_cache_key: a string": lambda r: r.update(prompt_cache_key="k" * 65),
    "tools: names must be unique": lambda r: r["tools"].append(r["tools"][0]),
    "tools[0].function: Unknown": lambda r: tool(r, function={}),
    "tools[0].type: must be": lambda r: tool(r, type="custom"),
    "tools[0].strict: required": lambda r: r["tools"][0].pop("strict"),
    "tools[0].name: must match": lambda r: tool(r, name="a b"),
    "tools[0].parameters: schema must be": lambda r: tool(r, parameters={}),
    "'additionalProperties' is required": lambda r: tool(
        r, parameters=SCHEMA | {"additionalProperties": True}
    ),
    "input[2].type: Invalid": lambda r: item(r, 2, type="tool_use"),
    "input[2].input: Unknown": lambda r: item(r, 2, input={}),
    "input[1].signature: Unknown": lambda r: item(r, 1, signature="s"),
    "input[2].status: Invalid": lambda r: item(r, 2, status="done"),
    "begins with 'fc'": lambda r: item(r, 2, id="call_1"),
    "begins with 'rs'": lambda r: item(r, 1, id="msg_2"),
    "begins with 'msg'": lambda r: item(r, 4, id="1"),
    "input[2].id: Expected a string with maximum": lambda r: item(r, 2, id="fc" + "1" * 63),
    "input[2].call_id: Expected": lambda r: item(r, 2, call_id="1" * 65),
    "input[3].call_id: Expected": lambda r: item(r, 3, call_id=""),
    "input[2].name: must match": lambda r: item(r, 2, name="x" * 65),
    "input[2].arguments: must": lambda r: item(r, 2, arguments="{"),
    "input[3].output: must have words": lambda r: item(r, 3, output=" "),
    "input[5].role: Invalid": lambda r: item(r, 5, role="tool"),
    "input[5].phase: Invalid": lambda r: item(r, 5, phase="commentary"),
    "input[4].status: Missing": lambda r: r["input"][4].pop("status"),
    "input[5].content: must have words": lambda r: item(r, 5, content=""),
    "input[0].content: must not be empty": lambda r: item(r, 0, content=[]),
    "Supported values are: input_text": lambda r: part(r, 0, type="text", text="Hi."),
    "Supported values are: output_text": lambda r: part(r, 4, type="input_text", text="Hi."),
    "content[0].cache_control: Unknown": lambda r: part(
        r, 0, type="input_text", text="Hi.", cache_control={}
    ),
    "content[0]: must have words": lambda r: part(r, 4, type="output_text", text="\n"),
    "content[0]: not a data URL": lambda r: part(r, 0, type="input_image", image_url="a.png"),
    "input[1].id: Missing": lambda r: r["input"][1].pop("id"),
    "input[1].summary: Missing": lambda r: r["input"][1].pop("summary"),
    "input[1].summary[0]: Invalid": lambda r: item(r, 1, summary=[{"text": "Hm."}]),
    "input[1].content[0]: Invalid": lambda r: item(r, 1, content=[{"text": "Hm."}]),
    "Duplicate item found with id rs_1": lambda r: r["input"].insert(1, THOUGHT),
    "Items are not persisted": lambda r: r["input"][1].pop("encrypted_content"),
    "without its required following item": lambda r: r["input"].pop(2),
    "Duplicate 'call_id'": lambda r: r["input"].extend([CALL | {"id": "fc_2"}, OUTPUT]),
    "No tool call found": lambda r: r["input"].pop(2),
    "No tool output found": lambda r: r["input"].pop(3),
    "No tool output found for function call call_1": lambda r: r["input"].insert(
        3, {"role": "user", "content": "Meanwhile"}
    ),
    "ends with what the model": lambda r: r["input"].pop(),
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_a_broken_rule_is_named(sentence):
    assert sentence in "; ".join(refusals_after(CHANGES[sentence]))


def test_an_image_is_taken_from_the_person_and_from_a_tool():
    image = {"type": "input_image", "image_url": PNG}
    assert refusals_after(lambda r: [part(r, 0, **image), item(r, 3, output=[image])]) == []


ASKED = {"role": "user", "content": "Go on."}
SAID = [[THOUGHT, CALL]]


@pytest.mark.parametrize(
    "sent, is_taken",
    [
        ([THOUGHT, CALL], True),
        ([CALL], False),
        ([THOUGHT | {"encrypted_content": "gAAAA2"}, CALL], False),
        ([THOUGHT | {"summary": []}, CALL], False),
        ([THOUGHT | {"id": "rs_2"}, CALL], False),
    ],
)
def test_thoughts_come_back_as_they_were_while_tools_are_at_work(sent, is_taken):
    assert (changed_thoughts([ASKED, *sent, OUTPUT], SAID) == []) is is_taken


def test_thoughts_may_go_when_the_person_has_spoken_since():
    assert changed_thoughts([ASKED, CALL, OUTPUT, ASKED], SAID) == []
