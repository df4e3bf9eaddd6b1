"""Messages with which an agent calls a model's API through its client: the client has the key, which the agent never sees."""

from typing import Any, ClassVar

from sanderling.acp.wire.base import Wire

ASK = "_sanderling/http"
DATA, TAKEN, END = "_sanderling/http_data", "_sanderling/http_taken", "_sanderling/http_end"
MAX_UNTAKEN_BYTES = 1 << 20


class HttpRequest(Wire, frozen=True):
    """
    A request to the API of a provider that the client has announced: a POST if there is a `body`, else a GET of `path`.

    `id` must be new. The API's address, headers and key are known to the client only.
    """

    exact: ClassVar = ("query", "body")
    id: str
    provider: str
    path: str = ""
    query: dict[str, str | int | float | bool] | None = None
    body: str = ""


class HttpHead(Wire, frozen=True):
    """The status and headers of a response. Its body follows as `HttpData`, which may arrive earlier."""

    status: int
    headers: dict[str, str] | None = None


class HttpData(Wire, frozen=True):
    """A piece of a response's body, as base64. The last one has `is_last`, and a `problem` if the body is incomplete."""

    exact: ClassVar = ("data", "is_last", "problem")
    id: str
    data: str = ""
    is_last: bool = False
    problem: dict[str, Any] | None = None


class HttpTaken(Wire, frozen=True):
    """The agent has consumed `count` more bytes. At most `MAX_UNTAKEN_BYTES` are sent ahead."""

    id: str
    count: int


class HttpEnd(Wire, frozen=True):
    """The agent no longer needs a response."""

    id: str
