"""
The history. Whatever is appended, a request made from it satisfies the API's rules, by construction.

Each tool call has its result at the head of the very next message, no block is blank, thoughts are signed and never last, the first
message is the user's, and ids and tool names use only the API's characters. Source:
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use
"""

import re
from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import msgspec

from sanderling.protocol.messages import (
    ContentBlock,
    ImageBlock,
    Message,
    Prompt,
    RedactedThinkingBlock,
    ServerBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.text import shortened

UNKNOWN_OUTCOME = (
    "The outcome is unknown: the session was interrupted while this ran. It was not run again."
)
NOT_RUN = "This was not run: the session was interrupted before."
NO_OUTPUT = "(no output)"
MAX_UNDOS = 4  # each keeps the history before a compaction
MAX_NAME_CHARS = 64  # of tool names; some servers that relay the API accept no more
_UNFIT = r"[^a-zA-Z0-9_-]"


class UnansweredCalls(msgspec.Struct):
    """
    Tool calls that have no result in the history yet.

    Calls that were `started` may have had effects; calls that `ended` have their results.
    """

    started: set[str] = msgspec.field(default_factory=set)
    ended: dict[str, ToolResult] = msgspec.field(default_factory=dict)

    def forget(self, tool_use_id: str) -> None:
        self.started.discard(tool_use_id)
        self.ended.pop(tool_use_id, None)

    def result(self, tool_use_id: str) -> ToolResult:
        """Return the result to send for a call that has none in the history."""
        text = UNKNOWN_OUTCOME if tool_use_id in self.started else NOT_RUN
        return self.ended.get(tool_use_id) or ToolResult(tool_use_id, text, is_error=True)

    def begun(self, tool_use_id: str) -> ToolResult | None:
        """Return the result of a call that was started, perhaps that its outcome is unknown; None if it was not started."""
        is_known = tool_use_id in self.started or tool_use_id in self.ended
        return self.result(tool_use_id) if is_known else None


class _Compaction(NamedTuple):
    """The history before a compaction, and its length afterwards."""

    messages: list[Message]
    usage: Usage
    length: int


class History:
    """
    The messages sent to the model.

    `last_usage` is the usage of the last request, or the estimate after a compaction.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.last_usage = Usage()
        self.tool_use_ids: set[str] = set()
        self.ran = UnansweredCalls()
        self._compactions: list[_Compaction] = []

    def add(self, message: Message) -> None:
        """Append what the API accepts of `message`, after the results that must come before it."""
        whole = continued(self.messages, message, self.ran)
        self.messages += whole
        for block in chain.from_iterable(each.content for each in whole):
            match block:
                case ToolUse(id=tool_use_id):
                    self.tool_use_ids.add(tool_use_id)
                case ToolResult(tool_use_id=tool_use_id):
                    self.ran.forget(tool_use_id)
                case _:
                    pass

    def compact(self, messages: list[Message], tokens: int) -> None:
        self._compactions.append(_Compaction(self.messages, self.last_usage, len(messages)))
        del self._compactions[:-MAX_UNDOS]
        self.messages, self.last_usage = messages, Usage(tokens)

    @property
    def is_compacted(self) -> bool:
        return bool(self._compactions)

    def undo_compaction(self) -> None:
        if self._compactions:
            before = self._compactions.pop()
            since, self.messages = self.messages[before.length :], list(before.messages)
            self.last_usage = before.usage
            for message in since:
                self.add(message)

    def before(self, message: Message) -> list[Message] | None:
        """Return the messages before `message`, as they were when it was sent; None if they are no longer known."""
        place = self._find(message)
        return self._messages_before(*place) if place else None

    def rewind(self, message: Message, tokens: int) -> None:
        """Go back to before `message`; about `tokens` tokens remain. Does nothing if the earlier messages are no longer known."""
        if place := self._find(message):
            self.messages = self._messages_before(*place)
            del self._compactions[len(self._compactions) - place[0] :]
            self._compactions = [
                each for each in self._compactions if each.length <= len(self.messages)
            ]
            self.last_usage = Usage(tokens)

    def _find(self, message: Message) -> tuple[int, int] | None:
        """Return how many compactions must be undone for `message` to be in the history, and its index there."""
        shown = [self.messages, *(each.messages for each in reversed(self._compactions))]
        for undos, messages in enumerate(shown):
            for at, each in enumerate(messages):
                if each is message or _said(each) == _said(message) != ():
                    return undos, at
        return None

    def _messages_before(self, undos: int, at: int) -> list[Message]:
        """Return the messages before a place, including the tool results at its head."""
        messages = self._compactions[-undos].messages if undos else self.messages
        results = tuple(block for block in messages[at].content if isinstance(block, ToolResult))
        return [*messages[:at], *([Message("user", results)] if results else [])]

    def forget_thoughts(self) -> None:
        """Remove all thoughts, because the API rejects them from another model."""
        self.messages = for_another_model(self.messages)
        self._compactions = [
            each._replace(messages=for_another_model(each.messages)) for each in self._compactions
        ]


def _said(message: Message) -> tuple[ContentBlock, ...]:
    if message.role == "assistant":
        return ()
    return tuple(block for block in message.content if not isinstance(block, ToolResult))


def continued(history: Sequence[Message], message: Message, ran: UnansweredCalls) -> list[Message]:
    """Return the messages to append for `message`: first the missing results, taken from `ran`, then what the API accepts of it."""
    open_uses = _tool_uses(history[-1]) if history else []
    if message.role == "assistant":
        blocks = _spoken(message.content)
        if not (history and blocks):
            return []
        before = Message("user", _results(open_uses, (), ran))
        return [*([before] if open_uses else ()), Message("assistant", blocks)]
    results = _results(open_uses, message.content, ran)
    others = tuple(block for block in message.content if _is_shown(block))
    blocks = (*results, *others)
    if not blocks:
        return []
    return [_with_blocks(message, blocks)]


def plain(words: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return the first `limit` characters of `words`, with `_` for every character that is not allowed in ids and names."""
    return re.sub(_UNFIT, "_", words[:limit])


def fit_name(name: str) -> str:
    """
    Return a tool name in the form that the API accepts.

    A changed name ends with `_`, which no tool's name does, so nothing runs that the model did not name.
    """
    is_fit = name and name == plain(name)
    return name if is_fit else f"{plain(name, MAX_NAME_CHARS - 1) or 'unknown'}_"


def unique_id(wanted: str, taken: Container[str]) -> str:
    """Return `wanted` as a valid id that is not among the `taken` ones. A model or an agent may start counting again."""
    fit = plain(wanted, MAX_NAME_CHARS - len("_9999"))
    own, number = fit, 1
    while own in taken:
        number += 1
        own = f"{fit}_{number}"
    return own


def fit_id(tool_use_id: str) -> str:
    """Return `tool_use_id` in the form that the API accepts: equal ids stay equal, different ids stay different."""
    if tool_use_id and tool_use_id == plain(tool_use_id):
        return tool_use_id
    tag = blake2b(tool_use_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{plain(tool_use_id, MAX_NAME_CHARS // 2) or 'use'}_{tag}"


def fit(message: Message) -> Message:
    return _with_blocks(message, tuple(map(_fit, message.content)))


def _with_blocks(message: Message, blocks: tuple[ContentBlock, ...]) -> Message:
    """Return `message` itself if these are its blocks, because encoded messages are recognized by identity."""
    return message if blocks == message.content else Message(message.role, blocks)


def _fit(block: ContentBlock) -> ContentBlock:
    match block:
        case ToolUse(id=use_id, name=name) if (fit_id(use_id), fit_name(name)) != (use_id, name):
            return msgspec.structs.replace(block, id=fit_id(use_id), name=fit_name(name))
        case ToolResult(tool_use_id=use_id) if fit_id(use_id) != use_id:
            return msgspec.structs.replace(block, tool_use_id=fit_id(use_id))
        case _:
            return block


def for_another_model(history: Iterable[Message]) -> list[Message]:
    """Return `history` without what is bound to the model that wrote it: thoughts, `extra`, and blocks of the API's own tools."""
    kept: list[Message] = []
    for message in history:
        blocks = tuple(_without_extra(block) for block in message.content if not _is_bound(block))
        if blocks or not message.content:
            kept.append(_with_blocks(message, blocks))
    return kept


def _without_extra(block: ContentBlock) -> ContentBlock:
    has_extra = isinstance(block, TextBlock | ToolUse) and block.extra
    return msgspec.structs.replace(block, extra={}) if has_extra else block


def with_results(history: Iterable[Message], texts: dict[str, str]) -> list[Message]:
    return [_with_results(message, texts) for message in history]


def _with_results(message: Message, texts: dict[str, str]) -> Message:
    blocks = (
        msgspec.structs.replace(block, content=texts[block.tool_use_id])
        if isinstance(block, ToolResult) and block.tool_use_id in texts
        else block
        for block in message.content
    )
    return _with_blocks(message, tuple(blocks))


def _tool_uses(message: Message) -> list[ToolUse]:
    return [block for block in message.content if isinstance(block, ToolUse)]


def _results(
    uses: Sequence[ToolUse], given: Sequence[ContentBlock], ran: UnansweredCalls
) -> tuple[ToolResult, ...]:
    by_use = {block.tool_use_id: block for block in given if isinstance(block, ToolResult)}
    return tuple(_filled(by_use.get(use.id) or ran.result(use.id)) for use in uses)


def _filled(result: ToolResult) -> ToolResult:
    """Return `result` without blank text, which the API rejects."""
    if isinstance(result.content, str):
        is_blank = not result.content.strip()
        return msgspec.structs.replace(result, content=NO_OUTPUT) if is_blank else result
    blocks = tuple(
        block for block in result.content if not isinstance(block, TextBlock) or block.text.strip()
    )
    if blocks == result.content:
        return result
    return msgspec.structs.replace(result, content=blocks or NO_OUTPUT)


def _spoken(blocks: Iterable[ContentBlock]) -> tuple[ContentBlock, ...]:
    """Return the blocks of a model's message that the API accepts: no unsigned thoughts, and none at the end."""
    kept: list[ContentBlock] = []
    ids: set[str] = set()
    blocks = tuple(blocks)
    answered = {each.data.get("tool_use_id") for each in blocks if isinstance(each, ServerBlock)}
    for block in blocks:
        match block:
            case TextBlock(text):
                is_accepted = bool(text.strip())
            case ThinkingBlock(signature=signature, extra=extra):
                is_accepted = bool(signature or extra)
            case ToolUse(id=tool_use_id):
                is_accepted = tool_use_id not in ids
                ids.add(tool_use_id)
            case RedactedThinkingBlock(data):
                is_accepted = bool(data)
            case ServerBlock({"type": "server_tool_use", "id": use_id}):
                is_accepted = (
                    use_id in answered
                )  # otherwise the answer was cut off before the result
            case ServerBlock():
                is_accepted = True
            case ToolResult() | ImageBlock():
                is_accepted = False
        if is_accepted:
            kept.append(block)
    while kept and _is_thought(kept[-1]):
        kept.pop()
    return tuple(kept)


def _is_shown(block: ContentBlock) -> bool:
    """Return whether `block` may be in a user message, next to the results."""
    match block:
        case TextBlock(text):
            return bool(text.strip())
        case _:
            return isinstance(block, ImageBlock)


def _is_thought(block: ContentBlock) -> bool:
    return isinstance(block, ThinkingBlock | RedactedThinkingBlock)


def _is_bound(block: ContentBlock) -> bool:
    return _is_thought(block) or isinstance(block, ServerBlock)


MAX_INPUT_CHARS = 80

_TITLE_KEYS = ("command", "path", "pattern", "url", "query")


def input_line(use: ToolUse) -> str:
    """Describe a call in one line: its command or path, or else the first text of its input."""
    values = [use.input[key] for key in _TITLE_KEYS if key in use.input] + [*use.input.values()]
    text = next((value for value in values if isinstance(value, str)), "")
    line = " ".join(text.split())
    return shortened(line, MAX_INPUT_CHARS)


class PromptHistory:
    """
    The prompts of a session's turns, each with the message that it became. Rewound prompts are not included.

    `turn_ids` has the ids of all turns, including rewound ones; `ends` why they ended.
    """

    def __init__(self, history: History) -> None:
        self.turn_ids: list[str] = []
        self.ends: dict[str, StopReason] = {}
        self.messages: list[tuple[Message, Prompt]] = []
        self._history = history

    @property
    def prompts(self) -> list[Prompt]:
        return [prompt for _, prompt in self.messages]

    def find(self, prompt_id: str) -> Prompt | None:
        at = self._index_of(prompt_id)
        return None if at is None else self.messages[at][1]

    def add(self, prompt: Prompt) -> None:
        """Add a prompt; the newest message of the history was made from it."""
        self.turn_ids.append(prompt.id)
        self.messages += [(message, prompt) for message in self._history.messages[-1:]]

    def end(self, stop_reason: StopReason) -> None:
        for turn_id in self.turn_ids[-1:]:
            self.ends.setdefault(turn_id, stop_reason)

    def history_before(self, prompt_id: str) -> list[Message] | None:
        """Return the history after a rewind to this prompt; None if it is no longer known."""
        at = self._index_of(prompt_id)
        return None if at is None else self._history.before(self.messages[at][0])

    def rewind(self, prompt_id: str, tokens: int) -> Prompt | None:
        """Rewind the history to before this prompt, leaving about `tokens` tokens; return the prompt, if it is known."""
        at = self._index_of(prompt_id)
        if at is None:
            return None
        message, prompt = self.messages[at]
        self._history.rewind(message, tokens)
        del self.messages[at:]
        return prompt

    def _index_of(self, prompt_id: str) -> int | None:
        ids = [prompt.id for prompt in self.prompts]
        return len(ids) - 1 - ids[::-1].index(prompt_id) if prompt_id in ids else None
