"""
The schemas of servers' tools, as every API takes them.

An API refuses a whole request for one schema that is none, so a server's must not get there. What is lost here, the server checks.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard, cast

import msgspec

MAX_SCHEMA_BYTES = 64_000
MAX_DEPTH = 32
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_AT_THE_TOP = ("$ref", "oneOf", "anyOf", "allOf", "not", "enum", "if", "then", "else")
_DEFINITION = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def fitted(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with an object at the top, and without the properties that no API would take."""
    told = {
        key: value
        for key, value in {**_referred(schema), **schema}.items()
        if key not in _NOT_AT_THE_TOP and (key == "properties" or _is_sound({key: value}))
    }
    listed = told.get("properties")
    properties = {
        name: part
        for name, part in (listed if _is_table(listed) else {}).items()
        if _PROPERTY.fullmatch(name) and _is_sound(part)
    }
    if "required" in told:
        told["required"] = [name for name in told["required"] if name in properties]
    whole = told | {"type": "object", "properties": properties}
    if len(msgspec.json.encode(whole)) > MAX_SCHEMA_BYTES:
        return {"type": "object", "properties": {}}
    return whole


def _referred(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that a schema is which refers to it, as some of types that hold themselves do."""
    found = _DEFINITION.fullmatch(str(schema.get("$ref")))
    definitions = schema.get(found[1]) if found else None
    definition = definitions.get(found[2]) if found and _is_table(definitions) else None
    return definition if _is_table(definition) else {}


def _is_sound(schema: object) -> bool:
    """Say whether `schema` is one, so far as the keywords go that are known here."""
    left = [(schema, 0)]
    while left:
        part, depth = left.pop()
        if isinstance(part, bool):
            continue
        if not _is_table(part) or depth > MAX_DEPTH:
            return False
        for key, value in part.items():
            if key in _VALUES and not _VALUES[key](value):
                return False
            left += ((each, depth + 1) for each in _parts(key, value))
    return True


def _parts(key: str, value: Any) -> Iterator[object]:
    """The schemas that stand in the value of a keyword."""
    if key in _ONE:
        yield value
    elif key in _MANY:
        yield from value
    elif key in _NAMED:
        yield from value.values()


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_filled(value: object) -> bool:
    return isinstance(value, list) and bool(cast("list[object]", value))


def _are_names(value: object) -> bool:
    names = cast("list[object]", value) if isinstance(value, list) else [None]
    return all(map(_is_text, names)) and len(set(names)) == len(names)


def _is_type(value: object) -> bool:
    names = cast("list[Any]", value) if isinstance(value, list) else [value]
    return bool(names) and _are_names(names) and _TYPES.issuperset(names)


def _is_own_place(value: object) -> bool:
    return isinstance(value, str) and value.startswith("#")


_ONE = frozenset(
    [
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_VALUES: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(_MANY, _is_filled),
    **dict.fromkeys(_NAMED, _is_table),
    **dict.fromkeys(
        ["title", "description", "format", "pattern", "$schema", "$id", "$comment", "$anchor"],
        _is_text,
    ),
    **dict.fromkeys(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"], _is_number
    ),
    **dict.fromkeys(
        [
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ],
        _is_count,
    ),
    "type": _is_type,
    "required": _are_names,
    "enum": _is_filled,
    "examples": _is_list,
    "$ref": _is_own_place,
}
