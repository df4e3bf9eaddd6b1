"""A conversation that goes on: retries, prompts that wait, limits, other models, compaction, and all of it after a restart."""

import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from tests.api_rules.anthropic import refusals
from tests.conftest import happens, prove, prove_rest, settings_of
from tests.pictures import in_base64, png
from tests.talk import BaseTalk, scripted

from sanderling.conversation.turn import GO_ON
from sanderling.protocol.actions import AnswerApproval, Compact, ReleaseWaiting, UndoCompaction
from sanderling.protocol.events import (
    AnswerRestarted,
    ApprovalRequested,
    BlockEnded,
    CommandEnded,
    CommandStarted,
    Compacted,
    CompactionStarted,
    CompactionUndone,
    ErrorOccurred,
    Event,
    ModeChanged,
    ModelChanged,
    Notice,
    PromptsReturned,
    PromptSteered,
    RetryScheduled,
    RetryStarted,
    SandboxChanged,
    TextDelta,
    ThinkingDelta,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
    WaitingChanged,
)
from sanderling.protocol.messages import (
    Message,
    Prompt,
    Selection,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.protocol.requests import InspectToolUse, WholeToolUse
from sanderling.providers import ModelLimits
from sanderling.providers.retries import Backoff
from sanderling.sandbox.policy import Grant
from sanderling.session.history import MAX_UNDOS
from sanderling.session.records import LoggedSummary
from sanderling.session.session import Session

HELLO = Prompt("p1", "Good morning.")
FOREVER = {"delay_ms": 3_600_000}
LOOK = {"tool_use": {"name": "ls", "input": {"path": "."}}}
MANY = {"input_tokens": 170_000, "output_tokens": 10}

UNFIT_NAMES = [
    "",
    " ",
    "\0",
    "x" * 600,
    "a b!" * 150 + "\0",
    "web fetch",
    "web.fetch",
    " ls ",
    "ls\n",
    "mcp/server:tool",
    "mcp__server__" + "tool" * 40,
    "工具",
    "\ud83d",
]

Reply = list[dict[str, Any]] | dict[str, Any]


class Talk(BaseTalk):
    """A conversation with a scripted model. A question is answered as `answer` says; without one it waits."""

    def __init__(
        self, base: Path, *replies: Reply, answer: str = "", session_id: str = "s1", **settings: Any
    ) -> None:
        self.project = base / "project"
        self.project.mkdir(exist_ok=True)
        session = Session.open(base / "state/sessions", session_id, str(self.project))
        chosen = msgspec.structs.replace(settings_of(session), **settings)
        super().__init__(session, scripted(*replies), settings=chosen, backoff=Backoff(first_s=0))
        self.answer = answer

    def emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ApprovalRequested) and self.answer:
            self.conversation.services.approvals.answer(AnswerApproval(event.id, self.answer))  # type: ignore[arg-type]
        self.on_event(event)

    @asynccontextmanager
    async def after(self, *prompts: Prompt) -> AsyncIterator[Self]:
        """While the conversation is served, when it has answered `prompts`."""
        async with self.served():
            await self.run_turns(*prompts)
            yield self

    async def run(self, *prompts: Prompt) -> Self:
        async with self.after(*prompts):
            return self

    def texts(self) -> list[str]:
        """What was said, without the notes of ours."""
        texts = [block.text for block in self.blocks if isinstance(block, TextBlock)]
        return [text for text in texts if not text.startswith("[")]


def accepted(history: list[Message]) -> bool:
    """Whether the API takes it, with the next prompt at its end."""
    messages = msgspec.to_builtins([*history, Message("user", (TextBlock("Go on."),))])
    assert refusals(messages) == []
    return True


def failing(kind: str = "overloaded", **more: Any) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": "The API is overloaded just now.", **more}}


# --- retries -----------------------------------------------------------------------------------------------------------


async def test_request_that_fails_for_a_time_is_made_again_and_the_person_sees_why(tmp_path):
    talk = await Talk(tmp_path, [failing()], [failing()], [{"text": "Here."}]).run(HELLO)
    assert [(event.attempt, event.attempts) for event in talk.of(RetryScheduled)] == [
        (2, 10),
        (3, 10),
    ]
    assert talk.of(RetryScheduled)[0].reason == "The API is overloaded just now."
    assert len(talk.of(RetryStarted)) == 2
    assert talk.of(AnswerRestarted, ErrorOccurred) == []
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")]


