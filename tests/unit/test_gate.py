"""The gate judges without changing anything; only asking does."""

import pytest
from tests.conftest import prove
from tests.unit.test_tool_uses import Talk

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
