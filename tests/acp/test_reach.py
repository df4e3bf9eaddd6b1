"""What a client lends the agent: its editor's text, tool servers, directories, forms."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from sanderling.acp.agent.terminals import unread
from tests.acp.talk import AgentError, chosen
from tests.conftest import DEADLINE_S, prove, wait_until

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


def test_what_is_unsaved_in_the_editor_is_read_and_stays(begin, home):
    file = home.project / "a"
    file.write_text("x = 1\nend\n")
    agent = begin(home.script([read("a")], [edit("a")], [DONE]), **FILES)
    editor = Editor(agent, a="x = 1\nend\nunsaved\n")
    agent.answers["session/request_permission"] = chosen("once")
    session = agent.new()
    assert agent.prompt(session, "go") == "end_turn"
    assert editor.written == {str(file): "x = 2\nend\nunsaved\n"}
    assert agent.finish() == 0
    log = (home.state / "sessions" / f"{session}.jsonl").read_text()
    assert r"\tunsaved" in log


@prove
@pytest.mark.parametrize("text", ["x = 1\n", "x = 1", "x = 1\r\n"])
def test_what_is_saved_is_changed_on_the_disk_by_the_tools(begin, home, text):
    file = home.project / "a"
    file.write_text("x = 1\n")
    agent = begin(home.script([edit("a")], [DONE]), **FILES)
    editor = Editor(agent, a=text)
    agent.answers["session/request_permission"] = chosen("once")
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert editor.asked
    assert editor.written == {}
    assert file.read_text() == "x = 2\n"


@prove
def test_an_editor_that_takes_no_text_keeps_what_is_unsaved(begin, home):
    file = home.project / "a"
    file.write_text("x = 1\n")
    agent = begin(home.script([edit("a")], [DONE]), fs={"readTextFile": True})
    Editor(agent, a="x = 1\nunsaved\n")
    agent.answers["session/request_permission"] = chosen("once")
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
def test_an_editor_that_lies_or_fails_stands_in_nobodys_way(begin, home):
    file = home.project / "a"
    file.write_text("x = 1\n")
    agent = begin(home.script([edit("a")], [DONE]), **FILES)
    agent.answers["fs/read_text_file"] = lambda _: {"content": 5}
    agent.answers["session/request_permission"] = chosen("once")
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


@prove
@pytest.mark.skipif(not PYTHON, reason="no Python of the system")
@pytest.mark.parametrize("can", [True, False])
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
    wait_until(listed.exists)
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
def test_a_server_that_cannot_be_is_told(begin):
    agent = begin("demo", session={"notices": {}})
    server = {"name": "gone", "command": "/nowhere/at/all", "args": [], "env": []}
    session = agent.new(mcpServers=[server])
    assert agent.prompt(session, "ping") == "end_turn"
    wait_until(lambda: "gone" in json.dumps(agent.of("notice")))
    with pytest.raises(AgentError) as refused:
        agent.new(mcpServers=[{"name": "", "command": "x", "args": [], "env": []}])
    assert refused.value.code == -32602


# --- terminals -----------------------------------------------------------------------------------------------------------


class Terminals:
    """A client's terminals."""

    def __init__(self, agent) -> None:
        self.made: dict[str, subprocess.Popen] = {}
        self.files: dict[str, Path] = {}
        self.asked: list[dict] = []
        self.released: list[str] = []
        self._folder = agent.home.folder
        for name in ("create", "output", "kill", "release"):
            agent.answers[f"terminal/{name}"] = getattr(self, name)

    def create(self, params):
        self.asked.append(params)
        name = f"term-{len(self.made)}"
        self.files[name] = self._folder / name
        variables = {pair["name"]: pair["value"] for pair in params["env"]}
        with self.files[name].open("wb") as out:
            self.made[name] = subprocess.Popen(
                [params["command"], *params["args"]],
                cwd=params["cwd"],
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return {"terminalId": name}

    def output(self, params):
        name = params["terminalId"]
        status = self.made[name].poll()
        text = self.files[name].read_text()
        if status is None:
            return {"output": text, "truncated": False}
        told = {"exitCode": status} if status >= 0 else {"signal": "SIGKILL"}
        return {"output": text, "truncated": False, "exitStatus": told}

    def kill(self, params):
        os.killpg(self.made[params["terminalId"]].pid, signal.SIGKILL)
        return {}

    def release(self, params):
        self.released.append(params["terminalId"])
        return {}


def run(command: str, name: str = "t1") -> dict:
    return {"tool_use": {"id": name, "name": "bash", "input": {"command": command}}}


def test_commands_run_in_the_sandbox_though_the_client_offers_terminals(start, home):
    agent = start("--model", home.script([run("echo $SANDERLING_SANDBOX")], [DONE]))
    terminals = Terminals(agent)
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(terminal=True)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert terminals.asked == []


@prove
def test_commands_run_in_the_clients_terminals_where_the_person_says_so(start, home):
    home.config.write_text('acp_terminals = "editor"\n')
    script = home.script(
        [run("export A=1; mkdir sub; cd sub; echo one; false")], [run("echo $A; pwd", "t2")], [DONE]
    )
    agent = start("--model", script)
    terminals = Terminals(agent)
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(terminal=True)
    told = agent.request("session/new", cwd=str(home.project), mcpServers=[])
    assert told["_meta"]["sanderling"]["sandbox"]["level"] == "off"
    session = told["sessionId"]
    assert agent.prompt(session, "go") == "end_turn"
    assert len(terminals.asked) == len(agent.asked_for("session/request_permission")) == 2
    contents = [each["content"] for each in agent.of("tool_call_update") if each.get("content")]
    assert [{"type": "terminal", "terminalId": "term-0"}] in contents
    assert contents[-1] == [{"type": "terminal", "terminalId": "term-1"}]
    wait_until(lambda: terminals.released == ["term-0", "term-1"])
    assert [
        each["status"]
        for each in agent.of("tool_call_update")
        if each.get("status") in ("failed", "completed")
    ] == ["failed", "completed"]
    assert agent.finish() == 0
    log = (home.state / "sessions" / f"{session}.jsonl").read_text()
    assert f"1\\n{home.project}/sub" in log


@prove
def test_a_command_in_a_clients_terminal_is_killed_when_the_turn_is_stopped(start, home):
    home.config.write_text('acp_terminals = "editor"\n')
    agent = start("--model", home.script([run("echo begun; sleep 1000")], [DONE]))
    terminals = Terminals(agent)
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(terminal=True)
    session = agent.new()
    prompt = agent.begin_prompt(session, "go")
    wait_until(lambda: terminals.made)
    agent.notify("session/cancel", sessionId=session)
    assert agent.end(prompt) == {"stopReason": "cancelled"}
    assert terminals.made["term-0"].wait(DEADLINE_S) == -signal.SIGKILL


@pytest.mark.parametrize(
    "where, said",
    [("sandbox", r"over here\nover here\n[j1 has a terminal"), ("editor", "which take no input")],
)
def test_the_model_has_a_terminal_of_its_own_unless_commands_run_in_the_clients(
    start, home, where, said
):
    home.config.write_text(f'acp_terminals = "{where}"\n')
    pty = {"id": "t1", "name": "bash", "input": {"command": "exec cat", "pty": True}}
    text = {"action": "send", "id": "j1", "text": "over here\n"}
    send = {"id": "t2", "name": "jobs", "input": text}
    agent = start("--model", home.script([{"tool_use": pty}], [{"tool_use": send}], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    agent.initialize(terminal=True)
    session = agent.new()
    assert agent.prompt(session, "go") == "end_turn"
    assert agent.finish() == 0
    assert said in (home.state / "sessions" / f"{session}.jsonl").read_text()


@prove
@pytest.mark.parametrize("answer", [None, lambda _: {}, lambda _: {"terminalId": "gone"}])
def test_a_client_whose_terminals_fail_is_no_end_of_the_turn(start, home, answer):
    home.config.write_text('acp_terminals = "editor"\n')
    agent = start("--model", home.script([run("echo a")], [DONE]))
    agent.answers["session/request_permission"] = chosen("once")
    if answer:
        agent.answers["terminal/create"] = answer
    agent.initialize(terminal=True)
    assert agent.prompt(agent.new(), "go") == "end_turn"
    assert agent.of("tool_call_update")[-1]["status"] == "failed"
    agent.messages = []  # the client was not one of the schema's


def test_what_is_new_in_an_output_of_which_the_beginning_is_dropped_is_found():
    assert unread("one two", "one") == " two"
    long = "x" * 600 + "y"
    assert unread(long[100:] + "new", long) == "new"
    assert unread("all new", "") == "all new"
