"""
Claude, through the `anthropic` SDK.

The SDK sends and frames; what it leaves loose is decided here: every event is decoded strictly, a stream without its
`message_stop` counts as cut, silence is measured in bytes (pings count), and each failure becomes one sentence with a remedy.
Wire format: https://docs.anthropic.com/en/api/messages-streaming
"""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec
from anyio import to_thread

from sanderling.config import Settings, has_api_key
from sanderling.errors import ErrorKind, ProviderError
from sanderling.events import StopReason
from sanderling.messages import (
    ContentBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUse,
    Usage,
)
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    ReplyDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    UsageReport,
)

if TYPE_CHECKING:
    import anthropic

DEFAULT_MAX_TOKENS = 32_000  # every current model can; the model's own limit lowers it
CONNECT_TIMEOUT_S = 10.0
DRAIN_S = 0.5

log = logging.getLogger(__name__)


class AnthropicProvider:
    name = "anthropic"
    is_demo = False

    def __init__(self, settings: Settings) -> None:
        self.model = settings.model
        self.limits: ModelLimits | None = None
        self._settings = settings
        self._client: anthropic.AsyncAnthropic | None = None
        self._loading = anyio.Lock()

    @property
    def is_ready(self) -> bool:
        return self._client is not None

    async def prepare(self) -> None:
        async with self._loading:
            if self._client is None:
                self._client = await to_thread.run_sync(self._make_client, abandon_on_cancel=True)

    async def _ready_client(self) -> "anthropic.AsyncAnthropic":
        await self.prepare()
        assert self._client is not None
        return self._client

    def _make_client(self) -> "anthropic.AsyncAnthropic":
        # A second of imports and 30 ms for the certificates: in a thread, never on the loop.
        import anthropic
        import httpx2

        return anthropic.AsyncAnthropic(
            base_url=self._settings.base_url or None,
            timeout=httpx2.Timeout(self._settings.idle_timeout_s, connect=CONNECT_TIMEOUT_S),
            max_retries=0,  # the SDK's retries are silent, and wait as long as the server says
        )

    async def learn_limits(self) -> None:
        try:
            self.limits = await self.fetch_limits()
        except ProviderError as error:
            log.info("the API does not tell the limits of %s: %s", self.model, error)
            self.limits = ModelLimits()

    async def fetch_limits(self) -> ModelLimits:
        """
        Ask the API what the model takes and gives, without using a token.

        Raises:
            ProviderError: the API cannot be reached, refuses the key, or does not know the model.
        """
        client = await self._ready_client()
        try:
            info = await client.models.retrieve(self.model)
        except (_sdk_error(), TypeError, *_transport_errors()) as error:
            raise self._explain(error, is_streaming=False) from error
        return ModelLimits(info.max_input_tokens or 0, info.max_tokens or 0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        client = await self._ready_client()
        import anthropic

        create: Any = client.messages.with_streaming_response.create
        reply = ReplyDecoder()
        try:
            async with create(**self._body(request)) as response:
                events = anthropic.AsyncStream.raw_events(response.http_response)
                async for event in events:
                    for item in reply.feed(event.data):
                        yield item
                    if reply.is_done:
                        await _read_to_end(events)
                        yield ReplyDone(reply.stop_reason)
                        return
        except (_sdk_error(), TypeError, UnicodeDecodeError, *_transport_errors()) as error:
            raise self._explain(error, is_streaming=reply.has_started) from error

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self._max_tokens(),
            "system": request.system,
            "messages": msgspec.to_builtins(request.history),
            "cache_control": {"type": "ephemeral"},
            "stream": True,
        }
        if self._settings.thinking:
            # Newer models think whether asked or not, and say nothing meanwhile unless told to.
            body["thinking"] = {"type": "adaptive", "display": "summarized"}
        return body

    def _max_tokens(self) -> int:
        wanted = self._settings.max_tokens or DEFAULT_MAX_TOKENS
        limit = self.limits.max_output_tokens if self.limits else 0
        return min(wanted, limit) if limit else wanted

    def _explain(self, error: Exception, *, is_streaming: bool) -> ProviderError:
        import anthropic
        import httpx2

        if isinstance(error, anthropic.APIStatusError):
            detail = error.api_message or str(error)
            retry_after_s = _seconds(error.response.headers.get("retry-after"))
            return explain_status(
                error.type or "", error.status_code, detail, retry_after_s, self.model
            )
        if isinstance(error, (anthropic.CredentialsError, TypeError)):
            if has_api_key():
                raise error  # not about the key: a defect of ours
            return no_key()
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        if isinstance(cause, httpx2.ReadTimeout):
            return ProviderError(
                "stalled",
                f"The API went silent: nothing arrived for {self._settings.idle_timeout_s:g} s.",
                "What arrived is kept. Send a prompt to go on.",
            )
        if is_streaming and isinstance(cause, httpx2.TransportError):
            return ProviderError(
                "cut",
                f"The connection broke in the middle of the answer ({cause}).",
                "What arrived is kept. Send a prompt to go on.",
            )
        if isinstance(cause, UnicodeDecodeError):
            return malformed(str(cause))
        host = self._client.base_url.host if self._client else "the API"
        return ProviderError(
            "network",
            f"Cannot reach {host} ({cause or error}).",
            "Check the network, the proxy and base_url, then send the prompt again.",
        )


