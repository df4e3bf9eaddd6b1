"""
Messages of a server, looked at before the SDK gets them.

They come from code that nobody trusts, and are parsed on the loop that the editor waits for: each value becomes an object, in a call
that nothing interrupts. So a message with too many values is refused by its bytes alone, over pipes as over HTTP.

A line that is not quite JSON is still read where it can mean only one thing. RFC 8259 (8.2) allows halves of surrogate pairs, and
servers that cut a text in the middle of an emoji send them; Python's `json` writes NaN; some write a BOM, a batch, two messages in one
line, or a float as the id. If an answer cannot be read, its call fails at once: to wait for it until the time is over, and then to
say that it did not come, was the most frequent complaint about clients.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sanderling.json_lines import encoded, has_more_values, lenient, repaired
from sanderling.mcp.tolerance import acceptable

if TYPE_CHECKING:
    from mcp_types import JSONRPCError, JSONRPCMessage

MAX_MESSAGE_BYTES = 32 << 20
MAX_VALUES = 100_000
MAX_UNASKED_BYTES = 256 << 10  # of what is no answer
MAX_SHOWN_CHARS = 500

PARSE_ERROR, INTERNAL_ERROR = -32700, -32603
TOO_MANY_VALUES = {
    "code": INTERNAL_ERROR,
    "message": f"its answer has more than {MAX_VALUES:,} values; ask it for less",
}
_BLANKS = re.compile(r"\s*")
_BEGINNING = re.compile(r'[\[{]\s*(?:[\[{]\s*)?"(?:jsonrpc|id|result|error|method|params)"\s*:')

NOT_READABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""The errors of what is no message."""


class Envelope(msgspec.Struct):
    """A message, so far as it says where it goes."""

    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    error: Any = None


class _Response(msgspec.Struct):
    result: Any = msgspec.UNSET
    error: Any = None


def messages_in(data: bytes) -> Iterator[tuple[Envelope, bytes]]:
    """
    The messages in `data`, mostly one, each with its JSON.

    Raises:
        NOT_READABLE: there is none.
    """
    try:
        data.decode()  # which is not looked at in what the envelope passes over
        envelope = _envelope_of(data)
    except NOT_READABLE:
        yield from ((_envelope_of(each), each) for each in _cleaned(data))
    else:
        yield envelope, data


def _envelope_of(data: bytes) -> Envelope:
    """Read where a message goes, past all that it holds."""
    return msgspec.json.decode(data, type=Envelope)


def _cleaned(data: bytes) -> list[bytes]:
    """The messages in what is not quite JSON, as JSON."""
    if has_more_values(data, MAX_VALUES):
        raise ValueError(f"it has more than {MAX_VALUES:,} values")
    text = data.decode("utf-8-sig", "replace")
    found = _BEGINNING.search(text)  # a banner may come before it
    if not found:
        raise ValueError("it is no message of the protocol")
    values, at = list[object](), found.start()
    while at < len(text):
        try:
            value, at = lenient.raw_decode(text, at)
        except ValueError:
            if not values:
                raise
            break  # words after it
        values += cast("list[object]", value) if isinstance(value, list) else [value]
        if blanks := _BLANKS.match(text, at):
            at = blanks.end()
    messages = [cast("dict[str, Any]", each) for each in values if isinstance(each, dict)]
    return [encoded(_with_whole_id(each)) for each in messages]


def _with_whole_id(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "id": _whole(message["id"])} if "id" in message else message


def _whole(number: object) -> object:
    """`number`, as an integer if it is a whole float."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def message_of(data: bytes, envelope: Envelope) -> "JSONRPCMessage":
    """
    The message for the SDK. An answer can be long, so it is parsed once and not held against each kind of message.

    Raises:
        NOT_READABLE: it is none.
    """
    from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

    if envelope.method:
        if len(data) > MAX_UNASKED_BYTES or has_more_values(data, MAX_VALUES):
            raise ValueError("it has too many values, and answers nothing")
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    if has_more_values(data, MAX_VALUES):
        return _error(envelope.id, TOO_MANY_VALUES)
    try:
        response = msgspec.json.decode(data, type=_Response)
    except msgspec.DecodeError:  # a number that no float can hold, which the envelope passes over
        response = msgspec.json.decode(repaired(data), type=_Response)
    error, result = cast("object", response.error), cast("object", response.result)
    if error is not None:
        return _error(envelope.id, _error_data(error))
    if not isinstance(result, dict) or envelope.id is None:
        words = f"its answer is not valid: {_not_a_result(cast('object', result))}"
        return _error(envelope.id, {"code": INTERNAL_ERROR, "message": words})
    fitted = acceptable(cast("dict[str, Any]", result))
    return JSONRPCResponse.model_construct(jsonrpc="2.0", id=envelope.id, result=fitted)


def unreadable(request: str, method: str, error: BaseException) -> "JSONRPCError":
    """The answer to our `request` in the place of one that cannot be read."""
    reason = str(error).partition("\n")[0][:MAX_SHOWN_CHARS] or type(error).__name__
    words = f"its answer to {method} cannot be read ({reason})"
    if method == "tools/call":
        words += "; it may have done its work"
    number = int(request) if request.isdecimal() else request
    return _error(number, {"code": PARSE_ERROR, "message": words})


def _error(number: int | str | None, error: dict[str, Any]) -> "JSONRPCError":
    from mcp_types import JSONRPCError

    return JSONRPCError.model_validate(
        {"jsonrpc": "2.0", "id": number, "error": error}, by_name=False
    )


def _error_data(error: object) -> dict[str, Any]:
    """An error of the protocol's form: some have a text for its code, or are a text."""
    if not isinstance(error, dict):
        words = error if isinstance(error, str) else encoded(error).decode()
        return {"code": INTERNAL_ERROR, "message": words[:MAX_SHOWN_CHARS]}
    told = cast("dict[str, Any]", error)
    code, words = _whole(told.get("code")), told.get("message")
    if not isinstance(words, str):
        words = encoded(told).decode()[:MAX_SHOWN_CHARS]
    if type(code) is not int:
        words, code = (f"{code}: {words}" if isinstance(code, str) else words), INTERNAL_ERROR
    return {"code": code, "message": words, "data": told.get("data")}


def _not_a_result(result: object) -> str:
    if result is msgspec.UNSET:
        return "it has neither a result nor an error"
    kinds = ((list, "an array"), (str, "a text"), (bool, "a boolean"), (type(None), "null"))
    found = [name for kind, name in kinds if isinstance(result, kind)]
    return f"its result is {found[0] if found else 'a number'}, not an object"
