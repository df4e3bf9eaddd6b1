"""
A request to the Responses API. The server stores nothing: each request has the whole conversation, with the model's encrypted reasoning.

A request begins with the bytes of the one before it: tools, system prompt, every earlier message. A message is encoded once, as the items
that it consists of, and recognized by identity.

Models from GPT-5.6 on read and write their cache at breakpoints, and writing costs 1.25 times the tokens
(https://developers.openai.com/api/docs/guides/prompt-caching). They set one themselves, at the end of the new input. Two more are set
here. One is at the end of the system prompt: it covers the tools too, and is valid whatever happens to the conversation. The other is at
the end of the previous request, because not all models look for that on their own; in a conversation that begins with a `SharedBlock`, a
third is at its end. Only a block can have a breakpoint, so the text of every result is a block then: the breakpoint moves on, but the form
of a message must not change.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from sanderling.protocol.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    ImageSource,
    Message,
    ResultBlock,
    ServerBlock,
    SharedBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.encoding import (
    EncodedHistory,
    EncodedTools,
    cache_key,
    encoded,
    fits_strict,
    previous_end,
    replays_thoughts,
    with_mark,
)
from sanderling.providers.endpoint import NO_DOCUMENT, Quirks, with_fields
from sanderling.providers.turns import Turns
from sanderling.text import printable

MIN_OUTPUT_TOKENS = 16
IMAGE_FOLLOWS = "[an image, which follows]"
IMAGE_UNSEEN = "[an image, which this model cannot see]"
_MARK = "prompt_cache_breakpoint", {"mode": "explicit"}


class _InputText(msgspec.Struct, tag="input_text"):
    text: str


class _MarkedText(_InputText, tag="input_text"):
    prompt_cache_breakpoint: dict[str, str]


class _InputImage(msgspec.Struct, tag="input_image"):
    image_url: str
    detail: str = "auto"


class _InputFile(msgspec.Struct, tag="input_file"):
    filename: str
    file_data: str


_InputPart = _InputText | _InputImage | _InputFile


class _OutputText(msgspec.Struct, tag="output_text"):
    text: str
    annotations: tuple[Any, ...] = ()


class _SummaryText(msgspec.Struct, tag="summary_text"):
    text: str


class _ReasoningText(msgspec.Struct, tag="reasoning_text"):
    text: str


class _InputMessage(msgspec.Struct, tag="message"):
    """A user or system message."""

    role: str
    content: list[_InputPart]


class _AssistantMessage(msgspec.Struct, tag="message", kw_only=True, omit_defaults=True):
    id: str
    role: str
    status: str
    phase: str = ""
    content: list[_OutputText]


class _Quoted(msgspec.Struct, omit_defaults=True):
    """Text of another model, or of an answer that was cut off. Items with a type need an id, and this has none."""

    role: str
    content: str
    phase: str = ""


class _Reasoning(msgspec.Struct, tag="reasoning", kw_only=True, omit_defaults=True):
    """Reasoning: encrypted, with a summary, or in the open. Servers that encrypt reasoning reject it in the open."""

    id: str = ""
    summary: list[_SummaryText]
    content: list[_ReasoningText] = []
    encrypted_content: str = ""


class _Call(msgspec.Struct, tag="function_call", kw_only=True, omit_defaults=True):
    id: str = ""
    call_id: str
    name: str
    arguments: str


class _Output(msgspec.Struct, tag="function_call_output"):
    call_id: str
    output: str | list[_InputPart]


class _Function(msgspec.Struct, tag="function"):
    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool  # the default is true


_Item = _InputMessage | _AssistantMessage | _Quoted | _Reasoning | _Call | _Output | dict[str, Any]


class ResponsesEncoder:
    """Encodes requests to `model`. Remembers the history that it encoded last."""

    def __init__(self, model: str, quirks: Quirks) -> None:
        self.model = model
        self.quirks = quirks
        self._turns = Turns(quirks)
        self._history = EncodedHistory(self._encode_message)
        self._tools = EncodedTools(partial(_function, quirks=quirks))
        self._dropped: set[str] = set()

    def encode(self, request: ModelRequest, *, max_tokens: int = 0, thinking: bool = True) -> bytes:
        """Encode a request. With `max_tokens` 0 the server decides."""
        quirks = self.quirks
        model = quirks.sent_name(self.model)
        body: dict[str, Any] = {"model": model, "stream": True, "store": False}
        if max_tokens and quirks.max_tokens_name:
            body["max_output_tokens"] = max(MIN_OUTPUT_TOKENS, max_tokens)
        if quirks.parallel_tools is not None:
            body["parallel_tool_calls"] = quirks.parallel_tools
        if key := cache_key(request, quirks):
            body["prompt_cache_key"] = key
        body |= with_fields(quirks.reasoning(thinking=thinking, effort=request.effort), quirks.body)
        own = quirks.web_search if request.searches_web else {}
        if request.tools or own:
            body["tools"] = _with_own(self._tools.of(request.tools), own)
        return msgspec.json.encode(body | {"input": self._items(request)})

    def encode_prewarm(self, request: ModelRequest) -> bytes:
        """Encode a request that has no answer and caches the tools and the system prompt; empty without breakpoints."""
        if self.quirks.cache != "openai_explicit" or not request.system:
            return b""
        body = msgspec.json.decode(self.encode(request), type=dict[str, msgspec.Raw | Any])
        body |= {"stream": False, "prompt_cache_options": {"mode": "explicit", "prewarm": True}}
        return msgspec.json.encode(body)

    def drop_thoughts(self, history: Sequence[Message]) -> bool:
        """Stop sending the reasoning of `history`, which the API cannot decrypt. Return True if there was any."""
        thoughts = [
            block
            for message in history
            for block in message.content
            if isinstance(block, ThinkingBlock)
        ]
        ids = {*map(_id, thoughts)} - {""}
        has_any = not ids <= self._dropped
        self._dropped |= ids
        self._history = EncodedHistory(self._encode_message)
        return has_any

    def _items(self, request: ModelRequest) -> list[msgspec.Raw]:
        history = self._turns.of(request.history)
        messages = self._history.of(history)
        for number in _with_ids_again(history):
            items = _assistant_items(history[number], is_whole=False)
            messages[number] = tuple(map(encoded, items))
        is_marked = self.quirks.cache == "openai_explicit"
        end = previous_end(history)
        if is_marked and end is not None:
            messages[end] = (*messages[end][:-1], with_mark(messages[end][-1], *_MARK))
        if request.system:
            text = printable(request.system)
            system = encoded(_InputMessage(self.quirks.system_role, [_InputText(text)]))
            messages.insert(0, (with_mark(system, *_MARK) if is_marked else system,))
        return list(chain.from_iterable(messages))

    def _encode_message(self, message: Message, previous: Message | None) -> Iterator[msgspec.Raw]:
        if message.role == "user":
            return map(encoded, _user_items(message, self.quirks))
        ids = {*map(_id, message.content)}
        is_whole = "" not in ids and self._dropped.isdisjoint(ids)
        if any(isinstance(block, ThinkingBlock) for block in message.content):
            is_whole &= replays_thoughts(self.quirks, message, previous)
        return map(encoded, _assistant_items(message, is_whole=is_whole))


def _with_ids_again(history: Sequence[Message]) -> Iterator[int]:
    """Yield the indices of messages with an earlier message's id, which other servers have produced and OpenAI rejects."""
    seen: set[str] = set()
    for number, message in enumerate(history):
        ids = [item_id for block in message.content if (item_id := _id(block))]
        if len({*ids}) < len(ids) or not seen.isdisjoint(ids):
            yield number
        seen.update(ids)


