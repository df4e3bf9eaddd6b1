"""
Histories for servers with strict chat templates.

Our history may have user messages in a row (after a stop or a failed request), text after tool results, and several calls in one message.
The APIs of Anthropic and OpenAI accept all of that. Chat templates, with which local servers write the prompt, often do not: Mistral's
raise an error unless user and assistant alternate, Llama's at the second call of a message. As the history only grows, such an error
would come back with every later request.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from sanderling.protocol.messages import (
    Message,
    NoteBlock,
    TextBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers.endpoint import Quirks

# Stand-ins, where a server requires user and assistant to alternate.
ACKNOWLEDGED = Message("assistant", (TextBlock("Understood."),))
GO_ON = Message("user", (TextBlock("Go on."),))

_Unit = tuple[Message, ...]


class Turns:
    """
    Rewrites histories. Remembers the last one, so that equal messages stay the same objects.

    With `is_joining`, consecutive user messages become one, and notes become part of the last tool result. The quirks `takes_turns` and
    `one_call` require that as well.
    """

    def __init__(self, quirks: Quirks, *, is_joining: bool = False) -> None:
        self._takes_turns = quirks.takes_turns
        self._one_call = quirks.one_call
        self._is_joining = is_joining or quirks.takes_turns or quirks.one_call
        self._units: list[_Unit] = []
        self._written: list[_Unit] = []

    def of(self, history: Sequence[Message]) -> Sequence[Message]:
        if not self._is_joining:
            return history
        units = list(_units(history))
        pairs = enumerate(zip(self._units, units, strict=False))
        shorter = min(len(self._units), len(units))
        known = next((n for n, (a, b) in pairs if not _is_same(a, b)), shorter)
        del self._written[known:]
        for number in range(known, len(units)):
            before = units[number - 1] if number else ()
            self._written.append(tuple(self._rewritten(units[number], before)))
        self._units = units
        return list(chain.from_iterable(self._written))

    def _rewritten(self, unit: _Unit, before: _Unit) -> Iterator[Message]:
        first, *users = unit
        if first.role == "user":
            yield from self._answers(unit)
            return
        if self._takes_turns and before and before[-1].role == "assistant":
            yield GO_ON
        answers = self._answers(users)
        uses = [block for block in first.content if isinstance(block, ToolUse)]
        if users and self._one_call and len(uses) > 1:
            yield from _one_by_one(first, uses, next(answers))
        else:
            yield first
        yield from answers

    def _answers(self, users: Sequence[Message]) -> Iterator[Message]:
        """Yield the messages for consecutive user messages."""
        if not users:
            return
        blocks = tuple(chain.from_iterable(message.content for message in users))
        results = [block for block in blocks if isinstance(block, ToolResult)]
        notes = [block for block in blocks if results and isinstance(block, NoteBlock)]
        apart = {id(block) for block in (*results, *notes)}
        said = tuple(block for block in blocks if id(block) not in apart)
        if notes:
            results[-1] = _with_notes(results[-1], notes)
        if self._takes_turns and results and said:
            yield Message("user", tuple(results))
            yield ACKNOWLEDGED
            yield Message("user", said)
        elif len(users) > 1 or notes:
            yield Message("user", (*results, *said))
        else:
            yield users[0]


def _units(history: Iterable[Message]) -> Iterator[_Unit]:
    """Yield each assistant message with the user messages that follow it."""
    unit: list[Message] = []
    for message in history:
        if unit and message.role == "assistant":
            yield tuple(unit)
            unit = []
        unit.append(message)
    if unit:
        yield tuple(unit)


def _is_same(one: _Unit, other: _Unit) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _with_notes(result: ToolResult, notes: Sequence[NoteBlock]) -> ToolResult:
    texts = [note.text for note in notes]
    if isinstance(result.content, str):
        return replace(result, content="\n\n".join((result.content, *texts)))
    return replace(result, content=(*result.content, *map(TextBlock, texts)))


def _one_by_one(message: Message, uses: Sequence[ToolUse], answer: Message) -> Iterator[Message]:
    """Yield `message` as one message for each of its calls, each followed by its result."""
    results = {b.tool_use_id: b for b in answer.content if isinstance(b, ToolResult)}
    others = tuple(block for block in message.content if not isinstance(block, ToolUse))
    for use in uses[:-1]:
        yield Message("assistant", (*others, use))
        others = ()
        yield Message("user", (results.pop(use.id),))
    yield Message("assistant", (uses[-1],))
    rest = (b for b in answer.content if not isinstance(b, ToolResult) or b.tool_use_id in results)
    yield Message("user", tuple(rest))


def has_parallel_calls(history: Iterable[Message]) -> bool:
    return any(
        sum(isinstance(block, ToolUse) for block in message.content) > 1 for message in history
    )
