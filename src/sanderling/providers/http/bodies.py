"""
Bodies of answers, and events in them: decoded strictly where they are the answer, leniently where they only tell of it.

What the answer is made of must have its form; what is told beside it, counts and reasons, is unknown where it cannot be read, for the
answer is paid for.
"""

import json
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec

from sanderling.errors import ProviderError
from sanderling.providers.http.errors import is_known, malformed
from sanderling.text import printable

MAX_SHOWN_INPUT_CHARS = 500
MAX_COUNT = 2**53  # what Lua can hold

T = TypeVar("T")

_input_decoder = msgspec.json.Decoder(dict[str, Any])


def decode(decoder: msgspec.json.Decoder[T], data: bytes | str | msgspec.Raw) -> T:
    """
    Decode `data`, which must have the form that `decoder` knows.

    Raises:
        ProviderError: it has not.
    """
    try:
        return decoder.decode(data)
    except (msgspec.ValidationError, RecursionError) as error:
        raise malformed(str(error)) from error
    except msgspec.DecodeError:
        pass
    # Half of a surrogate pair is no text in any encoding, yet a proxy that cuts strings can send one: show U+FFFD instead.
    try:
        value = json.loads(bytes(data) if isinstance(data, msgspec.Raw) else data)
        return decoder.decode(printable(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise malformed(str(error)) from error


def tool_input(text: str) -> tuple[dict[str, Any], str]:
    """The input of a tool use that the model has written; if that is no object, an empty one and what the model is told."""
    try:
        return decode(_input_decoder, text.strip() or "{}"), ""
    except ProviderError:
        return {}, _broken_input(text)


def _broken_input(text: str) -> str:
    """Cut off at the limit of tokens, most of the time."""
    try:
        json.loads(text)
        reason = "it is no object, or too deep"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    shown = text if len(text) <= MAX_SHOWN_INPUT_CHARS else f"{text[:MAX_SHOWN_INPUT_CHARS]}…"
    return f"The input is not the JSON object that it must be ({reason}). What arrived: {printable(shown)}"


def field(value: object, name: str) -> Any:
    """The field `name` of what may be an object; None if it is none, or has no such field."""
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def is_list(value: object) -> bool:
    return isinstance(value, list)


def items(value: object) -> list[object]:
    """The items of what may be a list; none if it is none."""
    return cast("list[object]", value) if isinstance(value, list) else []


def count(value: object) -> int | None:
    """`value` if it is a number of tokens."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def first_count(value: object, paths: tuple[tuple[str, ...], ...]) -> int:
    """The number of tokens at the first of `paths` that leads to one; 0 if none does."""
    for path in paths:
        told = value
        for name in path:
            told = field(told, name)
        if number := count(told):
            return number
    return 0


def decode_refusal(data: bytes) -> tuple[str, str]:
    """The type or code of an error and what is said of it, for `explain_status`; empty where it is no API's own."""
    with suppress(ValueError, RecursionError):
        return read_refusal(json.loads(data.decode(json.detect_encoding(data), "replace")))
    return "", ""


def read_refusal(body: object) -> tuple[str, str]:
    """
    The type or code of the error in `body` and what is said of it, however that is told: a proxy's may hold anything.

    Beside `error: {type, code, message}` there are lists of those (Gemini), the fields without `error` (Mistral, vLLM), `error` as
    a sentence (Ollama, xAI), `detail` (FastAPI), and the words of whoever stands behind a router.
    """
    body = next(iter(items(body)), body)
    told = field(body, "error")
    sentence = told if isinstance(told, str) else ""
    error = cast("object", told) if isinstance(told, dict) else body
    names = [field(error, name) for name in ("code", "type", "status")]
    kinds = [name for name in names if isinstance(name, str)]
    kind = next(filter(is_known, kinds), kinds[-1] if kinds else "")
    raw = field(field(error, "metadata"), "raw")
    words = (sentence, field(error, "message"), _details(field(error, "detail")), raw)
    return kind, printable(": ".join(each for each in words if isinstance(each, str) and each))


def _details(detail: object) -> object:
    messages = (field(each, "msg") for each in items(detail))
    return "; ".join(each for each in messages if isinstance(each, str)) or detail
