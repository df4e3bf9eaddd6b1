"""Encoding of requests: each message of a history is encoded once. Tools, in the formats of APIs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, cast

import msgspec

from sanderling import json_lines
from sanderling.protocol.messages import Message, ToolResult, ToolUse
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.endpoint import Quirks

MAX_KEY_CHARS = 64

_NOT_STRICT = frozenset(("oneOf", "allOf", "not", "patternProperties", "default"))

EncodeMessage = Callable[[Message, Message | None], Iterable[msgspec.Raw]]


class EncodedHistory:
    """
    The history that was encoded last. Messages are recognized by identity, so a long history costs a copy of its bytes.

    `encode` turns a message, given the one before it, into one or more messages of the API.
    """

    def __init__(self, encode: EncodeMessage) -> None:
        self._encode = encode
        self._messages: list[Message] = []
        self._encoded: list[tuple[msgspec.Raw, ...]] = []

    def of(self, history: Sequence[Message]) -> list[tuple[msgspec.Raw, ...]]:
        known = _common_length(self._messages, history)
        del self._messages[known:], self._encoded[known:]
        for message in history[known:]:
            previous = self._messages[-1] if self._messages else None
            self._encoded.append(tuple(self._encode(message, previous)))
            self._messages.append(message)
        return self._encoded.copy()


class EncodedTools:
    """The tools that were encoded last, each by `encode`."""

    def __init__(self, encode: Callable[[ToolSpec], Any]) -> None:
        self._encode = encode
        self._specs: tuple[ToolSpec, ...] = ()
        self._encoded = msgspec.Raw(b"[]")

    def of(self, specs: tuple[ToolSpec, ...]) -> msgspec.Raw:
        if specs is not self._specs:
            self._specs, self._encoded = specs, encoded([*map(self._encode, specs)])
        return self._encoded


def _common_length(one: Sequence[Message], other: Sequence[Message]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a is not b), min(len(one), len(other)))


def encoded(value: Any) -> msgspec.Raw:
    """Return `value` as JSON that every API accepts, whatever bytes a file name or a program's output has."""
    return msgspec.Raw(json_lines.encoded(value))


def replays_thoughts(quirks: Quirks, message: Message, previous: Message | None) -> bool:
    """
    Return True if the reasoning of `message`, the answer to `previous`, is sent back.

    This depends only on what came before it in the turn, so that the bytes of a message never change.
    """
    blocks = chain(message.content, previous.content if previous else ())
    has_tools = any(isinstance(block, ToolUse | ToolResult) for block in blocks)
    return {"never": False, "with_tools": has_tools, "always": True}[quirks.replay_reasoning]


def with_mark(message: msgspec.Raw, name: str, value: dict[str, str]) -> msgspec.Raw:
    """Add the field `name` to the last block of `message`, which ends with its content, and that with a block."""
    block = bytes(message).removesuffix(b"}]}")
    return msgspec.Raw(block + b',"%b":%b}]}' % (name.encode(), msgspec.json.encode(value)))


def previous_end(history: Sequence[Message]) -> int | None:
    """Return the index of the previous request's last message, which precedes the model's last one."""
    for index in range(len(history) - 2, -1, -1):
        if (history[index].role, history[index + 1].role) == ("user", "assistant"):
            return index
    return None


def cache_key(request: ModelRequest, quirks: Quirks) -> str:
    """
    Return the prompt cache's key, or "" without such a cache.

    From GPT-5.6 on, requests that begin alike should share a key, because each key has its own cache. So it is derived from the system
    prompt, which all sessions share. For earlier models the key only selects a machine, and one per session is enough. Sources:
    https://developers.openai.com/api/docs/guides/prompt-caching and
    https://learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching
    """
    match quirks.cache:
        case "key":
            return request.session_id[:MAX_KEY_CHARS]
        case "openai_explicit":
            return blake2b(request.system.encode(errors="replace"), digest_size=16).hexdigest()
        case _:
            return ""


def function_tool(
    spec: ToolSpec, *, is_strict: bool = False, is_full: bool = False
) -> dict[str, Any]:
    """
    Return a tool in the format of Chat Completions and Ollama.

    `is_strict` takes effect if its schema allows it. `is_full`: each parameter gets a type and a description.
    """
    function: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": _full(spec.input_schema) if is_full else spec.input_schema,
    }
    if is_strict and fits_strict(spec.input_schema):
        function["strict"] = True
    return {"type": "function", "function": function}


def _full(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schema` with a type and a description for each property, and with the schemas that JSON Schema takes by default."""
    full = dict(schema)
    if isinstance(fields := full.get("properties"), Mapping):
        named = cast("Mapping[str, object]", fields)
        full["properties"] = {name: _full_property(each) for name, each in named.items()}
    match full.get("type"):
        case "array":
            full["items"] = _full(_as_schema(full.get("items")))
        case "object":
            full.setdefault("additionalProperties", {})
        case _:
            pass
    return full


def _full_property(schema: object) -> dict[str, Any]:
    known = _as_schema(schema)
    return _full({"type": _type_of(known), "description": "", **known})


def _as_schema(schema: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else {}


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the type that the parts of a schema imply; text if none do."""
    choices = map(_as_schema, (*schema.get("anyOf", ()), *schema.get("oneOf", ())))
    types = (choice.get("type") for choice in choices)
    if found := next((each for each in types if isinstance(each, str) and each != "null"), ""):
        return found
    if "$ref" in schema or "properties" in schema:
        return "object"
    values = schema.get("enum", ())
    return "integer" if values and all(type(value) is int for value in values) else "string"


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
