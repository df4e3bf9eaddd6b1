"""A provider that speaks its wire itself, on httpx2, without anybody's SDK."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, ClassVar

from sanderling.providers import ModelLimits
from sanderling.providers.http.models import decode_models
from sanderling.providers.http.provider import Event, HttpProvider
from sanderling.providers.http.setup import header_secrets, header_values, make_client, url_secrets
from sanderling.providers.http.transport import with_error_events

if TYPE_CHECKING:
    import httpx2


def events_of(response: "httpx2.Response") -> AsyncIterator[Event]:
    """The server-sent events of an answer; a line `error: …`, as some servers send, is one of that name."""
    import httpx2

    response.encoding = "utf-8"  # as all events are, whatever the head says
    response.stream = with_error_events(response.stream)
    return aiter(httpx2.EventSource(response, max_event_size=None))  # lines are bounded


class DirectProvider(HttpProvider["httpx2.AsyncClient"]):
    """
    A provider whose wire says `path`, `_encode` and `_decoder`.

    The answer is a stream of server-sent events, unless `_events` and `content_type` say otherwise; limits are those of the list of models.
    """

    path: ClassVar[str]
    """The path at which an answer is asked for, below the endpoint's address."""

    _secrets: tuple[str, ...] = ()

    def _load(self) -> None:
        import httpx2  # noqa: F401 # pyright: ignore[reportUnusedImport]

    @property
    def _base_url(self) -> str:
        return self.endpoint.base_url

    def _make_client(self) -> "httpx2.AsyncClient":
        self._load()
        key = self._read_key()
        self._secrets = (key, *header_secrets(self.endpoint))
        return make_client(self._base_url, self._headers(key) | header_values(self.endpoint))

    def _headers(self, key: str) -> dict[str, str]:
        """The headers of each request, by name in lower case; those of the endpoint's table go before them."""
        headers = {"content-type": "application/json", "accept": self.content_type}
        return headers | {"authorization": f"Bearer {key}"} if key else headers

    async def _close_client(self, client: "httpx2.AsyncClient") -> None:
        await client.aclose()

    def _keys(self, client: "httpx2.AsyncClient") -> tuple[str | None, ...]:
        return *self._secrets, *url_secrets(client.base_url)

    def _host(self, client: "httpx2.AsyncClient") -> str:
        return client.base_url.netloc.decode()

    async def _post(self, client: "httpx2.AsyncClient", body: bytes) -> "httpx2.Response":
        return await client.send(client.build_request("POST", self.path, content=body), stream=True)

    async def _fetch(
        self, client: "httpx2.AsyncClient", path: str, **query: object
    ) -> "httpx2.Response":
        return await client.get(path, params={name: str(value) for name, value in query.items()})

    async def fetch_limits(self) -> ModelLimits:
        model = self.model
        return (await self._models()).get(model, ModelLimits())

    async def list_models(self) -> tuple[str, ...]:
        return tuple(await self._models())

    async def _models(self) -> dict[str, ModelLimits]:
        return decode_models(await self._get("/models"))

    def _events(self, response: "httpx2.Response") -> AsyncIterator[Event]:
        return events_of(response)
