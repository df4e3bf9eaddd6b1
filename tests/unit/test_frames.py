"""Frames: every event arrives, in order, in few and small pieces, never more than Neovim can draw."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanderling.editor.frames import (
    BEHIND_REQUEST_S,
    FRAME_S,
    MAX_FRAME_CHARS,
    MAX_UNDRAWN,
    FrameQueue,
)
from sanderling.protocol.events import (
    BlockEnded,
    Event,
    Notice,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt

PAGE = "a line that can be drawn\n" * MAX_FRAME_CHARS
texts = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        [PAGE[: MAX_FRAME_CHARS - 1], PAGE[:MAX_FRAME_CHARS], PAGE[: 2 * MAX_FRAME_CHARS + 1]]
    ),
)
block_ids = st.integers(0, 1)
events = st.one_of(
    st.builds(TextDelta, block_ids, texts),
    st.builds(ThinkingDelta, block_ids, texts),
    st.builds(BlockEnded, block_ids),
    st.builds(Notice, st.just("info"), st.text(max_size=3)),
)
moves = st.lists(
    st.one_of(events, st.just("take"), st.just("acknowledge"), st.just("wait")), max_size=60
)


def joined(events: Iterable[Event]) -> list[Event]:
    """What a person sees of `events`: neighbouring pieces of one block are one piece."""
    seen: list[Event] = []
    for event in events:
        last = seen[-1] if seen else None
        if (
            isinstance(event, TextDelta | ThinkingDelta)
            and type(event) is type(last)
            and isinstance(last, TextDelta | ThinkingDelta)
            and event.block_id == last.block_id
        ):
            seen[-1] = type(event)(event.block_id, last.text + event.text)
        else:
            seen.append(event)
    return [event for event in seen if getattr(event, "text", "-")]


def char_count(events: Iterable[Event]) -> int:
    return sum(len(event.text) for event in events if isinstance(event, TextDelta | ThinkingDelta))


@pytest.fixture
def queue() -> FrameQueue:
    return FrameQueue("s1")


@given(moves)
def test_every_event_is_delivered_in_order_in_frames_that_neovim_can_draw(
    moves: Sequence[Event | str],
):
    queue = FrameQueue("s1")
    pushed: list[Event] = []
    delivered: list[Event] = []
    now, sent, drawn, last_text_at = 0.0, 0, 0, float("-inf")

    def take() -> None:
        nonlocal sent, last_text_at
        frame = queue.take(now)
        sent += 1
        assert (frame.session_id, frame.seq) == ("s1", sent)
        assert frame.events
        assert char_count(frame.events) <= MAX_FRAME_CHARS
        assert sent - drawn <= MAX_UNDRAWN
        assert now - last_text_at >= FRAME_S * 0.999  # the sum of two floats
        if char_count(frame.events):
            last_text_at = now
        delivered.extend(frame.events)

    for move in moves:
        match move:
            case "take":
                if queue.delay_s(now) == 0:
                    take()
            case "acknowledge":
                drawn = sent
                queue.acknowledge(drawn)
            case "wait":
                now += FRAME_S / 2
            case _:
                queue.push(move)
                pushed.append(move)
    queue.acknowledge(sent)
    drawn = sent
    while (delay_s := queue.delay_s(now)) is not None:
        now += delay_s
        take()
        drawn = sent
        queue.acknowledge(sent)
    assert joined(delivered) == joined(pushed)


def test_first_event_goes_out_at_once_and_so_does_one_after_a_pause(queue):
    assert queue.delay_s(100.0) is None
    queue.push(TextDelta(0, "a"))
    assert queue.delay_s(100.0) == 0
    queue.take(100.0)
    assert queue.delay_s(100.0) is None
    queue.push(TextDelta(0, "b"))
    assert queue.delay_s(100.0) == pytest.approx(FRAME_S)
    assert queue.delay_s(100.0 + FRAME_S) == 0


def test_hundred_pieces_a_second_are_drawn_at_most_sixty_times_and_the_first_at_once(queue):
    frames, waits, now = [], [], 0.0
    for number in range(1000):
        pushed_at = number / 100
        while (delay_s := queue.delay_s(now)) is not None and now + delay_s <= pushed_at:
            now += delay_s
            queue.take(now)
            queue.acknowledge(len(frames) + 1)
            frames.append(now)
        now = pushed_at
        queue.push(TextDelta(0, "a"))
        waits.append(queue.delay_s(now))
    assert frames[0] == 0.0
    assert 550 < len(frames) <= 600
    assert max(waits) < 0.02


def test_first_words_do_not_wait_for_the_frame_that_began_their_turn(queue):
    queue.push(TurnStarted(Prompt("p1", "hi")))
    queue.take(100.0)
    queue.push(TextDelta(0, "a"))
    assert queue.delay_s(100.001) == 0


def test_that_a_turn_has_begun_goes_out_behind_its_request_or_with_what_comes_before_that(queue):
    queue.push(TurnStarted(Prompt("p1", "hi")))
    assert queue.delay_s(100.0) == pytest.approx(BEHIND_REQUEST_S)
    assert queue.delay_s(100.0 + BEHIND_REQUEST_S / 2) == pytest.approx(BEHIND_REQUEST_S / 2)
    assert queue.delay_s(100.0 + 2 * BEHIND_REQUEST_S) == 0
    queue.push(TextDelta(0, "a"))
    assert queue.delay_s(100.0) == 0
    assert [type(event) for event in queue.take(100.0).events] == [TurnStarted, TextDelta]


def test_pieces_of_one_block_are_drawn_as_one(queue):
    for piece in ("Good", " ", "morning"):
        queue.push(TextDelta(0, piece))
    queue.push(BlockEnded(0))
    queue.push(TextDelta(1, "!"))
    assert queue.take(0.0).events == (
        TextDelta(0, "Good morning"),
        BlockEnded(0),
        TextDelta(1, "!"),
    )


def test_neovim_that_does_not_draw_gets_sixteen_frames_and_then_the_rest_in_one_piece(queue):
    now, taken = 0.0, 0
    for _ in range(1000):
        queue.push(TextDelta(0, "x"))
        now += FRAME_S
        if queue.delay_s(now) is not None:
            queue.take(now)
            taken += 1
    assert taken == MAX_UNDRAWN == 16
    queue.acknowledge(1)
    assert queue.take(now).events == (TextDelta(0, "x" * 984),)
    assert queue.delay_s(now + 1) is None


def test_acknowledgement_that_comes_late_takes_nothing_back(queue):
    for n in range(MAX_UNDRAWN):
        queue.push(TextDelta(0, "x"))
        queue.take(float(n))
    queue.acknowledge(16)
    queue.acknowledge(3)
    queue.push(TurnEnded("end_turn"))
    assert queue.delay_s(100.0) == 0
