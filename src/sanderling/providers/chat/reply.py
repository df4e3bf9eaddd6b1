"""
The response to a request for a chat completion, chunk by chunk.

Every server sends its own kind of chunks, so missing and unexpected fields are ignored, and errors are recognized wherever they are. The
answer is complete with a stop reason or the end mark; without either it was cut off. Format:
https://platform.openai.com/docs/api-reference/chat-streaming
"""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Literal, cast

import msgspec

from sanderling.errors import ProviderError
from sanderling.protocol.messages import StopReason, TextBlock, ThinkingBlock, ToolUse, Usage
from sanderling.providers import (
    BlockDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.chat.calls import Calls
from sanderling.providers.chat.tags import TaggedThoughts
from sanderling.providers.endpoint import Quirks
from sanderling.providers.http.bodies import (
    Decoder,
    count,
    decode,
    field,
    first_count,
    is_list,
    items,
    read_refusal,
)
from sanderling.providers.http.errors import explain_status
from sanderling.providers.idle import keeps_what_came

END = "[DONE]"
_OWN_FIELDS = frozenset(("role", "content", "tool_calls"))
_STOP_REASONS: dict[str, StopReason] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "context_full",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}
# Stop reasons that are errors, with the error's type and message.
_FAILURES = {
    "error": ("api_error", "it ended the answer"),
    "insufficient_system_resource": (
        "overloaded_error",
        "it has no room for the rest of the answer",
    ),
    "malformed_function_call": ("tool_use_failed", "it is left out"),
}
_ABORTED = "abort"
_THOUGHT_TAGS = "<thought>", "</thought>"
# Fields of `usage` for cached input: OpenAI and most others, DeepSeek, Moonshot.
_READ = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cached_tokens",),
)
_WRITTEN = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
)

_chunk_decoder = msgspec.json.Decoder(Any)


class ChatDecoder(Decoder):
    """Turns the chunks of one reply into stream items."""

    def __init__(
        self,
        quirks: Quirks = Quirks(),  # noqa: B008 - frozen
        without_key: Callable[[str], str] = str,
        key_remedy: str = "",
    ) -> None:
        super().__init__(without_key, key_remedy)
        self._quirks = quirks
        self._calls = Calls(quirks.echo)
        self._tagged = TaggedThoughts(quirks.text_thoughts)
        self._run = _TextRun()
        self._extra: dict[str, Any] = {}
        self._usage = Usage()

    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        """Decode a chunk. `event` is its name: "error" on servers that name their events."""
        if data.strip() == END:
            self.is_done = self.is_over = True
            return
        if not data.strip():
            return
        if event == "error" and not data.lstrip().startswith(("{", "[")):
            raise self._failure(HTTPStatus.OK, data.strip(), "")
        chunk = decode(_chunk_decoder, data)
        self.has_started = True
        choice = next(iter(items(field(chunk, "choices"))), None)
        if not self.is_done:
            self._check(chunk, choice, event)
            yield from self._take(field(choice, "delta") or field(choice, "message"))
        if usage := read_usage(chunk, choice, self._usage):
            self._usage = usage
            yield UsageReport(usage)
            self.is_over = self.is_over or self.is_done
        if not self.is_done and (reason := field(choice, "finish_reason")):
            self._stop(str(reason).lower())

    def end(self) -> Iterator[StreamItem]:
        """Finish open blocks, if the reply is complete."""
        if not self.is_done:
            return
        yield from self._say_held()
        last = [*self._open_block(), *self._calls.done()]
        if last and self._extra:
            last[-1] = _with_message(last[-1], self._extra)
        yield from last

    def _check(self, chunk: object, choice: object, event: str) -> None:
        """Raise the error in a chunk, if there is one."""
        is_bare = field(chunk, "object") == "error" or event == "error"
        error = field(chunk, "error") or field(choice, "error") or (chunk if is_bare else None)
        if not error:
            return
        kind, words = read_refusal({"error": error})
        code = field(error, "code")
        is_status = type(code) is int and HTTPStatus.BAD_REQUEST <= code < 600  # noqa: PLR2004
        raise self._failure(code if is_status else HTTPStatus.OK, words or kind or "error", kind)

    def _failure(self, status: int, words: str, kind: str) -> ProviderError:
        return explain_status(kind, status, self._without_key(words), key_remedy=self._key_remedy)

    def _take(self, delta: object) -> Iterator[StreamItem]:
        is_thought = _is_thought(delta)
        for key in () if is_thought else self._quirks.echo:
            if key not in _OWN_FIELDS and (piece := field(delta, key)) is not None:
                self._extra[key] = merged(self._extra.get(key), piece)
        for name in self._quirks.reasoning_fields:
            if isinstance(thought := field(delta, name), str) and thought:
                yield from self._say_held()
                yield from self._say("thinking", thought, name)
                break
        yield from self._take_content(field(delta, "content"), is_thought=is_thought)
        if isinstance(refusal := field(delta, "refusal"), str) and refusal:
            self.stop_reason = "refusal"
            yield from self._say("text", refusal)
        calls, legacy = items(field(delta, "tool_calls")), field(delta, "function_call")
        for call in calls or ([{"index": 0, "function": legacy}] if legacy else []):
            before = len(self._calls)
            self._calls.add(call)
            if len(self._calls) > before:
                yield ToolUseBegun()

    def _take_content(self, content: object, *, is_thought: bool) -> Iterator[StreamItem]:
        if isinstance(content, str):
            thought, words = self._parted(content, is_thought=is_thought)
            yield from self._say("thinking", thought)
            for kind, each in self._tagged.feed(words):
                yield from self._say(kind, each)
        for part in items(content):
            thought = field(part, "thinking")
            for each in items(thought):
                yield from self._say("thinking", field(each, "text"), "content")
            yield from self._say("thinking", thought, "content")
            yield from self._say("text", field(part, "text"))

    def _say_held(self) -> Iterator[StreamItem]:
        for kind, words in self._tagged.end():
            yield from self._say(kind, words)

    def _parted(self, content: str, *, is_thought: bool) -> tuple[str, str]:
        """Split `content` into reasoning and answer. Gemini marks its reasoning, and also puts tags around it."""
        begin, end = _THOUGHT_TAGS
        if is_thought:
            thought, _, words = content.removeprefix(begin).partition(end)
            return thought, words
        is_after_one = self._run.kind == "thinking" and not self._run.field
        return "", content.removeprefix(end) if is_after_one else content

    def _say(
        self, kind: Literal["text", "thinking"], words: object, name: str = ""
    ) -> Iterator[StreamItem]:
        if not isinstance(words, str) or not words:
            return
        if self._run.kind != kind:
            yield from self._open_block()
            self._run = _TextRun(kind, name)
        self._run.pieces.append(words)
        self.has_words = True
        yield TextPiece(words) if kind == "text" else ThinkingPiece(words)

    def _open_block(self) -> list[BlockDone]:
        """Return the last run of text as a block, if there is one."""
        words = "".join(self._run.pieces)
        match self._run.kind:
            case "":
                return []
            case "text":
                return [BlockDone(TextBlock(words))]
            case "thinking":
                goes_back = self._run.field and self._quirks.replay_reasoning != "never"
                extra = {"field": self._run.field} if goes_back else {}
                return [BlockDone(ThinkingBlock(words, "", extra))]

    def _stop(self, reason: str) -> None:
        if reason in _FAILURES:
            kind, words = _FAILURES[reason]
            raise self._failure(HTTPStatus.OK, words, kind)
        if reason == _ABORTED:
            message = "The server gave up in the middle of the answer."
            raise ProviderError("cut", message, keeps_what_came())
        self.is_done = True
        if self.stop_reason != "refusal":
            self.stop_reason = _STOP_REASONS.get(reason, "end_turn")