async def test_answer_that_was_cut_is_replaced_once(tmp_path):
    talk = await Talk(
        tmp_path,
        [{"text": "First."}, {"text": "Half of"}, {"cut": True}],
        [failing()],
        [{"text": "Whole."}],
    ).run(HELLO)
    assert talk.texts() == ["Good morning.", "Whole."]
    shown = talk.of(TextDelta, AnswerRestarted, RetryScheduled)
    assert [type(event).__name__ for event in shown] == [
        *("TextDelta", "TextDelta", "RetryScheduled", "RetryScheduled", "AnswerRestarted"),
        "TextDelta",
    ]
    [restarted] = talk.of(AnswerRestarted)
    first, second, third = talk.of(TextDelta)
    assert restarted.block_id == first.block_id < second.block_id < third.block_id


async def test_tool_use_of_an_answer_that_was_cut_is_not_run(tmp_path):
    use = {"tool_use": {"name": "bash", "input": {"command": "touch made"}}}
    talk = await Talk(tmp_path, [use, {"cut": True}], [{"text": "No tools."}], answer="once").run(
        HELLO
    )
    assert not (talk.project / "made").exists()
    assert talk.texts() == ["Good morning.", "No tools."]


@pytest.mark.parametrize("kind", ["auth", "invalid_request", "no_key"])
async def test_failure_that_stays_is_told_at_once(tmp_path, kind):
    talk = await Talk(tmp_path, [failing(kind)]).run(HELLO)
    assert talk.of(RetryScheduled) == []
    assert [error.kind for error in talk.of(ErrorOccurred)] == [kind]


@pytest.mark.parametrize(
    "ending, kind",
    [
        ({"error": {"kind": "malformed", "message": "not its format"}}, "malformed"),
        ({"cut": True}, "cut"),  # without a stop reason
    ],
)
async def test_answer_that_is_none_is_asked_for_twice_at_most(tmp_path, ending, kind):
    talk = await Talk(tmp_path, *[[{"text": "Half"}, ending]] * 10).run(HELLO)
    assert [event.attempt for event in talk.of(RetryScheduled)] == [2]
    assert [event.kind for event in talk.of(ErrorOccurred)] == [kind]


async def test_attempts_come_to_an_end_and_what_was_said_last_is_kept(tmp_path):
    broken = {"error": {"kind": "cut", "message": "The connection broke."}}
    talk = await Talk(tmp_path, *[[{"text": "Half"}, broken]] * 10).run(HELLO)
    assert len(talk.of(RetryScheduled)) == 9
    assert [error.kind for error in talk.of(ErrorOccurred)] == ["cut"]
    assert talk.texts() == ["Good morning.", "Half"]
    assert accepted(talk.history)


async def test_stop_while_a_retry_waits_ends_the_turn_and_keeps_the_half_answer(tmp_path):
    talk = Talk(tmp_path, [{"text": "Half"}, {"cut": True}])
    talk.conversation.services.calls.backoff = Backoff(first_s=1000)
    async with talk.begun(HELLO, RetryScheduled):
        talk.conversation.cancel()
        await talk.until(TurnEnded)
    assert talk.of(TurnEnded) == [TurnEnded("cancelled")]
    assert talk.texts() == ["Good morning.", "Half"]


async def test_person_can_have_the_retry_at_once(tmp_path):
    talk = Talk(tmp_path, [failing()], [{"text": "Here."}])
    talk.conversation.services.calls.backoff = Backoff(first_s=1_000_000, longest_s=1_000_000)
    async with talk.begun(HELLO, RetryScheduled):
        talk.conversation.services.calls.retry_now()
        await talk.until(TurnEnded)
    assert talk.texts()[-1] == "Here."


def test_delay_grows_with_full_jitter_and_what_the_server_asks_for_is_the_least():
    backoff = Backoff()
    assert backoff.attempts >= 8
    longest = [max(backoff.delay_s(n, None) for _ in range(500)) for n in range(1, 11)]
    for n, delay_s in enumerate(longest):
        assert 0.6 * min(30, 0.5 * 2**n) < delay_s <= min(30, 0.5 * 2**n)
    assert min(backoff.delay_s(1, None) for _ in range(500)) < 0.05
    assert min(backoff.delay_s(1, 7.0) for _ in range(500)) >= 7.0


# --- prompts that wait -------------------------------------------------------------------------------------------------


