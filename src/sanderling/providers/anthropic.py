"""
Claude, through the `anthropic` SDK.

The SDK sends and frames; what it leaves loose is decided here: every event is decoded strictly, a stream without its
`message_stop` counts as cut, silence is measured in bytes (pings count), and each failure becomes one sentence with a remedy.
Wire format: https://docs.anthropic.com/en/api/messages-streaming
"""

import gc
import importlib
import json
import logging
import math
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
import msgspec
from anyio import to_thread

from sanderling.config import Settings, has_api_key
from sanderling.errors import ErrorKind, ProviderError, printable
from sanderling.events import StopReason
from sanderling.messages import (
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
MAX_SHOWN_INPUT_CHARS = 500
DRAIN_S = 0.5

log = logging.getLogger(__name__)


class AnthropicProvider:
    name = "anthropic"

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
                refuse_a_mangled_key(os.environ.get("ANTHROPIC_API_KEY", ""))
                self._client = await to_thread.run_sync(self._make_client, abandon_on_cancel=True)

    async def aclose(self) -> None:
        if self._client:
            await self._client.close()

    async def _ready_client(self) -> "anthropic.AsyncAnthropic":
        await self.prepare()
        assert self._client is not None
        return self._client

    def _make_client(self) -> "anthropic.AsyncAnthropic":
        _import_sdk()
        import anthropic
        import httpx2

        try:
            return anthropic.AsyncAnthropic(
                base_url=self._settings.base_url or None,
                timeout=httpx2.Timeout(self._settings.idle_timeout_s, connect=CONNECT_TIMEOUT_S),
                default_headers=self._proxy_headers(),
                max_retries=0,  # the SDK's retries are silent, and wait as long as the server says
            )
        except (
            anthropic.AnthropicError,
            httpx2.InvalidURL,
            ImportError,  # a SOCKS proxy without the package for it
            OSError,  # SSL_CERT_FILE names no file
            ValueError,
        ) as error:
            raise ProviderError(
                "network",
                f"The way to the API cannot be set up ({_words(error)}).",
                "Check base_url and the environment's proxy and certificate variables, then restart Neovim.",
            ) from error

    def _proxy_headers(self) -> dict[str, str]:
        """The SDK sends the key as a bearer token; proxies made for earlier versions of the API read `x-api-key`."""
        is_proxied = bool(self._settings.base_url or os.environ.get("ANTHROPIC_BASE_URL"))
        key = os.environ.get("ANTHROPIC_API_KEY")
        return {"x-api-key": key} if is_proxied and key else {}

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
            answer = await client.models.with_raw_response.retrieve(self.model)
        except (_sdk_error(), TypeError, *_transport_errors()) as error:
            raise self._explain(error, is_streaming=False) from error
        info = _decode(_model_decoder, await answer.http_response.aread())
        return ModelLimits(info.max_input_tokens or 0, info.max_tokens or 0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        client = await self._ready_client()
        import anthropic

        create: Any = client.messages.with_streaming_response.create
        reply = ReplyDecoder()
        try:
            async with create(**self._body(request)) as response:
                content_type = response.headers.get("content-type", "")
                if not content_type.startswith("text/event-stream"):
                    raise malformed(f"{content_type or 'nothing'} instead of a stream of events")
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
        if request.tools:
            body["tools"] = msgspec.to_builtins(request.tools)
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
            detail = error.api_message or error.response.reason_phrase
            retry_after_s = _seconds(error.response.headers.get("retry-after"))
            return explain_status(error.type or "", error.status_code, detail, retry_after_s)
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
                f"The connection broke in the middle of the answer ({_words(cause)}).",
                "What arrived is kept. Send a prompt to go on.",
            )
        if isinstance(cause, UnicodeDecodeError):
            return malformed(str(cause))
        host = self._client.base_url.netloc.decode() if self._client else "the API"
        return ProviderError(
            "network",
            f"Cannot reach {host} ({_words(cause or error)}).",
            "Check the network, the proxy and base_url, then send the prompt again.",
        )


def _import_sdk() -> None:
    """A second of imports: in a thread, never on the loop."""
    if "anthropic" in sys.modules:
        return
    # Collecting garbage meanwhile would hold the loop up for 80 ms, and later for 120 ms each time, for 150,000 objects that live
    # as long as the process.
    gc.disable()
    try:
        importlib.import_module("anthropic")
    finally:
        gc.enable()
    gc.freeze()


def refuse_a_mangled_key(key: str) -> None:
    """
    A key with a line break (from a file) or a blank would fail as a header, and the error would quote it.

    Raises:
        ProviderError: without the key in it.
    """
    if key != key.strip() or not key.isascii() or (key and not key.isprintable()):
        raise ProviderError(
            "auth",
            "The API key holds a blank, a line break or another character that no key has.",
            "Set ANTHROPIC_API_KEY anew and restart Neovim.",
        )


def _words(error: BaseException | None) -> str:
    return str(error) or type(error).__name__


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
    error_type: str, status: int, detail: str, retry_after_s: float | None
) -> ProviderError:
    """An error that the API reports: by its type where it has one (mid-stream the status is 200), else by its status."""
    by_status = _KINDS_BY_STATUS.get(status, "server" if status >= 500 else "invalid_request")  # noqa: PLR2004
    kind = _KINDS_BY_TYPE.get(error_type, by_status)
    what = detail if status == HTTPStatus.OK else f"{detail} ({status})"
    again = f"in {retry_after_s:g} s" if retry_after_s else "in a moment"
    match kind:
        case "auth":
            message = f"The API refused the key: {what}."
            remedy = "Check ANTHROPIC_API_KEY and the account behind it, then restart Neovim with a key that works."
        case "rate_limited":
            message = f"The account's rate limit is reached: {what}."
            remedy = f"Send the prompt again {again}."
        case "overloaded":
            message = f"The API is overloaded just now: {what}."
            remedy = f"Send the prompt again {again}."
        case "server":
            message = f"The API failed: {what}."
            remedy = f"Send the prompt again {again}."
        case _ if error_type == "not_found_error" or status == HTTPStatus.NOT_FOUND:
            message = f"The API does not know what was asked for: {what}."
            remedy = "Check the options model and base_url."
        case _:
            message = f"The API refused the request: {what}."
            remedy = (
                "Change the prompt or the settings that it names; :clear starts a new conversation."
            )
    return ProviderError(kind, message, remedy, retry_after_s=retry_after_s)


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header or 0)
    except ValueError:
        return None  # an HTTP date: "in a moment" will do
    return seconds if 0 < seconds < math.inf else None


