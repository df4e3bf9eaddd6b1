"""
The gateway: an actor that calls models for the agents of a run, and adds up what they cost.

It is an HTTP server. `/PROVIDER/…` is the API of that provider, with the paths of its wire: the one for answers, and those about models. The
provider's address, headers and key are the driver's. Any other path, and any request without the run's token, is refused.
"""

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import anyio
import msgspec

from sanderling.batch.ray.gate import Gate, GateClosedError
from sanderling.config import Settings
from sanderling.errors import ConfigError, ProviderError, SanderlingError
from sanderling.json_lines import encoded
from sanderling.providers.choice import make_at
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.http.errors import retry_after_s
from sanderling.providers.http.model_proxy import ProxyRequest, forwarded_headers
from sanderling.providers.packaged import PackagedProvider

if TYPE_CHECKING:
    from sanderling.providers.http.provider import HttpProvider

MAX_BODY_BYTES = 64 << 20
PATIENCE_S = 60.0  # half of the agents' idle timeout
OVERLOADED = 529  # of Anthropic's API
TOO_MANY = (HTTPStatus.TOO_MANY_REQUESTS, OVERLOADED)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
TOKEN_HEADERS = (b"authorization", b"x-api-key")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """
    What the driver gives to the gateway.

    Attributes:
        token: what agents send instead of a key.
        environment: variables with API keys, and others that requests depend on.
        names: the providers that can be called.
        providers, base_url, idle_timeout_s: the user's settings of these names.
    """

    token: str
    environment: dict[str, str]
    names: tuple[str, ...]
    providers: dict[str, dict[str, Any]]
    base_url: str
    idle_timeout_s: float