async def test_steering_goes_in_with_the_next_results_and_queued_prompts_after_the_turn(tmp_path):
    talk = Talk(
        tmp_path,
        [{"text": "I look."}, {"delay_ms": 200}, LOOK],
        [{"text": "I see."}],
        [{"text": "Later."}],
    )
    async with talk.begun(HELLO, TextDelta):
        talk.conversation.submit(Prompt("p2", "And then?"))
        talk.conversation.steer(Prompt("p3", "Only the top."))
        shown = talk.of(WaitingChanged)[-1]
        assert [each.id for each in shown.queued] == ["p2"]
        assert [each.id for each in shown.steering] == ["p3"]
        await talk.until(TurnEnded, 2)
    assert talk.texts() == [
        *("Good morning.", "I look.", "Only the top.", "I see.", "And then?", "Later.")
    ]
    results = talk.history[2]
    assert isinstance(results.content[0], ToolResult)
    assert talk.of(PromptSteered) == [PromptSteered(Prompt("p3", "Only the top."))]
    assert talk.of(WaitingChanged)[-1] == WaitingChanged()
    assert accepted(talk.history)


async def test_what_stands_for_a_command_is_sent_shown_and_logged_beside_what_was_typed(tmp_path):
    async with Talk(tmp_path, [{"delay_ms": 200}, LOOK], [{"text": "I see."}]).begun(
        Prompt("p1", "/review the parser"), TurnStarted
    ) as talk:
        talk.conversation.steer(Prompt("p2", "/review the tests"))
        await talk.until(TurnEnded)
    shown = [talk.of(TurnStarted)[0].prompt, talk.of(PromptSteered)[0].prompt]
    assert [prompt.text for prompt in shown] == ["/review the parser", "/review the tests"]
    assert ["What: the parser" in shown[0].sent, "What: the tests" in shown[1].sent] == [True] * 2
    assert [shown[0].sent, shown[1].sent] == [text for text in talk.texts() if "What: " in text]
    again = Session.open(tmp_path / "state/sessions", "s1", str(talk.project))
    assert again.prompts == shown
    assert again.title == "/review the parser"
    again.close()


async def test_steering_that_finds_no_tool_boundary_is_the_next_turn(tmp_path):
    talk = Talk(tmp_path, [{"text": "Yes"}, {"delay_ms": 100}], [{"text": "Two."}], [{"text": "3"}])
    async with talk.begun(HELLO, BlockEnded):
        talk.conversation.submit(Prompt("p2", "queued"))
        talk.conversation.steer(Prompt("p3", "steering"))
        await talk.until(TurnEnded, 3)
    assert [event.prompt.id for event in talk.of(TurnStarted)] == ["p1", "p3", "p2"]


async def test_prompt_that_goes_at_once_is_never_shown_as_waiting(tmp_path):
    talk = await Talk(tmp_path, [{"text": "Yes."}]).run(HELLO)
    assert talk.of(WaitingChanged) == []


async def test_stop_gives_back_what_waits(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}, FOREVER]).begun(HELLO, TextDelta) as talk:
        talk.conversation.submit(Prompt("p2", "two"))
        talk.conversation.steer(Prompt("p3", "three"))
        talk.conversation.cancel()
        await talk.until(TurnEnded)
    [returned] = talk.of(PromptsReturned)
    assert [prompt.text for prompt in returned.prompts] == ["three", "two"]
    assert talk.session.state("waiting") == {"steering": [], "queued": []}


async def test_answer_that_was_stopped_is_marked_with_the_next_prompt_and_only_then(tmp_path):
    def marks(talk: Talk) -> list[int]:
        texts = [[b.text for b in m.content if isinstance(b, TextBlock)] for m in talk.history]
        return [n for n, each in enumerate(texts) if "[Interrupted by the user.]" in each]

    talk = Talk(tmp_path, [{"text": "See `a.p"}, FOREVER], [{"text": "b"}], [{"text": "c"}])
    async with talk.begun(HELLO, TextDelta):
        talk.conversation.cancel()
        await talk.until(TurnEnded)
        assert marks(talk) == []
        for number in (2, 3):
            talk.conversation.submit(Prompt(f"p{number}", "go on"))
            await talk.until(TurnEnded, number)
    assert marks(talk) == [2]
    assert accepted(talk.history)


async def test_failure_holds_what_waits_until_the_person_says_so(tmp_path):
    talk = Talk(tmp_path, [{"text": "a"}, {"delay_ms": 100}, failing("auth")], [{"text": "b"}])
    async with talk.begun(HELLO, TextDelta):
        talk.conversation.submit(Prompt("p2", "two"))
        await talk.until(TurnEnded)
        held = talk.of(WaitingChanged)[-1]
        assert held.is_held
        assert [prompt.text for prompt in held.queued] == ["two"]
        await talk.act(ReleaseWaiting(), TurnEnded)
    assert talk.texts()[-1] == "b"


