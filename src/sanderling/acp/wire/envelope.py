"""
JSON-RPC 2.0 envelopes: parsing lines to messages, and encoding messages as lines.

Parameters are decoded in a second step, so that a request with invalid parameters is still answered with its ID. Source:
https://www.jsonrpc.org/specification
"""

import re
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

from sanderling.acp.wire.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    MalformedError,
    RpcError,
)
from sanderling.json_lines import has_more_values, ids_in, repaired
from sanderling.text import with_printable

MAX_VALUES = 200_000
NOTHING = msgspec.Raw(b"{}")

Id = int | float | str | None
T = TypeVar("T")
_BEGINNING = rb'\{\s*"(?:jsonrpc|id|method|params|result|error)"\s*:'


class Request(NamedTuple):
    id: Id
    method: str
    params: msgspec.Raw


class Notification(NamedTuple):
    method: str
    params: msgspec.Raw


class Response(NamedTuple):
    id: Id
    result: msgspec.Raw
    error: RpcError | None = None


class _RpcFailure(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Any = None


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_id = msgspec.json.Decoder(int | float | str | None)
_text = msgspec.json.Decoder(str)
_error = msgspec.json.Decoder(_RpcFailure)


def message_of(line: bytes) -> Request | Notification | Response:
    """
    Return the message in `line`.

    Raises:
        MalformedError: it is invalid.
    """
    fields = _fields_of(line)
    if "method" not in fields and ("result" in fields or "error" in fields):
        return _response(fields)
    is_request = "id" in fields
    request_id = _id_of(fields) if is_request else None
    try:
        version, method = _text.decode(fields["jsonrpc"]), _text.decode(fields["method"])
    except KeyError as error:
        raise _invalid(f"the message has no {error}", request_id) from error
    except msgspec.DecodeError as error:
        raise _invalid("`jsonrpc` and `method` must be strings", request_id) from error
    if version != "2.0":
        raise _invalid(f'`jsonrpc` must be "2.0", not {version!r}', request_id)
    params = fields.get("params", NOTHING)
    if bytes(params) == b"null":
        params = NOTHING
    return Request(request_id, method, params) if is_request else Notification(method, params)


def readable(line: bytes) -> bytes:
    """
    Return `line` as JSON if it can mean only one thing, else as it is, for `message_of` to refuse.

    Half an emoji becomes U+FFFD. Text before the message goes: a banner that `.bashrc` prints without a line end, for instance.
    """
    try:
        line.decode()  # msgspec does not validate values that it skips
        _fields.decode(line)
    except msgspec.ValidationError:
        return line
    except (msgspec.DecodeError, UnicodeDecodeError):
        with suppress(ValueError, RecursionError):
            if not has_more_values(line, MAX_VALUES):
                return repaired(line)
        begins = re.search(_BEGINNING, line) if b'"jsonrpc"' in line else None
        if begins and begins.start() and line.lstrip()[:1] != b"{":
            return readable(line[begins.start() :])
    except RecursionError:
        pass
    return line


def _fields_of(line: bytes) -> dict[str, msgspec.Raw]:
    try:
        line.decode()
        if has_more_values(line, MAX_VALUES):
            raise _invalid(f"the message has more than {MAX_VALUES:,} values")
        return _fields.decode(line)
    except msgspec.ValidationError as error:
        _check_syntax(line)
        is_batch = line.lstrip()[:1] == b"["
        raise _invalid(
            "batches are not supported: send one message per line"
            if is_batch
            else "a message must be an object"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = f"the line is not JSON: {error}"
        raise MalformedError(PARSE_ERROR, words, _readable_id(line)) from error
    except RecursionError as error:
        words = "the line is nested too deeply"
        raise MalformedError(PARSE_ERROR, words, _readable_id(line)) from error


def _readable_id(line: bytes) -> Id:
    """Return the ID of an unparsable message if it is unambiguous. A response without the ID would leave the caller waiting."""
    ids = ids_in(line)
    if len(ids) != 1:
        return None
    [only] = ids
    return (
        int(only) if only.lstrip("-").isdecimal() and b'"%b"' % only.encode() not in line else only
    )


def _check_syntax(line: bytes) -> None:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(PARSE_ERROR, f"the line is not JSON: {error}") from error


def _invalid(message: str, request_id: Id = None) -> MalformedError:
    return MalformedError(INVALID_REQUEST, message, request_id)


def _id_of(fields: dict[str, msgspec.Raw]) -> Id:
    try:
        return _id.decode(fields["id"])
    except msgspec.DecodeError as error:
        raise _invalid("`id` must be a number, a string or null") from error


def _response(fields: dict[str, msgspec.Raw]) -> Response:
    """Return the response. One with both a result and an error counts as an error."""
    response_id = _id_of(fields) if "id" in fields else None
    result = fields.get("result", NOTHING)
    if bytes(result) == b"null":
        result = NOTHING
    if "error" not in fields or bytes(fields["error"]) == b"null":
        return Response(response_id, result)
    try:
        error = _error.decode(fields["error"])
    except msgspec.DecodeError:
        error = _RpcFailure(message="the request failed without a valid error")
    return Response(response_id, NOTHING, RpcError(error.code, error.message, error.data))


def decoded(params: msgspec.Raw, kind: type[T]) -> T:
    """
    Decode `params` as a `kind`.

    Raises:
        RpcError: they are invalid.
    """
    try:
        return _read(params, kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RpcError(INVALID_PARAMS, f"invalid parameters: {error}") from error


def _read(params: msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(params, type=kind)
    except msgspec.ValidationError:
        from sanderling.acp.wire.tolerance import understood

        return understood(msgspec.json.decode(params), kind)


# --- lines -------------------------------------------------------------------------------------------------------------


def request_line(request_id: Id, method: str, params: object) -> bytes:
    return _line({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification_line(method: str, params: object) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def result_line(request_id: Id, result: object) -> bytes:
    return _line(
        {"jsonrpc": "2.0", "id": request_id, "result": NOTHING if result is None else result}
    )


def error_line(request_id: Id, error: RpcError) -> bytes:
    said: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.data is not None:
        said["data"] = error.data
    return _line({"jsonrpc": "2.0", "id": request_id, "error": said})


def _line(message: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:  # quotes a file that is not UTF-8
        return msgspec.json.encode(with_printable(msgspec.to_builtins(message))) + b"\n"