class RefusedError(SanderlingError):
    """A request that gets an answer from here."""

    def __init__(
        self, status: int, kind: str, message: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.retry_after_s = retry_after_s


def _not_found(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, "not_found_error", message)


class Gateway:
    """Made without arguments: see the package. Nothing is served before `open`."""

    def __init__(self) -> None:
        self._costs: dict[str, float] = {}
        self._serving: asyncio.Task[None] | None = None

    async def open(self, opening: Opening) -> str:
        """Begin to serve, and return the address."""
        import uvicorn

        os.environ.update(opening.environment)
        app = App(opening)
        listening = _listen()
        config = uvicorn.Config(app, lifespan="on", log_config=None, ws="none", access_log=False)
        server = uvicorn.Server(config)
        self._serving = asyncio.create_task(server.serve(sockets=[listening]))
        host, port = listening.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def report(self, execution: str, cost_usd: float) -> None:
        """Note what an execution of a job has cost so far. Ray may run such calls in another order than they were made."""
        self._costs[execution] = max(cost_usd, self._costs.get(execution, 0.0))

    async def costs(self) -> dict[str, float]:
        """Return what has changed since the last call, by execution."""
        changed, self._costs = self._costs, {}
        return changed


def _listen() -> socket.socket:
    """Listen on the address by which other nodes reach this one."""
    from sanderling.batch.ray.library import load_ray

    address = load_ray().util.get_node_ip_address()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.bind((address, 0))
    listening.listen(1024)
    return listening


class App:
    """The HTTP part of the gateway, an ASGI application: https://asgi.readthedocs.io/en/latest/specs/www.html."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._settings = Settings(
            "/nonexistent",
            providers=opening.providers,
            base_url=opening.base_url,
            idle_timeout_s=opening.idle_timeout_s,
        )
        self._gates: dict[str, Gate] = {}
        self._providers: dict[str, HttpProvider] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        refused: RefusedError | None = None
        async with anyio.create_task_group() as tasks:
            try:
                request = await self._read(scope, receive)
                tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
                await self._answer(request, send)
            except RefusedError as error:
                refused = error
            tasks.cancel_scope.cancel()
        if refused:
            await _refuse(refused, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Close the connections to APIs when the server ends."""
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        for provider in self._providers.values():
            await provider.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _read(self, scope: Scope, receive: Receive) -> ProxyRequest:
        """
        Read a request, and check it.

        Raises:
            RefusedError: it is not one that is forwarded.
        """
        if not self._is_ours(scope["headers"]):
            message = "this is not the token of the run"
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "authentication_error", message)
        method, path = scope["method"], scope["path"]
        _, name, *rest = path.split("/")
        provider = self._provider(name)
        inner = "/" + "/".join(rest)
        if method == "POST" and inner == provider.path:
            body = await _body_of(receive)
            return ProxyRequest(name, body=body.decode(errors="replace"))
        query = dict[str, str | int | float | bool](parse_qsl(scope["query_string"].decode()))
        request = ProxyRequest(name, path=inner, query=query)
        if method != "GET" or not request.is_allowed:
            raise _not_found(f"{method} {path} is not served")
        return request

    def _is_ours(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        token = self._opening.token.encode()
        return any(
            name.lower() in TOKEN_HEADERS and compare_digest(value.removeprefix(b"Bearer "), token)
            for name, value in headers
        )

    def _provider(self, name: str) -> "HttpProvider":
        if name not in self._opening.names:
            raise _not_found(f"the run has no provider '{name}'")
        if name not in self._providers:
            try:
                endpoint = load_endpoint(name, self._opening.providers)
                made = make_at(endpoint, endpoint.model or self._settings.model, self._settings)
            except ConfigError as error:
                raise _not_found(str(error)) from error
            if isinstance(made, PackagedProvider):
                raise _not_found(f"the provider '{name}' is a Python package, which runs elsewhere")
            self._providers[name] = made
            self._gates[name] = Gate()
        return self._providers[name]

    async def _answer(self, request: ProxyRequest, send: Send) -> None:
        """
        Send the request when the gate lets it pass, and pass on the answer. A request that the API refuses for its rate is sent again.

        Raises:
            RefusedError: there is no answer.
            ProviderError: the answer is not complete.
        """
        ends_at = anyio.current_time() + PATIENCE_S
        answer = _Answer(send)
        try:
            while not answer.has_begun:
                await self._try(request, answer, ends_at)
        except GateClosedError as error:
            status, kind = HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_error"
            raise RefusedError(status, kind, str(error), error.retry_after_s) from error
        except ProviderError as error:
            if answer.has_begun:
                raise
            is_key = error.kind in ("auth", "no_key")
            status = HTTPStatus.UNAUTHORIZED if is_key else HTTPStatus.BAD_GATEWAY
            kind = "authentication_error" if is_key else "api_error"
            raise RefusedError(status, kind, f"{error.message} {error.remedy}".strip()) from error

    async def _try(self, request: ProxyRequest, answer: "_Answer", ends_at: float) -> None:
        gate, provider = self._gates[request.provider], self._providers[request.provider]
        async with (
            gate.passed(max(0.0, ends_at - anyio.current_time())),
            provider.relayed(request) as response,
        ):
            pause_s = retry_after_s(response.headers)
            if _is_busy(response.status_code, pause_s):
                gate.close_for(pause_s)
                if anyio.current_time() + gate.left_s < ends_at:
                    return
            if response.status_code < HTTPStatus.BAD_REQUEST:
                gate.note_success()
                await answer.pass_on(response)
            else:  # it may quote the key
                await answer.pass_on_error(response, provider.without_key(response.text))


def _is_busy(status: int, pause_s: float | None) -> bool:
    return status in TOO_MANY or (status == HTTPStatus.SERVICE_UNAVAILABLE and pause_s is not None)


class _Answer:
    def __init__(self, send: Send) -> None:
        self.has_begun = False
        self._send = send

    async def pass_on(self, response: Any) -> None:
        await self._begin(response)
        async for piece in response.aiter_bytes():
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def pass_on_error(self, response: Any, text: str) -> None:
        await self._begin(response)
        await self._send({"type": "http.response.body", "body": text.encode()})

    async def _begin(self, response: Any) -> None:
        self.has_begun = True
        headers = forwarded_headers(response)
        headers.pop("content-length", None)  # of the compressed body
        await self._send(_start(response.status_code, headers))


def _start(status: int, headers: Mapping[str, str]) -> Message:
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": lines}


async def _refuse(error: RefusedError, send: Send) -> None:
    """Answer with an error in the format of Anthropic's API. The other wires read it as well."""
    headers = {"content-type": "application/json"}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    body = {"type": "error", "error": {"type": error.kind, "message": str(error)}}
    await send(_start(error.status, headers))
    await send({"type": "http.response.body", "body": encoded(body)})


async def _body_of(receive: Receive) -> bytes:
    """
    Return the body of a request.

    Raises:
        RefusedError: it is too long, or not complete.
    """
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES or message["type"] == "http.disconnect":
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            raise RefusedError(status, "request_too_large", f"more than {MAX_BODY_BYTES:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel the request when the agent has closed its connection, so that an answer that is not read costs nothing more."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
