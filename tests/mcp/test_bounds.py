"""What a server tells is bounded before anything is made of it: no answer holds up the editor, and none breaks a request."""

import json
from types import SimpleNamespace

import pytest

from sanderling.mcp.log import ServerLog
from sanderling.mcp.messages import envelope_of, message_of
from sanderling.mcp.problems import why
from sanderling.mcp.results import outcome_of
from sanderling.mcp.schemas import MAX_SCHEMA_BYTES, fitted
from sanderling.protocol.messages import ImageBlock
from tests.conftest import little_work
from tests.mcp.hostile import DOT

NOTHING = {"type": "object", "properties": {}}


def answer_of(result: bytes):
    line = b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}"
    return message_of(line, envelope_of(line))


@pytest.mark.parametrize(
    "make",
    [
        lambda: b'{"content":[' + b",".join([b'{"type":"text","text":""}'] * 500_000) + b"]}",
        lambda: b'{"content":[],"structuredContent":{"a":[' + b"[]," * 3_000_000 + b"[]]}}",
        lambda: b'{"tools":[' + b'{"name":"","inputSchema":{}},' * 500_000 + b"{}]}",
        lambda: b'{"content":[],"structuredContent":{"a":["' + b'","' * 3_000_000 + b'"]}}',
    ],
    ids=["blocks", "lists", "tools", "strings"],
)
def test_answer_of_countless_values_is_an_error_before_they_are_made(make):
    result = make()
    with little_work():
        assert "100,000 values" in answer_of(result).error.message


def test_text_of_ten_megabytes_is_no_countless_values_whatever_stands_in_it():
    text = '[{"a\\": "b,c"}],' * 600_000
    result = answer_of(json.dumps({"content": [{"type": "text", "text": text}]}).encode()).result
    assert result["content"][0]["text"] == text


@pytest.mark.parametrize(
    "wrong",
    [
        {"properties": "x"},
        {"properties": {"$filter": {}, "a b": {}, "": {}, "x" * 65: {}}},
        {"properties": {"a": {"type": "nope"}}},
        {"properties": {"a": {"items": {"required": "x"}}}},
        {"properties": {"a": {"anyOf": []}}},
        {"properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"properties": {"a": 5}},
        {"$defs": 5},
        {"type": 7, "oneOf": [{}], "description": ["x"]},
        {"properties": {"a": {"description": "x" * MAX_SCHEMA_BYTES}}},
        {"properties": {"a": json.loads('{"items":' * 200 + "{}" + "}" * 200)}},
    ],
)
def test_schema_that_an_api_refuses_does_not_get_there(wrong):
    assert fitted(wrong) == NOTHING


def test_schema_that_is_a_reference_is_what_that_leads_to():
    parts = {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    node = {"type": "object", "properties": {"parts": parts}, "required": ["parts"]}
    definitions = {"$defs": {"Node": node}}
    assert fitted(definitions | {"$ref": "#/$defs/Node"}) == definitions | node
    assert fitted(definitions | {"$ref": "#"}) == definitions | NOTHING


def test_schema_keeps_what_is_right_beside_what_is_wrong():
    good = {
        "type": "object",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "a": {"type": ["string", "null"], "enum": ["x", None], "minLength": 1},
            "b": {"type": "array", "items": {"$ref": "#/$defs/c"}},
        },
        "required": ["a"],
        "$defs": {"c": {"type": "integer", "minimum": 0.5}},
        "additionalProperties": False,
    }
    wrong = {"properties": good["properties"] | {"$x": {}}, "required": ["a", "$x"]}
    assert fitted(good) == good
    assert fitted(good | wrong) == good


@pytest.mark.parametrize(
    "image",
    [
        ("aGVsbG8=", "image/png"),
        ("not base64!", "image/png"),
        ("", "image/gif"),
        (DOT, "image/jpeg"),
    ],
)
async def test_image_that_is_none_is_told_and_not_sent(image):
    data, mime_type = image
    block = SimpleNamespace(type="image", data=data, mime_type=mime_type)
    result = SimpleNamespace(content=[block], structured_content=None, is_error=False)
    outcome = await outcome_of(result, None)
    assert "cannot be shown" in outcome.content


async def test_text_of_blanks_beside_an_image_is_told_as_nothing():
    image = SimpleNamespace(type="image", data=DOT, mime_type="image/png")
    blank = SimpleNamespace(type="text", text=" \n")
    result = SimpleNamespace(content=[blank, image], structured_content=None, is_error=False)
    text, shown = (await outcome_of(result, None)).content
    assert text.text == "(nothing)"
    assert isinstance(shown, ImageBlock)


def test_words_of_an_error_are_short_and_all_of_them_are_seen():
    told = why(ValueError("\x1b]0;title\x07\u202e\x9b2J" + "x" * 10_000_000 + "\nmore"))
    assert told.startswith("<U+001B>]0;title<U+0007><U+202E><U+009B>2Jxxx")
    assert len(told) < 2_000


def test_last_line_of_a_log_shows_what_is_hidden_in_it():
    log = ServerLog()
    log.add("first\n\u202eevil \x9b2J\n".encode())
    assert log.last_line() == "<U+202E>evil 2J"
