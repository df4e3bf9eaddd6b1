"""What a session and its children may use: limits in the settings, in flags and in reservations."""

from collections.abc import AsyncGenerator
from math import inf
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.conftest import settings_of
from tests.talk import BaseTalk, scripted
from tests.unit.test_conversation import LOOK, Talk

from sanderling.conversation.budget import Amount, Budget, BudgetError
from sanderling.conversation.compaction import DEFAULT_MAX_OUTPUT_TOKENS
from sanderling.conversation.usage_report import usage_report
from sanderling.protocol.actions import Compact
from sanderling.protocol.events import (
    ApprovalRequested,
    ErrorOccurred,
    Notice,
    TurnEnded,
    UsageUpdated,
)
from sanderling.protocol.messages import Prompt, TextBlock, ToolResult, Usage
from sanderling.providers import Delegate, ModelRequest, Provider, StreamItem, UsageReport
from sanderling.session.session import Session
from sanderling.session.store.keeping import fork

HELLO = Prompt("1", "Hello.")
PRICES = {"scripted": {"input": 1000.0, "output": 1000.0}}


def using(tokens: int, *steps: dict[str, Any]) -> dict[str, Any]:
    """A reply that uses so many tokens."""
    return {"step": [*steps] or [{"text": "Yes."}], "usage": {"input_tokens": tokens}}


def questions(talk: BaseTalk) -> list[tuple[str, str]]:
    return [(each.tool, each.reason) for each in talk.of(ApprovalRequested)]


def prompts(count: int) -> list[Prompt]:
    return [Prompt(str(number), "Hello.") for number in range(count)]


# --- a run -----------------------------------------------------------------------------------------------------------------


async def test_a_run_makes_no_call_after_its_tokens_and_asks_nobody(tmp_path: Path) -> None:
    talk = Talk(tmp_path, *[using(600)] * 5, answer="once")
    talk.services.calls.budget.limit_run(0, 1_000)
    await talk.run(*prompts(3))
    assert [each.stop_reason for each in talk.of(TurnEnded)] == ["end_turn", "end_turn", "budget"]
    assert questions(talk) == []
    words = "This run has used 1,200 tokens; its limit is 1,000 tokens."
    assert talk.of(Notice) == [Notice("warning", words)]


async def test_the_tokens_of_a_run_do_not_include_those_of_earlier_runs(tmp_path: Path) -> None:
    await Talk(tmp_path, using(5_000)).run(HELLO)
    talk = Talk(tmp_path, *[using(600)] * 5)
    talk.services.calls.budget.limit_run(0, 1_000)
    await talk.run(*prompts(2))
    assert [each.stop_reason for each in talk.of(TurnEnded)] == ["end_turn", "end_turn"]


async def test_the_budget_of_a_session_includes_earlier_runs_and_is_extended(
    tmp_path: Path,
) -> None:
    await Talk(tmp_path, using(1_000), prices=PRICES).run(HELLO)  # a dollar
    talk = Talk(tmp_path, using(1_000), answer="once", budget_usd=0.5, prices=PRICES)
    await talk.run(HELLO)
    assert questions(talk) == [("budget", "This session has cost $1.00; its limit is $0.50.")]
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")]
    assert talk.services.calls.budget.session.limit.usd == 1.5


async def test_a_summary_on_request_is_not_made_without_a_budget(tmp_path: Path) -> None:
    talk = Talk(tmp_path, *[using(1_000)] * 3, answer="deny", budget_usd=0.5, prices=PRICES)
    async with talk.after(HELLO):
        await talk.act(Compact(""), TurnEnded)
        assert talk.of(TurnEnded)[-1] == TurnEnded("budget")
    assert len(questions(talk)) == 1


async def test_an_answer_that_was_cut_off_and_paid_for_is_not_repeated_without_a_budget(
    tmp_path: Path,
) -> None:
    cut = {"step": [{"text": "One"}, {"cut": True}]}
    talk = Talk(tmp_path, cut, using(10))
    talk.services.calls.budget.limit_run(0, 1)
    await talk.run(HELLO)
    assert talk.of(TurnEnded) == [TurnEnded("budget")]
    assert talk.texts()[-1] == "One"  # what came is kept


async def test_tokens_that_a_server_does_not_report_are_estimated(tmp_path: Path) -> None:
    silent = {"step": [{"text": "word " * 400}, {"cut": True}]}
    talk = Talk(tmp_path, silent, using(10))
    await talk.run(HELLO)
    budget = talk.services.calls.budget
    assert budget.run.spent.calls == 2
    assert budget.run.spent.tokens > 500  # 2,000 bytes of text, and the prompt
    assert talk.session.ledger.total == Usage(10)  # no invented tokens in the log


