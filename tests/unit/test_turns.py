"""The turn loop against the scripted provider: what is emitted, and that the history always is one the API accepts."""

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import DEADLINE_S, examples, happens
from tests.talk import BaseTalk, Steps, scripted
from tests.unit.test_conversation import FOREVER, HELLO, accepted

from sanderling.protocol.events import (
    BlockEnded,
    ErrorOccurred,
    Event,
    Notice,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
)
from sanderling.protocol.messages import (
    ContentBlock,
    Message,
    Prompt,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.providers.retries import Backoff
from sanderling.session.session import Session

ATTEMPTS = 3
NO_SUCH_TOOL = "There is no tool 'teleport'. There are: bash, delegate, edit, glob, grep, jobs, read, todo, web_fetch, write."


class Talk(BaseTalk):
    """A conversation with a scripted model."""

    def __init__(self, session_dir: Path, *replies: Steps, is_repeating: bool = False) -> None:
        session = Session.open(session_dir, "s1", "/project")
        model = scripted(*replies, is_repeating=is_repeating)
        super().__init__(session, model, backoff=Backoff(ATTEMPTS, first_s=0))

    async def run(self, *prompts: Prompt) -> Self:
        """Run the turns of `prompts` to their ends."""
        with closing(self.session):
            for prompt in prompts:
                await self.turn(prompt)
        return self

    def cancel_at(self, moment: Event) -> None:
        self.on_event = lambda event: self.conversation.cancel() if event == moment else None

    async def turn(self, prompt: Prompt) -> None:
        with anyio.fail_after(DEADLINE_S):
            await self.conversation.run_turn(prompt)


def said(history: list[Message]) -> list[ContentBlock]:
    """All blocks but the notes of ours."""
    blocks = (block for message in history for block in message.content)
    return [
        each for each in blocks if not (isinstance(each, TextBlock) and each.text.startswith("["))
    ]


# --- a turn ------------------------------------------------------------------------------------------------------------


async def test_turn_is_told_from_start_to_end(tmp_path):
    steps = [{"thinking": "Hm.", "chunk_chars": 2}, {"text": "Good morning!", "chunk_chars": 5}]
    talk = await Talk(tmp_path, steps).run(HELLO)
    *most, usage, end = talk.events
    assert most == [
        TurnStarted(HELLO),
        ThinkingDelta(0, "Hm"),
        ThinkingDelta(0, "."),
        BlockEnded(0),
        TextDelta(1, "Good "),
        TextDelta(1, "morni"),
        TextDelta(1, "ng!"),
        BlockEnded(1),
    ]
    assert isinstance(usage, UsageUpdated)
    assert end == TurnEnded("end_turn")
    assert said(talk.history) == [
        TextBlock("Good morning."),
        ThinkingBlock("Hm.", "scripted"),
        TextBlock("Good morning!"),
    ]


async def test_block_ids_go_on_counting_in_the_next_turn(tmp_path):
    talk = await Talk(tmp_path, [{"text": "a"}], [{"text": "b"}]).run(HELLO, HELLO)
    assert talk.of(TextDelta) == [TextDelta(0, "a"), TextDelta(1, "b")]


async def test_usage_is_told_for_the_request_and_for_the_session(tmp_path):
    talk = await Talk(tmp_path, [{"text": "x" * 40}], [{"text": "y" * 80}]).run(HELLO, HELLO)
    first, second = talk.of(UsageUpdated)
    assert first.total == first.last_request
    assert (first.last_request.output_tokens, second.last_request.output_tokens) == (10, 20)
    assert second.total == first.last_request + second.last_request == talk.session.ledger.total
    assert first.context_window_tokens == 200_000


async def test_tool_that_does_not_exist_is_answered_and_the_model_asked_again(tmp_path):
    use = {"name": "teleport", "input": {"to": "mars"}, "id": "t1"}
    steps = [{"text": "I will."}, {"tool_use": use}], [{"text": "I cannot."}]
    talk = await Talk(tmp_path, *steps).run(HELLO)
    assert talk.history[1:] == [
        Message("assistant", (TextBlock("I will."), ToolUse("t1", "teleport", {"to": "mars"}))),
        Message("user", (ToolResult("t1", NO_SUCH_TOOL, is_error=True),)),
        Message("assistant", (TextBlock("I cannot."),)),
    ]
    assert accepted(talk.history)
    assert talk.of(TurnStarted, TurnEnded) == [TurnStarted(HELLO), TurnEnded("end_turn")]
    first, second = talk.of(UsageUpdated)
    assert second.total == first.last_request + second.last_request == talk.session.ledger.total


# --- turns that do not reach their end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps, kept",
    [
        ([{"text": "Good mor"}, FOREVER], (TextBlock("Good mor"),)),
        (
            [{"thinking": "Hm."}, {"text": "Good mor"}, FOREVER],
            (ThinkingBlock("Hm.", "scripted"), TextBlock("Good mor")),
        ),
        ([{"text": " \n"}, FOREVER], ()),
        ([FOREVER], ()),
    ],
    ids=["text", "thinking and text", "blank text", "nothing"],
)
async def test_cancel_keeps_what_was_said(tmp_path, steps, kept):
    async with Talk(tmp_path, steps).begun(HELLO, TurnStarted) as talk:
        await talk.until(BlockEnded, len(steps) - 1)
        talk.conversation.cancel()
        await talk.until(TurnEnded)
    assert talk.events[-1] == TurnEnded("cancelled")
    assert talk.history[1:] == ([Message("assistant", kept)] if kept else [])
    assert accepted(talk.history)


