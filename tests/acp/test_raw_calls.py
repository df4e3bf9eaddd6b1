"""The input and the result of a tool call, for clients that write trajectories, such as Harbor."""

import base64
from typing import Any

from tests.acp.talk import Agent, chosen

OURS = {"_meta": {"sanderling": {"resume": True}}}
DONE = {"text": "done"}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def use(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"tool_use": {"id": call_id, "name": name, "input": given}}


def inputs(agent: Agent) -> dict[str, Any]:
    return {each["toolCallId"]: each.get("rawInput") for each in agent.of("tool_call")}


def outputs(agent: Agent) -> dict[str, Any]:
    ended = [each for each in agent.of("tool_call_update") if "rawOutput" in each]
    return {each["toolCallId"]: each["rawOutput"] for each in ended}


def test_a_call_has_its_input_and_the_result_that_the_model_gets(begin, home):
    (home.project / "a.txt").write_text("one\ntwo\n")
    (home.project / "a.png").write_bytes(PIXEL)
    uses = [
        use("t1", "read", path="a.txt"),
        use("t2", "bash", command="echo half; exit 3"),
        use("t3", "nothing", x=1),
        use("t4", "read", path="a.png"),
    ]
    agent = begin(home.script(uses, [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    session = agent.new()
    agent.prompt(session, "go")
    live = inputs(agent), outputs(agent)
    assert live[0]["t1"] == {"path": "a.txt"}
    assert live[0]["t3"] == {"x": 1}
    assert "two" in live[1]["t1"]["output"]
    assert "half" in live[1]["t2"]["output"]
    assert "3" in live[1]["t2"]["output"]
    assert "There is no tool 'nothing'" in live[1]["t3"]["output"]
    assert "[an image]" in live[1]["t4"]["output"]

    agent.request("session/close", sessionId=session)
    agent.updates.clear()
    agent.request("session/load", sessionId=session, cwd=str(home.project), mcpServers=[])
    assert inputs(agent) == live[0]
    assert {name: each["output"] for name, each in outputs(agent).items()} == {
        name: each["output"] for name, each in live[1].items()
    }


def test_a_denied_call_says_so_in_its_result(begin, home):
    agent = begin(home.script([use("t1", "bash", command="touch made")], [DONE]))
    agent.answers["session/request_permission"] = chosen("deny")
    agent.prompt(agent.new(), "go")
    assert inputs(agent) == {"t1": {"command": "touch made"}}
    assert "denied" in outputs(agent)["t1"]["output"]
    assert agent.of("tool_call_update")[-1]["status"] == "failed"


def test_long_inputs_and_results_are_cut(begin, home):
    (home.project / "long.txt").write_text(f"{'y' * 1_000}\n" * 100)
    long = "x" * 100_000
    edits = [{"old": "a", "new": long}]
    uses = [
        use("t1", "write", path="b.txt", content=long),
        use("t2", "edit", path="c.txt", edits=edits),
        use("t3", "read", path="long.txt"),
    ]
    agent = begin(home.script(uses, [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    agent.prompt(agent.new(), "go")
    given, results = inputs(agent), outputs(agent)
    assert given["t1"]["path"] == "b.txt"
    assert given["t1"]["content"] == "x" * 4096 + "[… and 95,904 more characters]"
    assert given["t2"]["edits"][0]["new"].endswith("[… and 95,904 more characters]")
    assert len(results["t3"]["output"]) < 33_000
    assert (home.project / "b.txt").read_text() == long


def test_a_client_of_ours_gets_neither(begin, home):
    agent = begin(home.script([use("t1", "bash", command="echo one")], [DONE]), **OURS)
    agent.answers["session/request_permission"] = chosen("once")
    agent.prompt(agent.new(), "go")
    assert inputs(agent) == {"t1": None}
    assert isinstance(outputs(agent)["t1"], str)
