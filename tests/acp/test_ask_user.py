"""Questions of the model, and its plan, at an ACP client: in a form, or else as permission requests."""

import json

import pytest

from tests.acp.talk import chosen
from tests.conftest import prove, prove_rest

DONE = {"text": "done"}
FORMS = {"elicitation": {"form": {}}}
DATABASE = {
    "question": "Which database?",
    "choices": [{"label": "SQLite", "description": "no server"}, {"label": "Postgres"}],
}
PARTS = {"question": "Which parts?", "choices": ["Login", "Search"], "several": True}
NAME = {"question": "Its name?"}


def asks(*questions, **more):
    return {"tool_use": {"id": "t1", "name": "ask_user", "input": {"questions": questions} | more}}


PLAN = asks(plan="Replace the cache")


def told(agent):
    return json.dumps(agent.of("tool_call_update")[-1], ensure_ascii=False)


def accepting(content):
    return lambda _: {"action": "accept", "content": content}


@prove
def test_a_client_with_forms_gets_one_form_for_all_questions(begin, home):
    agent = begin(home.script([asks(DATABASE, PARTS, NAME)], [DONE]), **FORMS)
    content = {"1": "SQLite", "2": ["Login", "Search"], "2_text": "and export", "3": "Tern"}
    agent.answers["elicitation/create"] = accepting(content)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    [form] = agent.asked_for("elicitation/create")
    fields = form["params"]["requestedSchema"]["properties"]
    assert [*fields] == ["1", "1_text", "2", "2_text", "3"]
    assert fields["1"]["title"] == "Which database?"
    assert fields["1"]["oneOf"] == [
        {"const": "SQLite", "title": "SQLite: no server"},
        {"const": "Postgres", "title": "Postgres"},
    ]
    assert fields["1_text"] == {"type": "string", "title": "In your own words"}
    assert fields["2"]["type"] == "array"
    assert "required" not in form["params"]["requestedSchema"]
    text = told(agent)
    assert "Which database? → SQLite" in text
    assert "Which parts? → Login, Search. They add:" in text
    assert "Its name? → Tern" in text


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_form_that_is_not_sent_is_no_answer(begin, home, action):
    agent = begin(home.script([asks(DATABASE)], [DONE]), **FORMS)
    agent.answers["elicitation/create"] = lambda _: {"action": action}
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert "dismissed this without an answer" in told(agent)


@prove
def test_a_client_without_forms_gets_a_permission_request_for_each_question(begin, home):
    agent = begin(home.script([asks(DATABASE, PARTS)], [DONE]))
    agent.answers["session/request_permission"] = chosen("choice:1")
    assert agent.prompt(agent.new(), "go") == "end_turn"
    first, second = (each["params"] for each in agent.asked_for("session/request_permission"))
    assert first["toolCall"]["title"] == "Which database?"
    assert first["toolCall"]["toolCallId"] == "t1"
    assert [each["name"] for each in first["options"]] == ["SQLite", "Postgres", "None of these"]
    assert [each["kind"] for each in first["options"]][-1] == "reject_once"
    assert second["toolCall"]["title"] == "Which parts? (choose one)"
    text = told(agent)
    assert "Which database? → Postgres" in text
    assert "Which parts? → Search" in text


CODE_COMPANION = {"name": "CodeCompanion.nvim", "version": "1.0.0"}


def test_a_client_that_does_not_show_the_names_of_choices_is_not_asked_to_choose(start, home):
    agent = start("--model", home.script([asks(DATABASE)], [DONE]))
    agent.request("initialize", protocolVersion=1, clientCapabilities={}, clientInfo=CODE_COMPANION)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert agent.asked == []
    assert "cannot show this question. Ask it in your answer." in told(agent)


def test_a_client_that_does_not_show_the_names_of_choices_accepts_a_plan_in_ask_mode(start, home):
    agent = start("--model", home.script([PLAN], [DONE]))
    agent.answers["session/request_permission"] = chosen("choice:0")
    agent.request("initialize", protocolVersion=1, clientCapabilities={}, clientInfo=CODE_COMPANION)
    session = agent.new()
    agent.request("session/set_mode", sessionId=session, modeId="plan")
    assert agent.prompt(session, "go") == "end_turn"
    [asked] = agent.asked
    offered = [(each["optionId"], each["kind"]) for each in asked["params"]["options"]]
    assert offered == [("choice:0", "allow_once"), ("choice:2", "reject_once")]
    assert agent.of("current_mode_update")[-1]["currentModeId"] == "ask"


@pytest.mark.parametrize("option", prove_rest(["deny", "choice:7", "choice:-1"]))
def test_an_option_that_was_not_offered_is_no_answer(begin, home, option):
    agent = begin(home.script([asks(DATABASE)], [DONE]))
    agent.answers["session/request_permission"] = chosen(option)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert "dismissed this without an answer" in told(agent)


def test_a_client_that_can_show_nothing_is_named_as_the_reason(begin, home):
    agent = begin(home.script([asks(DATABASE)], [DONE]))
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert "There is no answer: The client cannot ask the user" in told(agent)
    agent.messages = []  # the client was not one of the schema's


@prove
@pytest.mark.parametrize("has_forms", [True, False])
def test_accepting_a_plan_switches_the_mode(begin, home, has_forms):
    touch = {"tool_use": {"id": "t2", "name": "bash", "input": {"command": "touch made"}}}
    agent = begin(home.script([PLAN], [touch], [DONE]), **(FORMS if has_forms else {}))
    agent.answers["elicitation/create"] = accepting({"plan": "auto"})
    agent.answers["session/request_permission"] = chosen("choice:1")
    session = agent.new()
    agent.request("session/set_mode", sessionId=session, modeId="plan")
    assert agent.prompt(session, "go") == "end_turn"
    assert agent.of("current_mode_update")[-1]["currentModeId"] == "auto"
    assert (home.project / "made").exists()
    [asked] = agent.asked
    if has_forms:
        assert asked["params"]["message"] == "Accept the plan? Replace the cache"
        assert [*asked["params"]["requestedSchema"]["properties"]] == ["plan", "plan_text"]
    else:
        assert asked["params"]["toolCall"]["kind"] == "switch_mode"
        kinds = [each["kind"] for each in asked["params"]["options"]]
        assert kinds == ["allow_once", "allow_once", "reject_once"]


@prove
@pytest.mark.parametrize("has_forms", [True, False])
def test_a_plan_that_is_not_accepted_keeps_the_mode(begin, home, has_forms):
    agent = begin(home.script([PLAN], [DONE]), **(FORMS if has_forms else {}))
    agent.answers["elicitation/create"] = accepting({"plan": "keep", "plan_text": "Use lru_cache."})
    agent.answers["session/request_permission"] = chosen("choice:2")
    session = agent.new()
    agent.request("session/set_mode", sessionId=session, modeId="plan")
    assert agent.prompt(session, "go") == "end_turn"
    text = told(agent)
    assert ("Use lru_cache." if has_forms else "did not accept the plan yet") in text
    modes = [each["currentModeId"] for each in agent.of("current_mode_update")]
    assert modes[-1:] in (["plan"], [])
