"""Messages by which an agent has its client ask a model's API: the client has the key, and the agent never sees it."""

from typing import Any, ClassVar

from sanderling.acp.base import Wire

ASK = "_sanderling/http"
DATA, TAKEN, END = "_sanderling/http_data", "_sanderling/http_taken", "_sanderling/http_end"
MAX_UNTAKEN_BYTES = 1 << 20


class HttpRequest(Wire, frozen=True):
    """
    A request to the API of a provider that the client has told of: with a `body` for an answer, else for what is at `path`.

    `id` is new each time. Where the API is, which headers it wants and which key it is sent, is the client's business alone.
    """

    exact: ClassVar = ("query", "body")
    id: str
    provider: str
    path: str = ""
    query: dict[str, str | int | float | bool] | None = None
    body: str = ""


class HttpHead(Wire, frozen=True):
    """The answer's head; its body follows as `HttpData`, maybe before it."""

    status: int
    headers: dict[str, str] | None = None


class HttpData(Wire, frozen=True):
    """A piece of an answer's body, as base64; the last one `is_last`, with a `problem` if it broke there."""

    exact: ClassVar = ("data", "is_last", "problem")
    id: str
    data: str = ""
    is_last: bool = False
    problem: dict[str, Any] | None = None


class HttpTaken(Wire, frozen=True):
    """The agent has taken `count` bytes more: no more than `MAX_UNTAKEN_BYTES` are sent ahead."""

    id: str
    count: int


class HttpEnd(Wire, frozen=True):
    """The agent wants no more of an answer."""

    id: str