async def test_prompt_that_waits_can_be_changed_and_taken_out(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}, {"delay_ms": 100}], [{"text": "b"}]).begun(
        HELLO, TextDelta
    ) as talk:
        talk.conversation.submit(Prompt("p2", "two"))
        talk.conversation.submit(Prompt("p3", "three"))
        talk.conversation.services.waiting.edit("p2", "zwei")
        talk.conversation.services.waiting.edit("p3", "  ")
        await talk.until(TurnEnded, 2)
    assert talk.texts() == ["Good morning.", "a", "zwei", "b"]


async def test_what_waits_survives_the_end_of_the_host_and_is_held(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}, FOREVER]).begun(HELLO, TextDelta) as talk:
        talk.conversation.submit(Prompt("p2", "two"))
        talk.conversation.steer(Prompt("p3", "three"))
        await happens(lambda: b'"text":"a"' in talk.session.path.read_bytes())
        log = talk.session.path.read_bytes()
        # That is what a kill -9 would leave.
    talk.session.path.write_bytes(log)
    again = Talk(tmp_path, [{"text": "b"}], [{"text": "c"}])
    again.conversation.views.show_state()
    [shown] = again.of(WaitingChanged)
    assert shown.is_held
    assert [prompt.text for prompt in (*shown.steering, *shown.queued)] == ["three", "two"]
    async with again.served():
        again.conversation.act(ReleaseWaiting())
        await again.until(TurnEnded, 2)
    assert again.texts() == ["Good morning.", "a", "three", "b", "two", "c"]


# --- limits ------------------------------------------------------------------------------------------------------------


@prove
async def test_turn_stops_at_the_limit_of_calls_unless_the_person_lets_it_go_on(tmp_path):
    talk = await Talk(tmp_path, *[[LOOK]] * 5, [{"text": "Done."}], answer="deny", max_calls=2).run(
        HELLO
    )
    assert talk.of(TurnEnded) == [TurnEnded("max_calls")]
    [question] = talk.of(ApprovalRequested)
    assert (question.kind, question.tool) == ("limit", "calls")
    assert "2 times" in talk.of(Notice)[0].text
    assert accepted(talk.history)
    goes_on = Talk(
        tmp_path, *[[LOOK]] * 5, [{"text": "Done."}], answer="once", session_id="s2", max_calls=2
    )
    await goes_on.run(HELLO)
    assert goes_on.of(TurnEnded) == [TurnEnded("end_turn")]
    questions = [event.tool for event in goes_on.of(ApprovalRequested)]
    assert questions.count("calls") == 2


async def test_budget_stops_with_a_question(tmp_path):
    prices = {"scripted": {"input": 1000.0, "output": 1000.0}}
    talk = await Talk(
        tmp_path, *[[{"text": "x"}]] * 3, answer="deny", budget_usd=0.001, prices=prices
    ).run(HELLO, HELLO)
    assert talk.of(TurnEnded) == [TurnEnded("end_turn"), TurnEnded("budget")]
    [question] = talk.of(ApprovalRequested)
    assert (question.kind, question.tool) == ("limit", "budget")
    usage = talk.of(UsageUpdated)[-1]
    assert usage.is_priced
    assert usage.cost_usd > 0.001


async def test_answer_at_its_limit_of_tokens_goes_on_if_the_person_wants_it(tmp_path):
    cut = {"step": [{"text": "One, two,"}], "stop_reason": "max_tokens"}
    talk = await Talk(tmp_path, cut, [{"text": " three."}], answer="once").run(HELLO)
    assert talk.texts() == ["Good morning.", "One, two,", GO_ON, " three."]
    denied = await Talk(tmp_path, cut, answer="deny", session_id="s2").run(HELLO)
    assert denied.of(TurnEnded) == [TurnEnded("max_tokens")]


# --- models ------------------------------------------------------------------------------------------------------------


async def test_thoughts_of_another_model_are_not_sent_and_the_choice_survives(tmp_path):
    talk = await Talk(tmp_path, [{"thinking": "Hm."}, {"text": "Yes."}]).run(HELLO)
    assert isinstance(talk.history[1].content[0], ThinkingBlock)
    again = Talk(tmp_path)
    assert isinstance(again.session.history[1].content[0], ThinkingBlock)
    again.conversation.controls.set_model("other")
    assert again.of(ModelChanged) == [ModelChanged("other")]
    assert again.session.history[1].content == (TextBlock("Yes."),)
    again.session.close()
    third = Talk(tmp_path)
    assert third.provider.model == "other"
    assert third.session.history[1].content == (TextBlock("Yes."),)
    third.session.close()


# --- compaction --------------------------------------------------------------------------------------------------------


def full(text: str) -> dict[str, Any]:
    return {"step": [{"text": text}], "usage": MANY}


