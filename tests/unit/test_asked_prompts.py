"""The prompts of a session that other programs are served: what counts as going on."""

from sanderling.acp_agent.asked import AskedPrompts
from sanderling.protocol.messages import Prompt


def test_a_turn_goes_on_whoever_has_asked_for_it():
    prompts = AskedPrompts()
    prompts.reserve("asked")
    assert prompts.begin(Prompt("asked", "first"))
    prompts.end("end_turn")
    prompts.release()
    assert not prompts.is_in_turn
    assert not prompts.begin(Prompt("waited", "second"))
    assert prompts.now is None
    assert prompts.is_in_turn
    prompts.end("end_turn")
    assert not prompts.is_in_turn
