"""The gate judges without changing anything; only asking does."""

import pytest
from tests.conftest import prove
from tests.unit.test_tool_uses import Talk, bash

from sanderling.errors import SandboxError
from sanderling.permissions.approvals import Permit, Question
from sanderling.permissions.gate import ForbiddenError, Gate
from sanderling.permissions.rules import rule_from_text
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.tools.base import UseRequest
from sanderling.tools.catalog import TOOLS


def request_of(talk: Talk, command: str) -> UseRequest:
    tool, workspace = TOOLS["bash"], talk.conversation.services.workspace
    args = tool.parse({"command": command})
    effect, title = tool.effect(args, workspace), tool.title(args, workspace)
    environment = workspace.sandbox.environment
    return UseRequest("t1", tool, args, effect, title, workspace.shell.now, environment)


def judged_twice(talk: Talk, request: UseRequest) -> Permit | Question:
    """Check that judging gives the same answer twice, and changes nothing that a session remembers."""
    gate = talk.conversation.services.gate
    before, events = gate.state(), list(talk.events)
    first, second = gate.judge(request), gate.judge(request)
    assert (first == second, gate.state(), talk.events) == (True, before, events)
    return first


@pytest.mark.parametrize("command, kind", [("ls", Permit), ("make", Question)])
@prove
async def test_judging_a_use_twice_gives_the_same_answer_and_changes_nothing(
    tmp_path, command, kind
):
    talk = Talk(tmp_path)
    assert isinstance(judged_twice(talk, request_of(talk, command)), kind)
    await talk.aclose()


@prove
async def test_judging_what_a_rule_denies_raises_and_emits_nothing(tmp_path):
    talk = Talk(tmp_path, rules=(rule_from_text("deny bash make"),))
    before = list(talk.events)
    for _ in range(2):
        with pytest.raises(ForbiddenError, match="deny bash make"):
            talk.conversation.services.gate.judge(request_of(talk, "make"))
    assert talk.events == before
    await talk.aclose()


@prove
async def test_what_the_user_allows_for_the_session_is_judged_by_that_from_then_on(tmp_path):
    talk = Talk(tmp_path)
    gate: Gate = talk.conversation.services.gate
    request = request_of(talk, "make")
    question = judged_twice(talk, request)
    assert isinstance(question, Question)

    def answer(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            talk.conversation.services.approvals.answer(AnswerApproval(event.id, "session"))

    talk.on_event = answer
    assert (await gate.ask(question)).is_seen
    assert isinstance(judged_twice(talk, request), Permit)
    await talk.aclose()


# --- rules that the user types for "always" ---------------------------------------------------------------------------


WRITE = ("write", {"path": "src/new.py", "content": "x"})
FETCH = ("web_fetch", {"url": "https://docs.python.org/3/"})


@pytest.mark.parametrize(
    "use, rule, words",
    [
        (bash("python3 -m pytest"), "allow bash python3 -m pytest1", "does not cover 'python3 -m"),
        (bash("make"), "99", "'99' is not a rule"),
        (bash("make"), "allow bash make check", "does not cover 'make'"),
        (bash("make"), "allow bash m\u0430ke", "does not cover 'make'"),  # a Cyrillic letter
        (bash("make && touch x"), "allow bash make", "No rule covers 'touch x'"),
        (bash("make"), "deny bash make", "only a rule that begins with `allow`"),
        (bash("make"), "allow edit src/**", "does not cover 'make'"),
        (WRITE, "allow write src1/**", "does not cover '"),
        (WRITE, "allow edit src/**", "does not cover '"),
        (FETCH, "allow web_fetch docs.python.org1", "does not cover 'docs.python.org"),
        (FETCH, "allow web_fetch", "does not name the host docs.python.org"),
    ],
)
@pytest.mark.parametrize("choice", ["always", "session"])
async def test_a_typed_rule_that_does_not_cover_the_use_is_refused_in_words(
    tmp_path, use, rule, words, choice
):
    async with Talk(tmp_path, use).asked() as talk:
        question = await talk.until(ApprovalRequested)
        talk.answer(question, choice, rule=rule)
        again = await talk.until(ApprovalRequested, 2)
        assert words in again.reason
        assert again.reason.endswith(question.reason)
        assert again.subject == question.subject
        gate = talk.services.gate
        assert (gate._store.load().rules, gate.state()["rules"]) == ((), [])
        talk.answer(again, "deny")


@pytest.mark.parametrize(
    "use, rule",
    [
        (bash("ls; make"), "allow bash make"),
        (bash("make"), "allow bash make $"),
        (bash("make"), "allow bash"),
        (WRITE, "allow write src/**"),
        (WRITE, "allow write ./src/new.py"),
    ],
)
async def test_a_typed_rule_that_covers_the_use_is_stored(tmp_path, use, rule):
    talk = await Talk(tmp_path, use).run(f"always: {rule}")
    assert len(talk.questions) == 1
    assert [str(each) for each in talk.services.gate._store.load().rules] == [rule]


async def test_a_typed_rule_may_complete_stored_ones(tmp_path):
    talk = Talk(tmp_path, bash("touch made && make"))
    talk.services.gate._store.add(rule_from_text("allow bash make"))
    await talk.run("always: allow bash touch")
    assert len(talk.questions) == 1


async def test_a_rule_that_another_overrides_is_refused_with_that_rule(tmp_path):
    async with Talk(
        tmp_path, bash("make"), rules=(rule_from_text("ask bash make"),)
    ).asked() as talk:
        question = await talk.until(ApprovalRequested)
        assert (question.choices, question.rule) == (("once", "session"), "")
        talk.answer(question, "always", rule="allow bash make")
        again = await talk.until(ApprovalRequested, 2)
        assert "would ask again. A rule asks about this: ask bash make." in again.reason
        talk.answer(again, "deny")


async def test_a_rule_cannot_be_written_into_the_rules_file_even_where_a_rule_allows_the_path(
    tmp_path,
):
    talk = Talk(tmp_path, rules=(rule_from_text("allow write /**"),))
    gate, workspace = talk.services.gate, talk.services.workspace
    gate._store.add(rule_from_text("allow bash make"))
    tool = TOOLS["write"]
    args = tool.parse({"path": str(gate._store.path), "content": "{}"})
    environment = workspace.sandbox.environment
    effect = tool.effect(args, workspace)
    request = UseRequest("t1", tool, args, effect, "", workspace.shell.now, environment)
    with pytest.raises(SandboxError, match="Sanderling's own state"):
        gate.judge(request)
    await talk.aclose()
