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
    "path": "file_path filepath filename file absolute_path relative_path target_file target_path directory dir folder notebook_path",
    "command": "cmd commands script",
    "timeout_s": "timeout timeout_seconds timeout_sec timeout_ms",
    "background": "run_in_background is_background",
    "pty": "tty terminal is_tty",
    "text": "input data",
    "keys": "key",
    "old": "old_string old_str old_text search",
    "new": "new_string new_str new_text replace replacement",
    "replace_all": "replace_everything allow_multiple",
    "insert_at_line": "insert_line",
    "content": "file_text contents text file_content",
    "offset": "start_line",
    "pattern": "query regex",
    "glob": "include include_pattern glob_pattern file_pattern",
    "type": "file_type",
    "context": "_c _a _b context_lines",
    "limit": "max_results head_limit max_count",
    "ignore_case": "case_insensitive _i",
    "literal": "fixed_strings",
    "items": "todos",
    "question": "prompt",
    "choices": "options answers",
    "several": "multi_select multiple",
    "label": "title value",
    "id": "job_id task_id bash_id shell_id",
    "wait_s": "wait timeout timeout_s",
    "action": "operation",
    "op": "operation action",
    "symbol": "symbol_name query",
    "line": "line_number",
    "to": "new_name new_path destination",
    "depth": "max_depth",
    "url": "uri link",
    "task": "prompt instructions",
    "role": "subagent_type agent_type agent subagent role_name",
    "files": "paths file_paths",
    "budget": "max_tokens token_budget budget_tokens",
}
_OWN_NAMES: Mapping[str, tuple[str, ...]] = {
    other: tuple(own for own, others in _OTHER_NAMES.items() if other in others.split())
    for other in " ".join(_OTHER_NAMES.values()).split()
}
MS_PER_S = 1000
_IN_MS = frozenset(("timeout", "timeout_ms"))
_WORDS = frozenset(
    (
        "description",
        "explanation",
        "reason",
        "thought",
        "thoughts",
        "toolSummary",
        "-n",
        "multiline",
    )
)
"""Fields in which models explain their call, or ask for what the tool does anyway."""
_WRAPPERS = frozenset(("input", "arguments", "args", "parameters", "params"))
_FROM_ONE = frozenset(("offset",))
"""Fields that count from 1, and that models count from 0."""
_TEXTS = frozenset(("pattern", "symbol", "id", "old", "new"))
"""Fields that a number fits as text."""
_SAME_WORDS = {
    "completed": "done complete finished closed",
    "in_progress": "doing active current started ongoing working inprogress",
    "pending": "todo to_do open not_started waiting planned",
    "stop": "kill cancel terminate",
    "send": "type write input",
    "keys": "press key",
}
_OWN_WORDS = {other: own for own, others in _SAME_WORDS.items() for other in others.split()}
_NUMBER = r"[+-]?\d{1,15}(\.\d{1,15})?"
_LISTS = (inspect.ListType, inspect.VarTupleType)
_FLAGS: Mapping[Any, bool] = {
    "true": True,
    "false": False,
    "1": True,
    "0": False,
    "yes": True,
    "no": False,
}


class RepairedInput(NamedTuple):
    """The repaired input, and the names of unknown fields."""

    value: Any
    ignored: tuple[str, ...] = ()


def meant(data: Mapping[str, Any], kind: type[msgspec.Struct]) -> RepairedInput:
    ignored = list[str]()
    fields = _fields_of(inspect.type_info(kind))
    value = _struct(_unwrapped(dict(data), fields), fields, ignored)
    return RepairedInput(value, tuple(ignored))


def fields_in_words(kind: type[msgspec.Struct]) -> str:
    """Describe the fields: "path (required), edits (required; each: old, new (required))"."""
    return _in_words(_fields_of(inspect.type_info(kind)))


def _in_words(fields: Mapping[str, inspect.Field]) -> str:
    return ", ".join(
        f"{name} ({'; '.join(facts)})" if (facts := _facts(field)) else name
        for name, field in fields.items()
    )


