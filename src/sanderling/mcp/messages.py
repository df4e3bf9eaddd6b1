"""
Checks of a server's messages before the SDK gets them.

They come from untrusted code, and are parsed on the event loop that the editor waits for: each value becomes an object, in a call that
nothing interrupts. So a message with too many values is rejected by its bytes alone, over pipes and over HTTP.

A line that is not quite JSON is still accepted if it can mean only one thing. RFC 8259 (8.2) allows halves of surrogate pairs, and
servers that cut a text in the middle of an emoji send them; Python's `json` writes NaN; some servers send a BOM, a batch, two messages in
one line, or a float as the id. If an answer cannot be read, its call fails at once. Clients that wait for the timeout, and then report
that no answer came, were the most frequent complaint.
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
MAX_UNASKED_BYTES = 256 << 10  # of a message that is not an answer
MAX_SHOWN_CHARS = 500

PARSE_ERROR, INTERNAL_ERROR = -32700, -32603
TOO_MANY_VALUES = {
    "code": INTERNAL_ERROR,
    "message": f"its answer has more than {MAX_VALUES:,} values; ask it for less",
}
_BLANKS = re.compile(r"\s*")
_BEGINNING = re.compile(r'[\[{]\s*(?:[\[{]\s*)?"(?:jsonrpc|id|result|error|method|params)"\s*:')

NOT_READABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""The errors of data that is not a message."""


class Envelope(msgspec.Struct):
    """The fields of a message that say where it goes."""

    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    error: Any = None


class _RpcResponse(msgspec.Struct):
    result: Any = msgspec.UNSET
    error: Any = None


def messages_in(data: bytes) -> Iterator[tuple[Envelope, bytes]]:
    """
    Yield the messages in `data`, usually one, each with its JSON.

    Raises:
        NOT_READABLE: there is no message.
    """
    try:
        data.decode()  # msgspec does not check this in values that the envelope skips
        envelope = _envelope_of(data)
    except NOT_READABLE:
        yield from ((_envelope_of(each), each) for each in _cleaned(data))
    else:
        yield envelope, data


def _envelope_of(data: bytes) -> Envelope:
    return msgspec.json.decode(data, type=Envelope)


def _cleaned(data: bytes) -> list[bytes]:
    """Return the messages in what is not quite JSON, as JSON."""
    if has_more_values(data, MAX_VALUES):
        raise ValueError(f"it has more than {MAX_VALUES:,} values")
    text = data.decode("utf-8-sig", "replace")
    found = _BEGINNING.search(text)  # a banner may precede it
    if not found:
        raise ValueError("it is not a message of the protocol")
    values, at = list[object](), found.start()
    while at < len(text):
        try:
            value, at = lenient.raw_decode(text, at)
        except ValueError:
            if not values:
                raise
            break  # trailing text
        values += cast("list[object]", value) if isinstance(value, list) else [value]
        if blanks := _BLANKS.match(text, at):
            at = blanks.end()
    messages = [cast("dict[str, Any]", each) for each in values if isinstance(each, dict)]
    return [encoded(_with_whole_id(each)) for each in messages]


def _with_whole_id(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "id": _whole(message["id"])} if "id" in message else message


def _whole(number: object) -> object:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def message_of(data: bytes, envelope: Envelope) -> "JSONRPCMessage":
    """
    Return the message for the SDK. An answer can be long, so it is decoded once, not tried as every kind of message.

    Raises:
        NOT_READABLE: it is not a message.
    """
    from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

    if envelope.method:
        if len(data) > MAX_UNASKED_BYTES or has_more_values(data, MAX_VALUES):
            raise ValueError("it has too many values, and is not an answer")
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    if has_more_values(data, MAX_VALUES):
        return _error(envelope.id, TOO_MANY_VALUES)
    try:
        response = msgspec.json.decode(data, type=_RpcResponse)
    except (
        msgspec.DecodeError
    ):  # a number too large for a float, in a value that the envelope skips
        response = msgspec.json.decode(repaired(data), type=_RpcResponse)
    error, result = cast("object", response.error), cast("object", response.result)
    if error is not None:
        return _error(envelope.id, _error_data(error))
    if not isinstance(result, dict) or envelope.id is None:
        words = f"its answer is not valid: {_not_a_result(cast('object', result))}"
        return _error(envelope.id, {"code": INTERNAL_ERROR, "message": words})
    fitted = acceptable(cast("dict[str, Any]", result))
    return JSONRPCResponse.model_construct(jsonrpc="2.0", id=envelope.id, result=fitted)


def unreadable(request: str, method: str, error: BaseException) -> "JSONRPCError":
    """Return the answer to our `request` that replaces an unreadable one."""
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
    """Return an error in the protocol's form. Some servers send a string as its code, or only a string."""
    if not isinstance(error, dict):
        words = error if isinstance(error, str) else encoded(error).decode()
        return {"code": INTERNAL_ERROR, "message": words[:MAX_SHOWN_CHARS]}
    fields = cast("dict[str, Any]", error)
    code, words = _whole(fields.get("code")), fields.get("message")
    if not isinstance(words, str):
        words = encoded(fields).decode()[:MAX_SHOWN_CHARS]
    if type(code) is not int:
        words, code = (f"{code}: {words}" if isinstance(code, str) else words), INTERNAL_ERROR
    return {"code": code, "message": words, "data": fields.get("data")}


def _not_a_result(result: object) -> str:
    if result is msgspec.UNSET:
        return "it has neither a result nor an error"
    kinds = ((list, "an array"), (str, "a text"), (bool, "a boolean"), (type(None), "null"))
    found = [name for kind, name in kinds if isinstance(result, kind)]
    return f"its result is {found[0] if found else 'a number'}, not an object"
