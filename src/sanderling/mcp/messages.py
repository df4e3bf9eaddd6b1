"""
Messages of a server, looked at before the SDK gets them.

They were made by code that nobody trusts, and are parsed on the loop that the editor waits for: each value becomes an object, in a call
that nothing interrupts. So what has too many of them is told by the bytes alone, over pipes as over HTTP.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from sanderling.json_lines import has_more_values

if TYPE_CHECKING:
    from mcp_types import JSONRPCMessage

MAX_MESSAGE_BYTES = 32 << 20
MAX_VALUES = 100_000
MAX_UNASKED_BYTES = 256 << 10  # of what is no answer

TOO_MANY_VALUES = {
    "code": -32603,
    "message": f"its answer has more than {MAX_VALUES:,} values; ask it for less",
}


class Envelope(msgspec.Struct):
    """A message, so far as it says where it goes."""

    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Response(msgspec.Struct):
    id: int | str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


def envelope_of(data: bytes) -> Envelope:
    """
    Read where a message goes, past all that it holds.

    Raises:
        ValueError, RecursionError: it is none.
    """
    return msgspec.json.decode(data, type=Envelope)


def message_of(data: bytes, envelope: Envelope) -> "JSONRPCMessage":
    """
    The message for the SDK. An answer can be long, so it is parsed once and not held against each kind of message.

    Raises:
        ValueError, RecursionError: it is none.
    """
    from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

    if envelope.method:
        if len(data) > MAX_UNASKED_BYTES or has_more_values(data, MAX_VALUES):
            raise ValueError("it has too many values, and answers nothing")
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    if has_more_values(data, MAX_VALUES):
        data = msgspec.json.encode({"id": envelope.id, "error": TOO_MANY_VALUES})
    response = msgspec.json.decode(data, type=_Response)
    if response.result is not None and response.id is not None:
        return JSONRPCResponse.model_construct(
            jsonrpc="2.0", id=response.id, result=response.result
        )
    return JSONRPCError.model_validate(
        {"jsonrpc": "2.0", "id": response.id, "error": response.error}, by_name=False
    )
