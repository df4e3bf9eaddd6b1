"""Clients that nobody here wrote: the official SDKs', acpx, and the ways of editors."""

import json
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.acp.schema import SDK
from tests.acp.talk import Home
from tests.conftest import ROOT, prove

PEERS = ROOT / "tests" / "peers"
ACPX = PEERS / "node_modules" / ".bin" / "acpx"
DEADLINE_S = 120
COMMAND = [sys.executable, "-m", "sanderling", "acp", "--model"]
REPLIES = (
    {
        "when": "go",
        "step": [
            {"text": "I change it."},
            {
                "tool_use": {
                    "id": "t1",
                    "name": "edit",
                    "input": {"path": "a.py", "edits": [{"old": "x = 1", "new": "x = 2"}]},
                }
            },
        ],
    },
    {"after": "t1", "step": [{"text": "Done."}]},
    {"when": "wait", "step": [{"text": "I wait. ", "chunk_chars": 1, "chunk_delay_ms": 60_000}]},
)

needs_node = pytest.mark.skipif(
    not (shutil.which("node") and SDK.is_dir()), reason="no Node, or not its programs"
)


@needs_node
def test_a_client_on_the_official_sdk_is_served(home: Home):
    file = home.project / "a.py"
    file.write_text("x = 1\n")
    client = home.folder / "client.mjs"  # where Node finds the SDK
    client.write_text((ROOT / "tests" / "acp" / "sdk_client.mjs").read_text())
    (home.folder / "node_modules").symlink_to(PEERS / "node_modules")
    done = subprocess.run(
        ["node", str(client), str(home.project), "go", *COMMAND, home.script_of(*REPLIES)],
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["initialized"]["protocolVersion"] == 1
    assert seen["ended"]["stopReason"] == "end_turn"
    assert seen["cancelled"]["stopReason"] == "cancelled"
    assert seen["status"] == 0
    assert file.read_text() == "x = 2\n"
    said = "".join(
        update["content"]["text"]
        for update in seen["updates"]
        if update["sessionUpdate"] == "agent_message_chunk"
    )
    assert said.startswith("I change it.Done.")
    assert [each["toolCall"]["toolCallId"] for each in seen["permissions"]] == ["t1"]
    assert seen["mode"] == seen["closed"] == seen["deleted"] == {}
    assert seen["options"]["configOptions"][0]["currentValue"] == "ask"
    assert [each["sessionId"] for each in seen["listed"]["sessions"]] == [
        seen["session"]["sessionId"]
    ]
    assert seen["resumed"]["modes"]["currentModeId"] == "ask"
    assert "user_message_chunk" not in seen["toldByResume"]
    assert seen["toldByLoad"].count("user_message_chunk") == 2
    assert seen["refused"] == -32000


@prove
def test_a_client_on_the_sdk_for_python_is_served(home: Home):
    pytest.importorskip("acp", reason="the SDK is not installed")
    file = home.project / "a.py"
    file.write_text("x = 1\n")
    client = [sys.executable, "-m", "tests.acp.sdk_client"]
    done = subprocess.run(
        [*client, str(home.project), "go", *COMMAND, home.script_of(*REPLIES)],
        env=home.environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["ended"], seen["cancelled"], seen["permissions"]) == ("end_turn", "cancelled", 1)
    assert file.read_text() == "x = 2\n"
    kinds = {each["sessionUpdate"] for each in seen["updates"]}
    assert {"agent_message_chunk", "tool_call", "tool_call_update", "usage_update"} <= kinds
    assert seen["usage"] > 0
    calls = [each for each in seen["updates"] if each["sessionUpdate"] == "tool_call"]
    assert calls
    assert all(each["rawInput"] for each in calls)


@prove
@needs_node
@pytest.mark.parametrize("prompt, said", [("ping", "pong"), ("go", "Done.")])
def test_acpx_drives_the_agent(home: Home, prompt, said):
    if not ACPX.exists():
        pytest.skip("acpx is not there: make peers")
    (home.project / "a.py").write_text("x = 1\n")
    command = shlex.join([*COMMAND, home.script_of(*REPLIES) if prompt == "go" else "demo"])
    done = subprocess.run(
        [
            *(str(ACPX), "--agent", command, "--cwd", str(home.project)),
            *("--approve-all", "--format", "text", "exec", prompt),
        ],
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_an_editor_written_in_lua_is_understood(start):
    """An empty table is an object or a list there, and much that is optional is left out or null."""
    agent = start("--model", "demo")
    initialize = {
        "protocolVersion": 1,
        "clientCapabilities": {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": False,
        },
        "clientInfo": {"name": "CodeCompanion.nvim", "version": "18.0.0"},
    }
    assert agent.request("initialize", **initialize)["protocolVersion"] == 1
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    session = said["sessionId"]
    assert said["modes"]["availableModes"]
    assert said["configOptions"]
    text = {"type": "text", "text": "ping", "annotations": None}
    asked = agent.request("session/prompt", sessionId=session, prompt=[text])
    assert asked["stopReason"] == "end_turn"
    assert agent.text() == "pong"
    assert agent.request("session/set_mode", sessionId=session, modeId="auto") == {}
