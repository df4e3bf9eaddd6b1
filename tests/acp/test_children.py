"""Child sessions over ACP: shown in their parent's tool call, asking through its client, open to it like any session."""

import pytest

from tests.acp.talk import chosen
from tests.conftest import wait_until

TASK = "Find the answer."
DELEGATE = {"tool_use": {"id": "d1", "name": "delegate", "input": {"task": TASK, "role": "edit"}}}


def command(line, call_id="c1"):
    return {"tool_use": {"id": call_id, "name": "bash", "input": {"command": line}}}


@pytest.fixture
def delegating(begin, home):
    """Start an agent whose model delegates one task; the child replies with `child`."""

    def delegating(*child, calls=(DELEGATE,)):
        replies = [{"when": TASK, "step": child[0]}]
        replies += [{"after": "c1", "step": step} for step in child[1:]]
        replies += [{"step": [*calls]}, {"step": [{"text": "All done."}]}]
        agent = begin(home.script_of(*replies))
        agent.answers["session/request_permission"] = chosen("session")
        return agent

    return delegating


def updates_of(agent, call_id):
    return [each for each in agent.of("tool_call_update") if each["toolCallId"] == call_id]


def texts_of(agent, call_id):
    found = [each["content"] for each in updates_of(agent, call_id) if each.get("content")]
    return [content[0]["content"]["text"] for content in found]


def test_a_childs_work_rolls_in_the_call_of_its_parent_and_its_report_replaces_it(delegating):
    agent = delegating([command("until test -e go; do sleep 0.05; done")], [{"text": "It is 42."}])
    session = agent.new()
    turn = agent.begin_prompt(session, "go")
    wait_until(lambda: any("bash until" in text for text in texts_of(agent, "d1")))
    [*_, rolling] = texts_of(agent, "d1")
    assert "edit 1 · running" in rolling
    (agent.home.project / "go").touch()
    assert agent.end(turn)["stopReason"] == "end_turn"
    last = updates_of(agent, "d1")[-1]
    assert last["status"] == "completed"
    [content] = last["content"]
    assert content["content"]["text"].startswith("done · ")
    assert content["content"]["text"].endswith("It is 42.")
    child = last["_meta"]["sanderling"]["child"]
    listed = {each["sessionId"]: each for each in agent.request("session/list")["sessions"]}
    assert listed[child]["_meta"] == {"sanderling": {"parent": session}}
    assert "_meta" not in listed[session]
    assert agent.finish() == 0


def test_a_rolling_text_keeps_the_newest_activities_only(delegating):
    many = [command(f"true {number}", f"c{number}") for number in range(30, 0, -1)]
    agent = delegating([*many], [{"text": "Done."}])
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert all(len(text.splitlines()) <= 11 for text in texts_of(agent, "d1")[:-1])


def test_a_child_asks_through_the_client_of_its_parent_under_its_name(delegating):
    agent = delegating([command("touch made")], [{"text": "Made."}])
    assert agent.prompt(agent.new(), "go") == "end_turn"
    [_, asked] = [each["params"] for each in agent.asked]
    call = asked["toolCall"]
    assert call["title"] == "edit 1: touch made"
    assert call["rawInput"]["command"] == "touch made"
    child = asked["_meta"]["sanderling"]["child"]
    assert call["toolCallId"] == f"{child}/c1"
    [shown] = [each for each in agent.of("tool_call") if each["toolCallId"] == call["toolCallId"]]
    assert shown["status"] == "pending"
    assert updates_of(agent, call["toolCallId"])[-1]["status"] == "completed"
    assert (agent.home.project / "made").exists()
    assert agent.finish() == 0


def test_cancelling_stops_the_child_and_takes_back_its_question(delegating):
    agent = delegating([command("touch made")], [{"text": "Made."}])
    session = agent.new()
    once = chosen("session")
    agent.answers["session/request_permission"] = lambda asked: (
        once(asked) if asked["toolCall"]["name"] == "delegate" else None
    )
    turn = agent.begin_prompt(session, "go")
    wait_until(lambda: len(agent.asked) == 2)
    agent.notify("session/cancel", sessionId=session)
    assert agent.end(turn)["stopReason"] == "cancelled"
    assert not (agent.home.project / "made").exists()
    assert texts_of(agent, "d1")[-1].startswith("partial result · ")
    assert agent.finish() == 0


def test_a_child_is_loaded_while_it_runs_and_after(delegating):
    agent = delegating([command("until test -e go; do sleep 0.05; done")], [{"text": "It is 42."}])
    turn = agent.begin_prompt(agent.new(), "go")
    wait_until(lambda: any("bash until" in text for text in texts_of(agent, "d1")))
    child = updates_of(agent, "d1")[-1]["_meta"]["sanderling"]["child"]
    load = {"sessionId": child, "cwd": str(agent.home.project), "mcpServers": []}
    agent.request("session/load", **load)
    wait_until(lambda: any(each["toolCallId"] == "c1" for each in agent.of("tool_call")))
    (agent.home.project / "go").touch()
    agent.end(turn)
    wait_until(lambda: "It is 42." in agent.text())
    agent.request("session/close", sessionId=child)
    agent.updates.clear()
    agent.request("session/load", **load)
    assert TASK in agent.text("user_message_chunk")
    assert "It is 42." in agent.text()
    assert agent.finish() == 0
