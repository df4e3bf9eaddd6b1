"""Tool schemas in the formats of APIs."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from sanderling.providers import ToolSpec

_NOT_STRICT = frozenset(("oneOf", "allOf", "not", "patternProperties", "default"))


def function_tool(spec: ToolSpec, *, is_strict: bool = False) -> dict[str, Any]:
    """Return a tool in the format of Chat Completions and Ollama; `is_strict` takes effect if its schema allows it."""
    function: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.input_schema,
    }
    if is_strict and fits_strict(spec.input_schema):
        function["strict"] = True
    return {"type": "function", "function": function}


def fits_strict(schema: Mapping[str, Any]) -> bool:
    """
    Return True if `schema` can be enforced: each object is closed, and all its properties are required.

    Source: https://developers.openai.com/api/docs/guides/structured-outputs
    """
    left: list[object] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            known = cast("Mapping[str, Any]", part)
            if not _is_strict(known):
                return False
            left += _parts(known)
    return True


def _is_strict(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties", {})
    is_object = bool(properties) or schema.get("type") == "object"
    is_closed = schema.get("additionalProperties") is False
    is_alone = "$ref" not in schema or len(schema) == 1
    return (
        not _NOT_STRICT & set(schema)
        and is_alone
        and (not is_object or (is_closed and set(schema.get("required", ())) == set(properties)))
    )


def _parts(schema: Mapping[str, Any]) -> Iterator[object]:
    for name in ("properties", "$defs"):
        yield from schema.get(name, {}).values()
    yield from schema.get("anyOf", ())
    yield schema.get("items")
