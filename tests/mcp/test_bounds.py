"""What a server tells is bounded before anything is made of it: no answer holds up the editor, and none breaks a request."""

import json
import re
from types import SimpleNamespace

import pytest

from sanderling.mcp.messages import message_of, messages_in
from sanderling.mcp.problems import why
from sanderling.mcp.schemas import MAX_SCHEMA_BYTES, named, sound
from sanderling.mcp.tools import outcome_of
from sanderling.protocol.messages import ImageBlock
from sanderling.tools.commands.server_log import ServerLog
from tests.conftest import little_work, prove_rest
from tests.mcp.hostile import DOT
from tests.pictures import in_base64, png

NOTHING = {"type": "object", "properties": {}}


def _of(*required: str, **properties):
    more = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties} | more


def answer_of(result: bytes):
    [(envelope, line)] = messages_in(b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}")
    return message_of(line, envelope)


@pytest.mark.parametrize(
    "make",
    prove_rest(
        [
            lambda: b'{"content":[' + b",".join([b'{"type":"text","text":""}'] * 500_000) + b"]}",
            lambda: b'{"content":[],"structuredContent":{"a":[' + b"[]," * 3_000_000 + b"[]]}}",
            lambda: b'{"tools":[' + b'{"name":"","inputSchema":{}},' * 500_000 + b"{}]}",
            lambda: b'{"content":[],"structuredContent":{"a":["' + b'","' * 3_000_000 + b'"]}}',
        ]
    ),
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


@pytest.mark.parametrize("uri", [b'"uri":""', b'"uri":"","name":"x"', b'"uri":5,"uriTemplate":""'])
def test_resource_without_an_address_costs_only_itself(uri):
    listed = answer_of(b'{"resources":[{%b},{"uri":"notes:1"}]}' % uri).result["resources"]
    assert listed == [{"name": "notes:1", "uri": "notes:1"}]


@pytest.mark.parametrize(
    "wrong, left",
    [
        ({"properties": "x"}, {}),
        ({"properties": {"a": {"type": "nope"}}}, {"a": {}}),
        ({"properties": {"a": {"type": "any", "description": "A."}}}, {"a": {"description": "A."}}),
        ({"properties": {"a": {"items": {"required": "x"}}}}, {"a": {}}),
        ({"properties": {"a": {"anyOf": []}}}, {"a": {}}),
        ({"properties": {"a": {"$ref": "https://example.com/schema"}}}, {"a": {}}),
        ({"properties": {"a": 5}}, {"a": {}}),
        ({"$defs": 5}, {}),
        ({"properties": {"a": {"description": "x" * MAX_SCHEMA_BYTES}}}, {}),
        ({"properties": {"a": json.loads('{"items":' * 200 + "{}" + "}" * 200)}}, {"a": {}}),
        ("x", {}),
        (["x"], {}),
        ({"type": "string"}, {}),
    ],
)
def test_schema_that_an_api_refuses_is_left_out_as_far_as_it_is_wrong_and_that_is_told(wrong, left):
    schema, problems = sound(wrong)
    assert schema == {"type": "object", "properties": left}
    assert problems


@pytest.mark.parametrize("open_", [None, {}, True, {"type": "object"}, {"properties": None}])
def test_schema_that_says_nothing_takes_anything(open_):
    assert sound(open_)[0] == NOTHING


def test_schema_that_is_a_reference_is_what_that_leads_to():
    parts = {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    node = {"type": "object", "properties": {"parts": parts}, "required": ["parts"]}
    definitions = {"$defs": {"Node": node}}
    assert sound(definitions | {"$ref": "#/$defs/Node"}) == (definitions | node, [])
    assert sound(definitions | {"$ref": "#"})[0] == definitions | NOTHING


TEXT, NUMBER = {"type": "string"}, {"type": "number"}


@pytest.mark.parametrize(
    "schema, properties, required",
    [
        ({"anyOf": [_of(a=TEXT), _of(b=NUMBER)]}, {"a": TEXT, "b": NUMBER}, None),
        ({"oneOf": [_of("a", a=TEXT), _of("a", a=NUMBER, b=TEXT)]}, {"a": TEXT, "b": TEXT}, ["a"]),
        ({"allOf": [_of("a", a=TEXT), _of("b", b=TEXT)]}, {"a": TEXT, "b": TEXT}, ["a", "b"]),
        (
            {"properties": {"a": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": TEXT},
            None,
        ),
        ({"properties": {"coin": TEXT, "required": ["coin"]}}, {"coin": TEXT}, ["coin"]),
    ],
)
def test_properties_are_found_where_an_api_does_not_look_for_them(schema, properties, required):
    fitted, problems = sound(schema)
    assert (fitted["properties"], fitted.get("required"), problems) == (properties, required, [])


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
    assert sound(good) == (good, [])
    wrong = {"properties": good["properties"] | {"x": 5}, "required": ["a", "y"]}
    fitted, problems = sound(good | wrong)
    assert fitted == good | {"properties": good["properties"] | {"x": {}}}
    assert problems == ["the schema of `x` is left out"]


def test_properties_get_names_that_every_api_takes_and_required_goes_with_them():
    names = ["$filter", "StartTime<", "user[name]", "a b", "x[]", "ok", "日付", "値", "", "y" * 70]
    schema, own = named(
        {"type": "object", "properties": dict.fromkeys(names, TEXT)} | {"required": names}
    )
    assert list(schema["properties"])[:6] == [
        *("_filter", "StartTime_", "user_name_", "a_b", "x_", "ok")
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in schema["properties"])
    assert schema["required"] == list(schema["properties"])
    assert len(schema["properties"]) == len(names)
    assert [own.get(name, name) for name in schema["properties"]] == names


def test_a_property_that_is_renamed_takes_no_other_ones_name():
    schema, own = named({"type": "object", "properties": dict.fromkeys(["$x", "_x", "%x"], TEXT)})
    assert [own.get(name, name) for name in schema["properties"]] == ["$x", "_x", "%x"]
    assert schema["properties"].keys() == {"_x", "_x_2", "_x_3"}


@pytest.mark.parametrize(
    "image",
    [
        ("aGVsbG8=", "image/png"),
        ("not base64!", "image/png"),
        ("", "image/gif"),
        (DOT, "image/jpeg"),
        (in_base64(png(100, 9000)), "image/png"),
        (in_base64(png()[:-9]), "image/png"),
        (in_base64(b"<svg/>"), "image/svg+xml"),
    ],
)
async def test_image_that_is_none_is_told_and_not_sent(image):
    data, mime_type = image
    block = SimpleNamespace(type="image", data=data, mime_type=mime_type)
    result = SimpleNamespace(content=[block], structured_content=None, is_error=False)
    outcome = await outcome_of(result, None)
    assert f"cannot be shown{'' if 'svg' in mime_type else ': '}" in outcome.content


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
