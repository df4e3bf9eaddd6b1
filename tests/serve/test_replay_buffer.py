"""The ring of updates: what is told in short says the same as what was told one by one."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.acp.wire.content import shown_text, text_block
from sanderling.acp.wire.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    Notice,
    Plan,
    PlanEntry,
    SessionInfoUpdate,
    ToolCall,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)
from sanderling.serve.replay_buffer import LEFT_OUT, ReplayBuffer
from tests.conftest import examples

TEXT = st.text(max_size=4)
IDS = st.sampled_from(["a", "b"])
CALLS = st.sampled_from(["t1", "t2", "t3"])
MAYBE = st.none() | TEXT
UPDATES = st.one_of(
    *(
        st.builds(
            lambda text, number, kind=kind: kind(content=text_block(text), message_id=number),
            TEXT,
            IDS,
        )
        for kind in (UserMessageChunk, AgentMessageChunk, AgentThoughtChunk)
    ),
    st.builds(lambda call, title: ToolCall(tool_call_id=call, title=title), CALLS, TEXT),
    st.builds(
        lambda call, title, status, text: ToolCallUpdate(
            tool_call_id=call,
            title=title,
            status=status,
            content=None if text is None else [shown_text(text)],
        ),
        CALLS,
        MAYBE,
        MAYBE,
        MAYBE,
    ),
    st.builds(lambda text: Notice(severity="info", title=text), TEXT),
    st.builds(
        lambda text: Plan(entries=[PlanEntry(content=text, priority="low", status="pending")]), TEXT
    ),
    st.builds(lambda used: UsageUpdate(used=used, size=9), st.integers(0, 9)),
    st.builds(lambda title: SessionInfoUpdate(title=title), TEXT),
    st.builds(lambda at: SessionInfoUpdate(updated_at=at), TEXT),
)


def shown(updates):
    """The screen that a client has after all of them."""
    messages, calls, states = [], {}, {}
    for update in updates:
        match update:
            case UserMessageChunk() | AgentMessageChunk() | AgentThoughtChunk():
                key = (type(update), update.message_id)
                if messages and messages[-1][0] == key:
                    messages[-1][1] += update.content.text
                else:
                    messages.append([key, update.content.text])
            case ToolCall() | ToolCallUpdate():
                call = calls.setdefault(update.tool_call_id, {})
                if isinstance(update, ToolCall):
                    call.clear()
                names = ("title", "status", "content")
                call |= {n: v for n in names if (v := getattr(update, n)) is not None}
                messages.append([update.tool_call_id, ""])
            case Notice():
                messages.append(["notice", update.title])
            case SessionInfoUpdate():
                info = states.setdefault("info", {})
                names = ("title", "updated_at")
                info |= {n: v for n in names if isinstance(v := getattr(update, n), str)}
            case _:
                states[type(update)] = update
    return [each for each in messages if each[1]], calls, states.items()


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(UPDATES, max_size=60))
def test_what_is_told_in_short_says_the_same(updates):
    replay = ReplayBuffer(max_updates=8, max_bytes=2_000)
    for number, update in enumerate(updates, 1):
        replay.add(update)
        assert replay.last == number
        assert replay.get(number) == update
        assert replay.get(replay.first - 1) is None
    short, numbered = replay.all()
    kept = dict(numbered)
    assert list(kept) == list(range(replay.first, replay.last + 1))
    told = [*short, *kept.values()]
    messages, calls, states = shown(updates)
    again, again_calls, again_states = shown(told)
    assert calls == again_calls
    assert dict(states) == dict(again_states)
    kinds = {key for key, _ in messages}
    for kind in kinds:  # what is said by one is whole and in order
        said = "".join(text for key, text in messages if key == kind)
        assert "".join(text for key, text in again if key == kind) == said


def test_a_ring_keeps_no_more_than_it_may():
    replay = ReplayBuffer(max_updates=100, max_bytes=10_000)
    for number in range(10_000):
        replay.add(AgentMessageChunk(content=text_block(f"{number} "), message_id="m"))
        short, numbered = replay.all() if number % 997 == 0 else ([], ())
        assert len(dict(numbered)) <= 100
        assert len(short) <= 1
    short, numbered = replay.all()
    text = "".join(each.content.text for each in [*short, *dict(numbered).values()])
    assert text == "".join(f"{number} " for number in range(10_000))


def _call(number: int, size: int) -> list[ToolCall | ToolCallUpdate]:
    name = f"t{number}"
    output = [shown_text("x" * size)]
    return [
        ToolCall(tool_call_id=name, title=f"bash: step {number}"),
        ToolCallUpdate(
            tool_call_id=name, status="completed", content=output, raw_output="y" * size
        ),
    ]


def test_old_tool_calls_lose_their_output_when_there_is_too_much_of_it():
    replay = ReplayBuffer(max_updates=20, max_bytes=100_000, max_condensed_bytes=100_000)
    for number in range(200):
        for update in _call(number, 4_000):
            replay.add(update)
    condensed, numbered = replay.all()
    calls = shown([*condensed, *dict(numbered).values()])[1]
    assert [call["title"] for call in calls.values()] == [f"bash: step {n}" for n in range(200)]
    assert {call["status"] for call in calls.values()} == {"completed"}
    with_output = [name for name, call in calls.items() if "content" in call]
    assert with_output == [f"t{n}" for n in range(200 - len(with_output), 200)]
    assert len(msgspec.json.encode(condensed)) < 110_000


def test_a_session_of_any_length_takes_no_more_than_its_limit():
    replay = ReplayBuffer(max_updates=20, max_bytes=50_000, max_condensed_bytes=50_000)
    replay.add(UsageUpdate(used=1, size=9))
    for number in range(3_000):
        replay.add(
            AgentMessageChunk(content=text_block(f"answer {number} "), message_id=f"m{number}")
        )
        for update in _call(number, 1_000):
            replay.add(update)
    condensed, _ = replay.all()
    assert len(msgspec.json.encode(condensed)) < 60_000
    assert condensed[0] == Notice(severity="info", title=LEFT_OUT)
    assert any(isinstance(each, UsageUpdate) for each in condensed)
