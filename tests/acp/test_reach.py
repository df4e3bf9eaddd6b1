"""What a client lends the agent: its editor's text, tool servers, directories, forms."""

import json
import shutil
from pathlib import Path

import pytest

from tests.acp.talk import AgentError, chosen
from tests.conftest import prove, prove_rest, wait_until

SERVER = Path(__file__).parent / "asking_server.py"
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
DONE = {"text": "done"}


def edit(path: str, old: str = "x = 1", new: str = "x = 2") -> dict:
    given = {"path": path, "edits": [{"old": old, "new": new}]}
    return {"tool_use": {"id": "t1", "name": "edit", "input": given}}


def read(path: str) -> dict:
    return {"tool_use": {"id": "t0", "name": "read", "input": {"path": path}}}


class Editor:
    """A client's editor: what it has open, and what it was made to hold."""

    def __init__(self, agent, **texts: str) -> None:
        self.texts = {str(agent.home.project / name): text for name, text in texts.items()}
        self.asked: list[str] = []
        self.written: dict[str, str] = {}
        agent.answers["fs/read_text_file"] = self.read
        agent.answers["fs/write_text_file"] = self.write

    def read(self, params):
        self.asked.append(params["path"])
        path = Path(params["path"])
        return {"content": self.texts.get(params["path"]) or path.read_text()}

    def write(self, params):
        self.written[params["path"]] = self.texts[params["path"]] = params["content"]
        Path(params["path"]).write_text(params["content"])
        return {}


FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


def test_what_is_unsaved_in_the_editor_is_read_and_stays(start, home):
    file = home.project / "a"
    file.write_text("x = 1\nend\n")
    agent = start("--model", home.script([read("a")], [edit("a")], [DONE]))
    editor = Editor(agent, a="x = 1\nend\nunsaved\n")
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(**FILES)
    session = agent.new()
    assert agent.prompt(session, "go") == "end_turn"
    assert editor.written == {str(file): "x = 2\nend\nunsaved\n"}
    assert agent.finish() == 0
    log = (home.state / "sessions" / f"{session}.jsonl").read_text()
    assert r"\tunsaved" in log


@pytest.mark.parametrize("text", prove_rest(["x = 1\n", "x = 1", "x = 1\r\n"], keep=(1,)))
def test_what_is_saved_is_changed_on_the_disk_by_the_tools(start, home, text):
    file = home.project / "a"
    file.write_text("x = 1\n")
    agent = start("--model", home.script([edit("a")], [DONE]))
    editor = Editor(agent, a=text)
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(**FILES)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert editor.asked
    assert editor.written == {}
    assert file.read_text() == "x = 2\n"


@prove
def test_an_editor_that_takes_no_text_keeps_what_is_unsaved(start, home):
    file = home.project / "a"
    file.write_text("x = 1\n")
    agent = start("--model", home.script([edit("a")], [DONE]))
    Editor(agent, a="x = 1\nunsaved\n")
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(fs={"readTextFile": True})
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert agent.of("tool_call_update")[-1]["status"] == "failed"
    assert file.read_text() == "x = 1\n"


def test_the_editor_is_never_asked_for_what_the_sandbox_hides(start, home):
    secret = home.folder / ".ssh" / "id"
    secret.parent.mkdir()
    secret.write_text("secret\n")
    (home.project / "link").symlink_to(secret)
    agent = start("--model", home.script([read(str(secret))], [read("link")], [DONE]))
    editor = Editor(agent)
    agent.answers["session/request_permission"] = chosen("deny")
    agent.initialize(**FILES)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert editor.asked == []


@prove
def test_an_editor_that_lies_or_fails_stands_in_nobodys_way(start, home):
    file = home.project / "a"
    file.write_text("x = 1\n")
    agent = start("--model", home.script([edit("a")], [DONE]))
    agent.answers["fs/read_text_file"] = lambda _: {"content": 5}
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(**FILES)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert file.read_text() == "x = 2\n"
    agent.messages = []  # the client was not one of the schema's


@prove
def test_a_further_directory_can_be_written(start, home):
    further = home.folder / "further"
    further.mkdir()
    (further / "a").write_text("x = 1\n")
    for given, text in (([], "x = 1\n"), ([str(further)], "x = 2\n")):
        agent = start("--model", home.script([edit(str(further / "a"))], [DONE]))
        agent.initialize()
        session = agent.new(additionalDirectories=given)
        agent.request("session/set_mode", sessionId=session, modeId="auto")
        agent.answers["session/request_permission"] = chosen("deny")
        assert agent.prompt(session, "go") == "end_turn"
        assert (further / "a").read_text() == text
        assert agent.finish() == 0


def asking(home, *, name: str = "asking") -> dict:
    shutil.copy(SERVER, home.project / "server.py")
    argv = [str(home.project / "server.py")]
    return {"name": name, "command": PYTHON, "args": argv, "env": [{"name": "A", "value": "$B"}]}


@pytest.mark.skipif(not PYTHON, reason="no Python of the system")
@pytest.mark.parametrize("can", prove_rest([True, False], keep=(0,)))
def test_a_tool_server_of_the_clients_runs_in_the_sandbox_and_asks_by_a_form(start, home, can):
    use = {"tool_use": {"id": "t1", "name": "mcp__asking__ask", "input": {}}}
    agent = start("--model", home.script([use], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    content = {"name": "Ada", "age": 36, "sure": True, "pet": "cat"}
    agent.answers["elicitation/create"] = lambda _: {"action": "accept", "content": content}
    agent.initialize(**({"elicitation": {"form": {}}} if can else {}))
    session = agent.new(mcpServers=[asking(home)])
    assert agent.prompt(session, "ping") == "end_turn"
    listed = home.project / "listed"
    wait_until(listed.exists, deadline_s=30)
    assert agent.prompt(session, "go") == "end_turn"
    said = json.dumps(agent.of("tool_call_update"))
    forms = [each["params"] for each in agent.asked if each["method"] == "elicitation/create"]
    if can:
        assert forms[0]["requestedSchema"]["required"] == ["name"]
        assert "Ada" in said
    else:
        assert forms == []
        assert "cancel" in said


@prove
def test_a_server_that_cannot_be_is_told(start):
    agent = start("--model", "demo")
    agent.initialize(session={"notices": {}})
    server = {"name": "gone", "command": "/nowhere/at/all", "args": [], "env": []}
    session = agent.new(mcpServers=[server])
    assert agent.prompt(session, "ping") == "end_turn"
    wait_until(lambda: "gone" in json.dumps(agent.of("notice")), deadline_s=30)
    with pytest.raises(AgentError) as refused:
        agent.new(mcpServers=[{"name": "", "command": "x", "args": [], "env": []}])
    assert refused.value.code == -32602