async def _read_to_end(events: AsyncIterator[object]) -> None:
    """Read what follows the last event: a response that was not read to its end takes its connection with it."""
    with anyio.move_on_after(DRAIN_S), suppress(*_transport_errors()):
        async for _ in events:
            pass


def no_key() -> ProviderError:
    return ProviderError(
        "no_key",
        "There is no API key.",
        "Set ANTHROPIC_API_KEY in the environment that starts Neovim, or choose provider = 'demo'.",
    )


def malformed(detail: str) -> ProviderError:
    return ProviderError(
        "malformed",
        f"The API sent something that is not its own format ({detail}).",
        "If base_url names a proxy, it may be at fault. Send the prompt again.",
    )


_KINDS_BY_TYPE: dict[str, ErrorKind] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "rate_limit_error": "rate_limited",
    "overloaded_error": "overloaded",
    "api_error": "server",
    "timeout_error": "server",
    "billing_error": "auth",
    "invalid_request_error": "invalid_request",
    "not_found_error": "invalid_request",
    "request_too_large": "invalid_request",
}
_KINDS_BY_STATUS: dict[int, ErrorKind] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "server",
    429: "rate_limited",
    529: "overloaded",
}


def explain_status(
    error_type: str, status: int, detail: str, retry_after_s: float | None, model: str
) -> ProviderError:
    """An error that the API reports: by its type where it has one (mid-stream the status is 200), else by its status."""
    by_status = _KINDS_BY_STATUS.get(status, "server" if status >= 500 else "invalid_request")  # noqa: PLR2004
    kind = _KINDS_BY_TYPE.get(error_type, by_status)
    again = f"in {retry_after_s:g} s" if retry_after_s else "in a moment"
    match kind:
        case "auth":
            message = f"The API refused the key: {detail} ({status})."
            remedy = "Check ANTHROPIC_API_KEY and the account behind it, then restart Neovim with a key that works."
        case "rate_limited":
            message = f"The account's rate limit is reached: {detail} ({status})."
            remedy = f"Send the prompt again {again}."
        case "overloaded":
            message = "The API is overloaded just now (529)."
            remedy = f"Send the prompt again {again}."
        case "server":
            message = f"The API failed: {detail} ({status})."
            remedy = f"Send the prompt again {again}."
        case _ if error_type == "not_found_error" or status == 404:  # noqa: PLR2004
            message = f"The API does not know what was asked for: {detail} ({status})."
            remedy = f"Check that the model '{model}' exists and that base_url is right."
        case _:
            message = f"The API refused the request: {detail} ({status})."
            remedy = (
                "Change the prompt or the settings that it names; :clear starts a new conversation."
            )
    return ProviderError(kind, message, remedy, retry_after_s=retry_after_s)


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header else None
    except ValueError:
        return None  # an HTTP date: "in a moment" will do


def _sdk_error() -> type[Exception]:
    import anthropic

    return anthropic.AnthropicError


def _transport_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError)


# --- the wire ----------------------------------------------------------------------------------------------------------