async def test_cancel_in_the_middle_of_a_block_keeps_its_beginning_and_its_id(tmp_path):
    half = [{"text": "Good morning", "chunk_chars": 4, "chunk_delay_ms": 1}]
    talk = Talk(tmp_path, half, [{"text": "b"}])
    talk.cancel_at(TextDelta(0, " mor"))
    await talk.run(HELLO, Prompt("p2", "Go on."))
    assert talk.of(TurnEnded) == [TurnEnded("cancelled"), TurnEnded("end_turn")]
    assert talk.history[1] == Message("assistant", (TextBlock("Good mor"),))
    assert talk.of(TextDelta)[-1] == TextDelta(1, "b")


async def test_thinking_without_an_answer_leaves_a_history_that_the_api_accepts(tmp_path):
    # "The final block in an assistant message cannot be `thinking`" (400, for every request from then on).
    talk = Talk(tmp_path, [{"thinking": "Hm."}, FOREVER])
    talk.cancel_at(BlockEnded(0))
    await talk.run(HELLO)
    assert talk.events[-1] == TurnEnded("cancelled")
    assert accepted(talk.history)


@pytest.mark.parametrize(
    "ending, kind",
    [({"cut": True}, "cut"), ({"error": {"kind": "server", "message": "Oh."}}, "server")],
)
async def test_failure_keeps_what_was_said_and_the_session_lives(tmp_path, ending, kind):
    failing = [[{"text": "Good mor"}, ending]] * ATTEMPTS
    talk = await Talk(tmp_path, *failing, [{"text": "Again."}]).run(HELLO, Prompt("p2", "Go on."))
    assert [error.kind for error in talk.of(ErrorOccurred)] == [kind]
    assert talk.of(TurnEnded) == [TurnEnded("error"), TurnEnded("end_turn")]
    assert said(talk.history) == [
        TextBlock("Good morning."),
        TextBlock("Good mor"),
        TextBlock("Go on."),
        TextBlock("Again."),
    ]
    assert accepted(talk.history)


@pytest.mark.parametrize("ending", [FOREVER, {"cut": True}], ids=["cancel", "cut"])
async def test_tool_use_of_a_turn_that_stops_is_answered(tmp_path, ending):
    talk = Talk(tmp_path, [{"tool_use": {"name": "bash", "id": "t1"}}, ending])
    if ending is FOREVER:
        talk.cancel_at(BlockEnded(0))
    await talk.run(HELLO)
    assert talk.history[-1].content[0].tool_use_id == "t1"  # type: ignore[union-attr]
    assert accepted(talk.history)


