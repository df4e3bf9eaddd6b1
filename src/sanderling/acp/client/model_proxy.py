"""
Key lending: an agent on another machine calls models through this process, so that the keys stay here.

A request names a provider of the local settings and carries either a body for the model or the path of a list of models; anything else
is refused. Requests are accepted only during a turn that a local prompt started, and only within the limits of the local settings.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import msgspec

from sanderling.acp.client.local_turn import LocalTurn
from sanderling.acp.wire.change_signal import ChangeSignal
from sanderling.acp.wire.connection import Method
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import INTERNAL_ERROR, RpcError, invalid
from sanderling.acp.wire.ours import (
    HTTP,
    HTTP_DATA,
    HTTP_END,
    HTTP_TAKEN,
    MAX_UNTAKEN_BYTES,
    HttpData,
    HttpEnd,
    HttpHead,
    HttpRequest,
    HttpTaken,
    OfModels,
)
from sanderling.config import Settings
from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.messages import Usage
from sanderling.providers.choice import SCRIPTED, choose, full_name, make_at
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.http.meter import Meter
from sanderling.providers.http.model_proxy import ProxyRequest, forwarded_headers
from sanderling.providers.packaged import PackagedProvider

if TYPE_CHECKING:
    from sanderling.providers.http.provider import HttpProvider

MAX_OPEN = 16
PIECE_BYTES = 48 << 10
TOLD = ("wire", "preset", "model", "quirks", "models")
"""Keys of a provider's table that the agent gets: how the API is called, but not its address or key."""
NO_TURN = "keys are lent only during a turn that a prompt of the client started"
NOT_HTTP = "the provider {name!r} of a Python package cannot be lent"
NOT_LENT = "the client's settings name no provider {name!r}"
TOO_MANY = f"at most {MAX_OPEN} requests at a time, each with an id of its own"
NO_STREAM = "a model is asked for a stream, which ends with the number of tokens"
NO_PRICE = (
    "the client has a budget, and knows no price of {model}: its option `prices` can name one"
)
NO_ADDRESS = "http://elsewhere.invalid"


class _Body(msgspec.Struct):
    """The part of a request body that all wires share, and what would have an answer generated that does not come as the response."""

    model: str
    stream: bool = False
    background: bool | None = None


def offered(settings: Settings) -> OfModels | None:
    """Return the models that can be called from here; None if there is only a script."""
    name = choose(settings)
    if name in SCRIPTED:
        return None
    tables = {
        each: {key: table[key] for key in TOLD if key in table} | _address_of(table)
        for each, table in settings.providers.items()
    }
    return OfModels(name, settings.model, tables)


def _address_of(table: Mapping[str, Any]) -> dict[str, str]:
    return {"base_url": NO_ADDRESS} if "base_url" in table else {}


def _chosen(settings: Settings) -> frozenset[str]:
    """Return the models that the user has chosen, by full name. Without a price they count nothing, as in a session without an agent elsewhere."""
    models = {name: table.get("model", "") for name, table in settings.providers.items()}
    named = [*models.items(), (choose(settings), settings.model)]
    return frozenset(full_name(name, model, settings) for name, model in named if model)


class UsageLimits(Protocol):
    """The limits of the local settings, and the count of what was used."""

    async def refusal(self, model: str) -> str:
        """Return why `model` may not be called now; empty if it may. The call counts from then on."""
        ...

    def is_priced(self, model: str) -> bool: ...

    def count(self, model: str, usage: Usage) -> None: ...


