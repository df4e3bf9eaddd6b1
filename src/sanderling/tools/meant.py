"""
Repairs tool inputs that have only one possible meaning.

Models send a nested list as JSON text, one object where a list is expected, numbers and flags as text, and field names of other agents.
They repeat this whatever the error says, so an input that can mean only one thing is accepted as that. It is converted once, before
validation: the converted input is checked, shown and run.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import inspect

# Field names of other agents' tools, by our own.
_OTHER_NAMES = {
    "path": "file_path filepath filename file absolute_path directory dir",
    "command": "cmd",
    "timeout_s": "timeout timeout_seconds timeout_ms",
    "background": "run_in_background is_background",
    "old": "old_string old_str old_text",
    "new": "new_string new_str new_text",
    "insert_at_line": "insert_line",
    "content": "file_text contents text",
    "offset": "start_line",
    "pattern": "query regex",
    "glob": "include",
    "limit": "max_results head_limit",
    "ignore_case": "case_insensitive",
    "items": "todos",
    "question": "prompt",
    "choices": "options answers",
    "several": "multiSelect multi_select multiple",
    "label": "title value",
}
_ALIASES = {other: own for own, others in _OTHER_NAMES.items() for other in others.split()}
_IN_MS = frozenset(("timeout", "timeout_ms"))
_WORDS = frozenset(("description", "explanation", "reason", "thought", "thoughts", "toolSummary"))
"""Fields in which models explain their call."""
_NUMBER = r"[+-]?\d{1,15}(\.\d{1,15})?"
_LISTS = (inspect.ListType, inspect.VarTupleType)
_FLAGS: Mapping[Any, bool] = {"true": True, "false": False, "1": True, "0": False}


class RepairedInput(NamedTuple):
    """The repaired input, and the names of unknown fields."""

    value: Any
    ignored: tuple[str, ...] = ()


def meant(data: Mapping[str, Any], kind: type[msgspec.Struct]) -> RepairedInput:
    ignored = list[str]()
    value = _struct(dict(data), _fields_of(kind), ignored)
    return RepairedInput(value, tuple(ignored))


def _fields_of(kind: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field for field in info.fields}


def _bare(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _struct(
    given: dict[str, Any], fields: Mapping[str, inspect.Field], ignored: list[str]
) -> dict[str, Any]:
    taken, others = dict[str, Any](), dict[str, Any]()
    for name, value in given.items():
        (taken if name in fields else others)[name] = value
    for name in list(others):
        own = _own_name(name, fields)
        if own and own not in taken:
            taken[own] = _seconds(name, others.pop(name), fields[own])
    _gather(taken, others, fields)
    ignored += (name for name in others if name not in _WORDS)
    return {
        name: _fit(value, fields[name].type, ignored)
        for name, value in taken.items()
        if value is not None or fields[name].required
    }


def _own_name(name: str, fields: Mapping[str, inspect.Field]) -> str:
    """Return the field for another agent's `name`, or ""."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().replace("-", "_")
    return next((each for each in (snake, _ALIASES.get(snake, "")) if each in fields), "")


def _seconds(name: str, value: Any, field: inspect.Field) -> Any:
    """Convert milliseconds to seconds if `value` exceeds the field's limit in seconds."""
    number, most = _number(value), getattr(_bare(field.type), "le", None)
    is_ms = name in _IN_MS and most and isinstance(number, int | float) and number > most
    return cast("float", number) / 1000 if is_ms else value


def _gather(
    taken: dict[str, Any], others: dict[str, Any], fields: Mapping[str, inspect.Field]
) -> None:
    """Wrap fields given next to a list of items as an item: `old` and `new` without `edits`."""
    for name, field in fields.items():
        kind = _bare(field.type)
        if name in taken or not isinstance(kind, _LISTS):
            continue
        item_type = _bare(kind.item_type)
        if not isinstance(item_type, inspect.StructType):
            continue
        items = {field.encode_name: field for field in item_type.fields}
        parts = {each: others[each] for each in others if each in items or _own_name(each, items)}
        has_needed = any(
            (items.get(each) or items[_own_name(each, items)]).required for each in parts
        )
        if parts and (field.required or has_needed):
            taken[name] = [parts]
            for each in parts:
                del others[each]


def _fit(value: Any, kind: inspect.Type, ignored: list[str]) -> Any:  # noqa: PLR0911 - one for each type
    kind = _bare(kind)
    match kind:
        case inspect.UnionType():
            others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            return value if value is None or len(others) != 1 else _fit(value, others[0], ignored)
        case inspect.ListType() | inspect.VarTupleType():
            value = _parsed(value)
            is_text = isinstance(value, str) and _text_field(kind.item_type, value)
            is_one = (isinstance(value, dict) and value != {}) or is_text
            if not is_one and not isinstance(value, list):
                return cast("object", value)
            items = cast("list[Any]", [value] if is_one else value)
            return [_fit(each, kind.item_type, ignored) for each in items]
        case inspect.StructType():
            value = _parsed(value)
            if name := _text_field(kind, value):
                value = {name: value}
            if not isinstance(value, dict):
                return value
            fields = {field.encode_name: field for field in kind.fields}
            return _struct(cast("dict[str, Any]", value), fields, ignored)
        case inspect.BoolType():
            return _FLAGS.get(str(value).strip().lower(), value) if _is_plain(value) else value
        case inspect.IntType() | inspect.FloatType():
            number = _number(value)
            if isinstance(kind, inspect.IntType) and isinstance(number, float):
                number = int(number) if number.is_integer() else number
            is_more = kind.le is not None and isinstance(number, int | float) and number > kind.le
            return kind.le if is_more else number
        case inspect.LiteralType():
            word = value.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else value  # fmt: skip
            return word if word in kind.values else value
        case _:
            return value


def _text_field(kind: inspect.Type, value: object) -> str:
    """Return the first field of a struct if it is the only required one and can be meant by `value`, a text; else ""."""
    kind = _bare(kind)
    if not isinstance(kind, inspect.StructType) or not isinstance(value, str) or not value:
        return ""
    needed = [field for field in kind.fields if field.required]
    is_text = needed == [*kind.fields[:1]] and isinstance(_bare(needed[0].type), inspect.StrType)
    return needed[0].encode_name if is_text else ""


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or type(value) is int


def _parsed(value: Any) -> Any:
    """Return the array or object in a JSON text; otherwise the value itself."""
    if not isinstance(value, str) or not value.strip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return value


def _number(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(_NUMBER, value.strip()):
        return value
    return float(value) if "." in value else int(value)
