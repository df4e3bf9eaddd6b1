"""
The base of the providers that use HTTP.

A wire is a package with an encoder, which makes the bytes of a request, and a decoder, which turns the events of the response into stream
items. This module does the rest: it sends requests, and limits and watches the response.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import anyio
from anyio.lowlevel import checkpoint

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Usage
from sanderling.protocol.modes import Effort
from sanderling.providers import ModelLimits, ModelRequest, ReplyDone, ReplyPaused, StreamItem
from sanderling.providers.endpoint import Endpoint, Quirks
from sanderling.providers.http.bodies import Decoder, decode_refusal
from sanderling.providers.http.connection import ApiConnection
from sanderling.providers.http.errors import (
    MAX_DETAIL_CHARS,
    TemplateError,
    explain_status,
    is_known,
    malformed,
)
from sanderling.providers.http.models import decode_models
from sanderling.providers.http.repairs import Repairs
from sanderling.providers.http.transport import (
    RefusalError,
    check_place,
    receive_head,
    transport_errors,
    watched,
    with_error_events,
    with_last_event,
)
from sanderling.providers.idle import IdleWatch
from sanderling.providers.images import Images
from sanderling.providers.models.known import KnownModels, Model, load_models

if TYPE_CHECKING:
    import httpx2

    from sanderling.providers.http.model_proxy import ProxyRequest

DEFAULT_MAX_TOKENS = 32_000  # every current model can; the model's own limit lowers it
UNSEEN_S = 0.008  # how long received text may wait to be drawn while more can be read
BEHIND_S = 0.01  # a prompt sent at the same time goes first
DRAIN_S = 0.5  # for the end of a finished response, so that its connection can be reused
MAX_LIST_BYTES = 16 << 20  # of a response about models

log = logging.getLogger(__name__)


class ServerSentEvent(Protocol):
    """One server-sent event; `event` is its name."""

    @property
    def data(self) -> str: ...

    @property
    def event(self) -> str | None: ...


def events_of(response: "httpx2.Response") -> AsyncIterator[ServerSentEvent]:
    """Return the server-sent events of a response. A line `error: …`, which some servers send, becomes an event of that name."""
    import httpx2

    response.encoding = "utf-8"  # as the standard for events requires, whatever the header says
    response.headers["content-type"] = (
        "text/event-stream"  # some servers send it twice, for example
    )
    response.stream = with_last_event(with_error_events(response.stream))
    return aiter(httpx2.EventSource(response, max_event_size=None))  # `watched` limits lines


class HttpProvider(ApiConnection, ABC):
    """
    A provider that calls `model` at `endpoint`. A wire defines `path`, `_encode` and `_decoder`.

    Responses are server-sent events, unless `_events` and `content_type` say otherwise. Limits come from the list of models.
    """

    path: ClassVar[str]
    """The path that generates answers, relative to the endpoint's address."""
    _always_limits: ClassVar[bool] = False
    """Every request has a token limit, not only if the user sets one."""
    last_words_s: ClassVar[float] = DRAIN_S
    """The time to wait for usage after the stop reason."""

    def __init__(self, settings: Settings, endpoint: Endpoint, model: str) -> None:
        super().__init__(settings, endpoint)
        self.model = model
        self.limits: ModelLimits | None = None
        self._watch = IdleWatch(settings.idle_timeout_s)
        self._images = Images()
        self._repairs = Repairs(endpoint)

    def quirks_of(self, model: str) -> Quirks:
        """Return the endpoint's quirks for `model`, with those that its errors have revealed."""
        return self._repairs.quirks_of(model)

    @property
    def learned(self) -> tuple[str, ...]:
        """The quirks that the model's errors have revealed, as the configuration would have them."""
        return self._repairs.learned(self.model)

    @property
    def efforts(self) -> tuple[Effort, ...]:
        reported = self.limits.efforts if self.limits else None
        return self.endpoint.quirks_of(self.model).efforts if reported is None else reported

    @property
    def takes_documents(self) -> bool:
        return self.endpoint.quirks_of(self.model).documents != "none"

    async def _look_at(self, model: str) -> None:
        """Load what a request to `model` depends on; nothing for most wires."""

    @abstractmethod
    def _encode(self, request: ModelRequest, model: str) -> bytes: ...

    @abstractmethod
    def _decoder(self, model: str) -> Decoder: ...

    def _encode_prewarm(self, request: ModelRequest, model: str) -> bytes:
        """Encode a request that only fills the API's cache; empty if the API has none."""
        del request, model
        return b""

    def _usage_of(self, answer: bytes) -> Usage:
        """Return the usage in an answer that was not streamed."""
        del answer
        return Usage()

    def _events(self, response: "httpx2.Response") -> AsyncIterator[ServerSentEvent]:
        return events_of(response)

    async def _fetch(
        self, client: "httpx2.AsyncClient", path: str, **query: object
    ) -> "httpx2.Response":
        return await client.get(path, params={name: str(value) for name, value in query.items()})

    async def fetch_limits(self) -> ModelLimits:
        model = self.quirks_of(self.model).sent_name(self.model)
        return (await self._models()).get(model, ModelLimits())

    async def list_models(self) -> tuple[str, ...]:
        return tuple(await self._models())

    async def _models(self) -> dict[str, ModelLimits]:
        return decode_models(await self._get("/models"))

    def set_model(self, model: str) -> None:
        self.model, self.limits = model, None

    async def learn_limits(self) -> None:
        model = self.model
        try:
            await self._get_ready()  # a prompt may wait for this as well
            await anyio.sleep(BEHIND_S)
            limits = await self.fetch_limits()
        except ProviderError as error:
            log.info("the API does not report the limits of %s: %s", model, error)
            limits = ModelLimits()
        if model == self.model:
            known = self._known(model)
            self.limits = ModelLimits(
                limits.context_window_tokens or known.window_tokens,
                limits.max_output_tokens or known.max_output_tokens,
                limits.price,
                limits.efforts,
            )

    def _known(self, model: str) -> Model:
        return self._known_models.of(f"{self.endpoint.name}:{model}")

    @cached_property
    def _known_models(self) -> KnownModels:
        return load_models(self._settings)

    @property
    def answer_limit(self) -> int:
        """The most tokens of an answer: those that a request asks for, or else the model's limit if known."""
        if self._settings.max_tokens or self._always_limits:
            return self._max_tokens()
        return self.limits.max_output_tokens if self.limits else 0

    def _max_tokens(self) -> int:
        wanted = self._settings.max_tokens or DEFAULT_MAX_TOKENS
        limit = self.limits.max_output_tokens if self.limits else 0
        return min(wanted, limit) if limit else wanted

    async def prewarm(self, request: ModelRequest) -> Usage:
        model = self.model
        body = self._encode_prewarm(request, model)
        if not body:
            return Usage()
        async with self._using_client() as client:
            try:
                with self._watch.wait():
                    response = await self._posted(client, body)
                    try:
                        answer = await response.aread()
                    finally:
                        await response.aclose()
            except self._errors() as error:
                raise self._explain(error, is_streaming=False) from error
            check_place(response)
            return self._usage_of(answer)

    async def _get(self, path: str, **query: object) -> bytes:
        async with self._using_client() as client:
            try:
                with self._watch.wait():
                    answer = await self._fetched(client, path, **query)
            except self._errors() as error:
                raise self._explain(error, is_streaming=False) from error
            check_place(answer)
            if len(answer.content) > MAX_LIST_BYTES:
                raise malformed(f"more than {MAX_LIST_BYTES >> 20} MB about models")
            return answer.content

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """
        Call the model.

        Every later request would repeat an image that the API rejects, or a shape that the model's chat template rejects, so the request is
        made again without it.
        """
        model = self.model
        quirks = self.quirks_of(model)
        has_begun, refusals, refused = False, 0, self._images.refused
        while True:
            fitting, sent = self._images.fitting(request, self.quirks_of(model)), list[bytes]()
            try:
                async with aclosing(self._stream(fitting, model, sent)) as items:
                    async for item in items:
                        has_begun = True
                        yield item
            except ProviderError as error:
                if has_begun:
                    raise
                if isinstance(error, TemplateError):
                    if self._repairs.learn(model, fitting.history, error):
                        continue
                    self._repairs.restore(model, quirks)
                    raise
                refusals += 1
                body = sent.pop() if sent else b""
                if not self._images.learn(fitting, body, error, refusals):
                    self._images.forget(refused)
                    raise
            else:
                return

    async def _stream(
        self, request: ModelRequest, model: str, sent: list[bytes]
    ) -> AsyncGenerator[StreamItem]:
        """
        Make one request to `model`, whose reasoning it holds, even if another model is chosen meanwhile.

        `sent` receives its bytes, and keeps them if it is rejected.
        """
        async with self._using_client() as client:
            await self._look_at(model)
            reply = self._decoder(model)
            try:
                sent.append(self._encode(request, model))
                response = await self._send(client, sent[0])
                sent.clear()
                try:
                    async with aclosing(self._items(response, reply)) as items:
                        async for item in items:
                            yield item
                finally:
                    await response.aclose()
            except self._errors() as error:
                raise self._explain(error, is_streaming=reply.has_started) from error

    def items_of(self, response: "httpx2.Response") -> AsyncGenerator[StreamItem]:
        """Decode an answer that was received for another process."""
        return self._items(response, self._decoder(self.model))

    async def _items(
        self, response: "httpx2.Response", reply: Decoder
    ) -> AsyncGenerator[StreamItem]:
        events = self._events(response)
        async with aclosing(self._read(events, reply)) as items:
            async for item in items:
                yield item
        for item in (*(await self._last_words(events, reply)), *reply.end()):
            yield item
        if reply.is_done:
            done = ReplyPaused if reply.is_paused else ReplyDone
            yield done(reply.stop_reason)

    async def _read(
        self, events: AsyncIterator[ServerSentEvent], reply: Decoder
    ) -> AsyncGenerator[StreamItem]:
        """Yield items until the stop reason."""
        unseen_until = -math.inf
        async for event in events:
            for item in reply.feed(event.data, event.event or ""):
                yield item
            if reply.is_done:
                return
            # While more data is buffered, reading does not yield to the event loop, and the frontend could not draw.
            if reply.has_words and anyio.current_time() > unseen_until:
                await checkpoint()
                unseen_until = anyio.current_time() + UNSEEN_S

    async def _last_words(
        self, events: AsyncIterator[ServerSentEvent], reply: Decoder
    ) -> list[StreamItem]:
        """Read on after the stop reason, for usage and to the end of the body: only then can the connection be reused."""
        items: list[StreamItem] = []
        if not reply.is_done:
            return items
        limit_s = DRAIN_S if reply.is_over else self.last_words_s
        with anyio.move_on_after(limit_s) as scope, suppress(ProviderError, *transport_errors()):
            async for event in events:
                if not reply.is_over:
                    items += reply.feed(event.data, event.event or "")
                if reply.is_over:
                    scope.deadline = min(scope.deadline, anyio.current_time() + DRAIN_S)
        return items

    async def _posted(self, client: "httpx2.AsyncClient | None", body: bytes) -> "httpx2.Response":
        if client is None:
            return await self._asked(body=body.decode())
        return await client.send(client.build_request("POST", self.path, content=body), stream=True)

    async def _fetched(
        self, client: "httpx2.AsyncClient | None", path: str, **query: object
    ) -> "httpx2.Response":
        if client is not None:
            return await self._fetch(client, path, **query)
        response = await self._asked(path=path, query=query)
        await response.aread()
        return response

    async def _asked(self, **asked: Any) -> "httpx2.Response":
        from sanderling.providers.http.model_proxy import ProxyRequest

        assert self.model_proxy
        response = await self.model_proxy.ask(ProxyRequest(self.endpoint.name, **asked))
        await receive_head(response)
        return response

    @asynccontextmanager
    async def relayed(self, asked: "ProxyRequest") -> AsyncGenerator["httpx2.Response"]:
        """
        Make a request for a client of the model proxy, and yield the response. An error response is yielded too, its body already read.

        Raises:
            ProviderError: the request failed.
        """
        async with self._using_client() as client:
            response = None
            try:
                with self._watch.wait():
                    if asked.body:
                        response = await self._posted(client, asked.body.encode())
                    else:
                        response = await self._fetched(client, asked.path, **asked.query)
            except RefusalError as refusal:
                response = refusal.response
            except self._errors() as error:
                raise self._explain(error, is_streaming=False) from error
            try:
                yield response
            except self._errors() as error:
                raise self._explain(error, is_streaming=True) from error
            finally:
                await response.aclose()

    async def _send(self, client: "httpx2.AsyncClient | None", body: bytes) -> "httpx2.Response":
        """Return the response once its headers are there. The idle timeout applies to its body."""
        with self._watch.wait():
            response = await self._posted(client, body)
        content_type = response.headers.get("content-type", "")
        if not content_type.lower().startswith(self.content_type):
            raise await self._no_stream(response, content_type)
        response.stream = watched(response.stream, self._watch)
        return response

    async def _no_stream(self, response: "httpx2.Response", content_type: str) -> ProviderError:
        """Return the error for a response that is not a stream of events; some servers report errors with a success status."""
        words = f"{self.without_key(content_type)[:80] or 'nothing'} instead of a stream of events"
        if "json" in content_type.lower():
            with self._watch.wait():
                kind, refusal = decode_refusal(await response.aread())
            refusal = self.without_key(refusal)
            if is_known(kind):
                return explain_status(kind, HTTPStatus.OK, refusal, key_remedy=self._key_remedy)
            words = refusal[:MAX_DETAIL_CHARS] or words
        await response.aclose()
        check_place(response)
        return malformed(words)
