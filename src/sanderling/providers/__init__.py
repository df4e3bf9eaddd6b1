"""The interface to a model that every provider implements."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

import msgspec
from anyio.lowlevel import checkpoint

from sanderling.protocol.messages import ContentBlock, Message, StopReason, Usage
from sanderling.protocol.modes import Effort
from sanderling.providers.models.known import Price


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as declared to the model; `input_schema` is a JSON schema."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    system: str
    history: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    session_id: str = ""  # cache key, for APIs that have one
    effort: Effort = "default"  # one of the provider's `efforts`
    searches_web: bool = False  # with the API's own tool, if it has one


class TextPiece(msgspec.Struct, frozen=True):
    """The next piece of the text block that is being streamed."""

    text: str


class ThinkingPiece(msgspec.Struct, frozen=True):
    text: str


class BlockDone(msgspec.Struct, frozen=True):
    """
    A finished block; the pieces since the last one are part of it.

    `problem` says why the input of a tool use could not be decoded; the block's input is empty then.
    """

    block: ContentBlock
    problem: str = ""


class TextGoesOn(BlockDone, frozen=True):
    """A finished text, which continues in the next block, on the same line."""


class ToolUseBegun(msgspec.Struct, frozen=True):
    """The model has begun to write a tool use. Not every provider reports it."""


class UsageReport(msgspec.Struct, frozen=True):
    """Token counts of this request so far; each report replaces the one before."""

    usage: Usage


class CacheMissed(msgspec.Struct, frozen=True):
    """Why the API's cache did not have the beginning of the request, in the API's word."""

    reason: str


class ReplyDone(msgspec.Struct, frozen=True):
    """The end of a complete reply. A stream that ends without one was cut off."""

    stop_reason: StopReason


class ReplyPaused(ReplyDone, frozen=True):
    """The API interrupted its own tools. It continues if the reply is sent back, which its provider does."""


StreamItem = (
    TextPiece | ThinkingPiece | ToolUseBegun | BlockDone | UsageReport | CacheMissed | ReplyDone
)


class ModelLimits(msgspec.Struct, frozen=True):
    """A model's limits; also its price and the efforts that it takes, if the API reports them. 0 and None mean unknown."""

    context_window_tokens: int = 0
    max_output_tokens: int = 0
    price: Price | None = None
    efforts: tuple[Effort, ...] | None = None


class Provider(Protocol):
    """A model behind an API: streams a reply to a history."""

    @property
    def model(self) -> str: ...

    @property
    def limits(self) -> ModelLimits | None:
        """None until the API was asked."""
        ...

    @property
    def efforts(self) -> tuple[Effort, ...]:
        """The efforts that the model takes, without "default"."""
        ...

    @property
    def takes_documents(self) -> bool:
        """True if the API takes PDFs in results of tools."""
        ...

    @property
    def answer_limit(self) -> int:
        """The most tokens of an answer; 0 if only the server knows."""
        ...

    @property
    def is_local(self) -> bool:
        """True if the model's server is on this machine."""
        ...

    @property
    def is_ready(self) -> bool:
        """True once `prepare` has nothing left to do."""
        ...

    async def prepare(self) -> None:
        """
        Load what the first request needs, outside the event loop. Idempotent.

        Raises:
            ProviderError: the environment or the settings are unusable.
        """
        ...

    async def aclose(self) -> None: ...

    async def learn_limits(self) -> None:
        """Set `limits` from the API; to zeros if it does not report them."""
        ...

    async def fetch_limits(self) -> ModelLimits:
        """
        Return the model's input and output limits, without spending a token.

        Raises:
            ProviderError: the API is unreachable, rejects the key, or does not know the model.
        """
        ...

    def set_model(self, model: str) -> None:
        """
        Use `model` from the next request on; its limits are unknown until then.

        Raises:
            ConfigError: no provider has this model.
        """
        ...

    async def list_models(self) -> tuple[str, ...]:
        """
        Return the models that the API offers, newest first.

        Raises:
            ProviderError: with what happened and what the user can do.
        """
        ...

    async def prewarm(self, request: ModelRequest) -> Usage:
        """
        Have the API cache the request's tools and system prompt, without an answer. Return what it used, nothing if the API cannot.

        Raises:
            ProviderError: with what happened.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """
        Call the model. The last item is `ReplyDone`.

        Raises:
            ProviderError: with what happened and what the user can do.
        """
        ...


class PlainProvider:
    """A base for providers that only answer: no limits, nothing to prepare, and no other models, unless a subclass has them."""

    is_local = False
    is_ready = True
    takes_documents = False
    efforts: tuple[Effort, ...] = ()
    answer_limit = 0

    def __init__(self, model: str) -> None:
        self.model = model
        self.limits: ModelLimits | None = ModelLimits()

    async def prepare(self) -> None:
        await checkpoint()

    async def aclose(self) -> None:
        await checkpoint()

    async def learn_limits(self) -> None:
        await checkpoint()

    async def fetch_limits(self) -> ModelLimits:
        await checkpoint()
        return self.limits or ModelLimits()

    def set_model(self, model: str) -> None:
        self.model = model

    async def list_models(self) -> tuple[str, ...]:
        await checkpoint()
        return (self.model,)

    async def prewarm(self, request: ModelRequest) -> Usage:
        del request
        await checkpoint()
        return Usage()


class Delegate:
    """A base for wrappers: forwards to `_provider` what they do not override."""

    _provider: Provider

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def limits(self) -> ModelLimits | None:
        return self._provider.limits

    @property
    def efforts(self) -> tuple[Effort, ...]:
        return self._provider.efforts

    @property
    def takes_documents(self) -> bool:
        return self._provider.takes_documents

    @property
    def answer_limit(self) -> int:
        return self._provider.answer_limit

    @property
    def is_local(self) -> bool:
        return self._provider.is_local

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

    async def prewarm(self, request: ModelRequest) -> Usage:
        return await self._provider.prewarm(request)

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        return self._provider.stream(request)


def not_taken(provider: Provider, effort: Effort) -> str:
    """Return the sentence that the provider's model does not take `effort`."""
    if not provider.efforts:
        return f"{provider.model} has no levels of effort, so '{effort}' does not apply."
    return (
        f"{provider.model} does not take the effort '{effort}', only {', '.join(provider.efforts)}."
    )