class _WireBlock(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""


class _WireDelta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _WireUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _WireMessage(msgspec.Struct):
    usage: _WireUsage


class _WireError(msgspec.Struct):
    type: str = ""
    message: str = ""


class _WireEvent(msgspec.Struct):
    """Any event of the stream: the fields that its `type` has; the others keep their defaults."""

    type: str
    index: int = 0
    message: _WireMessage | None = None
    content_block: _WireBlock | None = None
    delta: _WireDelta | None = None
    usage: _WireUsage | None = None
    error: _WireError | None = None


_decoder = msgspec.json.Decoder(_WireEvent)

_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}


def _decode_event(data: str) -> _WireEvent:
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise malformed(str(error)) from error
    except msgspec.DecodeError:
        pass
    # Half of a surrogate pair is no text in any encoding, yet a proxy that cuts strings can send one: show U+FFFD instead.
    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
        return _decoder.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except ValueError as error:
        raise malformed(str(error)) from error


class ReplyDecoder:
    """Turns the events of one reply into stream items. What a later API adds is passed over, what breaks its format is an error."""

    def __init__(self) -> None:
        self.has_started = False
        self.is_done = False
        self.stop_reason: StopReason = "end_turn"
        self._block: _WireBlock | None = None
        self._pieces: list[str] = []
        self._signature = ""
        self._usage = Usage()

    def feed(self, data: str) -> Iterator[StreamItem]:
        if not data:
            return
        event = _decode_event(data)
        match event:
            case _WireEvent(type="message_start", message=_WireMessage(usage)):
                self.has_started = True
                yield self._report(usage)
            case _WireEvent(type="content_block_start", content_block=_WireBlock() as block):
                self._block, self._pieces, self._signature = block, [], block.signature
                yield from self._add(block.text or block.thinking)
            case _WireEvent(type="content_block_delta", delta=_WireDelta() as delta):
                self._signature += delta.signature
                yield from self._add(delta.text or delta.thinking or delta.partial_json)
            case _WireEvent(type="content_block_stop"):
                if block := self._finished_block():
                    yield BlockDone(block)
                self._block = None
            case _WireEvent(
                type="message_delta", delta=_WireDelta(stop_reason=stop_reason), usage=usage
            ):
                self.stop_reason = _STOP_REASONS.get(stop_reason or "", "end_turn")
                if usage:
                    yield self._report(usage)
            case _WireEvent(type="message_stop"):
                self.is_done = True
            case _WireEvent(type="error", error=_WireError(error_type, message)):
                raise explain_status(error_type, 200, message or error_type, None, "")
            case _:
                pass  # ping, or an event of a later API

    def _add(self, piece: str) -> Iterator[StreamItem]:
        if not piece or self._block is None:
            return
        self._pieces.append(piece)
        if self._block.type == "text":
            yield TextPiece(piece)
        elif self._block.type == "thinking":
            yield ThinkingPiece(piece)

    def _finished_block(self) -> ContentBlock | None:
        block, content = self._block, "".join(self._pieces)
        match block:
            case _WireBlock(type="text"):
                return TextBlock(content)
            case _WireBlock(type="thinking"):
                return ThinkingBlock(content, self._signature)
            case _WireBlock(type="redacted_thinking", data=data):
                return RedactedThinkingBlock(data)
            case _WireBlock(type="tool_use", id=use_id, name=name):
                return ToolUse(use_id, name, _tool_input(content))
            case _:
                return None

    def _report(self, usage: _WireUsage) -> UsageReport:
        """Counts are cumulative, and a field that is left out keeps its value."""

        def latest(
            field: Literal[
                "input_tokens",
                "output_tokens",
                "cache_creation_input_tokens",
                "cache_read_input_tokens",
            ],
        ) -> int:
            value: int | None = getattr(usage, field)
            return getattr(self._usage, field) if value is None else value

        self._usage = Usage(
            latest("input_tokens"),
            latest("output_tokens"),
            latest("cache_creation_input_tokens"),
            latest("cache_read_input_tokens"),
        )
        return UsageReport(self._usage)


def _tool_input(partial_json: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(partial_json or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise malformed(f"a tool's input: {error}") from error
