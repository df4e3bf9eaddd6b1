"""Errors of JSON-RPC 2.0 and of the Agent Client Protocol."""

from typing import Any

from sanderling.errors import SanderlingError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
CANCELLED = -32800


class RpcError(SanderlingError):
    """A failed request, with an error `code`, a message for the user, and optional further `data`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class MalformedError(RpcError):
    """A line that is not a valid message. `id` is the ID of the request that it seems to be, or None."""

    def __init__(
        self, code: int, message: str, request_id: "int | float | str | None" = None
    ) -> None:
        super().__init__(code, message)
        self.id = request_id


class BadAnswerError(RpcError):
    """The peer sent an invalid result."""

    def __init__(self, method: str, problem: str) -> None:
        super().__init__(INTERNAL_ERROR, f"the answer to {method} is malformed: {problem}")


class ClosedError(RpcError):
    """The connection ended before the response arrived."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "the connection has ended")


def invalid(message: str) -> RpcError:
    return RpcError(INVALID_PARAMS, message)


def not_found(message: str) -> RpcError:
    return RpcError(NOT_FOUND, message)