async def test_a_negative_count_of_a_server_gives_no_tokens_back(tmp_path: Path) -> None:
    talk = Talk(tmp_path, using(600), using(-1_000_000), using(600))
    talk.services.calls.budget.limit_run(0, 1_000)
    await talk.run(*prompts(3))
    assert talk.services.calls.budget.run.spent.tokens == 1_200


# --- bounds ----------------------------------------------------------------------------------------------------------------


class Watched(Delegate):
    """A model that notes what its requests have set aside and what they use."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.reserved: list[float] = []
        self.used: list[int] = []
        self.budget: Budget

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        self.reserved.append(self.budget.reserved.tokens)
        async for item in self._provider.stream(request):
            if isinstance(item, UsageReport):
                self.used.append(item.usage.context_tokens)
            yield item


async def test_a_call_sets_aside_what_it_can_use_at_most_and_not_much_more(tmp_path: Path) -> None:
    session = Session.open(tmp_path, "s1", str(tmp_path))
    provider = Watched(scripted([LOOK], [{"text": "x" * 40_000}], *[[{"text": "y"}]] * 3))
    talk = BaseTalk(session, provider, settings=settings_of(session), is_eager=False)
    provider.budget = talk.services.calls.budget.run
    async with talk.served():
        await talk.run_turns(*prompts(4))
    assert len(provider.used) == 5
    for reserved, used in zip(provider.reserved, provider.used, strict=True):
        assert used <= reserved
    # The history has 40,000 bytes, but only what is new since the last request is counted by its bytes.
    assert provider.reserved[-1] - DEFAULT_MAX_OUTPUT_TOKENS < provider.used[-2] + 2_000
    assert provider.budget.reserved == (0, 0, 0, 0)


# --- a child ---------------------------------------------------------------------------------------------------------------


async def test_a_child_ends_with_its_budget_and_its_parent_counts_what_it_used(
    tmp_path: Path,
) -> None:
    parent = Budget(Amount(tokens=10_000))
    own = parent.reserve(Amount(tokens=1_000))
    session = Session.open(tmp_path, "child", str(tmp_path))
    replies = [using(600, LOOK)] * 5
    talk = BaseTalk(session, scripted(*replies), budget=own, is_eager=False)
    async with talk.served():
        await talk.run_turns(HELLO)
    assert talk.of(TurnEnded) == [TurnEnded("budget")]
    assert questions(talk) == []
    assert talk.of(Notice)[-1].text == "This task has used 1,200 tokens; its limit is 1,000 tokens."
    assert isinstance(talk.history[-1].content[0], ToolResult)  # partial work is kept
    own.close()
    assert (parent.spent.tokens, parent.rest.tokens) == (1_200, 8_800)


async def test_whoever_is_informed_of_a_request_sees_it_in_the_budget(tmp_path: Path) -> None:
    own = Budget().reserve(Amount(tokens=1_000))
    session = Session.open(tmp_path, "child", str(tmp_path))
    talk = BaseTalk(session, scripted(using(850)), budget=own, is_eager=False)
    shares: list[float] = []
    talk.services.calls.on_booked = lambda _model, _usage: shares.append(own.share)
    async with talk.served():
        await talk.run_turns(HELLO)
    assert shares == [0.85]


async def test_the_budget_of_a_child_ends_with_its_calls(tmp_path: Path) -> None:
    own = Budget().reserve(Amount(calls=2))
    session = Session.open(tmp_path, "child", str(tmp_path))
    talk = BaseTalk(session, scripted([LOOK], is_repeating=True), budget=own, is_eager=False)
    async with talk.served():
        await talk.run_turns(HELLO)
    assert talk.of(TurnEnded) == [TurnEnded("budget")]
    assert own.spent.calls == 2


# --- reservations ----------------------------------------------------------------------------------------------------------


async def test_a_child_gets_what_the_settings_say_and_what_is_asked_for(tmp_path: Path) -> None:
    talk = Talk(tmp_path, delegate_tokens=200_000, delegate_seconds=60, delegate_calls=7)
    calls = talk.services.calls
    assert (await calls.reserve_child()).limit == (200_000, inf, 60, 7)
    assert (await calls.reserve_child(Amount(tokens=50_000, calls=9))).limit[:1] == (50_000,)
    assert calls.budget.children.reserved.tokens == 250_000
    talk.session.close()


async def test_children_beyond_the_limit_of_all_are_asked_about_once_for_all(
    tmp_path: Path,
) -> None:
    talk = Talk(tmp_path, answer="once", delegate_tokens=80_000, delegate_tree_tokens=100_000)
    calls = talk.services.calls
    first = await calls.reserve_child()
    calls.budget.children.charge(Amount(90_000, 0, 0, 0))
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(calls.reserve_child, Amount(tokens=15_000))
    reason = (
        "Of the 100,000 tokens for child sessions (tree_tokens), 90,000 are used and 25,000 reserved for running ones:"
        " too few are left for another child."
    )
    assert questions(talk) == [("children", reason)]
    assert talk.of(ApprovalRequested)[0].subject == "another 100,000 tokens"
    assert calls.budget.children.limit.tokens == 90_000 + 25_000 + 100_000
    first.close()
    assert calls.budget.children.reserved.tokens == 45_000
    talk.session.close()


async def test_without_a_yes_no_child_begins(tmp_path: Path) -> None:
    talk = Talk(tmp_path, answer="deny", delegate_tree_tokens=30_000)
    with pytest.raises(
        BudgetError, match=r"Of the 30,000 tokens for child sessions \(tree_tokens\)"
    ):
        await talk.services.calls.reserve_child()
    assert talk.services.calls.budget.children.reserved.tokens == 0
    talk.session.close()


async def test_a_limit_that_is_too_low_for_any_child_is_reported_with_its_option(
    tmp_path: Path,
) -> None:
    talk = Talk(tmp_path, answer="once", delegate_tree_tokens=1_000)
    with pytest.raises(BudgetError) as caught:
        await talk.services.calls.reserve_child()
    words = str(caught.value)
    assert "more than a third of its budget of 250 tokens" in words
    assert "ask the user to raise the option delegate.tree_tokens" in words
    assert questions(talk) == [], "to continue would not help"
    talk.session.close()


@pytest.mark.parametrize(
    "wanted, remedy",
    [
        (Amount(), "ask the user to raise the option delegate.tokens."),
        (Amount(tokens=2_000), "give it a larger `budget`."),
    ],
)
async def test_a_budget_that_is_too_small_comes_with_what_makes_it_larger(
    tmp_path: Path, wanted: Amount, remedy: str
) -> None:
    talk = Talk(tmp_path, delegate_tokens=3_000)
    with pytest.raises(BudgetError) as caught:
        await talk.services.calls.reserve_child(wanted)
    assert str(caught.value).endswith(f"Do the work here, or {remedy}")
    talk.session.close()


async def test_the_tokens_of_a_run_limit_its_children_without_a_question(tmp_path: Path) -> None:
    talk = Talk(tmp_path, answer="once")
    talk.services.calls.budget.limit_run(0, 5_000)
    with pytest.raises(BudgetError, match=r"A child gets at most a quarter of the tokens"):
        await talk.services.calls.reserve_child()
    assert questions(talk) == []
    talk.session.close()


async def test_a_child_whose_fixed_part_is_too_much_of_its_budget_is_refused_with_the_figure(
    tmp_path: Path,
) -> None:
    talk = Talk(tmp_path, using(10), delegate_tokens=3_000)
    await talk.run(HELLO)
    with pytest.raises(BudgetError) as caught:
        await talk.services.calls.reserve_child()
    words = str(caught.value)
    assert "more than a third of its budget of 3,000 tokens" in words
    size = int(words.split("(")[1].split(" bytes", maxsplit=1)[0].replace(",", ""))
    tokens = int(words.split("about ")[1].split(" tokens", maxsplit=1)[0].replace(",", ""))
    assert tokens == -(-size // 4)
    notes = [block.text for block in talk.history[0].content[:-1] if isinstance(block, TextBlock)]
    assert notes
    assert size > len("".join(notes).encode()) + 5_000  # with the system prompt and the tools


async def test_the_history_of_a_fork_is_a_part_of_what_is_fixed(tmp_path: Path) -> None:
    talk = Talk(tmp_path, using(90_000))
    await talk.run(HELLO)
    assert (await talk.services.calls.reserve_child()).limit.tokens == 200_000
    with pytest.raises(BudgetError, match=r"and 90,000 tokens of history, more than a third"):
        await talk.services.calls.reserve_child(is_fork=True)


async def test_dollars_that_do_not_pay_a_first_request_start_no_child(tmp_path: Path) -> None:
    talk = Talk(tmp_path, budget_usd=2, prices=PRICES)
    with pytest.raises(BudgetError, match=r"a quarter of the dollars that are left, \$0\.50, and"):
        await talk.services.calls.reserve_child()
    talk.session.close()


async def test_a_session_without_dollars_asks_before_it_starts_a_child(tmp_path: Path) -> None:
    await Talk(tmp_path, using(1_000), prices=PRICES).run(HELLO)
    talk = Talk(tmp_path, answer="once", budget_usd=0.5, prices=PRICES, delegate_tokens=100_000)
    with pytest.raises(BudgetError, match=r"\$0\.125"):
        await talk.services.calls.reserve_child()
    assert [tool for tool, _ in questions(talk)] == ["budget"]
    talk.session.close()


@pytest.mark.parametrize("tokens", [0, -5, 10**400])
async def test_no_number_of_tokens_that_a_model_asks_for_is_more_than_the_settings_allow(
    tmp_path: Path, tokens: int
) -> None:
    talk = Talk(tmp_path, delegate_tokens=50_000)
    if tokens > 0:
        assert (await talk.services.calls.reserve_child(Amount(tokens))).limit.tokens == 50_000
    else:
        with pytest.raises(BudgetError, match="more than a third of its budget"):
            await talk.services.calls.reserve_child(Amount(tokens))
    assert talk.services.calls.budget.children.rest.tokens <= 2_000_000
    talk.session.close()


async def test_a_childs_limit_of_the_tree_is_extended_by_the_user_of_its_parent(
    tmp_path: Path,
) -> None:
    parent = Talk(tmp_path, answer="once", budget_usd=1, prices=PRICES)
    budget = parent.services.calls.budget
    own = budget.children.reserve(Amount(tokens=50_000))
    session = Session.open(tmp_path, "child", str(tmp_path))
    provider = scripted(*[using(600)] * 5)
    settings = msgspec.structs.replace(settings_of(session), prices=PRICES)
    talk = BaseTalk(session, provider, settings=settings, budget=own, is_eager=False)
    async with talk.served():
        await talk.run_turns(*prompts(3))
    assert [each.stop_reason for each in talk.of(TurnEnded)] == ["end_turn"] * 3
    assert questions(talk) == []
    assert [tool for tool, _ in questions(parent)] == ["budget"]
    assert budget.session.spent.usd == pytest.approx(1.8)
    parent.session.close()


async def test_a_child_of_a_run_with_a_limit_in_dollars_needs_a_price(tmp_path: Path) -> None:
    parent = Talk(tmp_path, prices=PRICES)
    budget = parent.services.calls.budget
    budget.limit_run(5, 0)
    own = budget.children.reserve(Amount(tokens=50_000))
    session = Session.open(tmp_path, "child", str(tmp_path))
    provider = scripted([{"text": "Free?"}], model="of-tomorrow")
    talk = BaseTalk(session, provider, budget=own, is_eager=False)
    talk.services.calls.budget.limit_run(100, 0)  # the parent's is what counts
    async with talk.served():
        await talk.run_turns(HELLO)
    [error] = talk.of(ErrorOccurred)
    assert error.message == (
        "The price of of-tomorrow is unknown, so the limit of $5.00 cannot be kept."
    )
    parent.session.close()


# --- what is logged --------------------------------------------------------------------------------------------------------


async def test_what_children_used_counts_once_and_after_a_restart_too(tmp_path: Path) -> None:
    talk = Talk(tmp_path, using(1_000), prices=PRICES)
    async with talk.after(HELLO):
        calls = talk.services.calls
        calls.note_child("c1", "scripted", Usage(3_000))
        calls.note_child("c2", "scripted", Usage(5_000))
        calls.show_usage()
        report = usage_report(
            talk.session.ledger, calls.prices, model="m", context_used=0, window=0
        )
        assert "* Session: $9.00\n* Of that, 2 child sessions: 8,000 tokens, $8.00\n" in report
        shown = talk.of(UsageUpdated)[-1]
        assert (shown.total, shown.turn, shown.cost_usd) == (Usage(9_000), Usage(9_000), 9.0)
        assert shown.last_request == Usage(1_000)  # the context is the session's own
    for session_id in ("s1", "fork"):
        if session_id == "fork":
            fork(tmp_path / "state/sessions", "s1", "fork")
        again = Talk(tmp_path, session_id=session_id, prices=PRICES, budget_usd=20)
        ledger, budget = again.session.ledger, again.services.calls.budget
        assert ledger.total == Usage(9_000)
        assert {child: each.usage for child, each in ledger.children.items()} == {
            "c1": Usage(3_000),
            "c2": Usage(5_000),
        }
        assert budget.children.spent.tokens == 8_000
        assert budget.session.rest.usd == 11
        assert again.session.last_usage == Usage(1_000)
        records = list(again.session._known_records())  # those of a log that was deleted meanwhile
        again.session.close()
        rebuilt = Session.open(tmp_path, f"{session_id}-rebuilt", str(tmp_path))
        for record in records:
            rebuilt.apply(record)
        assert rebuilt.ledger.total == Usage(9_000)
        assert rebuilt.ledger.children.keys() == {"c1", "c2"}
        rebuilt.close()
