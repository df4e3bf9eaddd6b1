"""
The schemas of servers' tools, in a form that every API accepts.

An API rejects a whole request for one invalid schema, so a server's must not get there. A schema is first made sound, with the server's
own names (`sound`). Then its properties get names that APIs accept (`named`), which a call translates back. The server checks whatever is
lost here.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard, cast

import msgspec

from sanderling.text import name_set

MAX_SCHEMA_BYTES = 64_000
MAX_DEPTH = 32
MAX_PROPERTY_CHARS = 64
_HASH_CHARS = 6
_PROPERTY = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_PROPERTY_CHARS}}}")
_NOT_AT_THE_TOP = ("$ref", "oneOf", "anyOf", "allOf", "not", "enum", "if", "then", "else")
_DEFINITION = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_OPEN: dict[str, Any] = {"type": "object", "properties": {}}


def sound(schema: object) -> tuple[dict[str, Any], list[str]]:
    """
    Return an object schema that every API accepts, and what was left out.

    A property whose own schema is unsound accepts any value: without the property, each call would fail at the server.
    """
    if not schema:
        return dict(_OPEN), []
    if not _is_table(schema):
        return dict(_OPEN), [] if schema is True else ["its schema is not an object's"]
    whole, problems = _merged(schema), list[str]()
    kept = {
        key: value
        for key, value in whole.items()
        if key not in _NOT_AT_THE_TOP and (key == "properties" or _is_sound({key: value}))
    }
    if _is_table(kept.get("properties")):
        kept["properties"] = _lifted(kept)
    problems += [f"`{key}` of its schema is left out" for key in _lost(whole, kept)]
    if whole.get("type", "object") != "object":
        problems.append("its schema is not an object's")
    listed = kept.get("properties")
    properties = dict(listed) if _is_table(listed) else {}
    for name, part in properties.items():
        if not _is_sound(part):
            properties[name] = _any_value(part)
            problems.append(f"the schema of `{name}` is left out")
    if "required" in kept:
        kept["required"] = [name for name in kept["required"] if name in properties]
    fitted = kept | {"type": "object", "properties": properties}
    if len(msgspec.json.encode(fitted)) > MAX_SCHEMA_BYTES:
        return dict(_OPEN), [f"its schema has more than {MAX_SCHEMA_BYTES:,} bytes"]
    return fitted, problems


def with_tables(schema: Any) -> Any:
    """Return the schema with `{}` for each empty list where only a table can be: Lua does not distinguish them."""
    if schema == []:
        return {}
    if not _is_table(schema):
        return schema
    return {key: _with_tables(key, value) for key, value in schema.items()}


def _with_tables(key: str, value: Any) -> Any:
    if key in _NAMED:
        named_parts: dict[str, Any] = value if _is_table(value) else {}
        is_sound = _is_table(value) or value == []
        return (
            {name: with_tables(part) for name, part in named_parts.items()} if is_sound else value
        )
    if key in _ONE:
        return with_tables(value)
    if key in _MANY and isinstance(value, list):
        return [with_tables(part) for part in cast("list[Any]", value)]
    return value


def _lost(whole: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Return the unsound keywords that define the properties."""
    lost = [key for key in ("required", "$defs", "definitions") if key in whole and key not in kept]
    if not _is_table(whole.get("properties") or {}):
        lost.append("properties")
    return lost


def _lifted(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the properties. A list `required` that was put among them by mistake goes where it belongs."""
    properties: dict[str, Any] = schema["properties"]
    names = properties.get("required")
    if not _are_names(names):
        return properties
    others = {name: part for name, part in properties.items() if name != "required"}
    schema.setdefault("required", [name for name in names if name in others])
    return others


def _any_value(part: object) -> dict[str, Any]:
    about = part.get("description") if _is_table(part) else None
    return {"description": about} if isinstance(about, str) else {}


def _merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with the properties of its references and alternatives, which APIs reject at the top."""
    whole = {**_referred(schema, schema), **schema}
    for key in ("allOf", "anyOf", "oneOf"):
        branches = whole.get(key)
        listed = cast("list[object]", branches) if isinstance(branches, list) else []
        parts = [{**_referred(schema, each), **each} for each in listed if _is_table(each)]
        tables = [each for part in parts if _is_table(each := part.get("properties"))]
        needed = [
            set(names) if _are_names(names := part.get("required")) else set[str]()
            for part in parts
        ]
        if not tables or not _is_table(whole.get("properties", {})):
            continue
        properties = {name: part for table in reversed(tables) for name, part in table.items()}
        whole["properties"] = {**properties, **whole.get("properties", {})}
        both = set[str]().union(*needed) if key == "allOf" else needed[0].intersection(*needed)
        own = whole.get("required", [])
        if both and _are_names(own):
            whole["required"] = [*own, *sorted(both.difference(own))]
    return whole


def named(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the schema with property names that every API accepts, and a map from changed names to the server's."""
    properties: dict[str, Any] = schema["properties"]
    names = {name: name for name in properties if _PROPERTY.fullmatch(name)}
    for name in properties:
        if name not in names:
            names[name] = _free(_property_name(name), set(names.values()))
    own = {new: name for name, new in names.items() if new != name}
    if not own:
        return dict(schema), {}
    renamed = {key: value for key, value in schema.items() if not key.startswith("dependent")}
    renamed["properties"] = {names[name]: part for name, part in properties.items()}
    if "required" in schema:
        renamed["required"] = [names[name] for name in schema["required"]]
    return renamed, own


def _property_name(name: str) -> str:
    fitted = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    mark = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
    if not fitted.strip("_"):
        return f"property_{mark}"
    if len(fitted) > MAX_PROPERTY_CHARS:
        return f"{fitted[: MAX_PROPERTY_CHARS - _HASH_CHARS - 1]}_{mark}"
    return fitted


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: MAX_PROPERTY_CHARS - 4]}_{number}"
    return free


def _referred(schema: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition in `schema` that a `part` of it refers to, as schemas of recursive types do."""
    found = _DEFINITION.fullmatch(str(part.get("$ref")))
    definitions = schema.get(found[1]) if found else None
    definition = definitions.get(found[2]) if found and _is_table(definitions) else None
    return definition if _is_table(definition) else {}


def _is_sound(schema: object) -> bool:
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
    """Yield the schemas in the value of a keyword."""
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


def _are_names(value: object) -> TypeGuard[list[str]]:
    names = cast("list[object]", value) if isinstance(value, list) else [None]
    return all(map(_is_text, names)) and len(set(names)) == len(names)


def _is_type(value: object) -> bool:
    names = cast("list[Any]", value) if isinstance(value, list) else [value]
    return bool(names) and _are_names(names) and _TYPES.issuperset(names)


def _is_own_place(value: object) -> bool:
    return isinstance(value, str) and value.startswith("#")


_ONE = name_set(
    "items additionalProperties not if then else contains propertyNames unevaluatedItems unevaluatedProperties"
)
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_VALUES: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(_MANY, _is_filled),
    **dict.fromkeys(_NAMED, _is_table),
    **dict.fromkeys(
        name_set("title description format pattern $schema $id $comment $anchor"), _is_text
    ),
    **dict.fromkeys(
        name_set("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"), _is_number
    ),
    **dict.fromkeys(
        name_set("minLength maxLength minItems maxItems minProperties maxProperties"), _is_count
    ),
    **dict.fromkeys(name_set("minContains maxContains"), _is_count),
    "type": _is_type,
    "required": _are_names,
    "enum": _is_filled,
    "examples": _is_list,
    "$ref": _is_own_place,
}