async def test_full_window_is_summarized_before_the_next_request(tmp_path):
    talk = Talk(tmp_path, full("Long."), [{"text": "We said hello."}], [{"text": "Yes."}])
    talk.provider.limits = ModelLimits(200_000, 8_000)
    await talk.run(HELLO, Prompt("p2", "And now?"))
    [compacted] = talk.of(Compacted)
    assert (compacted.kind, compacted.summary) == ("summary", "We said hello.")
    assert compacted.before_tokens == 170_010
    assert compacted.after_tokens < 2_000
    [summary, answer] = talk.history
    shown = "\n".join(block.text for block in summary.content if isinstance(block, TextBlock))
    assert "We said hello." in shown
    assert "Good morning." in shown
    assert "And now?" in shown
    assert answer == Message("assistant", (TextBlock("Yes."),))
    assert accepted(talk.history)


async def test_old_results_are_cleared_before_anything_is_summarized(tmp_path):
    (tmp_path / "project").mkdir()
    for n in range(11):
        (tmp_path / f"project/big{n}.txt").write_text("\n".join([f"{n:090}"] * 500))
    looks = [{"name": "read", "input": {"path": f"big{n}.txt"}} for n in range(11)]
    replies = [{"step": [{"tool_use": look}]} for look in looks]
    talk = Talk(
        tmp_path,
        *replies,
        {"step": [{"text": "Read."}], "usage": MANY},
        [{"text": "ok"}],
        answer="once",
    )
    talk.provider.limits = ModelLimits(200_000, 8_000)
    await talk.run(HELLO, Prompt("p2", "More."))
    kinds = [event.kind for event in talk.of(Compacted)]
    assert kinds[0] == "cleared"
    results = [result.content for result in talk.results]
    assert any(isinstance(text, str) and text.startswith("[cleared") for text in results)
    assert accepted(talk.history)


async def test_compaction_can_be_undone_also_after_a_restart(tmp_path):
    talk = Talk(tmp_path, [{"text": "Long."}], [{"text": "In short."}], [{"text": "After."}])
    async with talk.after(HELLO):
        before = list(talk.history)
        await talk.act(Compact("the greeting"), TurnEnded)
        await talk.run_turns(Prompt("p2", "Next."))
    again = Talk(tmp_path)
    assert len(again.session.history) == 3
    again.conversation.act(UndoCompaction())
    assert again.of(CompactionUndone)
    assert again.session.history[:2] == before
    assert [message.role for message in again.session.history] == ["user", "assistant"] * 2
    again.session.close()
    third = Talk(tmp_path)
    assert third.session.history == again.session.history
    third.session.close()


async def test_summaries_that_fail_three_times_are_not_tried_again(tmp_path):
    replies = [reply for n in range(5) for reply in ([{"text": "I cannot."}], full(f"answer {n}"))]
    talk = Talk(tmp_path, full("first"), *replies)
    talk.provider.limits = ModelLimits(200_000, 8_000)
    prompts = [Prompt(f"p{n}", "Go on.") for n in range(6)]
    await talk.run(*prompts)
    problems = [event.text for event in talk.of(Notice)]
    assert len(problems) == 3
    assert "summaries are now off" in problems[-1]
    assert talk.of(Compacted) == []


async def test_conversation_that_is_too_long_for_the_model_is_summarized_and_asked_again(tmp_path):
    too_long = {"error": {"kind": "context_full", "message": "prompt is too long"}}
    talk = await Talk(
        tmp_path, [{"text": "Hi."}], [too_long], [{"text": "We said hello."}], [{"text": "Now."}]
    ).run(HELLO, Prompt("p2", "And?"))
    assert [event.kind for event in talk.of(Compacted)] == ["summary"]
    assert talk.of(ErrorOccurred) == []
    assert talk.history[-1] == Message("assistant", (TextBlock("Now."),))


# --- ids ---------------------------------------------------------------------------------------------------------------


@prove
async def test_tool_use_id_that_comes_twice_or_is_no_id_gets_one_of_its_own(tmp_path):
    uses = [{"tool_use": {"name": "ls", "input": {}, "id": "call 1!"}} for _ in range(2)]
    again = {"tool_use": {"name": "ls", "input": {}, "id": "call_1_"}}
    talk = await Talk(tmp_path, uses, [again], [{"text": "Done."}]).run(HELLO)
    ids = [block.id for block in talk.blocks if isinstance(block, ToolUse)]
    assert ids == ["call_1_", "call_1__2", "call_1__3"]
    assert accepted(talk.history)