def _is_thought(delta: object) -> bool:
    """Read Gemini's mark for reasoning."""
    return field(field(field(delta, "extra_content"), "google"), "thought") is True


class _TextRun(msgspec.Struct):
    """Consecutive text of one kind, and the field that it comes in."""

    kind: Literal["", "text", "thinking"] = ""
    field: str = ""
    pieces: list[str] = []


def merged(whole: Any, more: Any) -> Any:
    """
    Merge the pieces of an echoed field.

    Reasoning details are lists. A detail continues the one before if it has the same type and index.
    """
    if not (is_list(whole) and is_list(more)):
        return more
    details: list[Any] = items(whole).copy()
    for each in items(more):
        if details and (place := _place(each)) and place == _place(details[-1]):
            details[-1] = _joined(details[-1], cast("dict[str, Any]", each))
        else:
            details.append(each)
    return details


def _place(detail: object) -> tuple[str, int] | None:
    kind, index = field(detail, "type"), field(detail, "index")
    return (kind, index) if isinstance(kind, str) and type(index) is int else None


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    whole = dict(one)
    for key, value in other.items():
        is_grown = key in ("text", "summary", "data") and isinstance(whole.get(key), str)
        if is_grown and isinstance(value, str):
            whole[key] += value
        elif value is not None:
            whole[key] = value
    return whole


def _with_message(done: BlockDone, extra: dict[str, Any]) -> BlockDone:
    """Add the message's echoed fields to the block of `done`."""
    block = done.block
    if not isinstance(block, TextBlock | ToolUse):
        return done
    whole = msgspec.structs.replace(block, extra={**block.extra, "message": extra})
    return BlockDone(whole, done.problem)


def read_usage(chunk: object, choice: object, before: Usage) -> Usage | None:
    """Return the counts in a chunk; None if it has none. Missing counts keep their values."""
    usage = (
        field(chunk, "usage") or field(field(chunk, "x_groq"), "usage") or field(choice, "usage")
    )
    prompt, completion, total = (
        count(field(usage, f"{name}_tokens")) for name in ("prompt", "completion", "total")
    )
    if prompt is None and completion is None:
        return None
    read, written = first_count(usage, _READ), first_count(usage, _WRITTEN)
    output = before.output_tokens if completion is None else completion
    if prompt is not None and total is not None:
        output = max(
            output, total - prompt
        )  # some servers leave reasoning out of completion_tokens
    prompt = before.input_tokens if prompt is None else max(0, prompt - read - written)
    return Usage(prompt, output, written, read)