def _user_items(message: Message, quirks: Quirks) -> Iterator[_Item]:
    """Yield tool results, then the user's text, preceded by images that a result cannot have."""
    words: list[_InputPart] = []
    for block in message.content:
        match block:
            case ToolResult(tool_use_id, content, is_error):
                parts = [*([_InputText("Error:")] if is_error else ()), *_parts(content, quirks)]
                if quirks.images == "user":
                    words += filter(_is_image, parts)
                yield _Output(tool_use_id, _output(parts, quirks))
            case SharedBlock(text) if quirks.cache == "openai_explicit":
                words.append(_MarkedText(text, _MARK[1]))
            case TextBlock(text):
                words.append(_InputText(text))
            case ImageBlock() if quirks.images == "none":
                words.append(_InputText(IMAGE_UNSEEN))
            case ImageBlock():
                words += _parts((block,), quirks)
            case _:
                pass
    if words:
        yield _InputMessage("user", words)


def _parts(content: str | Sequence[ResultBlock], quirks: Quirks) -> list[_InputPart]:
    blocks = (TextBlock(content),) if isinstance(content, str) else content
    return [_part(block, quirks) for block in blocks]


def _part(block: ResultBlock, quirks: Quirks) -> _InputPart:
    match block:
        case TextBlock(text):
            return _InputText(text)
        case ImageBlock(source):
            return _InputImage(_data_url(source))
        case DocumentBlock() if quirks.documents == "none":
            return _InputText(NO_DOCUMENT)
        case DocumentBlock(source, title):
            return _InputFile(printable(title), _data_url(source))


