"""A stand-in provider for sessions with an external agent: it has a name and limits, and does not call a model."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Usage
from sanderling.providers import ModelLimits, ModelRequest, StreamItem

if TYPE_CHECKING:
    from sanderling.protocol.modes import Effort


class ExternalProvider:
    """A provider that represents the external agent `name`. Its conversation starts and ends the agent."""

    def __init__(self, name: str) -> None:
        self.model = name
        self.limits: ModelLimits | None = ModelLimits()
        self.efforts: tuple[Effort, ...] = ()
        self.is_local = False
        self.takes_documents = False
        self.is_ready = True
        self.answer_limit = 0

    async def prepare(self) -> None: ...

    async def aclose(self) -> None: ...

    async def learn_limits(self) -> None: ...

    async def fetch_limits(self) -> ModelLimits:
        return self.limits or ModelLimits()

    def set_model(self, model: str) -> None: ...

    async def list_models(self) -> tuple[str, ...]:
        return ()

    async def prewarm(self, request: ModelRequest) -> Usage:  # noqa: ARG002
        return Usage()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:  # noqa: ARG002
        raise ProviderError(
            "internal", f"{self.model} is an external agent and cannot be called as a model."
        )
        yield  # pyright: ignore[reportUnreachable] - makes this a generator