def _facts(field: inspect.Field) -> list[str]:
    kind, facts = _bare(field.type), ["required"] if field.required else []
    if isinstance(kind, inspect.LiteralType):
        facts.append(" | ".join(map(str, sorted(kind.values, key=str))))
    if isinstance(kind, _LISTS) and (items := _fields_of(_bare(kind.item_type))):
        facts.append(f"each: {_in_words(items)}")
    return facts


def _fields_of(info: inspect.Type) -> dict[str, inspect.Field]:
    fields = info.fields if isinstance(info, inspect.StructType) else ()
    return {field.encode_name: field for field in fields}


def _unwrapped(given: dict[str, Any], fields: Mapping[str, inspect.Field]) -> dict[str, Any]:
    """Return the fields of an input inside an object: `{"input": {"path": …}}`."""
    [name, *others] = given or [""]
    inner = _parsed(given[name]) if not others and name in _WRAPPERS - {*fields} else None
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else given


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
    _translate(taken, others, fields)
    _gather(taken, others, fields)
    ignored += (name for name in others if name not in _WORDS)
    return {
        name: _fit(_plain_value(name, value, fields[name]), fields[name].type, ignored)
        for name, value in taken.items()
        if value is not None or fields[name].required
    }


def _own_name(name: str, fields: Mapping[str, inspect.Field]) -> str:
    """Return the field for another agent's `name`, or ""."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().replace("-", "_")
    return next((each for each in (snake, *_OWN_NAMES.get(snake, ())) if each in fields), "")


def _translate(
    taken: dict[str, Any], others: dict[str, Any], fields: Mapping[str, inspect.Field]
) -> None:
    """Take fields of other agents' tools that say the same in another way."""
    if "files_only" in fields and isinstance(mode := others.get("output_mode"), str):
        if mode != "content":
            taken.setdefault("files_only", mode in ("files_with_matches", "count"))
        del others["output_mode"]
    if "ignore_case" in fields and "case_sensitive" in others:
        flag = _FLAGS.get(str(others["case_sensitive"]).lower())
        if flag is not None and "ignore_case" not in taken:
            taken["ignore_case"] = not flag
            del others["case_sensitive"]
    if "offset" in fields and "limit" in fields and "limit" not in taken:
        _take_last_line(taken, others)


def _take_last_line(taken: dict[str, Any], others: dict[str, Any]) -> None:
    """Convert a range with its last line, `end_line` or `view_range`, to `offset` and `limit`."""
    last: Any = None
    match _parsed(others.get("view_range")):
        case [first, last] if "offset" not in taken:
            name, first = "view_range", _number(first)
        case _:
            name = next((each for each in ("end_line", "endLine") if each in others), "")
            first, last = _number(taken.get("offset", 1)), others.get(name)
    last = _number(last)
    if type(first) is int and type(last) is int and (last == -1 or last >= max(first, 1)):
        taken["offset"] = first
        if last > 0:
            taken["limit"] = last - max(first, 1) + 1
        del others[name]


def _plain_value(name: str, value: Any, field: inspect.Field) -> Any:
    if type(value) is int and name in _TEXTS:
        return str(value)
    is_from_one = name in _FROM_ONE and getattr(_bare(field.type), "ge", None) == 1
    return 1 if is_from_one and value in ("0", 0) and type(value) is not bool else value


def _seconds(name: str, value: Any, field: inspect.Field) -> Any:
    """Convert milliseconds to seconds. A `timeout` is in milliseconds if it is above the field's limit and a second or more."""
    number, most = _number(value), getattr(_bare(field.type), "le", None)
    if name not in _IN_MS or not most or not isinstance(number, int | float):
        return value
    is_ms = name == "timeout_ms" or number >= max(most, MS_PER_S)
    return number / MS_PER_S if is_ms else value


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
            word = (
                re.sub(r"[-\s]+", "_", value.strip().lower()) if isinstance(value, str) else value
            )
            word = word if word in kind.values else _OWN_WORDS.get(str(word), word)
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
