"""Clients that nobody here wrote: those of the official SDKs, over WebSocket."""

import json
import subprocess
import sys

import pytest

from tests.acp.test_peers import PEERS, REPLIES, needs_node
from tests.conftest import ROOT, prove

DEADLINE_S = 120
NODE = pytest.param("node", marks=needs_node)


@prove
@pytest.mark.parametrize("kind", [NODE, "python"])
def test_a_client_on_an_official_sdk_is_served(serve, home, kind):
    file = home.project / "a.py"
    file.write_text("x = 1\n")
    server = serve("--model", home.script_of(*REPLIES))
    command = [sys.executable, "-m", "tests.serve.sdk_client"]
    if kind == "node":
        client = home.folder / "client.mjs"  # where Node finds the SDK
        client.write_text((ROOT / "tests" / "serve" / "sdk_client.mjs").read_text())
        (home.folder / "node_modules").symlink_to(PEERS / "node_modules")
        command = ["node", str(client)]
    done = subprocess.run(
        [*command, str(home.project), "go", server.url, server.token],
        cwd=ROOT,
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["ended"]["stopReason"] == "end_turn"
    assert seen["cancelled"]["stopReason"] == "cancelled"
    assert seen["permissions"]
    assert file.read_text() == "x = 2\n"
    kinds = [update["sessionUpdate"] for update in seen["updates"]]
    assert "tool_call" in kinds
    assert "user_message_chunk" not in kinds
