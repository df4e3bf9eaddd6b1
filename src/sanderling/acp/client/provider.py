"""A stand-in provider for sessions with an external agent: it has a name and limits, and does not call a model."""

from collections.abc import AsyncGenerator

from sanderling.errors import ProviderError
from sanderling.providers import ModelRequest, PlainProvider, StreamItem


class ExternalProvider(PlainProvider):
    """A provider that represents the external agent of its name. Its conversation starts and ends the agent, and selects its model."""

    def set_model(self, model: str) -> None: ...

    async def list_models(self) -> tuple[str, ...]:
        return ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:  # noqa: ARG002
        raise ProviderError(
            "internal", f"{self.model} is an external agent and cannot be called as a model."
        )
        yield  # pyright: ignore[reportUnreachable] - makes this a generator