class _OpenResponse:
    """A response that is being relayed."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.untaken_bytes = 0
        self.changed = ChangeSignal()
        self.head: HttpHead | None = None
        self.problem: ProviderError | None = None


class ModelProxyServer:
    """The requests that an agent makes with local keys. `notify` sends it a notification, `spawn` starts a task."""

    def __init__(
        self,
        settings: Settings,
        notify: Callable[[str, object], None],
        spawn: Callable[..., None],
        turn: LocalTurn,
        limits: UsageLimits,
    ) -> None:
        self._settings = settings
        self._notify = notify
        self._spawn = spawn
        self._turn = turn
        self._limits = limits
        # The cost of an answer is known at its end: within a budget, the next one is not begun before.
        self._free = anyio.Semaphore(1 if settings.budget_usd else MAX_OPEN)
        self._waiting: set[str] = set()
        self._open: dict[str, _OpenResponse] = {}
        self._providers: dict[str, HttpProvider] = {}

    def methods(self) -> Mapping[str, Method]:
        return {HTTP: Method(self._ask)}

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        return {HTTP_TAKEN: self._take, HTTP_END: self._end}

    def stop(self) -> None:
        """Cancel all requests."""
        for each in self._open.values():
            each.scope.cancel()

    async def aclose(self) -> None:
        self.stop()
        for provider in self._providers.values():
            await provider.aclose()

    async def _ask(self, params: msgspec.Raw) -> HttpHead:
        request = decoded(params, HttpRequest)
        asked = ProxyRequest(request.provider, request.path, request.query or {}, request.body)
        if not asked.is_allowed:
            raise invalid("an API is asked about its models, or with a body")
        known = self._waiting | self._open.keys()
        if request.id in known or len(known) >= MAX_OPEN:
            raise invalid(TOO_MANY)
        provider = self._provider(request.provider)
        model = self._model(asked) if asked.body else ""
        self._waiting.add(request.id)
        try:
            await self._admit(model)
        finally:
            self._waiting.remove(request.id)
        it = self._open[request.id] = _OpenResponse()
        self._spawn(self._pass_on, it, request.id, provider, asked, model)
        try:
            while it.head is None and it.problem is None:
                await it.changed.wait()
        except anyio.get_cancelled_exc_class():
            it.scope.cancel()
            raise
        if it.head is None:
            problem = it.problem
            assert problem
            raise RpcError(INTERNAL_ERROR, problem.message, _reported(problem))
        return it.head

    async def _admit(self, model: str) -> None:
        """Wait until a request may be made: for an answer of `model`, or about models. One for an answer gives `_free` back at its end."""
        if not model:
            if not await self._turn.is_running():
                raise invalid(NO_TURN)
            return
        await self._free.acquire()
        is_admitted = False
        try:
            if not await self._turn.is_running():
                raise invalid(NO_TURN)
            is_budgeted = self._settings.budget_usd and model not in _chosen(self._settings)
            if is_budgeted and not self._limits.is_priced(model):
                raise invalid(NO_PRICE.format(model=model))
            if why := await self._limits.refusal(model):
                raise invalid(why)
            is_admitted = True
        finally:
            if not is_admitted:
                self._free.release()

    def _provider(self, name: str) -> "HttpProvider":
        """Return the provider `name` of the local settings. A preset that they do not name is not lent, even if its key is here."""
        if name not in self._providers:
            if name != choose(self._settings) and name not in self._settings.providers:
                raise invalid(NOT_LENT.format(name=name))
            try:
                endpoint = load_endpoint(name, self._settings.providers)
            except ConfigError as error:
                raise invalid(str(error)) from error
            model = endpoint.model or self._settings.model
            made = make_at(endpoint, model, self._settings)
            if isinstance(made, PackagedProvider):
                raise invalid(NOT_HTTP.format(name=name))
            self._providers[name] = made
        return self._providers[name]

    def _model(self, asked: ProxyRequest) -> str:
        try:
            body = msgspec.json.decode(asked.body, type=_Body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise invalid("the body is no request to a model") from error
        if not body.stream or body.background:
            raise invalid(NO_STREAM)
        return full_name(asked.provider, body.model, self._settings)

    async def _pass_on(
        self,
        it: _OpenResponse,
        number: str,
        provider: "HttpProvider",
        asked: ProxyRequest,
        model: str,
    ) -> None:
        last = HttpData(id=number, is_last=True)
        meter = Meter(provider, asked.body) if asked.body else None
        try:
            with it.scope:
                async with provider.relayed(asked) as response:
                    it.head = HttpHead(
                        status=response.status_code, headers=forwarded_headers(response)
                    )
                    it.changed.notify()
                    async for piece in response.aiter_bytes(PIECE_BYTES):
                        if meter:
                            meter.add(piece)
                        await self._send(it, number, piece)
        except ProviderError as error:
            it.problem = error
            last = HttpData(id=number, is_last=True, problem=_reported(error))
        finally:
            self._open.pop(number, None)
            it.problem = it.problem or ProviderError("cut", "The request was cancelled.")
            it.changed.notify()
            if meter and it.head and it.head.status < HTTPStatus.BAD_REQUEST:
                with anyio.CancelScope(shield=True):
                    self._limits.count(model, await meter.usage())
            if meter:
                self._free.release()
        self._notify(HTTP_DATA, last)

    async def _send(self, it: _OpenResponse, number: str, piece: bytes) -> None:
        while it.untaken_bytes > MAX_UNTAKEN_BYTES:
            await it.changed.wait()
        it.untaken_bytes += len(piece)
        self._notify(HTTP_DATA, HttpData(id=number, data=b64encode(piece).decode()))

    def _take(self, params: msgspec.Raw) -> None:
        taken = decoded(params, HttpTaken)
        if it := self._open.get(taken.id):
            it.untaken_bytes -= min(max(0, taken.count), it.untaken_bytes)
            it.changed.notify()

    def _end(self, params: msgspec.Raw) -> None:
        if it := self._open.get(decoded(params, HttpEnd).id):
            it.scope.cancel()


def _reported(error: ProviderError) -> dict[str, Any]:
    return {"kind": error.kind, "message": error.message, "remedy": error.remedy}