def _sdk_error() -> type[Exception]:
    import anthropic

    return anthropic.AnthropicError


def _transport_errors() -> tuple[type[Exception], ...]:
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError)


# --- the wire ----------------------------------------------------------------------------------------------------------
#
# What an object is, its `type` says; only then is it decoded, so that one of a later API is passed over whatever it holds.


class _Kind(msgspec.Struct):
    type: str


# A number that Lua can hold.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None


class _WireUsage(msgspec.Struct):
    input_tokens: _Count = None
    output_tokens: _Count = None
    cache_creation_input_tokens: _Count = None
    cache_read_input_tokens: _Count = None


class _WireMessage(msgspec.Struct):
    usage: _WireUsage


class _MessageStart(msgspec.Struct):
    message: _WireMessage


class _BlockStart(msgspec.Struct):
    content_block: msgspec.Raw


class _BlockDelta(msgspec.Struct):
    delta: msgspec.Raw


class _BlockStop(msgspec.Struct):
    pass


class _WireStop(msgspec.Struct):
    stop_reason: str | None = None


class _MessageDelta(msgspec.Struct):
    delta: _WireStop
    usage: _WireUsage | None = None


class _MessageStop(msgspec.Struct):
    pass


class _WireError(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Error(msgspec.Struct):
    error: _WireError


class _WireText(msgspec.Struct):
    text: str


class _WireThinking(msgspec.Struct):
    thinking: str
    signature: str = ""


class _WireRedacted(msgspec.Struct):
    data: str


class _WireToolUse(msgspec.Struct):
    id: str
    name: str


class _WireSignature(msgspec.Struct):
    signature: str


class _WireJson(msgspec.Struct):
    partial_json: str


class _WireModel(msgspec.Struct):
    max_input_tokens: _Count = None
    max_tokens: _Count = None


_WireBlock = _WireText | _WireThinking | _WireRedacted | _WireToolUse

_kind_decoder = msgspec.json.Decoder(_Kind)
_model_decoder = msgspec.json.Decoder(_WireModel)
_input_decoder = msgspec.json.Decoder(dict[str, Any])
_event_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "message_start": msgspec.json.Decoder(_MessageStart),
    "content_block_start": msgspec.json.Decoder(_BlockStart),
    "content_block_delta": msgspec.json.Decoder(_BlockDelta),
    "content_block_stop": msgspec.json.Decoder(_BlockStop),
    "message_delta": msgspec.json.Decoder(_MessageDelta),
    "message_stop": msgspec.json.Decoder(_MessageStop),
    "error": msgspec.json.Decoder(_Error),
}
_block_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "text": msgspec.json.Decoder(_WireText),
    "thinking": msgspec.json.Decoder(_WireThinking),
    "redacted_thinking": msgspec.json.Decoder(_WireRedacted),
    "tool_use": msgspec.json.Decoder(_WireToolUse),
}
_delta_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "text_delta": msgspec.json.Decoder(_WireText),
    "thinking_delta": msgspec.json.Decoder(_WireThinking),
    "signature_delta": msgspec.json.Decoder(_WireSignature),
    "input_json_delta": msgspec.json.Decoder(_WireJson),
}

_STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}

T = TypeVar("T")


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | str | msgspec.Raw) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.ValidationError, RecursionError) as error:
        raise malformed(str(error)) from error
    except msgspec.DecodeError:
        pass
    # Half of a surrogate pair is no text in any encoding, yet a proxy that cuts strings can send one: show U+FFFD instead.
    try:
        value = json.loads(bytes(data) if isinstance(data, msgspec.Raw) else data)
        return decoder.decode(printable(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise malformed(str(error)) from error


def _decode_if_known(
    decoders: Mapping[str, msgspec.json.Decoder[Any]], data: str | msgspec.Raw
) -> Any:
    decoder = decoders.get(_decode(_kind_decoder, data).type)
    return _decode(decoder, data) if decoder else None


def _broken_input(text: str) -> str:
    """Cut off at the limit of tokens, most of the time."""
    try:
        json.loads(text)
        reason = "it is no object, or too deep"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    shown = text if len(text) <= MAX_SHOWN_INPUT_CHARS else f"{text[:MAX_SHOWN_INPUT_CHARS]}…"
    return f"The input is not the JSON object that it must be ({reason}). What arrived: {printable(shown)}"


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
        match _decode_if_known(_event_decoders, data):
            case _MessageStart(message):
                self.has_started = True
                yield self._report(message.usage)
            case _BlockStart(raw_block):
                yield from self._start_block(_decode_if_known(_block_decoders, raw_block))
            case _BlockDelta(raw_delta):
                if self._block:
                    yield from self._grow_block(_decode_if_known(_delta_decoders, raw_delta))
            case _BlockStop():
                if self._block:
                    yield self._finished(self._block)
                self._block = None
            case _MessageDelta(delta, usage):
                self.stop_reason = _STOP_REASONS.get(delta.stop_reason or "", "end_turn")
                if usage:
                    yield self._report(usage)
            case _MessageStop():
                self.is_done = True
            case _Error(error):
                raise explain_status(error.type, HTTPStatus.OK, error.message or error.type, None)
            case _:
                pass  # a ping, or an event of a later API

    def _start_block(self, block: _WireBlock | None) -> Iterator[StreamItem]:
        self._block, self._pieces, self._signature = block, [], ""
        if isinstance(block, _WireText | _WireThinking):
            yield from self._grow_block(block)

    def _grow_block(self, delta: Any) -> Iterator[StreamItem]:
        match delta:
            case _WireText(text) if text:
                self._pieces.append(text)
                yield TextPiece(text)
            case _WireThinking(thinking, signature):
                self._signature += signature
                if thinking:
                    self._pieces.append(thinking)
                    yield ThinkingPiece(thinking)
            case _WireSignature(signature):
                self._signature += signature
            case _WireJson(partial_json):
                self._pieces.append(partial_json)
            case _:
                pass  # a delta of a later API

    def _finished(self, block: _WireBlock) -> BlockDone:
        content = "".join(self._pieces)
        match block:
            case _WireText():
                return BlockDone(TextBlock(content))
            case _WireThinking():
                return BlockDone(ThinkingBlock(content, self._signature))
            case _WireRedacted(data):
                return BlockDone(RedactedThinkingBlock(data))
            case _WireToolUse(use_id, name):
                try:
                    return BlockDone(
                        ToolUse(use_id, name, _decode(_input_decoder, content or "{}"))
                    )
                except ProviderError:
                    return BlockDone(ToolUse(use_id, name, {}), _broken_input(content))

    def _report(self, usage: _WireUsage) -> UsageReport:
        """Counts are cumulative, and a field that is left out keeps its value."""
        self._usage = Usage(
            *(
                getattr(self._usage, field) if (count := getattr(usage, field)) is None else count
                for field in _WireUsage.__struct_fields__
            )
        )
        return UsageReport(self._usage)
