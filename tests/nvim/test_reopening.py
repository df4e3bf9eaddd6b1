"""A session that is closed and opened again: in the same host, or in another editor meanwhile."""

import pytest
from tests.acp.talk import Home
from tests.conftest import is_alive, prove, wait_until

pytestmark = pytest.mark.guard

SLOW = """
[[reply]]
when = "slow"
[[reply.step]]
text = "begun "
[[reply.step]]
delay_ms = 20000
[[reply]]
repeat = true
[[reply.step]]
text = "answered"
"""


def test_a_session_that_is_resumed_while_its_turn_is_still_being_stopped_is_opened_when_it_has(
    scripted,
):
    child = scripted(SLOW)
    child.command("AgentChat")
    child.feed("islow<C-s><Esc>")
    child.wait_for_transcript("begun")
    [log] = child.session_files()
    child.lua(
        "local chat = require('sanderling.chat') chat.close() chat.open(...)",
        log.stem,
        str(child.project),
        {"focus": True},
    )
    child.wait_for_transcript("begun")
    child.feed("iand now<C-s><Esc>")
    child.wait_for_transcript("answered")
    assert "another process" not in child.transcript_text()


@prove
def test_a_session_goes_to_another_editor_and_comes_back(start_agent, project, tmp_path):
    here = start_agent({"step": [{"text": "From Neovim."}]})
    here.ask_and_wait("hello")
    [log] = here.session_files()
    home = Home(tmp_path / "home")
    home.project, home.environment = project, here.lua("return vim.fn.environ()")
    host = here.host_pid()
    here.close()
    wait_until(lambda: not is_alive(host), "the host ends, and gives the session free")

    there = home.start("--model", "demo")
    try:
        there.initialize()
        place = {"cwd": str(project), "mcpServers": []}
        there.request("session/load", sessionId=log.stem, **place)
        assert there.text() == "From Neovim."
        assert there.prompt(log.stem, "ping") == "end_turn"
        begun_there = there.new()
        assert there.prompt(begun_there, "ping") == "end_turn"
        assert there.finish() == 0
    finally:
        there.kill()

    here = start_agent({"step": [{"text": "Here again."}], "repeat": True})
    for session in (log.stem, begun_there):
        here.command(f"AgentResume {session}")
        here.wait_for_screen("pong")
        here.ask("go on")
        here.wait_for_screen("Here again.")
        here.command("AgentNew")