@pytest.mark.parametrize("name", prove_rest(UNFIT_NAMES, is_one=True))
async def test_tool_name_that_no_api_takes_is_answered_and_can_be_sent_back(tmp_path, name):
    use = {"tool_use": {"name": name, "input": {"url": "https://example.org"}, "id": name}}
    talk = await Talk(tmp_path, [use, use], [{"text": "Done."}]).run(HELLO)
    assert accepted(talk.history)
    assert talk.of(ApprovalRequested) == []
    results = [block for block in talk.history[2].content if isinstance(block, ToolResult)]
    assert len(results) == 2
    assert all("There is no tool" in str(result.content) for result in results)


# --- models: in the middle of an answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [ThinkingDelta, TextDelta, RetryScheduled])
async def test_model_that_is_changed_while_it_speaks_leaves_no_thoughts(tmp_path, moment):
    half = [{"thinking": "Hm."}, {"text": "Half"}, {"cut": True}]
    talk = Talk(tmp_path, half, *[[failing()]] * 9)

    def change(event: Event) -> None:
        if isinstance(event, moment) and talk.provider.model == "scripted":
            talk.conversation.controls.set_model("other")

    talk.on_event = change
    await talk.run(HELLO)
    assert talk.history[1].content == (TextBlock("Half"),)
    assert Session.open(talk.session.path.parent, "s1", "/").history == talk.history


async def test_tokens_of_a_request_are_booked_to_the_model_that_was_asked(tmp_path):
    talk = Talk(tmp_path, {"step": [{"text": "Yes."}], "usage": MANY})
    talk.on_event = lambda event: (
        talk.conversation.controls.set_model("other") if isinstance(event, BlockEnded) else None
    )
    await talk.run(HELLO)
    assert list(talk.session.ledger.by_model) == ["scripted"]


async def test_session_that_goes_on_with_another_model_is_not_written_to_each_time(tmp_path):
    talk = await Talk(tmp_path, [failing("auth")]).run(HELLO)  # who was asked last is not known
    assert talk.session.model == ""
    sizes: list[int] = []
    for _ in range(3):
        Talk(tmp_path).session.close()
        sizes.append(talk.session.path.stat().st_size)
    assert sizes[0] == sizes[1] == sizes[2]


async def test_full_disk_is_told_in_the_middle_of_a_turn(tmp_path):
    talk = Talk(tmp_path, [LOOK], [{"text": "Half"}, FOREVER])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with talk.begun(HELLO, ToolStarted):
        resource.setrlimit(resource.RLIMIT_FSIZE, (talk.session.path.stat().st_size + 10, hard))
        try:
            await talk.until(TextDelta)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert ["continues in memory" in notice.text for notice in talk.of(Notice)] == [True]


# --- what waits, on the screen and on the disk -------------------------------------------------------------------------


async def test_prompt_whose_turn_has_begun_is_not_shown_as_waiting_any_more(tmp_path):
    talk = Talk(tmp_path, [{"text": "a"}, {"delay_ms": 100}], [{"text": "b"}, FOREVER])
    async with talk.begun(HELLO, TextDelta):
        talk.conversation.submit(Prompt("p2", "two"))
        talk.conversation.submit(Prompt("p3", "three"))
        await talk.until(TextDelta, 2)
        assert [prompt.id for prompt in talk.of(WaitingChanged)[-1].queued] == ["p3"]


async def test_session_that_is_closed_keeps_what_waits(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}, FOREVER]).begun(HELLO, TextDelta) as talk:
        talk.conversation.submit(Prompt("p2", "two"))
        talk.conversation.close()
        await talk.until(TurnEnded)
    assert talk.of(PromptsReturned) == []
    again = Talk(tmp_path)
    assert again.conversation.services.waiting.shown() == WaitingChanged(
        (), (Prompt("p2", "two"),), True
    )
    again.session.close()


async def test_prompt_that_is_refused_holds_what_waits(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}, {"delay_ms": 100}]).begun(HELLO, TextDelta) as talk:
        talk.conversation.submit(Prompt("p2", "/nonsense"))
        talk.conversation.submit(Prompt("p3", "and then"))
        await talk.until(TurnEnded, 2)
    assert talk.of(TurnEnded)[-1] == TurnEnded("error")
    assert talk.of(WaitingChanged)[-1] == WaitingChanged((), (Prompt("p3", "and then"),), True)
    assert talk.session.state("waiting")["queued"][0]["id"] == "p3"


# --- what the model knows ----------------------------------------------------------------------------------------------


def told_of_mode(talk: Talk) -> int:
    return sum("[Plan mode: " in b.text for b in talk.blocks if isinstance(b, TextBlock))


