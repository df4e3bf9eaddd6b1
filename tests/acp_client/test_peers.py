"""Agents that others have written, driven by our client: on the SDKs, our own `sanderling acp`, Claude Code and Codex."""

import json
import sys
from pathlib import Path

import pytest

from sanderling.protocol.actions import CancelTurn, SetMode, UndoTurn
from sanderling.protocol.events import (
    ApprovalRequested,
    FilesRestored,
    TextDelta,
    ToolEnded,
    ToolOutput,
    TurnStarted,
)
from tests.acp_client.conftest import OF_PYTHON
from tests.agents.adapters_api import ModelApi
from tests.agents.test_real import NODE, SDK_AGENT, UNPROXIED, program
from tests.conftest import prove

pytestmark = pytest.mark.anyio


@prove
async def test_an_agent_on_the_npm_sdk_is_shown_and_served(guests, tmp_path):
    sdk = program("sdk/dist/v1/stable/acp.js")
    paths = [str(SDK_AGENT.parent), str(Path(sdk).parents[5])]
    path = guests.project / "a"
    path.write_text("one\ntwo\nthree\n")
    async with guests.talk({}, command=[NODE, str(SDK_AGENT), sdk], paths=paths) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask(f"{path}\n{tmp_path}/outside") == "end_turn"
        said = json.loads(talk.text)
        assert said["read"] == {"content": "two\n"}
        assert said["asked"] == {"outcome": {"outcome": "selected", "optionId": "y"}}
        assert path.read_text() == "one\n2\n"
        [edited, *_] = talk.tools()
        assert edited[:2] == ("edit", "a")
        asked = talk.of(ApprovalRequested)[0]
        assert (asked.filetype, "-two\n+2" in asked.subject) == ("diff", True)


@prove
async def test_an_agent_on_the_python_sdk_is_shown_served_stopped_and_undone(guests):
    pytest.importorskip("acp")
    agent = Path(__file__).with_name("sdk_agent.py")
    (guests.project / "a.txt").write_text("one\n")
    command, paths = [sys.executable, str(agent)], [*OF_PYTHON, str(agent.parent)]
    async with guests.talk({}, command=command, paths=paths) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn"
        assert talk.text == "'one\\n' selected"
        assert talk.tools() == [("edit", "a.txt", "+1 −1")]
        assert (guests.project / "a.txt").read_text() == "two\n"
        talk.submit("wait")
        await talk.wait_for(lambda: len(talk.of(TurnStarted)) == 2)
        talk.act(CancelTurn())
        assert await talk.wait_for_turns(2) == "cancelled"
        talk.act(UndoTurn("p1"))
        await talk.wait_for(lambda: talk.of(FilesRestored))
        assert (guests.project / "a.txt").read_text() == "one\n"


async def test_our_own_agent_is_driven_by_our_own_client(guests, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    command = [sys.executable, "-m", "sanderling", "acp"]
    async with guests.talk({}, command=command, sandbox=False) as talk:
        assert await talk.ask("ping") == "end_turn"
        assert [event.text for event in talk.of(TextDelta)] == ["pong"]


def put_out(talk):
    """All that its commands have put out, as the screen shows it."""
    told = talk.of(ToolOutput, ToolEnded)
    parts = [each.text if isinstance(each, ToolOutput) else each.detail for each in told]
    return "".join(parts).strip()


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@prove
@pytest.mark.usefixtures("home")
async def test_claude_code_answers_in_a_session_of_ours(guests):
    path = program("claude-agent-acp/dist/index.js")
    with ModelApi() as api:
        api.uses("Bash", {"command": "echo made >by-it; echo shown", "description": "make it"})
        entry = {
            "command": [NODE, path],
            "paths": [str(Path(path).parents[3])],
            "hosts": [api.host],
            "preset": "claude",
            "env": {**UNPROXIED, "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-0"},
        }
        async with guests.talk({}, **entry) as talk:
            talk.answer = {"answer": "once"}
            assert await talk.ask("ping") == "end_turn"
            assert "pong" in talk.text
            assert ("bash", "echo made >by-it; echo shown") in [each[:2] for each in talk.tools()]
            assert (guests.project / "by-it").read_text() == "made\n"
            assert put_out(talk) == "shown"
            talk.act(UndoTurn())
            await talk.wait_for(lambda: talk.of(FilesRestored))
            assert not (guests.project / "by-it").exists()


@prove
async def test_codex_answers_in_a_session_of_ours(guests, home):
    path = program("codex-acp/dist/index.js")
    (home / ".codex").mkdir()
    (home / ".codex/auth.json").write_text('{"OPENAI_API_KEY": "sk-0", "auth_mode": "apikey"}')
    with ModelApi() as api:
        (home / ".codex/config.toml").write_text(
            'model_provider = "loop"\nmodel = "gpt-6"\n[model_providers.loop]\nname = "loop"\n'
            f'base_url = "{api.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        )
        api.uses("exec_command", {"cmd": "echo made >by-it; echo shown"})
        entry = {
            "command": [NODE, path],
            "paths": [str(Path(path).parents[3]), "~/.codex/config.toml"],
            "hosts": [api.host],
            "preset": "codex",
            "env": {**UNPROXIED, "OPENAI_API_KEY": "sk-0"},
        }
        async with guests.talk({}, **entry) as talk:
            talk.act(SetMode("auto"))
            talk.answer = {"answer": "once"}
            assert await talk.ask("ping") == "end_turn"
            assert "pong" in talk.text
            assert (guests.project / "by-it").read_text() == "made\n"
            assert put_out(talk) == "shown"
