"""Model requests sent through the client, which adds its API keys."""

from base64 import b64decode
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from sanderling.acp.wire.change_signal import ChangeSignal
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import RpcError
from sanderling.acp.wire.model_proxy import (
    ASK,
    DATA,
    END,
    TAKEN,
    HttpData,
    HttpEnd,
    HttpHead,
    HttpRequest,
    HttpTaken,
)
from sanderling.acp.wire.ours import OfModels
from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.errors import ErrorKind, ProviderError

if TYPE_CHECKING:
    from sanderling.acp.wire.connection import AcpConnection
    from sanderling.providers.http.model_proxy import ProxyRequest, Response


def with_clients_models(layers: Layers, models: OfModels) -> Layers:
    """Return the settings with the client's models, unless the command line names a model."""
    if layers.command_line.options.get("model"):
        return layers
    data = {"provider": models.provider, "model": models.model, "providers": models.providers}
    return replace(layers, command_line=Layer("the client", data))


class _ProxiedAnswer:
    """A response that is being received."""

    def __init__(self) -> None:
        self.pieces: deque[HttpData] = deque()
        self.changed = ChangeSignal()

    def add(self, piece: HttpData) -> None:
        self.pieces.append(piece)
        self.changed.notify()


class ModelProxyClient:
    """Sends HTTP requests to model APIs through the client of `connection`."""

    def __init__(self) -> None:
        self.connection: AcpConnection | None = None
        self._answers: dict[str, _ProxiedAnswer] = {}

    async def ask(self, proxied: "ProxyRequest") -> "Response":
        from sanderling.providers.http.model_proxy import response_of

        assert self.connection
        number = uuid4().hex
        answer = self._answers[number] = _ProxiedAnswer()
        request = HttpRequest(id=number, **msgspec.to_builtins(proxied))
        try:
            head = await self.connection.request(ASK, request, HttpHead)
        except RpcError as error:
            self._answers.pop(number, None)
            raise _problem(error.data, str(error)) from error
        except BaseException:
            self._answers.pop(number, None)
            self.connection.notify(END, HttpEnd(id=number))
            raise
        return response_of(head.status, head.headers or {}, self._pieces(number, answer))

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        return {DATA: self.take}

    def take(self, params: msgspec.Raw) -> None:
        piece = decoded(params, HttpData)
        if answer := self._answers.get(piece.id):
            answer.add(piece)

    def end(self) -> None:
        """Fail all open responses: the client has disconnected."""
        for number, answer in self._answers.items():
            answer.add(HttpData(id=number, is_last=True, problem={"kind": "cut"}))

    async def _pieces(self, number: str, answer: _ProxiedAnswer) -> AsyncGenerator[bytes]:
        assert self.connection
        is_over = False
        try:
            while not is_over:
                while not answer.pieces:
                    await answer.changed.wait()
                piece = answer.pieces.popleft()
                is_over = piece.is_last
                if piece.problem is not None:
                    raise _problem(piece.problem, "The client's answer is incomplete.")
                if piece.data:
                    data = b64decode(piece.data)
                    self.connection.notify(TAKEN, HttpTaken(id=number, count=len(data)))
                    yield data
        finally:
            self._answers.pop(number, None)
            if not is_over:
                self.connection.notify(END, HttpEnd(id=number))


class _ClientProblem(msgspec.Struct, frozen=True):
    """An error reported by the client."""

    kind: ErrorKind = "network"
    message: str = ""
    remedy: str = ""


def _problem(data: Any, words: str) -> ProviderError:
    try:
        problem = msgspec.convert(data or {}, _ClientProblem)
    except msgspec.ValidationError:
        problem = _ClientProblem()
    return ProviderError(problem.kind, problem.message or words, problem.remedy)
