"""Schemas of tools that an API can hold the model to."""

import json
from typing import Any

import pytest
from tests.api_rules import of_function

from sanderling.providers.encoding import fits_strict
from sanderling.tools.catalog import TOOLS, specs_of

TEXT = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema, fits",
    [
        (closed(), True),
        (closed(path=TEXT, deep=closed(path=TEXT)), True),
        (closed(list={"type": "array", "items": closed(path=TEXT)}), True),
        (closed(either={"anyOf": [closed(path=TEXT), {"type": "null"}]}), True),
        (closed(named={"$ref": "#/$defs/X"}) | {"$defs": {"X": closed(path=TEXT)}}, True),
        (closed(path=TEXT) | {"required": []}, False),
        (closed(path=TEXT) | {"additionalProperties": True}, False),
        ({"type": "object", "properties": {}}, False),
        ({"properties": {"path": TEXT}}, False),
        (closed(path=TEXT | {"default": ""}), False),
        (closed(path={"oneOf": [TEXT]}), False),
        (closed(named={"$ref": "#/$defs/X", "description": "x"}), False),
        (closed(list={"type": "array", "items": {"type": "object"}}), False),
        (closed(named={"$ref": "#/$defs/X"}) | {"$defs": {"X": {"type": "object"}}}, False),
        (closed(default=TEXT, type=TEXT, properties=TEXT), True),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_schema_fits_if_the_api_takes_it_as_a_strict_one(schema, fits):
    assert fits_strict(schema) is fits
    judged = list(of_function({"name": "x", "parameters": schema}, is_strict=True))
    assert (judged == []) is fits


def test_schema_that_is_deep_is_no_trouble():
    schema: dict[str, Any] = closed()
    for _ in range(5000):
        schema = closed(deep=schema)
    assert fits_strict(schema)


def test_own_tools_are_what_the_api_takes():
    for spec in specs_of(TOOLS.values()):
        function = {"name": spec.name, "parameters": spec.input_schema}
        assert list(of_function(function, is_strict=fits_strict(spec.input_schema))) == []


def test_each_enum_of_our_tools_has_a_type():
    """Chat templates of some models cannot be rendered otherwise."""
    enums = [
        field
        for tool in TOOLS.values()
        for part in (tool.schema, *tool.schema.get("$defs", {}).values())
        for field in part["properties"].values()
        if "enum" in field
    ]
    assert len(enums) >= 4
    assert all(field["type"] == "string" for field in enums)
