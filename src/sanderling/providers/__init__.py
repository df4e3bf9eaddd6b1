"""The seam to a model: what every provider takes and gives."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

import msgspec

from sanderling.models.known import Price
from sanderling.protocol.messages import ContentBlock, Message, StopReason, Usage


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model is told of it; `input_schema` is a JSON schema."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    system: str
    history: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    session_id: str = ""  # for caches that are kept by a key


class TextPiece(msgspec.Struct, frozen=True):
    """The next piece of the text block that the model is writing."""

    text: str


class ThinkingPiece(msgspec.Struct, frozen=True):
    text: str


class BlockDone(msgspec.Struct, frozen=True):
    """
    A block is complete; the pieces since the last one are part of it.

    `problem` says why the input of a tool use cannot be read; the block's own is empty then.
    """

    block: ContentBlock
    problem: str = ""


class ToolUseBegun(msgspec.Struct, frozen=True):
    """The model begins to write a use of a tool, which takes it a while; a provider that knows says so."""


class UsageReport(msgspec.Struct, frozen=True):
    """Tokens of this request so far; the last report counts."""

    usage: Usage


class ReplyDone(msgspec.Struct, frozen=True):
    """The model said all it had to say. A stream that ends without one was cut."""

    stop_reason: StopReason


StreamItem = TextPiece | ThinkingPiece | ToolUseBegun | BlockDone | UsageReport | ReplyDone


class ModelLimits(msgspec.Struct, frozen=True):
    """The limits of a model, and its price where the API tells it; what is 0 or None is not known."""

    context_window_tokens: int = 0
    max_output_tokens: int = 0
    price: Price | None = None


class Provider(Protocol):
    """A model behind an API: given the history, it streams an answer."""

    @property
    def model(self) -> str: ...

    @property
    def limits(self) -> ModelLimits | None:
        """None: not asked for yet."""
        ...

    @property
    def is_ready(self) -> bool:
        """`prepare` has nothing left to do."""
        ...

    async def prepare(self) -> None:
        """
        Load what the first request needs, off the event loop. Idempotent.

        Raises:
            ProviderError: the environment or the settings make it impossible.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...

    async def learn_limits(self) -> None:
        """Set `limits` to what the API says, to zeros when it does not say."""
        ...

    async def fetch_limits(self) -> ModelLimits:
        """
        Ask the API how much the model takes and gives, without using a token.

        Raises:
            ProviderError: the API cannot be reached, refuses the key, or does not know the model.
        """
        ...

    def set_model(self, model: str) -> None:
        """
        Ask `model` from the next request on; its limits are not known yet.

        Raises:
            ConfigError: nobody can be asked for it.
        """
        ...

    async def list_models(self) -> tuple[str, ...]:
        """
        Ask the API what it offers, newest first.

        Raises:
            ProviderError: with what happened and what a person can do.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """
        Ask the model. The last item is `ReplyDone`.

        Raises:
            ProviderError: with what happened and what a person can do.
        """
        ...


class Delegate:
    """A provider that asks another one, `_provider`, for all that it has not of its own."""

    _provider: Provider

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def limits(self) -> ModelLimits | None:
        return self._provider.limits

    @property
    def is_ready(self) -> bool:
        return self._provider.is_ready

    async def prepare(self) -> None:
        await self._provider.prepare()

    async def aclose(self) -> None:
        await self._provider.aclose()

    async def learn_limits(self) -> None:
        await self._provider.learn_limits()

    async def fetch_limits(self) -> ModelLimits:
        return await self._provider.fetch_limits()

    def set_model(self, model: str) -> None:
        self._provider.set_model(model)

    async def list_models(self) -> tuple[str, ...]:
        return await self._provider.list_models()

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        return self._provider.stream(request)