async def test_mode_that_was_changed_before_the_session_ended_is_told_when_it_goes_on(tmp_path):
    async with Talk(tmp_path, [{"text": "a"}]).after(HELLO) as talk:
        talk.conversation.controls.set_mode("plan")
    again = await Talk(tmp_path, [{"text": "b"}]).run(Prompt("p2", "two"))
    assert told_of_mode(again) == 1
    third = await Talk(tmp_path, [{"text": "c"}]).run(Prompt("p3", "three"))
    assert told_of_mode(third) == 1


@prove
async def test_mode_that_is_chosen_while_the_session_is_taken_up_stays(tmp_path):
    talk = Talk(tmp_path)
    talk.conversation.controls.set_mode("auto")
    (tmp_path / "elsewhere").mkdir()
    granted = Grant(read_paths=(str(tmp_path / "elsewhere"),)).identified()
    talk.session.keep_state("grants", msgspec.to_builtins({"granted": granted}))
    talk.session.close()
    again = Talk(tmp_path)
    again.on_event = lambda event: (
        again.conversation.controls.set_mode("plan")
        if isinstance(event, SandboxChanged) and again.session.state("mode") == "auto"
        else None
    )
    await again.run(Prompt("p1", "ping"))
    assert again.of(ModeChanged) == [ModeChanged("auto"), ModeChanged("plan")]


async def test_facts_that_came_with_a_summary_are_told_again_when_it_is_undone(tmp_path):
    talk = Talk(tmp_path, [{"text": "a"}], [{"text": "In short."}], [{"text": "b"}])
    async with talk.after(HELLO):
        (talk.project / ".git").mkdir()
        (talk.project / ".git/HEAD").write_text("ref: refs/heads/work\n")
        await talk.act(Compact(""), TurnEnded)
        assert "branch work" in str(talk.history)
        talk.conversation.act(UndoCompaction())
        assert "branch work" not in str(talk.history)
        await talk.run_turns(Prompt("p2", "two"))
    assert "branch work" in str(talk.history)


# --- compaction: what must not happen ----------------------------------------------------------------------------------


async def test_summary_counts_as_the_size_of_the_conversation_after_a_restart_too(tmp_path):
    talk = Talk(tmp_path, full("Long."), {"step": [{"text": "In short."}], "usage": MANY})
    async with talk.after(HELLO):
        await talk.act(Compact(""), TurnEnded)
        assert talk.of(UsageUpdated)[-1].last_request.context_tokens < 2_000
    again = Talk(tmp_path, [{"text": "Yes."}])
    again.provider.limits = ModelLimits(200_000, 8_000)
    await again.run(Prompt("p2", "And now?"))
    assert again.of(Compacted) == []


async def test_answer_that_finds_no_room_again_and_again_ends_the_turn(tmp_path):
    no_room = {"step": [{"text": "Half"}], "stop_reason": "context_full"}
    summary = [{"text": "In short."}]
    talk = await Talk(tmp_path, no_room, summary, no_room, summary, no_room).run(HELLO)
    assert [event.kind for event in talk.of(Compacted)] == ["summary"]
    assert talk.of(TurnEnded) == [TurnEnded("context_full")]
    assert accepted(talk.history)


async def test_conversation_that_is_too_long_for_a_summary_loses_its_oldest_part(tmp_path):
    too_long = [failing("context_full")]
    summary, answer = [{"text": "The end of it."}], [{"text": "Now."}]
    replies = [[{"text": f"answer {n}"}] for n in range(4)]
    talk = await Talk(tmp_path, *replies, too_long, too_long, summary, answer).run(
        *(Prompt(f"p{n}", f"prompt {n}") for n in range(5))
    )
    assert [event.kind for event in talk.of(Compacted)] == ["summary"]
    assert any("oldest part" in notice.text for notice in talk.of(Notice))
    assert talk.texts()[-1] == "Now."
    assert talk.of(TurnEnded)[-1] == TurnEnded("end_turn")


