"""
Results of servers, repaired part by part before the SDK validates them.

The SDK validates a result as a whole: one tool with an odd schema, or one block of an unknown kind, costs all the others. So each part is
checked alone before that. A part that can mean only one thing is repaired, one that cannot be used is left out, and `PROBLEMS`, in the
metadata of the list or the tool, says so.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from sanderling.json_lines import encoded
from sanderling.mcp.schemas import sound

PROBLEMS = "sanderling/problems"
MAX_NAME_CHARS = 80

Table = dict[str, Any]

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_ANNOTATIONS: Mapping[str, type] = {"title": str, **dict.fromkeys(_HINTS, bool)}
_PROMPT: Mapping[str, type] = {"name": str, "title": str, "description": str}
_RESOURCE: Mapping[str, type] = {
    "uri": str,
    "uriTemplate": str,
    "name": str,
    "title": str,
    "description": str,
    "mimeType": str,
}
# The required and the optional fields of each kind of block.
_BLOCKS: Mapping[str, tuple[Mapping[str, type], Mapping[str, type]]] = {
    "text": ({"text": str}, {}),
    "image": ({"data": str, "mimeType": str}, {}),
    "audio": ({"data": str, "mimeType": str}, {}),
    "resource": ({"resource": dict}, {}),
    "resource_link": ({"uri": str, "name": str}, _RESOURCE),
}


def acceptable(result: Table) -> Table:
    """Return the result with each part as the SDK accepts it. A part that must be a list and is not stays as it is."""
    fitted = dict(result)
    meta = fitted.pop("_meta", None)
    if isinstance(meta, dict):
        given = cast("Table", meta).items()
        fitted["_meta"] = {key: value for key, value in given if key != PROBLEMS}
    for key, fit in _LISTS.items():
        if key in fitted and fitted[key] is None:
            fitted[key] = []  # Go writes an empty list as null
        if isinstance(fitted.get(key), list):
            _fit_list(fitted, key, fit)
    if "content" in fitted or "structuredContent" in fitted:
        _fit_call(fitted)
    return fitted


def _fit_list(result: Table, key: str, fit: Callable[[Table], Table | None]) -> None:
    kept, problems = list[Table](), list[str]()
    for number, each in enumerate(cast("list[object]", result[key]), 1):
        entry = fit(cast("Table", each)) if isinstance(each, dict) else None
        if entry is None:
            problems.append(f"{key.removesuffix('s')} {number} of its list has no valid name")
        else:
            kept.append(entry)
    result[key] = kept
    if problems:
        result["_meta"] = {**result.get("_meta", {}), PROBLEMS: problems}


def _tool(given: Table) -> Table | None:
    name = given.get("name")
    if not isinstance(name, str) or not name:
        return None
    schema, problems = sound(given.get("inputSchema"))
    tool = {**_only(given, _PROMPT), "inputSchema": schema}
    if isinstance(annotations := given.get("annotations"), dict):
        tool["annotations"] = _only(cast("Table", annotations), _ANNOTATIONS)
    if problems:
        shown = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…"
        tool["_meta"] = {PROBLEMS: [f"the tool '{shown}': {each}" for each in problems]}
    return tool


def _prompt(given: Table) -> Table | None:
    arguments = [
        {**_only(each, _PROMPT), "required": each.get("required") is True}
        for each in _tables(given.get("arguments"))
        if isinstance(each.get("name"), str)
    ]
    return {**_only(given, _PROMPT), "arguments": arguments} if _has(given, "name") else None


def _resource(given: Table) -> Table | None:
    fields = _only(given, _RESOURCE)
    uri = fields.get("uri") or fields.get("uriTemplate")
    return {"name": uri, **fields} if uri else None


_LISTS: Mapping[str, Callable[[Table], Table | None]] = {
    "tools": _tool,
    "prompts": _prompt,
    "resources": _resource,
    "resourceTemplates": _resource,
}


def _fit_call(result: Table) -> None:
    """Repair the result of a call. The tool may have done its work, so whatever it says should be readable."""
    content: object = result.get("content")
    if content is None or isinstance(content, str | dict):
        content = [cast("object", content)] if content else []
    if isinstance(content, list):
        result["content"] = [_block(each) for each in cast("list[object]", content)]
    if not isinstance(result.get("isError", False), bool):
        result["isError"] = str(result["isError"]).lower() in ("true", "1")
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict) and isinstance(content, list):
        result["content"] = [*result["content"], _text(structured)]
    if not isinstance(structured, dict):
        result.pop("structuredContent", None)


def _block(block: object) -> Table:
    if not isinstance(block, dict):
        return _text(block)
    given = cast("Table", block)
    kind = given.get("type")
    needed, more = _BLOCKS.get(kind if isinstance(kind, str) else "", ({"": str}, {}))
    if kind == "resource_link" and _has(given, "uri"):
        given = {"name": given["uri"], **given}
    kept = _only(given, {**more, **needed})
    if kept.keys() < needed.keys() or (kind == "resource" and not _is_resource(kept["resource"])):
        return _text(given)
    return {"type": kind, **kept}


def _is_resource(given: Table) -> bool:
    return _has(given, "uri") and (_has(given, "text") or _has(given, "blob"))


def _text(value: object) -> Table:
    return {"type": "text", "text": value if isinstance(value, str) else encoded(value).decode()}


def _has(given: Table, name: str) -> bool:
    return isinstance(given.get(name), str)


def _only(given: Table, fields: Mapping[str, type]) -> Table:
    return {name: given[name] for name, kind in fields.items() if isinstance(given.get(name), kind)}


def _tables(value: object) -> list[Table]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Table", each) for each in items if isinstance(each, dict)]
