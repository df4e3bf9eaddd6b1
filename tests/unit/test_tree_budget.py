"""Children and the budget of their session, in whole sessions."""

from pathlib import Path
from typing import Any

from tests.children import Tree, delegate, said, tree, use
from tests.unit.test_children import facts

from sanderling.protocol.events import ChildChanged, Notice, TurnEnded
from sanderling.protocol.messages import TextBlock, Usage
from sanderling.session.records import LoggedMessage, LoggedUsage


def looks(count: int, text: str = "") -> list[list[dict[str, Any]]]:
    """Replies that each look at another place, after so much text."""
    before = [said(text)] if text else []
    return [[*before, use("glob", pattern=f"{number}*")] for number in range(count)]


def used(tree: Tree, session_id: str) -> Usage:
    """What a session's own requests used, by its log."""
    records = [each for each in tree.read(session_id)[1] if isinstance(each, LoggedUsage)]
    return sum((each.usage for each in records if not each.child), Usage())


def sent(tree: Tree, session_id: str) -> list[str]:
    """The texts that the model of a session was sent."""
    messages = [
        each.message for each in tree.read(session_id)[1] if isinstance(each, LoggedMessage)
    ]
    return [
        block.text
        for message in messages
        if message.role == "user"
        for block in message.content
        if isinstance(block, TextBlock)
    ]


async def test_a_child_at_its_limit_makes_no_further_call_and_reports_what_it_has(
    tmp_path: Path,
) -> None:
    replies = [*looks(2, "One."), [said("Never.")]]
    async with tree(
        tmp_path, [delegate("A.")], children={"A.": replies}, delegate={"calls": 2}
    ) as it:
        await it.run()
        [result] = it.results
        assert facts(result)["state"] == "budget"
        assert "One." in result
        assert "Never." not in result
        assert it.of(ChildChanged)[-1].calls == 2
        assert it.of(TurnEnded) == [TurnEnded("end_turn")]


async def test_a_child_is_asked_once_to_wrap_up_when_most_of_its_budget_is_used(
    tmp_path: Path,
) -> None:
    replies = [*looks(4), [said("Wrapped up.")]]
    async with tree(
        tmp_path, [delegate("A.")], children={"A.": replies}, delegate={"calls": 5}
    ) as it:
        await it.run()
        assert facts(it.results[0])["state"] == "done"
        texts = sent(it, it.child_ids()[0])
        assert ["80%" in text or "80 %" in text for text in texts if "budget" in text] == [True]
        assert "budget" in texts[-1]  # with the results of the fourth call


async def test_the_tokens_of_all_sessions_are_those_of_their_own_requests(tmp_path: Path) -> None:
    children = {task: [*looks(1, task), [said("Done.")]] for task in ("A.", "B.")}
    async with tree(tmp_path, [delegate("A."), delegate("B.")], children=children) as it:
        await it.run()
        ids = ["parent", *it.child_ids()]
        total = sum((used(it, session_id) for session_id in ids), Usage())
        assert it.services.session.ledger.total == total
        budget = it.services.calls.budget
        assert budget.run.spent.tokens == total.context_tokens
        assert budget.children.spent.tokens == (
            total.context_tokens - used(it, "parent").context_tokens
        )
        assert budget.children.reserved == (0, 0, 0, 0)


async def delegated_beyond_the_limit(base: Path, answer: Any) -> Tree:
    async with tree(
        base,
        [delegate("A.")],
        children={"A.": [[said("Done.")]]},
        delegate={"tree_tokens": 30_000},
    ) as it:
        it.submit()
        question = await it.asked(2)
        assert (question.tool, question.kind) == ("children", "limit")
        it.answer(question, answer)
        await it.ended()
    return it


async def test_the_user_extends_what_all_children_may_use(tmp_path: Path) -> None:
    it = await delegated_beyond_the_limit(tmp_path, "once")
    assert it.results[0].endswith("Done.")


async def test_without_more_tokens_the_model_reads_why_no_child_begins(tmp_path: Path) -> None:
    it = await delegated_beyond_the_limit(tmp_path, "deny")
    assert "Of the 30,000 tokens for child sessions (tree_tokens), 0 are used" in it.results[0]
    assert it.of(ChildChanged) == []


async def test_a_run_that_is_out_of_tokens_ends_with_its_child(tmp_path: Path) -> None:
    replies = looks(9, "x" * 30_000)
    options = {"max_tokens": 70_000, "has_user": False}
    async with tree(tmp_path, [delegate("A.")], children={"A.": replies}, options=options) as it:
        budget = it.services.calls.budget
        await it.run()
        assert facts(it.results[0])["state"] == "budget"
        [child] = {event.id: event for event in it.of(ChildChanged)}.values()
        assert child.budget_tokens < 70_000 / 4
        assert child.budget_tokens < child.tokens < child.budget_tokens + 30_000
        assert budget.run.spent.tokens == it.services.session.ledger.total.context_tokens
        assert it.of(Notice) == []  # that is the child's


async def test_a_restart_leaves_to_the_children_of_a_session_what_they_had(tmp_path: Path) -> None:
    async with tree(tmp_path, [delegate("A.")], children={"A.": [[said("Done.")]]}) as it:
        await it.run()
        left = it.services.calls.budget.children.rest.tokens
    async with tree(tmp_path, [said("Again.")]) as it:
        assert it.services.calls.budget.children.rest.tokens == left < 2_000_000
        await it.run()
        assert (
            it.services.calls.budget.children.rest.tokens == left
        )  # its own tokens are not theirs
    async with tree(tmp_path, [said("Mine.")], session_id="other") as it:
        assert it.services.calls.budget.children.rest.tokens == 2_000_000