def _data_url(source: ImageSource) -> str:
    return f"data:{source.media_type};base64,{source.data}"


def _output(parts: list[_InputPart], quirks: Quirks) -> str | list[_InputPart]:
    if quirks.images != "tool":
        instead = _InputText(IMAGE_FOLLOWS if quirks.images == "user" else IMAGE_UNSEEN)
        parts = [instead if _is_image(part) else part for part in parts]
    if quirks.cache == "openai_explicit" or not all(map(_is_text, parts)):
        return parts
    return "\n\n".join(part.text for part in parts if isinstance(part, _InputText))


def _is_image(part: _InputPart) -> bool:
    return isinstance(part, _InputImage)


def _is_text(part: _InputPart) -> bool:
    return isinstance(part, _InputText)


def _assistant_items(message: Message, *, is_whole: bool) -> Iterator[_Item]:
    """
    Yield the model's own items as the API sent them or, if something is missing, as quotations.

    The API rejects an item with an id without the reasoning before it, and reasoning without the item after it.
    """
    for block in message.content:
        item_id = _id(block) if is_whole else ""
        match block:
            case ThinkingBlock() if is_whole:
                yield _thought(block)
            case TextBlock(text, extra):
                phase = extra.get("phase", "")
                yield (
                    _AssistantMessage(
                        id=item_id,
                        role="assistant",
                        status="completed",
                        phase=phase,
                        content=[_OutputText(text, tuple(extra.get("annotations", ())))],
                    )
                    if is_whole
                    else _Quoted("assistant", text, phase)
                )
            case ToolUse(use_id, name, data):
                yield _Call(
                    id=item_id, call_id=use_id, name=name, arguments=bytes(encoded(data)).decode()
                )
            case ServerBlock(item) if is_whole:
                yield item
            case _:
                pass


def _thought(block: ThinkingBlock) -> _Reasoning:
    texts = block.extra.get("parts") or [block.thinking] * bool(block.thinking)
    return _Reasoning(
        id=_id(block),
        summary=[_SummaryText(text) for text in texts if block.signature],
        content=[_ReasoningText(text) for text in texts if not block.signature],
        encrypted_content=block.signature,
    )


def _with_own(tools: msgspec.Raw, own: dict[str, Any]) -> msgspec.Raw:
    """Append the API's own tool, last, so that the user can turn it on without other definitions changing."""
    if not own:
        return tools
    before = bytes(tools)[:-1]
    comma = b"," if before != b"[" else b""
    return msgspec.Raw(before + comma + msgspec.json.encode(own) + b"]")


def _id(block: ContentBlock) -> str:
    if isinstance(block, ServerBlock):
        return str(block.data.get("id", ""))
    has_extra = isinstance(block, ThinkingBlock | TextBlock | ToolUse)
    return str(block.extra.get("id", "")) if has_extra else ""


def _function(tool: ToolSpec, quirks: Quirks) -> _Function:
    is_strict = quirks.strict_schemas and fits_strict(tool.input_schema)
    return _Function(tool.name, tool.description, tool.input_schema, is_strict)
