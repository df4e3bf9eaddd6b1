"""A guest in the place of a provider: the parts of a session ask it for its name and its window, and never for an answer."""

from collections.abc import AsyncGenerator

from sanderling.errors import ProviderError
from sanderling.providers import ModelLimits, ModelRequest, StreamItem


class GuestProvider:
    """Stands for the guest `name`, which its conversation gets ready and ends."""

    def __init__(self, name: str) -> None:
        self.model = name
        self.limits: ModelLimits | None = ModelLimits()
        self.is_ready = True

    async def prepare(self) -> None: ...

    async def aclose(self) -> None: ...

    async def learn_limits(self) -> None: ...

    async def fetch_limits(self) -> ModelLimits:
        return self.limits or ModelLimits()

    def set_model(self, model: str) -> None: ...

    async def list_models(self) -> tuple[str, ...]:
        return ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:  # noqa: ARG002
        raise ProviderError("internal", f"{self.model} is asked by its turns alone.")
        yield  # pyright: ignore[reportUnreachable] - that makes it a generator
