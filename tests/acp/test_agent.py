"""`sanderling acp`: an editor's agent over standard input and output."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sanderling import __version__
from sanderling.acp.agent.own_sessions import MAX_OPEN
from sanderling.session.session import Session
from tests.acp.talk import FULL, AgentError, chosen
from tests.conftest import DEADLINE_S, ROOT, prove, prove_rest, wait_until
from tests.pictures import in_base64, png

LONG = {
    "tool_use": {
        "id": "t1",
        "name": "bash",
        "input": {"command": "touch made; echo begun; sleep 1000"},
    }
}
EDIT = {
    "tool_use": {
        "id": "t1",
        "name": "edit",
        "input": {"path": "a.py", "edits": [{"old": "x = 1", "new": "x = 2"}]},
    }
}
BASH = {
    "tool_use": {
        "id": "t1",
        "name": "bash",
        "input": {"command": "touch made; echo one; echo two >&2"},
    }
}
DONE = {"text": "done"}


# --- setting up ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", prove_rest([1, 0, 2, 999], keep=(-1,)))
def test_the_agent_answers_with_the_version_that_it_speaks(start, wanted):
    agent = start("--model", "demo")
    said = agent.request("initialize", protocolVersion=wanted, clientCapabilities={})
    assert said["protocolVersion"] == 1
    assert said["agentInfo"]["name"] == "sanderling"
    assert agent.prompt(agent.new(), "ping") == "end_turn"


def test_ping_is_answered_with_exactly_one_chunk(begin):
    agent = begin("demo")
    session = agent.new()
    assert agent.prompt(session, "ping") == "end_turn"
    chunks = agent.of("agent_message_chunk")
    assert [chunk["content"] for chunk in chunks] == [{"type": "text", "text": "pong"}]
    assert chunks[0]["messageId"]
    assert agent.prompt(session, "ping") == "end_turn"
    again = agent.of("agent_message_chunk")[1]
    assert again["messageId"] != chunks[0]["messageId"]
    assert agent.finish() == 0


@prove
def test_without_a_key_the_demo_model_answers_and_a_notice_says_so(start):
    agent = start()
    agent.initialize(session={"notices": {}})
    assert agent.prompt(agent.new(), "ping") == "end_turn"
    [notice] = agent.of("notice")
    assert "No API key" in notice["title"]
    assert "sanderling login" in notice["description"]


@prove
def test_the_ways_to_log_in_fit_the_client(start):
    agent = start()
    ways = agent.initialize()["authMethods"]
    assert [way["id"] for way in ways] == ["environment", "keychain"]
    ways = agent.initialize(auth={"terminal": True})["authMethods"]
    assert ways[2] | {"name": "", "description": ""} == {
        "id": "login",
        "type": "terminal",
        "args": ["login"],
        "name": "",
        "description": "",
    }
    with pytest.raises(AgentError) as refused:
        agent.request("authenticate", methodId="environment")
    assert refused.value.code == -32000
    with pytest.raises(AgentError) as refused:
        agent.request("authenticate", methodId="keychain")
    assert refused.value.code == -32000
    with pytest.raises(AgentError) as refused:
        agent.request("authenticate", methodId="magic")
    assert refused.value.code == -32602
    assert agent.request("logout") == {}


@prove
def test_a_key_of_the_environment_authenticates(start):
    agent = start(environment={"ANTHROPIC_API_KEY": "sk-1"})
    agent.initialize()
    assert agent.request("authenticate", methodId="environment") == {}


@prove
def test_an_output_that_is_full_ends_it_without_a_traceback(home):
    given = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    )
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sanderling", "acp"],
            cwd=home.project,
            env=home.environment,
            input=f"{given}\n".encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert b"Traceback" not in ended.stderr


def test_the_null_device_is_an_input_that_has_ended_and_an_output(home):
    with Path(os.devnull).open("r+b") as nothing:
        ended = subprocess.run(
            [sys.executable, "-m", "sanderling", "acp"],
            cwd=home.project,
            env=home.environment,
            stdin=nothing,
            stdout=nothing,
            stderr=subprocess.PIPE,
            check=True,
            timeout=60,
        )
    assert ended.stderr == b""


@prove
def test_nothing_but_initialize_comes_first(start):
    agent = start("--model", "demo")
    with pytest.raises(AgentError) as refused:
        agent.new()
    assert refused.value.code == -32600
    agent.initialize()
    assert agent.new()


@pytest.mark.parametrize(
    "params",
    prove_rest(
        [
            {"cwd": "relative"},
            {"cwd": "."},
            {"cwd": ""},
            {"cwd": "/nowhere/at/all"},
            {"cwd": "/etc/passwd"},
            {"cwd": 5},
            {"additionalDirectories": ["relative"]},
            {"mcpServers": [{"name": "a", "type": "sse", "url": "https://a", "headers": []}]},
            {"mcpServers": {}},
        ],
        is_one=True,
    ),
)
def test_a_session_needs_what_can_be_had(begin, params):
    agent = begin("demo")
    given = {"cwd": str(agent.home.project), "mcpServers": []} | params
    # The schema is no judge of what is wrong on purpose.
    agent._ids += 1
    request = {"jsonrpc": "2.0", "id": "wrong", "method": "session/new", "params": given}
    agent.write(json.dumps(request).encode() + b"\n")
    wait_until(lambda: agent.errors)
    assert agent.errors[0]["error"]["code"] == -32602
    agent.messages = [each for each in agent.messages if each["message"].get("id") != "wrong"]


@prove
def test_the_sandbox_is_told(begin):
    agent = begin("demo")
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    assert said["_meta"]["sanderling"]["sandbox"]["network"] == "off"
    told = wait_until(
        lambda: [
            update["_meta"]["sanderling"]["sandbox"]
            for update in agent.of("config_option_update")
            if update.get("_meta")
        ]
    )
    assert told[-1]["level"]
    options = {each["id"]: each for each in agent.of("config_option_update")[-1]["configOptions"]}
    assert "andbox" in options["network"]["description"]


# --- options -----------------------------------------------------------------------------------------------------------


@prove
def test_modes_and_options_are_set_and_told(begin):
    agent = begin("demo")
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    session = said["sessionId"]
    assert said["modes"]["currentModeId"] == "ask"
    assert [each["id"] for each in said["modes"]["availableModes"]] == ["ask", "auto", "plan"]
    assert [each["id"] for each in said["configOptions"]] == ["mode", "model", "network"]
    assert agent.request("session/set_mode", sessionId=session, modeId="plan") == {}
    assert agent.of("current_mode_update")[-1]["currentModeId"] == "plan"
    for option, value in (("mode", "auto"), ("network", "proxy")):
        options = agent.request(
            "session/set_config_option", sessionId=session, configId=option, value=value
        )["configOptions"]
        assert {each["id"]: each["currentValue"] for each in options}[option] == value
    for option, value in (("mode", "wild"), ("network", ""), ("colour", "red")):
        with pytest.raises(AgentError) as refused:
            agent.request(
                "session/set_config_option", sessionId=session, configId=option, value=value
            )
        assert refused.value.code == -32602
    with pytest.raises(AgentError):
        agent.request("session/set_mode", sessionId=session, modeId="wild")


def test_roles_are_an_option_if_there_are_any(begin):
    agent = begin("demo")
    agents = agent.home.config.parent / "agents"
    agents.mkdir()
    (agents / "reviewer.md").write_text("---\ndescription: Reviews.\nmode: plan\n---\nReview.")
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    [role] = [each for each in said["configOptions"] if each["id"] == "role"]
    assert role["currentValue"] == "none"
    assert [each["value"] for each in role["options"]] == ["none", "reviewer"]
    for value, mode in (("reviewer", "plan"), ("none", "ask")):
        options = agent.request(
            "session/set_config_option",
            sessionId=said["sessionId"],
            configId="role",
            value=value,
        )["configOptions"]
        now = {each["id"]: each["currentValue"] for each in options}
        assert (now["role"], now["mode"]) == (value, mode)
    with pytest.raises(AgentError) as refused:
        agent.request(
            "session/set_config_option",
            sessionId=said["sessionId"],
            configId="role",
            value="nobody",
        )
    assert refused.value.code == -32602


def test_a_projects_role_is_an_option_once_it_is_trusted(begin):
    agent = begin("demo", **FULL)
    agents = agent.home.project / ".claude/agents"
    agents.mkdir(parents=True)
    (agents / "reviewer.md").write_text("Review.")
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    assert "role" not in [each["id"] for each in said["configOptions"]]
    agent.answers["session/request_permission"] = chosen("once")
    assert agent.prompt(said["sessionId"], "/trust") == "end_turn"
    wait_until(
        lambda: any(
            option["id"] == "role"
            for update in agent.of("config_option_update")
            for option in update["configOptions"]
        )
    )


def test_the_sandbox_is_a_switch_where_the_client_has_switches(begin):
    agent = begin("demo", **FULL)
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    assert [each["id"] for each in said["configOptions"]][-1] == "sandbox"
    for value in (False, True):
        options = agent.request(
            "session/set_config_option",
            sessionId=said["sessionId"],
            configId="sandbox",
            type="boolean",
            value=value,
        )["configOptions"]
        assert (options[-1]["type"], options[-1]["currentValue"]) == ("boolean", value)
        level = agent.of("config_option_update")[-1]["_meta"]["sanderling"]["sandbox"]["level"]
        assert (level == "off") == (not value)
    with pytest.raises(AgentError) as refused:
        agent.request(
            "session/set_config_option",
            sessionId=said["sessionId"],
            configId="sandbox",
            value="off",
        )
    assert refused.value.code == -32602


# --- turns -------------------------------------------------------------------------------------------------------------


def test_a_command_asks_runs_and_shows_its_output(begin, home):
    agent = begin(home.script([{"thinking": "hm"}, BASH], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert agent.text("agent_thought_chunk").startswith("hm")
    [call] = agent.of("tool_call")
    assert (call["toolCallId"], call["name"], call["kind"]) == ("t1", "bash", "execute")
    [asked] = agent.asked
    assert (
        asked["params"]["toolCall"]["rawInput"]["command"] == "touch made; echo one; echo two >&2"
    )
    kinds = [option["kind"] for option in asked["params"]["options"]]
    assert kinds[0] == "allow_once"
    assert kinds[-1] == "reject_once"
    last = agent.of("tool_call_update")[-1]
    assert last["status"] == "completed"
    assert "one\ntwo" in last["content"][0]["content"]["text"]
    assert agent.text() == "done"


@pytest.mark.parametrize("name, is_one", [("CodeCompanion.nvim", True), ("zed", False)])
def test_a_client_that_labels_options_by_kind_gets_one_of_each(start, home, name, is_one):
    agent = start("--model", home.script([BASH], [DONE]))
    agent.answers["session/request_permission"] = chosen("session")
    info = {"name": name, "version": "1.0.0"}
    agent.request("initialize", protocolVersion=1, clientCapabilities={}, clientInfo=info)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    [asked] = agent.asked
    offered = [(each["optionId"], each["kind"]) for each in asked["params"]["options"]]
    one = [("once", "allow_once"), ("session", "allow_always"), ("deny", "reject_once")]
    assert offered == one if is_one else ("always", "allow_always") in offered
    assert (home.project / "made").exists()


@prove
def test_what_the_person_denies_is_not_done(begin, home):
    agent = begin(home.script([BASH], [DONE]))
    agent.answers["session/request_permission"] = chosen("deny")
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert agent.of("tool_call_update")[-1]["status"] == "failed"


@prove
@pytest.mark.parametrize(
    "answer",
    [
        None,  # the client knows no such method
        lambda _: {"outcome": {"outcome": "selected", "optionId": "unheard of"}},
        lambda _: {"outcome": {"outcome": "selected"}},
        lambda _: {},
        lambda _: [],
    ],
)
def test_whatever_is_no_yes_is_a_no(start, home, answer):
    agent = start("--model", home.script([EDIT], [DONE]))
    (home.project / "a.py").write_text("x = 1\n")
    if answer:
        agent.answers["session/request_permission"] = answer
    agent.initialize()
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert (home.project / "a.py").read_text() == "x = 1\n"
    if answer:
        agent.messages = []  # the client was not one of the schema's


def test_an_edit_is_told_as_a_diff_with_its_place(start, home):
    agent = start("--model", home.script([EDIT], [DONE]))
    file = home.project / "a.py"
    file.write_text("import os\nx = 1\ny = 1\n")
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize()
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert file.read_text() == "import os\nx = 2\ny = 1\n"
    diff = {
        "type": "diff",
        "path": str(file),
        "oldText": "import os\nx = 1\ny = 1\n",
        "newText": "import os\nx = 2\ny = 1\n",
    }
    assert agent.asked[0]["params"]["toolCall"]["content"][0] == diff
    last = agent.of("tool_call_update")[-1]
    assert last["content"] == [diff]
    assert last["locations"] == [{"path": str(file), "line": 1}]


@prove
def test_output_rolls_while_a_command_runs(begin, home):
    command = "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done"
    step = {"tool_use": {"id": "t1", "name": "bash", "input": {"command": command}}}
    agent = begin(home.script([step], [DONE]))
    session = agent.new()
    agent.request("session/set_mode", sessionId=session, modeId="auto")
    assert agent.prompt(session, "go") == "end_turn"
    texts = [
        update["content"][0]["content"]["text"]
        for update in agent.of("tool_call_update")
        if update.get("content")
    ]
    assert len(texts) > 2
    assert "line 5" not in texts[0]
    assert "line 5" in texts[-1]


@prove
def test_output_goes_to_a_client_that_shows_it_as_it_comes(begin, home):
    agent = begin(home.script([BASH], [DONE]), _meta={"terminal_output": True})
    session = agent.new()
    agent.request("session/set_mode", sessionId=session, modeId="auto")
    assert agent.prompt(session, "go") == "end_turn"
    [call] = agent.of("tool_call")
    assert call["content"] == [{"type": "terminal", "terminalId": "t1"}]
    metas = [update.get("_meta", {}) for update in agent.of("tool_call_update")]
    data = "".join(meta["terminal_output"]["data"] for meta in metas if "terminal_output" in meta)
    assert data.startswith("one\r\ntwo")
    assert metas[-1]["terminal_exit"] == {"terminal_id": "t1", "exit_code": 0}


@prove
def test_a_call_without_words_of_its_own_is_called_by_its_tool(begin, home):
    use = {"tool_use": {"name": "bash", "input": {"line": "ls"}}}
    agent = begin(home.script([use], [{"text": "Done."}]))
    agent.prompt(agent.new(), "list it")
    [call] = agent.of("tool_call")
    assert (call["title"], call["name"]) == ("bash", "bash")


@prove
def test_the_todo_list_is_the_plan(begin, home):
    items = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]
    step = {"tool_use": {"id": "t1", "name": "todo", "input": {"items": items}}}
    agent = begin(home.script([step], [DONE]))
    assert agent.prompt(agent.new(), "go") == "end_turn"
    [plan] = agent.of("plan")
    assert plan["entries"] == [item | {"priority": "medium"} for item in items]


@pytest.mark.parametrize(
    "step, code",
    prove_rest(
        [
            ({"error": {"kind": "invalid_request", "message": "No.", "remedy": "Go."}}, -32603),
            ({"error": {"kind": "auth", "message": "No.", "remedy": "Log in."}}, -32000),
        ],
        keep=(0,),
    ),
)
def test_a_turn_that_fails_is_an_error(begin, home, step, code):
    agent = begin(home.script([{"text": "so "}, step], [DONE]))
    session = agent.new()
    with pytest.raises(AgentError, match=r"No\.") as failed:
        agent.prompt(session, "go")
    assert failed.value.code == code
    assert agent.prompt(session, "again") == "end_turn"
    assert agent.text().endswith("done")


@prove
def test_links_and_embedded_files_go_along(begin):
    agent = begin("demo")
    session = agent.new()
    project = agent.home.project
    blocks = [
        {"type": "text", "text": "look at "},
        {"type": "resource_link", "uri": f"file://{project}/a%20b.py", "name": "a b.py"},
        {"type": "resource", "resource": {"uri": f"file://{project}/c.py#L3:4", "text": "x\ny\n"}},
        {"type": "image", "data": in_base64(png()), "mimeType": "image/png"},
    ]
    asked = agent.request("session/prompt", sessionId=session, prompt=blocks)
    assert asked["stopReason"] == "end_turn"
    assert agent.finish() == 0
    log = (agent.home.state / "sessions" / f"{session}.jsonl").read_text()
    assert "look at a b.py" in log
    assert "c.py:3-4" in log
    assert f'"text":"{in_base64(png())}","origin":"an image","media_type":"image/png"' in log


@pytest.mark.parametrize(
    "blocks",
    prove_rest(
        [
            [],
            [{"type": "text", "text": "  "}],
            [
                {"type": "text", "text": "x"},
                {"type": "image", "data": "a", "mimeType": "image/png"},
            ],
            [  # which no API takes, now or with any later prompt
                {"type": "text", "text": "x"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            ],
            [
                {"type": "text", "text": "x"},
                {"type": "image", "data": in_base64(png(100, 9000)), "mimeType": "image/png"},
            ],
            [{"type": "resource", "resource": {"uri": "file:///a", "blob": "aGk="}}],
        ],
        keep=(-1,),
        is_one=True,
    ),
)
def test_a_prompt_that_cannot_be_sent_is_refused(begin, blocks):
    agent = begin("demo")
    session = agent.new()
    with pytest.raises(AgentError) as refused:
        agent.request("session/prompt", sessionId=session, prompt=blocks)
    assert refused.value.code == -32602
    assert agent.prompt(session, "ping") == "end_turn"


# --- stopping ----------------------------------------------------------------------------------------------------------


@prove
def test_a_cancelled_turn_ends_as_cancelled_and_the_session_lives(begin, home):
    agent = begin(home.script([LONG], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    session = agent.new()
    prompt = agent.begin_prompt(session, "go")
    wait_until(lambda: "begun" in json.dumps(agent.of("tool_call_update")))
    agent.notify("session/cancel", sessionId=session)
    assert agent.end(prompt) == {"stopReason": "cancelled"}
    assert agent.of("tool_call_update")[-1]["status"] == "failed"
    assert agent.prompt(session, "go on") == "end_turn"


@prove
def test_a_cancellation_that_comes_with_its_prompt_is_not_lost(begin, home):
    agent = begin(home.script([LONG], [DONE]))
    session = agent.new()
    for _ in range(3):
        prompt = agent.begin_prompt(session, "go")
        agent.notify("session/cancel", sessionId=session)
        assert agent.end(prompt) == {"stopReason": "cancelled"}
    agent.notify("session/cancel", sessionId=session)  # nothing goes on
    agent.notify("session/cancel", sessionId="nobody")


@prove
def test_cancelling_takes_back_a_question(begin, home):
    agent = begin(home.script([BASH], [DONE]))
    agent.answers["session/request_permission"] = lambda _: None  # the person thinks
    session = agent.new()
    prompt = agent.begin_prompt(session, "go")
    [asked] = wait_until(lambda: agent.asked)
    agent.notify("session/cancel", sessionId=session)
    agent.send({"id": asked["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    assert agent.end(prompt) == {"stopReason": "cancelled"}


@prove
def test_cancelling_the_request_ends_the_turn_as_cancelled(begin, home):
    agent = begin(home.script([LONG], [DONE]))
    agent.answers["session/request_permission"] = lambda _: None  # the person thinks
    session = agent.new()
    prompt = agent.begin_prompt(session, "go")
    wait_until(lambda: agent.asked)
    agent.notify("$/cancel_request", requestId=prompt)
    assert agent.end(prompt) == {"stopReason": "cancelled"}


@prove
def test_one_prompt_at_a_time(begin, home):
    agent = begin(home.script([LONG], [DONE]))
    agent.answers["session/request_permission"] = lambda _: None  # the person thinks
    session = agent.new()
    first = agent.begin_prompt(session, "go")
    with pytest.raises(AgentError) as refused:
        agent.prompt(session, "and this")
    assert refused.value.code == -32600
    agent.notify("session/cancel", sessionId=session)
    assert agent.end(first) == {"stopReason": "cancelled"}


@prove
@pytest.mark.parametrize(
    "how",
    prove_rest(["eof", "half a line", signal.SIGTERM, signal.SIGINT, signal.SIGKILL], keep=(-1,)),
)
def test_nothing_runs_on_when_the_client_has_gone(begin, home, how):
    agent = begin(home.script([LONG], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    prompt = agent.begin_prompt(agent.new(), "go")
    wait_until(lambda: "begun" in json.dumps(agent.of("tool_call_update")))
    assert agent.descendants()
    if how == "half a line":
        agent.write(b'{"jsonrpc": "2.0", "id": 77, "met')
    if isinstance(how, int):
        os.kill(agent.process.pid, how)
    else:
        agent.process.stdin.close()
    status = agent.process.wait(DEADLINE_S)
    wait_until(lambda: not agent.descendants())
    expected = {"eof": 0, "half a line": 0, signal.SIGKILL: -9}
    assert status == (expected[how] if how in expected else 128 + how)
    if how != signal.SIGKILL:
        assert agent.end(prompt) == {"stopReason": "cancelled"}


# --- sessions ------------------------------------------------------------------------------------------------------------


def test_a_session_is_listed_loaded_resumed_closed_and_deleted(begin, home):
    (home.project / "a.py").write_text("x = 1\n")
    agent = begin(home.script([{"thinking": "hm"}, {"text": "I look. "}, EDIT], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    session = agent.new()
    agent.prompt(session, "change it")
    told = [update for update in agent.updates if update["sessionUpdate"] == "session_info_update"]
    assert told[-1]["title"] == "change it"
    assert agent.finish() == 0

    agent = begin("demo")
    [listed] = agent.request("session/list", cwd=str(home.project))["sessions"]
    assert (listed["sessionId"], listed["title"]) == (session, "change it")
    assert agent.request("session/list", cwd="/elsewhere")["sessions"] == []
    old = {"sessionId": session, "cwd": str(home.project), "mcpServers": []}
    said = agent.request("session/load", **old)
    assert said["modes"]["currentModeId"] == "ask"
    replayed = [
        (update["sessionUpdate"], update.get("content", {}) or update.get("status"))
        for update in agent.updates
    ]
    assert replayed[0] == ("user_message_chunk", {"type": "text", "text": "change it"})
    assert ("agent_message_chunk", {"type": "text", "text": "I look. "}) in replayed
    assert "done" in agent.text()
    assert agent.of("tool_call")[0]["name"] == "edit"
    assert agent.of("tool_call_update")[0]["content"][0]["type"] == "diff"
    count = len(agent.of("user_message_chunk", "agent_message_chunk"))
    assert agent.request("session/close", sessionId=session) == {}
    with pytest.raises(AgentError) as refused:
        agent.prompt(session, "ping")
    assert refused.value.code == -32002

    agent.request("session/resume", **old)
    assert len(agent.of("user_message_chunk", "agent_message_chunk")) == count
    agent.request("session/set_config_option", sessionId=session, configId="model", value="demo")
    assert agent.prompt(session, "ping") == "end_turn"
    assert agent.request("session/delete", sessionId=session) == {}
    assert agent.request("session/list")["sessions"] == []
    assert agent.request("session/delete", sessionId=session) == {}
    for method in ("session/load", "session/resume"):
        with pytest.raises(AgentError) as refused:
            agent.request(method, **old)
        assert refused.value.code == -32002


@prove
def test_a_session_of_neovims_goes_on_here_and_one_that_is_open_does_not(begin, home):
    directory = home.state / "sessions"
    session = Session.open(directory, "20261123-120000-aa", str(home.project))
    session.keep_state("title", "of Neovim")
    agent = begin("demo")
    old = {"sessionId": session.id, "cwd": str(home.project), "mcpServers": []}
    with pytest.raises(AgentError, match="open elsewhere"):
        agent.request("session/load", **old)
    session.close()
    agent.request("session/load", **old)
    assert agent.prompt(session.id, "ping") == "end_turn"


@prove
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_session_is_not_opened_in_another_directory_than_its_own(begin, home, method):
    session = Session.open(home.state / "sessions", "20261123-120000-aa", str(home.project))
    session.keep_state("title", "ours")
    session.close()
    other = home.folder / "other"
    other.mkdir()
    agent = begin("demo")
    old = {"sessionId": session.id, "mcpServers": []}
    with pytest.raises(AgentError, match=f"belongs to {home.project}, not to {other}") as refused:
        agent.request(method, cwd=str(other), **old)
    assert refused.value.code == -32602
    assert agent.updates == []
    (home.folder / "link").symlink_to(home.project)
    agent.request(method, cwd=str(home.folder / "link"), **old)
    assert agent.prompt(session.id, "ping") == "end_turn"


@prove
def test_many_sessions_are_listed_page_by_page(begin, home):
    for number in range(60):
        name = f"20261123-120000-{number:02}"
        session = Session.open(home.state / "sessions", name, str(home.project))
        session.keep_state("title", name)
        session.close()
    agent = begin("demo")
    first = agent.request("session/list")
    rest = agent.request("session/list", cursor=first["nextCursor"])
    found = {each["sessionId"] for each in (*first["sessions"], *rest["sessions"])}
    assert (len(first["sessions"]), len(found)) == (50, 60)
    assert "nextCursor" not in rest


# --- garbage -------------------------------------------------------------------------------------------------------------


def test_garbage_is_answered_and_survived(begin):
    agent = begin("demo")
    session = agent.new()
    garbage = [
        (b"nonsense", -32700),
        (b"[1,2,3]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600),
        (b"5", -32600),
        (b"x" * 10_000_000, -32700),
        (b'{"jsonrpc":"2.0","id":"a","method":"session/unheard_of"}', -32601),
        (b'{"jsonrpc":"2.0","id":"b","method":"session/prompt"}', -32602),
        (b'{"jsonrpc":"2.0","id":"c","method":"session/prompt","params":{"sessionId":5}}', -32602),
        (
            b'{"jsonrpc":"2.0","id":"d","method":"session/prompt","params":{"sessionId":"x"}}',
            -32002,
        ),
        (
            b'{"jsonrpc":"2.0","id":"e","method":"initialize","params":{"protocolVersion":"1"}}',
            -32602,
        ),
    ]
    for line, code in garbage:
        count = len(agent.errors)
        agent.write(line + b"\n")
        wait_until(lambda count=count: len(agent.errors) > count)
        assert agent.errors[-1]["error"]["code"] == code, line[:80]
    agent.write(b'{"jsonrpc":"2.0","method":"session/unheard_of"}\n\n   \n')
    assert agent.prompt(session, "ping") == "end_turn"
    agent.messages = []  # its errors answer nothing that was asked


HOSTILE = [
    ("session/load", {"sessionId": "../../etc/passwd"}, -32002),
    ("session/resume", {"sessionId": "a/b"}, -32002),
    ("session/close", {"sessionId": "\u001b[2J"}, -32002),
    ("session/list", {"cursor": "9" * 5000}, -32602),
    ("session/list", {"cursor": "-1"}, -32602),
    ("session/list", {"cursor": "\u0661"}, -32602),
    ("session/new", {"cwd": "/", "additionalDirectories": ["/"]}, -32602),
    ("session/new", {"additionalDirectories": ["$PROJECT/../../../../.."]}, -32602),
    ("session/new", {"additionalDirectories": ["/etc/passwd"]}, -32602),
    ("session/new", {"cwd": "$PROJECT\0"}, -32602),
    (
        "session/new",
        {"mcpServers": [{"name": "../x", "command": "", "args": [], "env": []}]},
        -32602,
    ),
]


@prove
@pytest.mark.parametrize("method, params, code", HOSTILE)
def test_what_no_editor_asks_for_is_refused(begin, home, method, params, code):
    session = Session.open(home.state / "sessions", "20261123-120000-aa", str(home.project))
    session.keep_state("title", "ours")
    session.close()
    agent = begin("demo")
    given = {"cwd": str(home.project), "mcpServers": []} if method != "session/list" else {}
    given |= json.loads(json.dumps(params).replace("$PROJECT", str(home.project)))
    with pytest.raises(AgentError) as refused:
        agent.request(method, **given)
    assert refused.value.code == code, refused.value
    assert [each["sessionId"] for each in agent.request("session/list")["sessions"]] == [session.id]
    agent.messages = []


@prove
def test_a_session_that_never_was_is_deleted_already_and_no_other_with_it(begin, home):
    session = Session.open(home.state / "sessions", "20261123-120000-aa", str(home.project))
    session.keep_state("title", "ours")
    session.close()
    agent = begin("demo")
    for name in (f"../sessions/{session.id}", ".", "", "a\0b", "20261123-120000-ab"):
        assert agent.request("session/delete", sessionId=name) == {}
    assert [each["sessionId"] for each in agent.request("session/list")["sessions"]] == [session.id]


@prove
@pytest.mark.parametrize(
    "uri",
    ["http://[", "file:///a#L" + "9" * 5000, "", "file://[::1/x", "\u001b[2J", "file:///a%00b"],
)
def test_a_resource_may_be_called_anything(begin, uri):
    agent = begin("demo")
    session = agent.new()
    blocks = [
        {"type": "text", "text": "ping "},
        {"type": "resource_link", "uri": uri, "name": "x"},
        {"type": "resource", "resource": {"uri": uri, "text": "x"}},
    ]
    assert agent.request("session/prompt", sessionId=session, prompt=blocks)["stopReason"]
    assert agent.prompt(session, "ping") == "end_turn"


@prove
def test_an_editor_floods_us_and_is_served(begin):
    agent = begin("demo")
    session = agent.new()
    lines = [
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"nobody"}}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","id":7777,"result":{"outcome":{"outcome":"selected","optionId":"once"}}}',
        b'{"jsonrpc":"2.0","method":"session/update","params":{}}',
        b"{" * 3000,
        b"\xff\xfe",
    ]
    agent.write(b"\n".join(lines * 1000) + b"\n")
    for _ in range(3):
        agent.write(b'{"jsonrpc":"2.0","method":"x","params":"' + b"y" * 10_000_000 + b'"}\n')
    assert agent.prompt(session, "ping") == "end_turn"
    assert agent.text() == "pong"
    agent.messages = []


@prove
def test_a_large_prompt_is_taken(begin):
    agent = begin("demo")
    session = agent.new()
    assert agent.prompt(session, "x" * 5_000_000) == "end_turn"


# --- the log -------------------------------------------------------------------------------------------------------------


def test_the_registrys_entry_starts_this_version(start):
    entry = json.loads((ROOT / "agent.json").read_text())
    assert entry["version"] == __version__
    started = {"package": f"sanderling=={__version__}", "args": ["acp"]}
    assert entry["distribution"] == {"uvx": started}
    assert start("--model", "demo").initialize()["agentInfo"] == {
        "name": entry["id"],
        "title": entry["name"],
        "version": entry["version"],
    }


@prove
@pytest.mark.parametrize("by", ["flag", "variable"])
def test_each_message_is_logged(start, home, by):
    directory = home.folder / "logs"
    given = ("--log-dir", str(directory)) if by == "flag" else ()
    variable = {"SANDERLING_ACP_LOG": str(directory)} if by == "variable" else {}
    agent = start("--model", "demo", *given, environment=variable)
    agent.initialize(**FULL)
    agent.prompt(agent.new(), "ping")
    assert agent.finish() == 0
    [log] = directory.iterdir()
    assert log.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for direction in ("in", "out"):  # which of both is first is not the same at both ends
        logged = [line["message"] for line in lines if line["direction"] == direction]
        assert logged == [
            each["message"] for each in agent.messages if each["direction"] == direction
        ]


@prove
def test_a_log_is_shown_in_a_readable_way(start, home):
    directory = home.folder / "logs"
    agent = start("--model", "demo", "--log-dir", str(directory))
    agent.initialize()
    agent.write(b"no \x1b message\n")
    odd = {"jsonrpc": "2.0", "method": "a\x1b]0;x\x07\nb", "id": "\x1b[2J", "params": {}}
    agent.write(json.dumps(odd).encode() + b"\n")
    agent.prompt(agent.new(), "ping")
    agent.finish()
    [log] = directory.iterdir()
    with log.open("a") as file:
        file.write('{"at": "torn')
    shown = home.run("acp-log", str(log))
    lines = shown.stdout.splitlines()
    assert " → #1 initialize " in lines[0]
    assert any("← session/update agent_message_chunk " in line and "pong" in line for line in lines)
    assert any("#3 session/prompt → " in line and "end_turn" in line for line in lines)
    assert any("not a message: no <U+001B> message" in line for line in lines)
    assert "\x1b" not in shown.stdout
    assert any("#<U+001B>[2J a<U+001B>]0;x<U+0007><U+000A>b" in line for line in lines)
    assert lines[-1].endswith("is incomplete)")
    assert home.run("acp-log", str(directory / "none")).returncode == 2


@prove
@pytest.mark.parametrize("arguments", [["acp", "login"], ["login"]])
def test_logging_in_needs_no_client(home, arguments):
    done = home.run(*arguments, given="")
    assert done.returncode == 1
    assert "sanderling" in done.stderr
    assert done.stdout == ""


@prove
def test_a_directory_for_logs_that_cannot_be_is_told_at_once(home):
    (home.folder / "file").touch()
    done = home.run("acp", "--log-dir", str(home.folder / "file" / "logs"))
    assert done.returncode == 2
    assert "file/logs" in done.stderr


# --- golden ----------------------------------------------------------------------------------------------------------------


def test_the_wire_of_a_session_is_the_golden_one(begin, home):
    (home.project / "a.py").write_text("x = 1\n")
    todo = {"items": [{"content": "edit", "status": "completed"}]}
    plan = {"tool_use": {"id": "t0", "name": "todo", "input": todo}}
    agent = begin(home.script([{"thinking": "hm"}, plan], [EDIT], [DONE]), **FULL)
    agent.answers["session/request_permission"] = chosen("once")
    session = agent.new()
    agent.prompt(session, "change it")
    agent.request("session/close", sessionId=session)
    assert agent.finish() == 0
    kinds = (
        "config_option_update",
        "session_info_update",
    )  # come when the sandbox is known, or with a time
    wire = [
        each
        for each in agent.messages
        if each["message"].get("params", {}).get("update", {}).get("sessionUpdate") not in kinds
        and "fs/" not in each["message"].get("method", "")
        and "error" not in each["message"]
    ]
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in wire)
    text = text.replace(session, "SESSION").replace(str(home.folder), "HOME")
    text = re.sub(r'"messageId": "[^"]*"', '"messageId": "MESSAGE"', text)
    # As long as what the tools say of themselves.
    text = re.sub(r'"(used|\w+Tokens)": \d+', r'"\1": 0', text)
    text = re.sub(r'"version": "[^"]*"', '"version": "VERSION"', text)
    text = re.sub(
        r'"level": "[^"]*"(, "network": "off"), "missing": \[.*?\]', r'"level": ""\1', text
    )
    text = re.sub(r'"description": "Sandbox: [^"]*"', '"description": "SANDBOX"', text)
    # The models that are known are no matter of the wire.
    text = re.sub(r'("id": "model".*?"options": )\[.*?\]', r"\1[]", text)
    golden = ROOT / "tests" / "golden" / "acp_wire_v1.jsonl"
    if os.environ.get("SANDERLING_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text.splitlines() == golden.read_text().splitlines()


# --- trust ---------------------------------------------------------------------------------------------------------------


def test_only_what_was_shown_whole_is_trusted_and_what_was_stays_so(begin, home):
    long = "no more than words\n" * 10_000
    (home.project / "AGENTS.override.md").write_text(f"{long}FIRST\n")
    (home.project / "AGENTS.md").write_text(f"{long}SECOND\n")
    agent = begin("demo")
    agent.answers["session/request_permission"] = chosen("once")
    session = agent.new()
    for _ in range(3):
        agent.prompt(session, "/trust")
    shown = [json.dumps(asked["params"]["toolCall"]) for asked in agent.asked]
    assert [("FIRST" in each, "SECOND" in each) for each in shown] == [(True, False), (False, True)]
    assert "Nothing in this project needs to be trusted." in agent.text()


@prove
def test_a_client_that_asks_for_sessions_at_once_gets_no_more_than_the_limit(begin):
    agent = begin("demo")
    where = {"cwd": str(agent.home.project), "mcpServers": []}
    earlier = agent.new()
    agent.prompt(earlier, "ping")
    agent.request("session/close", sessionId=earlier)
    asked = [agent.begin("session/new", **where) for _ in range(MAX_OPEN + 1)]
    opened, refused = [], []
    for request in asked:
        try:
            opened.append(agent.end(request)["sessionId"])
        except AgentError as error:
            refused.append(str(error))
    assert len(opened) == MAX_OPEN
    assert refused == [f"{MAX_OPEN} sessions are open: close one first"]
    with pytest.raises(AgentError, match="sessions are open"):
        agent.request("session/load", sessionId=earlier, **where)
    assert agent.finish() == 0


# --- compactions --------------------------------------------------------------------------------------------------------


LONG_ANSWER = {"text": "word " * 400}
NO = {"error": {"kind": "invalid_request", "message": "No.", "remedy": "Go."}}


def compacted(start, home, *steps, **capabilities):
    """An agent that was asked to compact, and what came of that."""
    agent = start("--model", home.script([LONG_ANSWER], [LONG_ANSWER], list(steps)))
    agent.initialize(**capabilities)
    session = agent.new()
    for words in ("one", "two"):
        agent.prompt(session, words)
    return agent, agent.prompt(session, "/compact the words")


def test_a_compaction_is_told_with_its_summary(start, home):
    agent, stop_reason = compacted(start, home, {"text": "All words."}, **FULL)
    assert stop_reason == "end_turn"
    begun, done = agent.of("compaction_update")
    assert begun["compactionId"] == done["compactionId"]
    assert (begun["status"], done["status"]) == ("in_progress", "completed")
    assert done["summary"] == [{"type": "text", "text": "All words."}]


def test_a_compaction_that_fails_is_told_as_one(start, home):
    agent, stop_reason = compacted(start, home, {"text": "Al"}, NO, **FULL)
    assert stop_reason == "end_turn"
    assert [each["status"] for each in agent.of("compaction_update")] == ["in_progress", "failed"]
    assert "No." in agent.of("notice")[-1]["title"]


def test_a_compaction_that_is_stopped_is_told_as_cancelled(start, home):
    agent = start(
        "--model", home.script([LONG_ANSWER], [LONG_ANSWER], [{"text": "Al", "delay_ms": 60_000}])
    )
    agent.initialize(**FULL)
    session = agent.new()
    for words in ("one", "two"):
        agent.prompt(session, words)
    prompt = agent.begin_prompt(session, "/compact")
    wait_until(lambda: agent.of("compaction_update"))
    agent.notify("session/cancel", sessionId=session)
    assert agent.end(prompt) == {"stopReason": "cancelled"}
    assert agent.of("compaction_update")[-1]["status"] == "cancelled"


def test_a_client_that_knows_no_compactions_is_told_in_words(start, home):
    agent, _ = compacted(start, home, {"text": "All words."})
    assert agent.of("compaction_update") == []
    told = agent.text("agent_thought_chunk")
    assert "Summarizing the conversation.\n" in told
    assert "The conversation was summarized: about " in told