async def test_results_that_make_a_conversation_too_long_are_cleared_first(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/big.txt").write_text("\n".join([f"{0:090}"] * 500))
    look = [{"tool_use": {"name": "read", "input": {"path": "big.txt"}}}]
    half_full = {"step": [{"text": "Read."}], "usage": {"input_tokens": 100_000}}
    talk = await Talk(tmp_path, look, half_full, [failing("context_full")], [{"text": "Now."}]).run(
        HELLO, Prompt("p2", "More.")
    )
    assert [event.kind for event in talk.of(Compacted)] == ["cleared"]
    assert talk.texts()[-1] == "Now."


async def test_a_result_that_never_fit_is_cleared_with_the_next_prompt(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/big.txt").write_text("\n".join([f"{0:090}"] * 500))
    look = [{"tool_use": {"name": "read", "input": {"path": "big.txt"}}}]
    looked = {"step": look, "usage": {"input_tokens": 1_000}}
    too_long = [failing("context_full")]
    talk = Talk(tmp_path, looked, too_long, too_long, too_long, [{"text": "Now."}])
    talk.provider.limits = ModelLimits(100_000, 8_000)
    await talk.run(HELLO, Prompt("p2", "More."))
    assert [event.kind for event in talk.of(Compacted)] == ["cleared"]
    assert talk.texts()[-1] == "Now."


async def test_person_can_have_a_summary_after_three_that_failed(tmp_path):
    refused = [{"text": "I cannot."}]
    talk = Talk(tmp_path, [{"text": "a"}], *[refused] * 3, [{"text": "In short."}])
    async with talk.served():
        talk.conversation.submit(HELLO)
        for count in range(1, 5):
            await talk.until(TurnEnded, count)
            talk.conversation.act(Compact(""))
        await talk.until(Compacted)


async def test_only_the_last_compactions_can_be_undone(tmp_path):
    session = Session("s1", "/project", tmp_path / "s1.jsonl")
    session.append_prompt(Message("user", (TextBlock("Hello."),)), HELLO)
    for n in range(MAX_UNDOS + 2):
        session.append(LoggedSummary((Message("user", (TextBlock(f"summary {n}"),)),), "", 10, 5))
    undone = [session.undo_compaction() for _ in range(MAX_UNDOS + 1)]
    assert undone == [True] * MAX_UNDOS + [False]
    session.close()
    assert Session.open(tmp_path, "s1", "/project").history == session.history


@prove
async def test_command_that_runs_while_a_summary_is_made_is_shown_when_it_is_there(tmp_path):
    talk = Talk(tmp_path, [{"text": "a"}], [{"text": "In"}, {"delay_ms": 500}, {"text": " short."}])
    async with talk.after(HELLO):
        await talk.act(Compact(""), CompactionStarted)
        talk.conversation.services.commands.start("c1", "true")
        await talk.until(CommandEnded)
        kinds = [type(event) for event in talk.of(Compacted, CommandStarted, CommandEnded)]
        assert kinds == [Compacted, CommandStarted, CommandEnded]


@prove
async def test_tool_use_is_shown_whole_after_a_summary(tmp_path):
    talk = Talk(tmp_path, [{"tool_use": {**LOOK["tool_use"], "id": "t1"}}], [{"text": "a"}])
    (talk.project / "app.py").touch()
    async with talk.after(HELLO):
        talk.session.append(LoggedSummary((Message("user", (TextBlock("In short."),)),), "", 10, 5))
        shown = await talk.conversation.answer(InspectToolUse(talk.session.id, "t1"))
        assert isinstance(shown, WholeToolUse)
    assert "app.py" in shown.result


# --- questions ---------------------------------------------------------------------------------------------------------


@prove
async def test_answer_to_a_limit_is_not_taken_for_the_next_question_of_its_kind(tmp_path):
    async with Talk(tmp_path, *[[LOOK]] * 5, [{"text": "Done."}], max_calls=1).served() as talk:
        talk.conversation.submit(HELLO)
        first = await talk.until(ApprovalRequested)
        talk.conversation.services.approvals.answer(AnswerApproval(first.id, "once"))
        second = await talk.until(ApprovalRequested, 2)
        talk.conversation.services.approvals.answer(AnswerApproval(first.id, "deny"))
        talk.conversation.services.approvals.answer(AnswerApproval(second.id, "once"))
        await talk.until(ApprovalRequested, 3)
    assert first.id != second.id


# --- the disk ----------------------------------------------------------------------------------------------------------


async def test_result_is_on_the_disk_while_another_use_of_its_message_runs(tmp_path, monkeypatch):
    asks = {"tool_use": {"name": "bash", "input": {"command": "touch made"}}}
    talk = Talk(tmp_path, [LOOK, asks], [{"text": "Done."}])
    on_disk: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda _fd: on_disk.append(talk.session.path.read_bytes()))
    async with talk.begun(HELLO, ApprovalRequested):
        await happens(lambda: any(b"tool_ended" in log for log in on_disk))


@pytest.mark.parametrize("data", [png(100, 9000), png()[:-1]])
async def test_prompt_with_an_image_that_no_api_takes_is_refused(tmp_path, data):
    shot = Selection("a.png", 1, 1, in_base64(data), origin="an image", media_type="image/png")
    talk = await Talk(tmp_path, [{"text": "Good morning."}]).run(Prompt("p1", "Look.", (shot,)))
    [error] = talk.of(ErrorOccurred)
    assert error.message.startswith("Cannot send the image a.png: ")
    assert talk.history == []