async def test_blank_prompt_does_not_spoil_the_history(tmp_path):
    talk = await Talk(tmp_path, [{"text": "What?"}]).run(Prompt("p1", "  \n"))
    assert accepted(talk.history)


# --- several prompts ---------------------------------------------------------------------------------------------------


async def test_prompts_sent_during_a_turn_run_after_it_in_order(tmp_path):
    prompts = [Prompt(f"p{n}", f"prompt {n}") for n in range(3)]
    talk = Talk(
        tmp_path, [{"text": "yes", "chunk_chars": 1, "chunk_delay_ms": 1}], is_repeating=True
    )
    async with talk.begun(prompts[0], TextDelta):
        talk.conversation.submit(prompts[1])
        talk.conversation.submit(prompts[2])
        await talk.until(TurnEnded, 3)
    expected = [fact for prompt in prompts for fact in (TurnStarted(prompt), TurnEnded("end_turn"))]
    assert talk.of(TurnStarted, TurnEnded) == expected
    assert [message.role for message in talk.history] == ["user", "assistant"] * 3


async def test_cancel_drops_the_prompts_that_wait_and_no_later_ones(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}, FOREVER], [{"text": "b"}]).begun(
        HELLO, TextDelta
    ) as talk:
        talk.conversation.submit(Prompt("p2", "dropped"))
        talk.conversation.submit(Prompt("p3", "dropped"))
        talk.conversation.cancel()
        talk.conversation.submit(Prompt("p4", "later"))
        await talk.until(TurnEnded, 2)
    assert [event.prompt.id for event in talk.of(TurnStarted)] == ["p1", "p4"]
    assert talk.of(TurnEnded) == [TurnEnded("cancelled"), TurnEnded("end_turn")]
    assert talk.of(TextDelta) == [TextDelta(0, "a"), TextDelta(1, "b")]


async def test_cancel_right_after_a_prompt_stops_that_prompt(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}], is_repeating=True).served() as talk:
        await anyio.wait_all_tasks_blocked()  # the conversation waits for a prompt
        talk.conversation.submit(HELLO)
        talk.conversation.cancel()
        talk.conversation.submit(Prompt("p2", "later"))
        await talk.until(TurnEnded, 2)
    assert [event.prompt.id for event in talk.of(TurnStarted)] == ["p2"]
    assert talk.of(TurnEnded) == [TurnEnded("cancelled"), TurnEnded("end_turn")]


async def test_cancel_in_the_last_moment_of_a_turn_still_says_so(tmp_path):
    talk = Talk(tmp_path, [{"text": "a"}], is_repeating=True)

    async def learn_limits() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            talk.conversation.cancel()  # while the turn's tasks are torn down

    talk.conversation.services.provider.limits = None
    talk.conversation.services.provider.learn_limits = learn_limits
    async with talk.served():
        talk.conversation.submit(HELLO)
        talk.conversation.submit(Prompt("p2", "dropped"))
        await talk.until(TurnEnded)
        await anyio.wait_all_tasks_blocked()
    assert [event.prompt.id for event in talk.of(TurnStarted)] == [HELLO.id]
    assert talk.of(TurnEnded) == [TurnEnded("cancelled")]


async def test_disk_that_cannot_sync_is_told_once(tmp_path, monkeypatch):
    def fsync(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    talk = Talk(tmp_path, [{"text": "a"}], is_repeating=True)
    await talk.run(HELLO, Prompt("p2", "again"))
    assert ["Input/output error" in notice.text for notice in talk.of(Notice)] == [True]


async def test_cancel_without_a_turn_changes_nothing(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}]).served() as talk:
        talk.conversation.cancel()
        talk.conversation.submit(HELLO)
        await talk.until(TurnEnded)
    assert talk.events[-1] == TurnEnded("end_turn")


# --- any conversation --------------------------------------------------------------------------------------------------

