"""Calls of tools in chunks, as servers of Chat Completions cut them: whatever the habit, they are put together as they were meant."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from sanderling.protocol.messages import ToolUse
from sanderling.providers import BlockDone
from sanderling.providers.chat.reply import ChatDecoder


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


class Habit(NamedTuple):
    """How a server tells of calls. `blank` is what stands in a field that has nothing new; without `index` or ids the order tells."""

    index: str = "each"  # each, zero, none
    id: str = "first"  # first, each, none
    name: str = "first"  # first, each, alone
    blank: Any = ...  # left out
    pieces: int = 5
    is_object: bool = False
    is_in_one_chunk: bool = False
    with_end: bool = False


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
CALLS = st.lists(
    st.builds(
        Call,
        st.sampled_from(["read", "bash", "mcp__git__log"]),
        st.dictionaries(
            st.sampled_from(["path", "n", "{", '"}{"']), VALUES, min_size=1, max_size=2
        ),
    ),
    min_size=1,
    max_size=4,
)
HABITS = st.builds(
    Habit,
    st.sampled_from(["each", "zero", "none"]),
    st.sampled_from(["first", "each", "none"]),
    st.sampled_from(["first", "each", "alone"]),
    st.sampled_from([..., "", None]),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def is_clear(habit: Habit) -> bool:
    """Say whether it can be known to which call each delta belongs."""
    says_where = habit.index == "each" or habit.id != "none"
    # A name that comes again looks like another call of the same tool, where only the order tells.
    return says_where or habit.name != "each" or habit.pieces == 1 or habit.is_object


def deltas(calls: list[Call], habit: Habit) -> Iterator[dict[str, Any]]:
    for number, call in enumerate(calls):
        text = json.dumps(call.arguments, ensure_ascii=False)
        size = max(1, -(-len(text) // habit.pieces))
        told: list[Any] = [text[start : start + size] for start in range(0, len(text), size)]
        if habit.is_object:
            told = [call.arguments]
        if habit.name == "alone":
            told.insert(0, "")
        for n, piece in enumerate(told):
            function = _fields(habit, name=call.name if n == 0 or habit.name == "each" else None)
            is_told = habit.id == "each" or (habit.id == "first" and n == 0)
            head = _fields(habit, id=f"call_{number}" if is_told else None)
            if habit.index != "none":
                head["index"] = number if habit.index == "each" else 0
            yield head | {"function": function | {"arguments": piece}}


def _fields(habit: Habit, **told: str | None) -> dict[str, Any]:
    return {
        name: habit.blank if value is None else value
        for name, value in told.items()
        if value is not None or habit.blank is not ...
    }


def understood(calls: list[Call], habit: Habit) -> list[BlockDone]:
    told = list(deltas(calls, habit))
    chunks = [told] if habit.is_in_one_chunk else [[each] for each in told]
    decoder = ChatDecoder()
    for n, each in enumerate(chunks, 1):
        reason = "tool_calls" if habit.with_end and n == len(chunks) else None
        choice = {"index": 0, "delta": {"tool_calls": each}, "finish_reason": reason}
        list(decoder.feed(json.dumps({"choices": [choice]})))
    list(decoder.feed(json.dumps({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})))
    return [item for item in decoder.end() if isinstance(item, BlockDone)]


@settings(max_examples=examples(1000), deadline=None)
@given(CALLS, HABITS)
def test_calls_are_put_together_as_they_were_meant(calls, habit):
    found = understood(calls, habit)
    uses = [done.block for done in found if isinstance(done.block, ToolUse)]
    said = [Call(use.name, use.input) for use in uses if not any(d.problem for d in found)]
    if is_clear(habit):
        assert [done.problem for done in found] == [""] * len(calls)
        assert said == calls
        if habit.id != "none":
            assert [use.id for use in uses] == [f"call_{n}" for n in range(len(calls))]
    else:
        assert said in ([], calls), "what cannot be told apart is told to be wrong"
