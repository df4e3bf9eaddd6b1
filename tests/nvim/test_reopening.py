"""A session that is closed and opened again in the same host."""

from tests.conftest import wait_until

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
    wait_until(lambda: "begun" in child.transcript_text())
    [log] = child.session_files()
    child.lua(
        "local chat = require('sanderling.chat') chat.close() chat.open(...)",
        log.stem,
        str(child.project),
        {"focus": True},
    )
    wait_until(lambda: "begun" in child.transcript_text())
    child.feed("iand now<C-s><Esc>")
    wait_until(lambda: "answered" in child.transcript_text())
    assert "another process" not in child.transcript_text()