words = st.sampled_from(["", " ", "\n", "a", "Grüße 🦀", "two\nlines"])
steps = st.one_of(
    st.fixed_dictionaries({"text": words, "chunk_chars": st.integers(0, 2)}),
    st.fixed_dictionaries({"thinking": st.just("Hm.")}),
    # Never the same twice: the model is stopped when it goes in circles.
    st.uuids().map(lambda unique: {"tool_use": {"name": "bash", "input": {"wrong": str(unique)}}}),
    st.just({"cut": True}),
    st.just({"error": {"kind": "server", "message": "Oh."}}),
)
scripts = st.lists(st.lists(steps, max_size=5), min_size=1, max_size=4)


@settings(deadline=None, max_examples=examples(150))
@given(scripts, st.lists(st.integers(0, 30), max_size=2))
def test_any_history_is_one_that_the_api_accepts_and_the_log_gives_back(
    replies: list[Steps], cancel_at: list[int]
):
    for n, step in enumerate(step for steps in replies for step in steps):
        if "tool_use" in step:
            step["tool_use"]["id"] = f"t{n}"
    with tempfile.TemporaryDirectory() as directory:
        talk = Talk(Path(directory), *replies)

        def cancel_now_and_then(_event: Event) -> None:
            if len(talk.events) in cancel_at:
                talk.conversation.cancel()

        talk.on_event = cancel_now_and_then
        anyio.run(talk.run, *(Prompt(f"p{n}", f"prompt {n}") for n in range(3)))
        assert accepted(talk.history)
        assert len(talk.of(TurnStarted)) == len(talk.of(TurnEnded)) == 3
        assert len(talk.of(ErrorOccurred)) == talk.of(TurnEnded).count(TurnEnded("error"))
        reopened = Session.open(Path(directory), "s1", "/project")
        assert (reopened.history, reopened.ledger.total) == (
            talk.history,
            talk.session.ledger.total,
        )


# --- the log -----------------------------------------------------------------------------------------------------------


async def test_answer_is_logged_while_it_streams(tmp_path):
    talk = Talk(tmp_path, [{"text": "Good morning", "chunk_chars": 8, "chunk_delay_ms": 400}])
    async with talk.begun(HELLO, TextDelta):
        await happens(lambda: b'"partial"' in talk.session.path.read_bytes())
        assert talk.of(BlockEnded) == []
        other = tmp_path / "copy" / "s1.jsonl"
        other.parent.mkdir()
        other.write_bytes(talk.session.path.read_bytes())  # what a kill -9 would leave
    resumed = Session.open(other.parent, "s1", "/project")
    assert said(resumed.history) == [TextBlock("Good morning."), TextBlock("Good mor")]
    resumed.close()


@contextmanager
def disk_that_is_full_at(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_full_disk_is_told_once_and_nothing_is_lost_when_there_is_room_again(tmp_path):
    talk = Talk(tmp_path, *([{"text": "x" * 300}] for _ in range(4)))
    with closing(talk.session):
        await talk.turn(HELLO)
        assert talk.of(Notice) == []
        with disk_that_is_full_at(talk.session.path.stat().st_size + 100):
            await talk.turn(HELLO)
            await talk.turn(HELLO)
        [notice] = talk.of(Notice)
        assert notice.level == "warning"
        assert str(talk.session.path) in notice.text
        assert "continues in memory" in notice.text
        await talk.turn(HELLO)
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")] * 4
    reopened = Session.open(tmp_path, "s1", "/project")
    assert (reopened.history, reopened.ledger.total) == (talk.history, talk.session.ledger.total)
    assert len(reopened.history) == 8
    assert talk.session.ledger.total != Usage()


async def test_session_directory_that_cannot_be_made_is_told_once(tmp_path):
    blocker = tmp_path / "sessions"
    blocker.write_text("a file where the directory should be")
    talk = Talk(blocker, [{"text": "a"}], is_repeating=True)
    with closing(talk.session):
        await talk.turn(HELLO)
        await talk.turn(HELLO)
        assert len(talk.of(Notice)) == 1
        blocker.unlink()
        await talk.turn(HELLO)
    assert Session.open(blocker, "s1", "/project").history == talk.history
