"""Agents that nobody here wrote, started in the sandbox and served by us; their models are on the loopback, or none."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.agents.adapters_api import ModelApi
from tests.agents.wire import client_of
from tests.conftest import ROOT, prove

PEERS = Path(os.environ.get("SANDERLING_PEERS", ROOT / "tests/peers"))
ADAPTERS = PEERS / "adapters/node_modules"
SDK_AGENT = Path(__file__).with_name("sdk_agent.mjs")
FAST_AGENT = PEERS / "fast-agent/bin/fast-agent"
NODE = shutil.which("node") or ""
UNPROXIED = {"NO_PROXY": "", "no_proxy": ""}  # what goes to the loopback is for the proxy, too
LOOK = "echo made >by-it; cat ~/.other; ls -A ~"


def program(*names: str) -> str:
    for directory in (PEERS / "node_modules", ADAPTERS):
        if (path := directory.joinpath("@agentclientprotocol", *names)).exists():
            return os.path.realpath(path)
    pytest.skip("the agent is not installed: make adapters")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    (path / ".other").write_text("of-another\n")
    return path


@pytest.fixture
def api():
    with ModelApi() as api:
        yield api


def entry(argv: list[str], paths: list[str], api: ModelApi | None = None, **more: Any) -> Any:
    hosts = [api.host] if api else []
    return {"command": argv, "paths": paths, "hosts": hosts, **more}


@pytest.mark.usefixtures("home")
async def test_an_agent_on_the_official_sdk_is_served(tmp_path):
    sdk = program("sdk/dist/v1/stable/acp.js")
    agent = entry([NODE, str(SDK_AGENT), sdk], [str(SDK_AGENT.parent), str(Path(sdk).parents[5])])
    rules = ({"action": "deny", "tool": "bash", "command": "git push"},)
    async with client_of(tmp_path, agent, permissions=rules) as it:
        path, outside = it.served.project / "a", tmp_path / "outside"
        path.write_text("one\ntwo\nthree\n")
        said = json.loads(await it.say(f"{path}\n{outside}"))
        assert said["read"] == {"content": "two\n"}
        assert said["asked"] == {"outcome": {"outcome": "selected", "optionId": "y"}}
        assert said["denied"] == {"outcome": {"outcome": "selected", "optionId": "n"}}
        assert (said["written"], path.read_text()) == ({}, "one\n2\n")
        assert "is outside the project" in said["outside"]["error"]
        assert "does not exist" in said["none"]["error"]
        assert said["output"]["output"] == "-ä"
        assert said["output"]["truncated"] is True
        assert said["exit"]["signal"] == "SIGKILL"
        assert not outside.exists()
        assert it.asked[0].diffs[0].new == "2"


@prove
async def test_claude_code_runs_in_the_sandbox(tmp_path, home, api):
    path = program("claude-agent-acp/dist/index.js")
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"env": {"FROM_SETTINGS": "1"}}')
    agent = entry(
        [NODE, path],
        [str(Path(path).parents[3]), "~/.claude/settings.json"],
        api,
        preset="claude",
        env={**UNPROXIED, "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-0"},
    )
    api.uses("Bash", {"command": f"{LOOK}; echo $FROM_SETTINGS", "description": "look"})
    rules = ({"action": "allow", "tool": "bash", "command": "echo"},)
    async with client_of(tmp_path, agent, permissions=rules) as it:
        await it.call("session/set_mode", sessionId=it.session, modeId="default")
        assert "pong" in await it.say("ping")
        assert [call.kind for call in it.asked] == ["execute"]
        result = api.result()
        assert "of-another" not in result
        assert ".claude.json" in result
        assert (it.served.project / "by-it").read_text() == "made\n"
    assert sorted(each.name for each in home.iterdir()) == [".claude", ".other"]
    assert [each.name for each in (home / ".claude").iterdir()] == ["settings.json"]


@prove
async def test_codex_runs_in_the_sandbox_and_leaves_its_own(tmp_path, home, api):
    path = program("codex-acp/dist/index.js")
    (home / ".codex").mkdir()
    (home / ".codex/auth.json").write_text('{"OPENAI_API_KEY": "sk-0", "auth_mode": "apikey"}')
    (home / ".codex/config.toml").write_text(
        'model_provider = "loop"\nmodel = "gpt-6"\n[model_providers.loop]\nname = "loop"\n'
        f'base_url = "{api.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
    )
    agent = entry(
        [NODE, path],
        [str(Path(path).parents[3]), "~/.codex/config.toml"],
        api,
        preset="codex",
        env={**UNPROXIED, "OPENAI_API_KEY": "sk-0"},
    )
    api.uses("exec_command", {"cmd": LOOK})
    async with client_of(tmp_path, agent) as it:
        assert "pong" in await it.say("ping")
        result = api.result()
        assert "Process exited with code 0" in result
        assert "of-another" not in result
        assert (it.served.project / "by-it").read_text() == "made\n"
    assert sorted(each.name for each in (home / ".codex").iterdir()) == ["auth.json", "config.toml"]


@prove
@pytest.mark.usefixtures("home")
@pytest.mark.skipif(not FAST_AGENT.exists(), reason="fast-agent is not installed")
async def test_fast_agent_reads_writes_and_runs_through_us(tmp_path):
    python = FAST_AGENT.resolve().parent / "python"
    argv = [str(python.with_name("fast-agent")), "acp", "--model", "passthrough", "--shell"]
    agent = entry([*argv, "--no-env"], [str(python.parents[1]), str(python.resolve().parents[1])])
    async with client_of(tmp_path, agent) as it:
        project = it.served.project
        (project / "a").write_text("one\ntwo\n")
        said = await it.say(f'***CALL_TOOL read_text_file {{"path": "{project}/a"}}')
        assert "two" in said
        write = f'{{"path": "{project}/b", "content": "made\\n"}}'
        await it.say(f"***CALL_TOOL write_text_file {write}")
        assert (project / "b").read_text() == "made\n"
        said = await it.say('***CALL_TOOL execute {"command": "echo from $PWD; cat ~/.other"}')
        assert f"from {project}" in said
        assert "of-another" not in said
        assert {"fs/read_text_file", "fs/write_text_file", "terminal/create"} <= {*it.called}
